"""The serialized graph of a torch.export program, in the JSON of torch._export.serde, as a ModelGraph."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from mplint.graph.model import FLOATS, Attribute, Dim, Graph, GraphError, ModelGraph, Node, OpKind, Tensor
from mplint.graph.op_kinds import kind_of
from mplint.graph.storage import Json
from mplint.graph.torch.operands import operands_of, placed

Object = dict[str, Json]
Env = dict[str, Tensor]

DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 10: "complex64",
    11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz", 33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
SPECS = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
CAPTURING = ("wrap_with_autocast", "wrap_with_set_grad_enabled", "cond", "wrap", "tag_activation_checkpoint", "invoke_subgraph")
SIZES = ("getitem", "sym_size", "sym_int", "sym_float", "sym_not", "sym_max", "sym_min")  # what Python does with sizes
AUTOCAST = ("device", "dtype", "enabled", "cache_enabled")
_SYMBOL = re.compile(r"Symbol\('([\w.]+)'[^()]*\)")
_INTEGER = re.compile(r"Integer\((-?\d+)\)")
MAX_NAME = 120
MAX_SPEC = 1 << 20


def read_program(path: str, program: Object, stored: Mapping[str, Tensor]) -> ModelGraph:
    """The graph of a serialized ExportedProgram; `stored` are the tensors that the archive holds, by name."""
    module = program.get("graph_module")
    graph = module.get("graph") if isinstance(module, dict) else None
    if not isinstance(module, dict) or not isinstance(graph, dict):
        raise GraphError("the exported program has no graph")
    signature = module.get("signature")
    env: Env = {}
    constants: dict[str, Tensor] = {}
    values = graph.get("tensor_values")
    for kind, argument, name in _parameters(signature):
        tensor = stored.get(name) or _declared(argument, values)
        tensor.name = name
        tensor.fixed = kind == "buffer"
        env[argument] = constants[name] = tensor
    read = _graph(graph, env, "", None)
    read.constants = constants
    model = ModelGraph(path, "torch-export", read)
    kept = {id(tensor) for tensor in constants.values()}
    read.inputs = [tensor for tensor in read.inputs if id(tensor) not in kept]
    outputs = list(_outputs(graph.get("outputs"), signature, env))
    read.outputs = outputs or read.outputs
    names = list(_names_of_results(module.get("module_call_graph")))
    if len(names) == len(read.outputs):
        read.public = {id(tensor): name for tensor, name in zip(read.outputs, names, strict=True) if name}
    version = program.get("torch_version")
    model.producer = f"torch {version}" if isinstance(version, str) else "torch"
    opset = program.get("opset_version")
    model.opset = {k: v for k, v in opset.items() if isinstance(v, int)} if isinstance(opset, dict) else {}
    regions = {n.compute_dtype for n in model.nodes() if n.op_type == "wrap_with_autocast" and n.compute_dtype is not None}
    model.policy = regions.pop() if len(regions) == 1 else None
    if values is None:
        model.notes.append("The program does not say which dtypes its tensors have.")
    return model


def dtype_at(code: Json) -> str | None:
    """The canonical dtype of a number of torch's ScalarType."""
    return DTYPES.get(code) if isinstance(code, int) else None


def shape_at(sizes: Json) -> tuple[Dim, ...] | None:
    """A shape of numbers and symbols; symbolic dimensions keep their names."""
    return tuple(_dim(size) for size in sizes) if isinstance(sizes, list) else None


def _dim(size: Json) -> Dim:
    match size:
        case int():
            return size
        case {"as_int": int(number)}:
            return number
        case {"as_expr": {"expr_str": str(text)}} | {"as_name": str(text)}:
            short = _INTEGER.sub(r"\1", _SYMBOL.sub(r"\1", text[:1000]))
            return int(short) if short.isdecimal() and len(short) < 19 else short[:MAX_NAME]
        case _:
            return None


def _graph(graph: Object, env: Env, layer: str, operands: list[Tensor] | None) -> Graph:
    """A graph or the body of a region; `operands` are the tensors of the graph around it that stand for its inputs."""
    values = graph.get("tensor_values")
    found = Graph(layer)
    inputs = list(_names(graph.get("inputs")))
    for place, name in enumerate(inputs):
        if operands is not None and len(operands) == len(inputs):
            env[name] = operands[place]
        elif name not in env:
            env[name] = _declared(name, values)
        found.inputs.append(env[name])
    nodes = graph.get("nodes")
    for entry in nodes if isinstance(nodes, list) else ():
        if not isinstance(entry, dict):
            raise GraphError("a node of the exported program has the wrong form")
        found.nodes.append(_node(entry, env, values))
    found.outputs = [env[name] for name in _names(graph.get("outputs")) if name in env]
    return found


