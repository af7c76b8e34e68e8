"""One Keras layer as a node: what it computes, its policy, its settings, and the dtype and shape of what it gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.graph.keras.policy import Policy, policy_of
from mplint.graph.keras.shapes import output_shape
from mplint.graph.keras.weights import Source, inner, listed, variables
from mplint.graph.model import BITS, FLOATS, Attribute, Dim, Graph, Literal, Node, OpKind, Tensor, literal
from mplint.graph.op_kinds import kind_of
from mplint.graph.operations import FILL, operation
from mplint.graph.storage import Json, shape_of

if TYPE_CHECKING:
    import numpy as np

Config = dict[str, Json]
Recorded = tuple[tuple[Dim, ...] | None, str | None]  # shape and dtype that the file notes for a tensor

OURS = ("keras", "tf_keras", "tensorflow")
FLOAT_MAKERS = (OpKind.EMBEDDING, OpKind.MATMUL, OpKind.CONV, OpKind.RECURRENT, OpKind.ATTENTION, OpKind.NORM, OpKind.SOFTMAX)
BOOLS = re.compile(r"(Not)?Equal|(Greater|Less)(Equal)?|Logical(And|Or|Not|Xor)|Is(close|finite|inf|nan)|All|Any")
INDICES = ("Argmax", "Argmin", "Argsort", "CountNonzero")
FUNCTIONS = ("TFOpLambda", "SlicingOpLambda", "TensorFlowOpLayer")
LOOKUPS = ("IntegerLookup", "StringLookup", "TextVectorization", "Hashing", "HashedCrossing", "Discretization")
SKIPPED = frozenset(("name", "dtype", "batch_shape", "batch_input_shape"))
MAX_NESTED = 40


# Settings of layers that are numbers to compute with, in the order of the operands.
OPERANDS = {"Clip": ("x_min", "x_max"), "Rescaling": ("scale", "offset")}


def layer_config(entry: Config) -> Config:
    """The settings of a layer."""
    config = entry.get("config")
    return config if isinstance(config, dict) else {}


def class_of(entry: Config) -> str:
    """The class of a layer, without the package that a custom one is registered in."""
    return str(entry.get("class_name", "")).rpartition(">")[2]


def name_of(entry: Config) -> str:
    """The name of a layer."""
    return str(entry.get("name") or layer_config(entry).get("name") or class_of(entry))


def is_own(entry: Config) -> bool:
    """Whether Keras itself defines the class; what others define is not known to compute what its name says."""
    module = entry.get("module")
    if ">" in str(entry.get("class_name", "")) or ">" in str(entry.get("registered_name", "")):
        return False
    return module is None or (isinstance(module, str) and module.partition(".")[0] in OURS)


def is_operation(entry: Config) -> bool:
    """A function of keras.ops or tf in a model: it has no policy and computes in the dtype of its inputs."""
    module = entry.get("module")
    config = layer_config(entry)
    if module is None and "inbound_nodes" in entry and "trainable" not in config:  # .h5 files of Keras 3 leave out modules
        return entry.get("class_name") != "InputLayer" and not isinstance(config.get("dtype"), dict)
    return (isinstance(module, str) and ".ops" in module) or entry.get("class_name") in FUNCTIONS


def layer_node(
    entry: Config, path: str, scope: str, inputs: list[Tensor], source: Source, recorded: list[Recorded], scalars: dict[str, Attribute]
) -> Node:
    """The node of a layer called on `inputs`; `recorded` is what the file notes of its outputs."""
    config, kind_name = layer_config(entry), class_of(entry)
    policy = policy_of(config.get("dtype"), path) if not is_operation(entry) else None
    attributes: dict[str, Attribute] = {**attributes_of(config), **scalars}
    if policy is not None and "_from_" in policy.name:
        attributes["quantization"] = policy.name.partition("_from_")[0]
    kind = _kind(entry, config, attributes)
    operands = inputs
    inputs = [tensor for tensor in inputs if not isinstance(tensor.weights, Literal)]
    shapes = [tensor.shape for tensor in inputs]
    dtype = _output_dtype(entry, kind, policy, inputs, recorded[0][1] if recorded else None, scalars)
    node = Node(
        name_of(entry),
        kind,
        _function(config) or kind_name if kind_name == "TFOpLambda" else kind_name,
        domain="keras" if is_own(entry) else str(entry.get("module") or "custom"),
        inputs=tuple(inputs),
        weights=variables(source, path, kind_name, dict(config)),
        attributes=attributes,
        compute_dtype=policy.compute if policy else _computed(dtype, inputs) if is_operation(entry) else None,
        variable_dtype=policy.variable if policy else None,
        layer=scope,
    )
    node.graphs = _parts(config, node, path, source, inputs)
    if node.graphs and kind is not OpKind.OPAQUE:
        node.kind = OpKind.CALL  # a wrapper: what it computes is what its parts compute
    shape = (recorded[0][0] if recorded else None) or _shape(entry, config, kind, shapes, scalars) or _wrapped_shape(node, config)
    if kind is OpKind.ACTIVATION and attributes.get("activation") == "linear" and inputs and inputs[0].dtype != dtype:
        node.kind = OpKind.CAST
    node.inputs = tuple(_operands(node, operands, inputs, config))
    outputs = [Tensor(path, dtype, shape)]
    for index, (more, noted) in enumerate(recorded[1:], 1):
        outputs.append(Tensor(f"{path}:{index}", noted if noted not in FLOATS else dtype, more))
    node.outputs = tuple(outputs)
    return node


def _operands(node: Node, given: list[Tensor], tensors: list[Tensor], config: Config) -> list[Tensor]:
    """What a layer computes with: the tensors, and of an elementwise operation or a fill the numbers beside them."""
    if node.kind is not OpKind.ELEMENTWISE and operation(node) != FILL:
        return tensors
    settings = (config.get(name) for name in OPERANDS.get(node.op_type, ()))
    numbers = [literal(value, None) for value in settings if isinstance(value, int | float)]
    dtype = node.compute_dtype or promoted({t.dtype for t in tensors if t.dtype is not None and t.dtype in FLOATS})
    found = [*given, *numbers]
    for tensor in found:
        if isinstance(tensor.weights, Literal):
            tensor.dtype = dtype
    return found


def constant_of(name: str, values: Json, dtype: str) -> Tensor:
    """A tensor whose values stand in the configuration."""
    flat, shape = [values], list[Dim]()
    while flat and all(isinstance(part, list) for part in flat):
        shape.append(len(flat[0]) if isinstance(flat[0], list) else 0)
        flat = [item for part in flat if isinstance(part, list) for item in part]
    numbers = [float(value) for value in flat if isinstance(value, int | float)]
    tensor = Tensor(name, dtype, tuple(shape))
    if len(numbers) == len(flat) == tensor.size:
        tensor.weights = Written(tuple(numbers), dtype)
    return tensor


class Written(NamedTuple):
    """Values that the configuration lists."""

    values: tuple[float, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return len(self.values) * BITS.get(self.dtype, 32) // 8

    def chunks(self, size: int = 1 << 24) -> Iterator[np.ndarray]:
        """The values as one array."""
        import numpy as np

        yield np.array(self.values, np.float64)


def attributes_of(config: Config) -> dict[str, Attribute]:
    """The settings of a layer that are numbers, texts, or lists of them; of functions and objects the name."""
    found: dict[str, Attribute] = {}
    for key, value in config.items():
        if key in SKIPPED:
            continue
        plain = _plain(value)
        if plain is not None:
            found[key] = plain
    return found


def _plain(value: Json, depth: int = 0) -> Attribute:
    match value:
        case bool() | int() | float() | str():
            return value
        case list() if len(value) <= 64 and depth < 4:
            return tuple(_plain(part, depth + 1) for part in value)
        case {"class_name": "function", "config": str(name)} | {"class_name": str(), "config": str(name)}:
            return name
        case {"class_name": str(name), "config": dict()}:
            return name
        case _:
            return None


def _kind(entry: Config, config: Config, attributes: dict[str, Attribute]) -> OpKind:
    name = class_of(entry)
    if name == "Lambda" or not is_own(entry):
        return OpKind.OPAQUE
    if name in ("TFOpLambda", "SlicingOpLambda"):
        return OpKind.MOVE if name == "SlicingOpLambda" else kind_of("keras", _function(config))
    if name == "Activation" and attributes.get("activation") in ("softmax", "log_softmax", "sparsemax"):
        return OpKind.SOFTMAX
    return kind_of("keras", name)


def _function(config: Config) -> str:
    """The operation that a function of TensorFlow is in a model of Keras 2, as Keras 3 names it: "Mean" for "math.reduce_mean"."""
    name = str(config.get("function", "")).rpartition(".")[2].removeprefix("reduce_")
    return "".join(part.capitalize() for part in name.split("_"))


def _shape(
    entry: Config, config: Config, kind: OpKind, shapes: list[tuple[Dim, ...] | None], scalars: dict[str, Attribute]
) -> tuple[Dim, ...] | None:
    name = class_of(entry)
    if name not in FUNCTIONS:
        return output_shape(name, config, shapes)
    if kind not in (OpKind.ELEMENTWISE, OpKind.REDUCTION, OpKind.ACTIVATION, OpKind.SOFTMAX, OpKind.CAST):
        return None
    given: Config = {key: value for key, value in scalars.items() if isinstance(value, int | str)}
    return output_shape(_function(config), {"axis": None, **given} if kind is OpKind.REDUCTION else given, shapes)


def _is_keras2(entry: Config) -> bool:
    """Whether Keras 2 wrote the entry: it lists calls, where Keras 3 has dicts."""
    calls = entry.get("inbound_nodes")
    return isinstance(calls, list) and bool(calls) and isinstance(calls[0], list)


def _output_dtype(
    entry: Config, kind: OpKind, policy: Policy | None, inputs: list[Tensor], noted: str | None, scalars: dict[str, Attribute]
) -> str | None:
    """The dtype of what a layer gives, by its policy now: what the file notes may be older than the policy."""
    name, config = class_of(entry), layer_config(entry)
    given = [tensor.dtype for tensor in inputs]
    if policy is None:
        return _operation_dtype(entry, name, given, noted, scalars)
    if noted is not None and noted not in FLOATS:
        return noted
    if name == "Lambda" or not is_own(entry):  # its code may cast as it likes, and Keras notes the compute dtype without asking it
        return noted if noted != policy.compute else None
    if name in LOOKUPS and noted is None and config.get("output_mode", "int") == "int":
        return "int64"
    if name == "UpSampling2D" and config.get("interpolation") == "bilinear" and _is_keras2(entry):
        return "float32"  # Keras 2 resizes in float32 and leaves it at that
    if inputs and kind not in FLOAT_MAKERS and noted is None and all(dtype is not None and dtype not in FLOATS for dtype in given):
        return given[0] if kind in (OpKind.MOVE, OpKind.ELEMENTWISE, OpKind.POOLING, OpKind.RANDOM) else policy.compute
    return policy.compute


def _operation_dtype(entry: Config, name: str, given: list[str | None], noted: str | None, scalars: dict[str, Attribute]) -> str | None:
    config = layer_config(entry)
    asked = config.get("dtype")
    function = _function(config)
    if function == "Cast":
        target = scalars.get("dtype")
        return target if isinstance(target, str) else None
    if isinstance(asked, str) and not function:
        return asked
    if not is_operation(entry):  # a layer whose policy the file leaves open
        return noted
    if BOOLS.fullmatch(function or name):
        return "bool"
    if name in INDICES or function in INDICES:
        return "int32" if not function else "int64"
    floats = {dtype for dtype in given if dtype is not None and dtype in FLOATS}
    if noted is not None and (noted not in FLOATS or not floats):
        return noted
    return promoted(floats) if None not in given else noted


def _computed(dtype: str | None, inputs: list[Tensor]) -> str | None:
    """The dtype that an operation computes in: that of its result, or where that is no float of what it reads."""
    return dtype if dtype in FLOATS else promoted({t.dtype for t in inputs if t.dtype is not None and t.dtype in FLOATS})


def promoted(floats: set[str]) -> str | None:
    """The dtype in which operations on these dtypes are carried out."""
    if len(floats) == 1:
        return next(iter(floats))
    return "float64" if "float64" in floats else "float32" if floats else None


def _parts(config: Config, node: Node, path: str, source: Source, inputs: list[Tensor]) -> dict[str, Graph]:
    """The layers that a wrapper or a custom layer holds in its settings, each as a graph of its own with the wrapper's variables of it."""
    graphs: dict[str, Graph] = {}
    for key, value in config.items():
        several = [(name_of(e), class_of(e)) for e in value if isinstance(e, dict) and _is_layer(e)] if isinstance(value, list) else []
        sources = listed(source, key, several) if several else {}
        for index, entry in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(entry, dict) or not _is_layer(entry) or len(graphs) >= 1000:
                continue
            part = f"{key}{index}" if isinstance(value, list) else key
            group = {"layer": "forward_layer"}.get(key, key) if node.op_type == "Bidirectional" else key
            below = f"{path}/{name_of(entry)}"
            if path.count("/") > MAX_NESTED:
                continue
            given = _part_inputs(node, key, entry, inputs)
            below_source = sources.get(name_of(entry)) or inner(source, name_of(entry) if source.named else group)
            made = layer_node(entry, below, path, given, below_source, [], {})
            graphs[part] = Graph(below, [made], given, list(made.outputs))
    return graphs


