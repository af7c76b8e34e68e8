"""Torch modules in memory: exported on fake tensors, so that no weight is copied and no arithmetic done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from mplint.graph.model import Graph, GraphError, ModelGraph, Tensor, connect
from mplint.graph.storage import Json
from mplint.graph.torch.graph import DTYPES, read_program

if TYPE_CHECKING:
    import numpy as np
    import torch

CODES = {name: code for code, name in DTYPES.items()}
EXAMPLES = ("example_inputs", "example_input_array", "dummy_inputs")


def load_module(module: torch.nn.Module, inputs: object = None) -> ModelGraph:
    """The operations of a module on inputs like the given ones; its parameters alone where there are none. Raises GraphError."""
    import torch

    name = type(module).__qualname__
    if inputs is None:
        inputs = next((value for key in EXAMPLES if (value := getattr(module, key, None)) is not None), None)
        inputs = inputs() if callable(inputs) and not isinstance(inputs, torch.Tensor) else inputs
    if inputs is None:
        graph = Graph(constants={key: _stored(key, value) for key, value in module.state_dict(keep_vars=True).items()})
        note = "Without example inputs nothing is known of the operations; give some, or return (module, inputs) from the factory."
        return ModelGraph(name, "state-dict", graph, producer=f"torch {torch.__version__}", notes=[note])
    arguments, named = _fake(module, inputs)
    try:
        with torch.no_grad():
            program = torch.export.export(module, arguments, named)
    except Exception as error:  # torch.export fails in many ways, all of them about the module
        raise GraphError(f"torch.export can't trace {name}: {str(error).strip().partition(chr(10))[0][:200]}") from None
    return read_exported(program, name)


def read_exported(program: torch.export.ExportedProgram, name: str) -> ModelGraph:
    """The graph of an exported program."""
    import torch

    signature = program.graph_signature
    specs: list[Json] = []
    kinds = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "tensor_constant"}
    for spec in signature.input_specs:
        kind = kinds.get(spec.kind.name)
        if kind is not None and spec.target is not None:
            specs.append({kind: {"arg": {"name": spec.arg.name}, f"{kind}_name": spec.target}})
    given = ("USER_OUTPUT", "LOSS_OUTPUT")
    outs: list[Json] = [{"user_output": None} if spec.kind.name in given else {} for spec in signature.output_specs]
    graph = _serialized(program.graph_module)
    kept = {**program.constants, **program.state_dict}
    stored = {key: _stored(key, value) for key, value in kept.items() if isinstance(value, torch.Tensor)}
    parsed: dict[str, Json] = {
        "graph_module": {"graph": graph, "signature": {"input_specs": specs, "output_specs": outs}},
        "torch_version": torch.__version__,
    }
    model = read_program(name, parsed, stored)
    connect(model.graph)
    return model


class TorchWeights(NamedTuple):
    """The values of a tensor in memory."""

    tensor: torch.Tensor
    nbytes: int

    def chunks(self, size: int = 1 << 24) -> Iterator[np.ndarray]:
        """The elements in pieces of at most `size` bytes."""
        import torch

        from mplint.graph.storage import numpy_dtype

        flat = self.tensor.detach().reshape(-1)
        step = max(1, size // max(1, flat.element_size()))
        name = str(flat.dtype).removeprefix("torch.")
        for start in range(0, flat.numel(), step):
            piece = flat[start : start + step].cpu()
            try:
                yield piece.numpy()
            except TypeError:  # bfloat16 and float8, which numpy has no name for
                yield piece.view(torch.uint8).numpy().view(numpy_dtype(name))


def _stored(name: str, value: torch.Tensor) -> Tensor:
    from torch._subclasses.fake_tensor import FakeTensor

    tensor = Tensor(name, str(value.dtype).removeprefix("torch."), tuple(int(dim) for dim in value.shape))
    if value.device.type != "meta" and not isinstance(value, FakeTensor):
        tensor.weights = TorchWeights(value, tensor.nbytes or 0)
    return tensor


def _fake(module: torch.nn.Module, inputs: object) -> tuple[tuple[object, ...], dict[str, object]]:
    """Inputs without memory of their own, on the module's device and in the fake mode of its parameters if they have one."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    tensors = [*module.parameters(), *module.buffers()]
    device = tensors[0].device if tensors else torch.device("cpu")
    mode = next((t.fake_mode for t in tensors if isinstance(t, FakeTensor)), None) or FakeTensorMode(allow_non_fake_inputs=True)

    def fake(value: object) -> object:
        if isinstance(value, torch.Tensor):
            if isinstance(value, FakeTensor):
                return value
            return torch.empty(value.shape, dtype=value.dtype, device="meta") if device.type == "meta" else mode.from_tensor(value)
        if _is_shape(value):
            if device.type == "meta":
                return torch.empty(value, device=device)  # type: ignore[call-overload]
            with mode:
                return torch.empty(value, device=device)  # type: ignore[call-overload]
        return value

    if isinstance(inputs, Mapping):
        return (), {str(key): fake(value) for key, value in inputs.items()}
    if isinstance(inputs, torch.Tensor) or _is_shape(inputs):
        inputs = (inputs,)
    if not isinstance(inputs, tuple | list):
        raise GraphError("example inputs are a tuple of tensors or shapes, or a dict of them")
    return tuple(fake(value) for value in inputs), {}


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple | list) and bool(value) and all(isinstance(dim, int) and not isinstance(dim, bool) for dim in value)