def _node(entry: Object, env: Env, values: Json) -> Node:
    target = str(entry.get("target", ""))
    op_type, domain, plain = _target(target)
    layer = _layer(entry.get("metadata"))
    inputs: list[Tensor | None] = []
    named: dict[str, Tensor] = {}
    numbers: dict[str, float] = {}
    after: list[Tensor] = []
    attributes: dict[str, Attribute] = {}
    bodies: list[tuple[str, Object]] = []
    arguments = entry.get("inputs")
    for place, argument in enumerate(arguments if isinstance(arguments, list) else ()):
        match argument:
            case {"name": str(name), "arg": {"as_graph": {"name": str(label), "graph": dict(body)}}}:
                bodies.append((label, body))
                after = []
            case {"name": str(name), "arg": dict(value)}:
                tensors = [_tensor(key, env, values) for key in _names([value])]
                inputs += tensors if tensors else [None] if value.get("as_none") else []
                after += tensors
                if tensors:
                    named[name] = tensors[0]
                plain_value = None if tensors else _scalar(value)
                if name in operands_of(plain) and isinstance(plain_value, int | float) and not isinstance(plain_value, bool):
                    numbers[name] = float(plain_value)
                elif plain_value is not None:
                    attributes[name or (AUTOCAST[place] if plain == "wrap_with_autocast" and place < 4 else f"arg{place}")] = plain_value
            case _:
                raise GraphError("an argument in the exported program has the wrong form")
    outputs = tuple(_made(key, env, values) for key in _names(entry.get("outputs")))
    if numbers:
        inputs = list(placed(plain, named, numbers, outputs[0].dtype if outputs else None))
    kind = kind_of("torch", plain)
    if bodies and kind is OpKind.OPAQUE:
        kind = OpKind.CONTROL
    capture = plain in CAPTURING
    node = Node(
        str(entry.get("name") or (outputs[0].name if outputs else plain)),
        kind,
        op_type,
        domain=domain,
        inputs=tuple(inputs),
        outputs=outputs,
        attributes=attributes,
        layer=layer,
    )
    for label, body in bodies:
        node.graphs[label] = _graph(body, {}, layer, after if capture else None)
    node.compute_dtype = _compute(node, plain)
    return node


def _compute(node: Node, plain: str) -> str | None:
    """The dtype that an operation computes in: that of the floats it makes, else of those it reads; for a region the dtype it asks for."""
    if plain == "wrap_with_autocast":
        asked = node.attributes.get("dtype")
        return asked if isinstance(asked, str) and node.attributes.get("enabled") is not False else None
    if node.graphs:
        return None
    made = next((tensor.dtype for tensor in node.outputs if tensor.dtype in FLOATS), None)
    return made or next((tensor.dtype for tensor in node.inputs if tensor is not None and tensor.dtype in FLOATS), None)


def _target(target: str) -> tuple[str, str, str]:
    """The op type, its domain, and the plain name: ("aten.add_.Tensor", "aten", "add")."""
    short = target.removeprefix("torch.ops.")
    if short.startswith("higher_order."):
        plain = short.removeprefix("higher_order.")
        return plain, "higher_order", plain
    domain, _, rest = short.partition(".")
    plain = rest.partition(".")[0]
    if domain in ("_operator", "operator", "math", "torch"):  # arithmetic on sizes
        plain = short.rpartition(".")[2]
        return short, domain, plain if plain in SIZES else "sym_int"
    if domain not in ("aten", "prims", "quantized_decomposed"):
        return short, domain, ""
    return short, domain, plain.rstrip("_") if not plain.startswith("__") else plain


def _layer(metadata: Json) -> str:
    """The path of the innermost module: the second part of the last entry of nn_module_stack."""
    stack = metadata.get("nn_module_stack") if isinstance(metadata, dict) else None
    if not isinstance(stack, str) or not stack:
        return ""
    parts = stack.rpartition(";")[2].split(",")
    path = parts[1] if len(parts) > 1 else ""
    return re.sub(r"^L\['self'\]\.?", "", path).replace("_modules.", "")[:400]