def _part_inputs(node: Node, key: str, entry: Config, inputs: list[Tensor]) -> list[Tensor]:
    """What the part of a wrapper works on: for TimeDistributed one step, for other wrappers what the wrapper gets."""
    build = entry.get("build_config")
    shape: tuple[Dim, ...] | None = shape_of(build.get("input_shape")) if isinstance(build, dict) else None
    if node.op_type == "TimeDistributed" and shape is None and inputs and inputs[0].shape:
        shape = (inputs[0].shape[0], *inputs[0].shape[2:])
    given = inputs[0].dtype if inputs else None
    dtype = node.compute_dtype if given in FLOATS and node.compute_dtype else given
    return [Tensor(f"{node.name}/{key}/input", dtype, shape if shape is not None else inputs[0].shape if inputs else None)]


def _is_layer(entry: Config) -> bool:
    config = entry.get("config")
    return isinstance(entry.get("class_name"), str) and isinstance(config, dict) and "name" in config and "dtype" in config


def _wrapped_shape(node: Node, config: Config) -> tuple[Dim, ...] | None:
    """What a wrapper gives, from what its layer gives."""
    first = next(iter(node.graphs.values()), None)
    shape = first.outputs[0].shape if first and first.outputs else None
    outer = node.inputs[0].shape if node.inputs and node.inputs[0] else None
    if shape is None:
        return None
    if node.op_type == "TimeDistributed":
        return (shape[0], outer[1], *shape[1:]) if outer and len(outer) > 1 else None
    if node.op_type == "Bidirectional":
        last = shape[-1]
        return (*shape[:-1], 2 * last if isinstance(last, int) else None) if config.get("merge_mode") == "concat" else shape
    return shape if node.op_type == "SpectralNormalization" else None
