"""One node of a TensorFlow GraphDef: its attributes, and the dtypes and shapes of its outputs, told without op definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import unpack_from
from typing import NamedTuple

from mplint.graph.model import Attribute, Dim
from mplint.graph.protobuf import Message, signed
from mplint.graph.tensorflow.types import dtype_of, shape_of

BOOLS = frozenset((
    "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "LogicalNot", "IsNan", "IsInf",
    "IsFinite", "All", "Any", "VarIsInitializedOp", "InTopKV2", "StaticRegexFullMatch",
))  # fmt: skip
# Outputs of one dtype, whatever goes in.
FIXED = {
    "Rank": "int32", "Where": "int64", "StringLength": "int32", "StringToHashBucketFast": "int64",
    **dict.fromkeys(("ResizeBilinear", "ResizeBicubic", "ResizeArea", "CropAndResize"), "float32"),
    **dict.fromkeys(("TensorListReserve", "TensorListFromTensor", "TensorListSetItem", "TensorListPushBack", "EmptyTensorList"), "variant"),
}  # fmt: skip
# Which attribute says what comes out where the usual ones say something else, and the default, which exporters leave out.
ASKED = {
    "Range": ("Tidx", "int32"), **dict.fromkeys(("Shape", "ShapeN", "Size"), ("out_type", "int32")),
    **dict.fromkeys(("ArgMax", "ArgMin"), ("output_type", "int64")), "Bitcast": ("type", None),
}  # fmt: skip
# Outputs in order, for operations whose outputs have names of their own in functions.
OUTPUTS = {
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), ("y", "batch_mean", "batch_variance")),
    **dict.fromkeys(("TopK", "TopKV2"), ("values", "indices")),
    "MaxPoolWithArgmax": ("output", "argmax"),
    "SoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
    "SparseSoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
    "Unique": ("y", "idx"),
    "BroadcastGradientArgs": ("r0", "r1"),
}
TYPES = ("DstT", "dtype", "out_type", "output_type", "element_dtype", "T", "Tout", "type", "Tparams", "Tidx", "TI")
HIDDEN = frozenset((
    "T", "dtype", "DstT", "SrcT", "Tidx", "Tparams", "Tindices", "Tshape", "Tpaddings", "Tdim", "U", "Tin", "Tout", "value",
    "config_proto", "config", "executor_type",
))  # fmt: skip


class NodeDef(NamedTuple):
    """A NodeDef: its attributes are AttrValue messages."""

    name: str
    op: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Message]


def node_of(message: Message) -> NodeDef:
    """The node in a NodeDef message."""
    name = op = ""
    inputs: list[str] = []
    attributes: dict[str, Message] = {}
    for number, _, value in message:
        if number == 1:
            name = value.text()
        elif number == 2:
            op = value.text()
        elif number == 3:
            inputs.append(value.text())
        elif number == 5:
            content = value.first(2)
            if content is not None:
                attributes[value.string(1)] = content
    return NodeDef(name, op, tuple(inputs), attributes)


def output_dtype(node: NodeDef, place: int) -> str | None:
    """The dtype of an output."""
    if node.op in BOOLS:
        return "bool"
    if node.op in FIXED:
        return FIXED[node.op]
    if place and node.op.startswith("FusedBatchNorm") and "U" in node.attributes:
        return dtype_of(node.attributes["U"].number(6))
    if place and node.op in ("TopK", "TopKV2", "Unique"):
        return "int32"
    own, default = ASKED.get(node.op, (None, None))
    for key in TYPES if own is None else (own,):
        value = node.attributes.get(key)
        if value is None:
            continue
        listed = value.first(1)
        if listed is not None:
            types = listed.numbers(6)
            return dtype_of(types[place]) if place < len(types) else None
        code = value.number(6)
        if code:
            return dtype_of(code)
    return default


def output_shape(node: NodeDef, place: int) -> tuple[Dim, ...] | None:
    """The shape of an output, where the exporter left it."""
    value = node.attributes.get("_output_shapes")
    listed = value.first(1) if value is not None else None
    for index, shape in enumerate(listed.each(7) if listed is not None else ()):
        if index == place:
            return shape_of(shape)
    if node.op in ("Placeholder", "PlaceholderV2") and "shape" in node.attributes:
        return shape_of(node.attributes["shape"].first(7))
    return None


def results_of(node: NodeDef) -> int:
    """How many results a call of functions gives, 0 for other nodes."""
    listed = next((value.first(1) for key in ("Tout", "T") if (value := node.attributes.get(key)) is not None), None)
    return len(listed.numbers(6)) if listed is not None and any(functions_in(node)) else 0


def output_of(reference: str, op: str) -> tuple[str, int]:
    """The node and which of its outputs a reference stands for: "name", "name:1" or in a function "name:output:1"."""
    parts = reference.split(":")
    last = int(parts[-1]) if len(parts) > 1 and parts[-1].isdecimal() and len(parts[-1]) < 9 else 0
    if len(parts) == 3 and parts[1] in OUTPUTS.get(op, ()):
        last += OUTPUTS[op].index(parts[1])
    return parts[0], last


def restored(nodes: Mapping[str, NodeDef]) -> dict[str, str]:
    """Which key of the checkpoint goes into which variable, from the nodes that restore one: RestoreV2 and what is assigned from it."""
    found: dict[str, str] = {}
    texts: dict[str, list[str]] = {}
    for node in nodes.values():
        if node.op not in ("AssignVariableOp", "Assign") or len(node.inputs) < 2:
            continue
        source = node.inputs[1]
        for _ in range(4):  # by way of Identity nodes
            inner = nodes.get(source.partition(":")[0])
            if inner is None or inner.op == "RestoreV2" or not inner.inputs:
                break
            source = inner.inputs[0]
        name, place = output_of(source, "")
        if name not in texts:
            texts[name] = list(_restored_keys(name, nodes))
        if place < len(texts[name]):
            found[node.inputs[0].partition(":")[0]] = texts[name][place]
    return found


def _restored_keys(name: str, nodes: Mapping[str, NodeDef]) -> Iterator[str]:
    """The keys that a RestoreV2 reads, in the order of its outputs."""
    restore = nodes.get(name)
    if restore is None or restore.op != "RestoreV2" or len(restore.inputs) < 2:
        return
    keys = nodes.get(restore.inputs[1].partition(":")[0])
    value = keys.attributes["value"].first(8) if keys is not None and "value" in keys.attributes else None
    for text in value.each(8) if value is not None else ():
        yield text.text()


def functions_in(node: NodeDef) -> Iterator[str]:
    """The functions that a node calls."""
    for value in node.attributes.values():
        function = value.first(10)
        if function is not None:
            yield function.string(1)
        listed = value.first(1)
        for function in listed.each(9) if listed is not None else ():
            yield function.string(1)


def attributes_of(node: NodeDef) -> dict[str, Attribute]:
    """The attributes of a node that are numbers, texts, dtypes or lists of numbers."""
    found: dict[str, Attribute] = {}
    for key, value in node.attributes.items():
        if not key.startswith("_") and key not in HIDDEN:
            plain = _plain(value)
            if plain is not None:
                found[key] = plain
    return found


def _plain(value: Message) -> Attribute:
    for number, content, message in value:
        match number:
            case 2:
                return message.text()[:1000] if content < 1000 else None
            case 3:
                return signed(content)
            case 4:
                return message.float()
            case 5:
                return bool(content)
            case 6:
                return dtype_of(content)
            case 10:
                return message.string(1)
            case 1 if content < 4096:
                numbers = [signed(item) for item in message.numbers(3)]
                floats = [item for part in message.each(4) for item in _floats(part)]
                return tuple(numbers or floats) or None
            case _:
                pass
    return None


def _floats(message: Message) -> list[float]:
    return [unpack_from("<f", message.data, at)[0] for at in range(message.start, message.end - 3, 4)]