def _names(arguments: Json) -> Iterator[str]:
    """The tensors that arguments name, in order."""
    for argument in arguments if isinstance(arguments, list) else ():
        match argument:
            case {"as_tensor": {"name": str(name)}} | {"as_optional_tensor": {"as_tensor": {"name": str(name)}}}:
                yield name
            case {"as_tensors": list(tensors)}:
                for tensor in tensors:
                    match tensor:
                        case {"name": str(name)}:
                            yield name
            case {"as_optional_tensors": list(tensors)}:
                yield from _names([{"as_optional_tensor": tensor} for tensor in tensors])
            case {"as_nested_tensors": list(groups)}:
                for group in groups:
                    yield from _names([{"as_tensors": group}])
            case _:
                pass


def _scalar(value: Object) -> Attribute:
    match value:
        case {"as_scalar_type": code}:
            return dtype_at(code)
        case {"as_float": str(text)}:
            return float(text)
        case {"as_int": int() | float() as number} | {"as_float": int() | float() as number} | {"as_bool": bool() as number}:
            return number
        case {"as_string": str(text)}:
            return text
        case {"as_ints": list(numbers)} | {"as_floats": list(numbers)} | {"as_bools": list(numbers)}:
            return tuple(number for number in numbers if isinstance(number, int | float | str))
        case {"as_sym_int": size} | {"as_sym_float": size}:
            return _dim(size)
        case {"as_sym_ints": list(sizes)}:
            return tuple(_dim(size) for size in sizes)
        case _:
            return None


def _tensor(name: str, env: Env, values: Json) -> Tensor:
    if name not in env:
        env[name] = _declared(name, values)
    return env[name]


def _made(name: str, env: Env, values: Json) -> Tensor:
    """A new tensor for an output; a name that an input has already is written in place and stays one tensor."""
    tensor = _declared(name, values)
    env[name] = tensor
    return tensor


def _declared(name: str, values: Json) -> Tensor:
    meta = values.get(name) if isinstance(values, dict) else None
    if isinstance(meta, dict) and "tensor_meta" in meta and isinstance(meta["tensor_meta"], dict):
        meta = meta["tensor_meta"]
    if not isinstance(meta, dict):
        return Tensor(name)
    return Tensor(name, dtype_at(meta.get("dtype")), shape_at(meta.get("sizes")))


def _parameters(signature: Json) -> Iterator[tuple[str, str, str]]:
    """The placeholders that stand for parameters, buffers and constants: which of them, the placeholder, the name."""
    specs = signature.get("input_specs") if isinstance(signature, dict) else None
    for spec in specs if isinstance(specs, list) else ():
        for kind, key in SPECS.items():
            match spec.get(kind) if isinstance(spec, dict) else None:
                case {"arg": {"name": str(argument)}, **rest} if isinstance(rest.get(key), str):
                    yield kind, argument, str(rest[key])
                case _:
                    pass


def _names_of_results(calls: Json) -> Iterator[str]:
    """The keys under which the program returns its results, "" for those that it returns by place."""
    match calls:
        case [{"signature": {"out_spec": str(text)}}, *_] if len(text) < MAX_SPEC:
            try:
                spec = json.loads(text)
            except (ValueError, RecursionError):
                return
        case _:
            return
    stack: list[tuple[str, Json]] = [("", spec[1])] if isinstance(spec, list) and len(spec) > 1 else []
    while stack:
        name, part = stack.pop()
        match part:
            case {"type": None}:
                yield name
            case {"children_spec": list(children), "context": context}:
                keys = _keys(context)
                named = keys if len(keys) == len(children) else [""] * len(children)
                stack += [(f"{name}.{key}".strip("."), child) for key, child in reversed(list(zip(named, children, strict=True)))]
            case _:
                pass


def _keys(context: Json) -> list[str]:
    """The keys that a treespec notes for a dict or a dataclass."""
    try:
        keys = json.loads(context) if isinstance(context, str) else context
    except (ValueError, RecursionError):
        return []
    return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []


def _outputs(outputs: Json, signature: Json, env: Env) -> Iterator[Tensor]:
    """What the program returns, without the buffers that it updates."""
    specs = signature.get("output_specs") if isinstance(signature, dict) else None
    for output, spec in zip(outputs if isinstance(outputs, list) else (), specs if isinstance(specs, list) else (), strict=False):
        if isinstance(spec, dict) and ("user_output" in spec or "loss_output" in spec):
            yield from (env[name] for name in _names([output]) if name in env)
