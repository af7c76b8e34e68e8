"""In which dtype each operation of a model computes, and each tensor is kept, under a precision policy."""

from __future__ import annotations

from typing import NamedTuple

from mplint.autocast_lists import list_of
from mplint.graph.model import FLOATS, HEAVY, ModelGraph, Node, OpKind, Tensor
from mplint.graph.operations import operation

TORCH = ("torch-export", "torchscript")
LAYERS = ("keras", "keras-h5")
FLOAT32 = "float32"
# What autocast of torch, and converters of graphs, leave in float32; the operations' own names in every format.
ISLANDS = frozenset(("exp", "expm1", "log", "log1p", "log2", "log10", "pow", "rsqrt", "reciprocal", "softplus", "sinh", "cosh", "tan"))
SUMS = frozenset(("sum", "reducesum", "prod", "reduceprod", "cumsum", "cumprod", "norm", "reducel2", "reducelogsumexp", "cdist"))
LIKE_DATA = (OpKind.NORM, OpKind.POOLING, OpKind.ACTIVATION, OpKind.MOVE, OpKind.RANDOM)
ENDS = (OpKind.ACTIVATION, OpKind.SOFTMAX)
WIDTH = {"float16": 0, "bfloat16": 0, "float32": 1, "float64": 2}


class Precision(NamedTuple):
    """The dtypes of a model under one policy, by the identity of nodes and tensors; a missing tensor keeps the dtype of the file."""

    half: str | None
    device: str
    computes: dict[int, str]
    holds: dict[int, str]

    def dtype_of(self, tensor: Tensor) -> str | None:
        """The dtype that a tensor is kept in."""
        return self.holds.get(id(tensor), tensor.dtype)


def precision(model: ModelGraph, policy: str, device: str = "cuda") -> Precision:
    """Follow a policy through a model: "float32", "mixed_float16" or "mixed_bfloat16".

    torch programs follow autocast's lists for the device type, CUDA's where it has none; layers of Keras compute in half, but for those
    whose own policy says float32 in a mixed model, and the activation that ends the model; graphs of other formats follow the same lists
    by kind of operation.
    """
    half = policy.removeprefix("mixed_") if policy != FLOAT32 else None
    found = Precision(half, device, {}, {})
    ends = {id(tensor.producer) for tensor in model.graph.outputs if tensor.producer is not None and tensor.producer.kind in ENDS}
    for node in model.nodes():
        if not _is_float(node):
            continue
        dtype = (
            FLOAT32
            if half is None
            else node.outputs[0].dtype or FLOAT32
            if node.kind is OpKind.CAST
            else _computes(node, model, found, half, is_end=id(node) in ends)
        )
        found.computes[id(node)] = dtype
        for tensor in node.outputs:
            if tensor.dtype in FLOATS or (tensor.dtype is None and tensor.shape is not None):
                found.holds[id(tensor)] = dtype
    return found


def _computes(node: Node, model: ModelGraph, found: Precision, half: str, *, is_end: bool) -> str:
    if model.format in LAYERS:
        own = model.policy in ("mixed_float16", "mixed_bfloat16") and node.compute_dtype == FLOAT32
        return FLOAT32 if own or is_end else half
    rule = _rule(node, found.device) if model.format in TORCH else _by_kind(node)
    if rule == "lower":
        return half
    if rule.startswith("fp32"):
        return FLOAT32
    given = [tensor for tensor in node.inputs if tensor is not None]
    data = [tensor for tensor in given if tensor.weights is None] or given
    if node.kind in LIKE_DATA:
        data = data[:1] if node.kind is not OpKind.MOVE else data
    dtypes = [dtype for tensor in data if tensor.shape != () or len(data) == 1 if (dtype := found.dtype_of(tensor)) in FLOATS]
    return max(dtypes, key=WIDTH.__getitem__, default=FLOAT32) if node.kind is not OpKind.EMBEDDING else FLOAT32


def _by_kind(node: Node) -> str:
    name = operation(node)
    if node.kind in HEAVY:
        return "lower"
    if node.kind in (OpKind.SOFTMAX, OpKind.LOSS) or name in ISLANDS or name in SUMS:
        return "fp32"
    return "fp32" if node.kind is OpKind.NORM and "batch" not in name else ""


def _rule(node: Node, device: str) -> str:
    """The list of autocast that a torch operator stands on, "" for none."""
    name = node.op_type.removeprefix("aten.").removeprefix("aten::")
    rules = list_of(device, "cuda")
    rule = rules.get(name.removesuffix(".default"), "")
    if rule:
        return rule
    if node.kind in (OpKind.RECURRENT, OpKind.ATTENTION):
        return "lower"
    return "fp32" if node.kind is OpKind.LOSS else ""


def _is_float(node: Node) -> bool:
    if node.kind in (OpKind.SHAPE, OpKind.CHECK, OpKind.CONTROL, OpKind.CALL):
        return False
    return any(tensor.dtype in FLOATS for tensor in node.outputs) or node.compute_dtype in FLOATS