def _serialized(module: torch.fx.GraphModule) -> dict[str, Json]:
    """An fx graph in the form that torch.export.save writes."""
    values: dict[str, Json] = {}
    inputs: list[Json] = []
    outputs: list[Json] = []
    nodes: list[Json] = []
    unpacked: dict[object, dict[int, str]] = {}
    for node in module.graph.nodes:
        _note(node.name, node.meta.get("val"), values)
        if node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem" and isinstance(node.args[1], int):
            unpacked.setdefault(node.args[0], {})[node.args[1]] = node.name
    for node in module.graph.nodes:
        if node.op == "placeholder":
            inputs.append({"as_tensor": {"name": node.name}})
        elif node.op == "output":
            found = node.args[0]
            outputs = [_argument(item, module) for item in (found if isinstance(found, tuple | list) else (found,))]
        elif node.op == "call_function" and not (getattr(node.target, "__name__", "") == "getitem" and node.args[0] in unpacked):
            nodes.append(_call(node, module, unpacked.get(node)))
    return {"inputs": inputs, "outputs": outputs, "nodes": nodes, "tensor_values": values}


def _call(node: torch.fx.Node, module: torch.fx.GraphModule, parts: dict[int, str] | None) -> Json:
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    arguments: list[Json] = [
        {"name": names[place] if place < len(names) else "", "arg": _argument(value, module)} for place, value in enumerate(node.args)
    ]
    arguments += [{"name": key, "arg": _argument(value, module)} for key, value in node.kwargs.items()]
    alone = [node.name] if node.meta.get("val") is not None else []
    made: list[Json] = [{"as_tensor": {"name": name}} for name in ([parts[place] for place in sorted(parts)] if parts else alone)]
    target = str(node.target)
    if type(node.target).__module__.startswith("torch._higher_order_ops") or type(node.target).__name__.endswith("HigherOrderOperator"):
        target = f"torch.ops.higher_order.{target}"
    elif schema is not None:
        target = f"torch.ops.{target}"
    else:
        target = f"_operator.{getattr(node.target, '__name__', target)}"
    stack = node.meta.get("nn_module_stack") or {}
    path = ";".join(f"{key},{value[0]}," for key, value in stack.items())
    return {"target": target, "name": node.name, "inputs": arguments, "outputs": made, "metadata": {"nn_module_stack": path}}


def _argument(value: object, module: torch.fx.GraphModule) -> dict[str, Json]:
    import torch

    if isinstance(value, torch.fx.Node):
        if value.op == "get_attr":
            body = getattr(module, str(value.target), None)
            if isinstance(body, torch.fx.GraphModule):
                return {"as_graph": {"name": str(value.target), "graph": _serialized(body)}}
        found = value.meta.get("val")
        return {"as_tensor": {"name": value.name}} if not isinstance(found, torch.SymInt | int) else {"as_sym_int": {"as_name": value.name}}
    if isinstance(value, torch.dtype):
        return {"as_scalar_type": CODES.get(str(value).removeprefix("torch."))}
    if isinstance(value, bool):
        return {"as_bool": value}
    if isinstance(value, int):
        return {"as_int": value}
    if isinstance(value, float):
        return {"as_float": value}
    if isinstance(value, str):
        return {"as_string": value}
    if isinstance(value, tuple | list):
        if any(isinstance(item, torch.fx.Node) and isinstance(item.meta.get("val"), torch.Tensor) for item in value):
            tensors: list[Json] = [{"name": item.name} for item in value if isinstance(item, torch.fx.Node)]
            return {"as_tensors": tensors}
        return {"as_ints": [item for item in value if isinstance(item, int | float)]}
    return {"as_none": True} if value is None else {}


def _note(name: str, value: object, values: dict[str, Json]) -> None:
    """The dtype and shape of what a node gives; of several outputs those that are taken apart have nodes of their own."""
    import torch

    if isinstance(value, torch.Tensor):
        sizes: list[Json] = [{"as_int": dim} if isinstance(dim, int) else {"as_expr": {"expr_str": str(dim)}} for dim in value.shape]
        values[name] = {"dtype": CODES.get(str(value.dtype).removeprefix("torch.")), "sizes": sizes}
