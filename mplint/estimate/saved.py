"""What the backward pass needs: the tensors that each operation keeps until its gradient is computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mplint.estimate.precision import FLOAT32, LAYERS, Precision
from mplint.graph.model import BITS, FLOATS, HEAVY, ModelGraph, Node, OpKind, Tensor
from mplint.graph.operations import operation

# Moves whose result is the same memory, seen in another shape.
VIEWS = frozenset((
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expanddims", "transpose", "t", "permute", "identity", "alias"),
    *("detach", "contiguous", "select", "slice", "narrow", "split", "splitwithsizes", "chunk", "unbind", "expand", "movedim", "swapaxes"),
    *("stopgradient", "liftfresh", "getitem", "unsafeview", "t_", "numpyt", "mt", "ensureshape", "identityn", "snapshot"),
))  # fmt: skip
COPIED = frozenset(("transpose", "permute", "slice", "split", "expand"))  # by every format but torch's
BY_RESULT = frozenset(
    ("relu", "sigmoid", "tanh", "exp", "expm1", "sqrt", "rsqrt", "reciprocal", "softplus", "elu", "selu", "relu6", "softmax")
)
BY_NOTHING = frozenset((
    *("add", "sub", "rsub", "neg", "addn", "sum", "reducesum", "mean", "reducemean", "cumsum", "average", "rescaling", "round", "floor"),
    *("ceil", "sign", "equal", "notequal", "greater", "less", "greaterequal", "lessequal", "logicaland", "logicalor", "logicalnot"),
))  # fmt: skip
MASKED = frozenset(("where", "maskedfill"))
# What a recurrence keeps of each step, in numbers for each unit of its state: of cuDNN from memory, of torch 2.13 on the CPU as measured.
GATES = {"lstm": 7, "gru": 6, "rnn": 2}
GATES_ON_CPU = {"lstm": 16, "gru": 7, "rnn": 1}


class Kept(NamedTuple):
    """Memory that is held for the backward pass: `key` tells storages apart, `size` is in bytes."""

    key: tuple[int, str, int]
    size: float


class Storages:
    """Which tensors are the same memory, and how many bytes each takes under a policy."""

    def __init__(self, model: ModelGraph, policy: Precision, scale: float) -> None:
        self.policy = policy
        self._scale = scale
        self._layered = model.format in LAYERS
        self._views = VIEWS if model.format.startswith("torch") else VIEWS - COPIED

    def root(self, tensor: Tensor) -> Tensor:
        """The tensor whose memory another one is seen in."""
        for _ in range(10_000):
            maker = tensor.producer
            if maker is None or not self.is_view(maker) or not maker.inputs or maker.inputs[0] is None:
                return tensor
            tensor = maker.inputs[0]
        return tensor

    def is_view(self, node: Node) -> bool:
        """Whether a node gives its input in another shape, without a copy."""
        name = operation(node)
        in_place = node.op_type.partition(".")[2].partition(".")[0].endswith("_") and node.op_type.startswith("aten")
        return (node.kind is OpKind.MOVE and name in self._views) or in_place or (node.kind is OpKind.RANDOM and not self._drops(node))

    def _drops(self, node: Node) -> bool:
        rate = node.attributes.get("p", node.attributes.get("rate"))
        return rate not in (0, 0.0) and node.attributes.get("train") is not False

    def bytes_of(self, tensor: Tensor | None, dtype: str | None = None) -> float:
        """The bytes of a tensor, in `dtype` or the one that it is kept in; 0 where its size is not known."""
        if tensor is None or tensor.size is None:
            return 0.0
        bits = BITS.get(dtype or self.policy.dtype_of(tensor) or "", 0)
        return tensor.size * bits / 8 * (1.0 if tensor.weights is not None else self._scale)

    def kept(self, node: Node) -> Iterator[Kept]:
        """What a node keeps for the backward pass."""
        if node.kind in HEAVY:
            yield from self._multiplied(node)
            return
        if self.is_view(node) or not node.outputs:
            return
        data = [tensor for tensor in node.inputs if tensor is not None and tensor.weights is None]
        yield from self._held(node, data)
        activation = node.attributes.get("activation")
        if self._layered and isinstance(activation, str) and activation not in ("linear", "relu", "sigmoid", "tanh", "softmax"):
            yield self._as(node.outputs[0], node)

    def _held(self, node: Node, data: list[Tensor]) -> Iterator[Kept]:
        name, out = operation(node), node.outputs[0]
        match node.kind:
            case OpKind.NORM | OpKind.LOSS:
                yield from (self._as(tensor, node) for tensor in data[:1])
            case OpKind.SOFTMAX:
                yield self._as(out, node)
            case OpKind.RANDOM:
                yield Kept((id(out), "mask", id(node)), (out.size or 0) * self._scale)
            case OpKind.POOLING:
                yield from self._pooled(node, data)
            case OpKind.EMBEDDING:
                yield from (Kept((id(self.root(t)), "", 0), self.bytes_of(t)) for t in data if t.dtype not in FLOATS)
            case OpKind.ACTIVATION | OpKind.ELEMENTWISE | OpKind.REDUCTION:
                yield from self._computed(name, node, data)
            case _:
                return

    def _computed(self, name: str, node: Node, data: list[Tensor]) -> Iterator[Kept]:
        activation = str(node.attributes.get("activation", name)) if name == "activation" else name
        if name in BY_NOTHING:
            return
        if name in MASKED:
            yield from (Kept((id(self.root(t)), "", 0), self.bytes_of(t)) for t in data if t.dtype == "bool")
        elif activation in BY_RESULT:
            yield self._as(node.outputs[0], node)
        elif name in ("mul", "div") and len(data) < 2:
            constant = next((t for t in node.inputs if t is not None and t.weights is not None and not t.fixed), None)
            if name == "mul" and constant is not None and constant.shape:
                yield from (self._as(tensor, node) for tensor in data)
        else:
            yield from (self._as(tensor, node) for tensor in data if tensor.dtype in FLOATS or tensor.dtype is None)

    def _pooled(self, node: Node, data: list[Tensor]) -> Iterator[Kept]:
        name, out = operation(node), node.outputs[0]
        if "global" in name or ("adaptive" in name and "avg" in name):
            if not self._layered:
                yield from (self._as(tensor, node) for tensor in data[:1])
            return
        yield from (self._as(tensor, node) for tensor in data[:1])
        if "max" in name:
            yield self._as(out, node) if self._layered else Kept((id(out), "places", id(node)), (out.size or 0) * 8 * self._scale)

    def _multiplied(self, node: Node) -> Iterator[Kept]:
        """The factors of a product, in the dtype that it computes in."""
        dtype = self.policy.computes.get(id(node))
        for tensor in node.inputs:
            if tensor is not None and tensor.weights is None and (tensor.dtype in FLOATS or tensor.dtype is None):
                yield self._as(tensor, node, dtype)
        if self._layered and node.attributes.get("activation", "linear") != "linear":
            yield self._as(node.outputs[0], node)
        if node.kind is OpKind.ATTENTION:
            yield from self._attended(node, dtype)
        elif node.kind is OpKind.RECURRENT:
            units = node.outputs[0].shape[-1] if node.outputs[0].shape else None
            given = next((t for t in node.inputs if t is not None and t.shape and len(t.shape) >= 2), None)
            gates = GATES_ON_CPU if self.policy.device == "cpu" else GATES
            count = next((number for name, number in gates.items() if name in operation(node)), 4)
            if (
                given is not None
                and given.size
                and isinstance(given.shape, tuple)
                and isinstance(units, int)
                and isinstance(given.shape[-1], int)
            ):
                steps = given.size // given.shape[-1] * self._scale
                yield Kept((id(node), "gates", 0), steps * units * count * BITS.get(dtype or "float32", 32) / 8)

    def _attended(self, node: Node, dtype: str | None) -> Iterator[Kept]:
        """The result of an attention; of a layer, what it projects and how it weighs positions too."""
        yield self._as(node.outputs[0], node)
        query, key = (node.inputs[place] if len(node.inputs) > place else None for place in (0, 1))
        heads, each, depth = (node.attributes.get(name) for name in ("num_heads", "key_dim", "value_dim"))
        if not self._layered or query is None or query.shape is None or len(query.shape) < 3:
            return
        batch, length = query.shape[0], query.shape[-2]
        other = key.shape[-2] if key is not None and key.shape is not None and len(key.shape) > 1 else length
        depth = each if depth is None else depth
        if not (isinstance(heads, int) and isinstance(each, int) and isinstance(depth, int)):
            return
        if isinstance(batch, int) and isinstance(length, int) and isinstance(other, int):
            width = BITS.get(dtype or FLOAT32, 32) / 8 * self._scale * batch * heads
            yield Kept((id(node), "projected", 0), (length * (each + depth) + other * (each + depth)) * width)
            yield Kept((id(node), "weighted", 0), length * other * width)

    def _as(self, tensor: Tensor, node: Node, dtype: str | None = None) -> Kept:
        """A tensor as a node uses it: itself, or the copy that the node makes of it in its own dtype."""
        wanted = dtype or self.policy.computes.get(id(node))
        held = self.policy.dtype_of(tensor)
        if wanted is None or wanted == held or held not in FLOATS:
            root = self.root(tensor)
            return Kept((id(root), "", 0), self.bytes_of(root))
        return Kept((id(tensor), wanted, id(node)), self.bytes_of(tensor, wanted))


def total(held: Iterable[Kept]) -> float:
    """The bytes of storages, each counted once."""
    return sum({one.key: one.size for one in held}.values())
