"""Float32 regions within half ones: casts up, what stands between them, casts down, and the bytes that the casts move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mplint.graph.facts import GraphFacts
from mplint.graph.flow import source
from mplint.graph.model import BITS, HALF, HEAVY, Node, OpKind, Tensor
from mplint.graph.operations import computes, interpolates, operation
from mplint.graph.work import known

# Nothing is lost when these run in half: they pick or compare values, and round nothing.
EXACT = frozenset(("relu", "clip", "max", "min", "neg", "abs", "sign", "maxpool", "globalmaxpool"))
# One of these on half operands, computed in float32 and rounded, gives the bits that half gives: 24 bits are at least twice 11 and 2 more.
ROUNDED = frozenset(("add", "sub", "mul"))
# Operations that are kept in float32 on purpose.
DELICATE = frozenset(
    (
        *(
            "exp",
            "expm1",
            "log",
            "log1p",
            "pow",
            "square",
            "sqrt",
            "rsqrt",
            "reciprocal",
            "div",
            "erf",
            "softplus",
            "softmax",
            "logsoftmax",
        ),
        *("tan", "sinh", "cosh", "acos", "asin", "atanh", "cumsum", "gridsample", "resize", "rotaryembedding", "sin", "cos", "range"),
    )
)
DELICATE_KINDS = (
    OpKind.SOFTMAX,
    OpKind.NORM,
    OpKind.REDUCTION,
    OpKind.LOSS,
    OpKind.RANDOM,
    OpKind.OPAQUE,
    OpKind.CONTROL,
    OpKind.CALL,
    OpKind.QUANTIZE,
)
BODIES = (OpKind.CALL, OpKind.CONTROL)
LARGEST = 60  # nodes: a larger region is no island


class Island(NamedTuple):
    """A float32 region with half around it: the casts into it (`up`), its own nodes, the casts out of it (`down`)."""

    up: tuple[Node, ...]
    nodes: tuple[Node, ...]
    down: tuple[Node, ...]

    @property
    def work(self) -> tuple[Node, ...]:
        """The nodes that do more than hand on values."""
        return tuple(node for node in self.nodes if computes(node) or interpolates(node) or node.kind in BODIES)

    @property
    def traffic(self) -> int | None:
        """Bytes that the casts read and write for a batch, of one sample where its size is free; None where other sizes are not known."""
        total = 0
        for node in (*self.up, *self.down):
            for tensor in (*node.inputs[:1], *node.outputs):
                bits = BITS.get(tensor.dtype or "") if tensor is not None else None
                if tensor is None or tensor.shape is None or bits is None or not all(isinstance(dim, int) for dim in tensor.shape[1:]):
                    return None
                total += known(tensor.shape) * bits // 8
        return total

    @property
    def moved(self) -> str:
        """The bytes that the casts move, as a message says it; "" where they are not known."""
        free = any(t is not None and t.shape and not isinstance(t.shape[0], int) for node in self.up for t in node.inputs[:1])
        return f"{self.traffic:,} bytes{' a sample' if free else ''}" if self.traffic else ""

    @property
    def dtype(self) -> str:
        """The half dtype around the region."""
        source = self.up[0].inputs[0]
        return source.dtype or "" if source is not None else ""

    @property
    def is_idle(self) -> bool:
        """Whether the casts undo each other: nothing is computed between them."""
        return not self.work

    @property
    def is_exact(self) -> bool:
        """Whether all that is computed gives the same bits in half."""
        work = self.work
        if all(operation(node) in EXACT for node in work):
            return True
        if len(work) != 1 or operation(work[0]) not in ROUNDED:
            return False
        makers = [source(t, (OpKind.MOVE,)).producer if t is not None else None for t in work[0].inputs]
        return all(maker is not None and is_cast_up(maker) for maker in makers)

    @property
    def is_needed(self) -> bool:
        """Whether something in it wants float32."""
        return any(node.kind in DELICATE_KINDS or operation(node) in DELICATE or interpolates(node) for node in self.work)


def islands(graph: GraphFacts) -> Iterator[Island]:
    """The float32 regions of a model that begin and end with casts from and to one half dtype, each once."""
    outputs = results(graph)
    seen: set[int] = set()
    for node in graph.nodes:
        if is_cast_up(node) and id(node) not in seen:
            island = _grow(node, seen, outputs)
            if island is not None and len(_halves(island)) == 1:
                yield island


def results(graph: GraphFacts) -> frozenset[int]:
    """The tensors that the model, a body or a function gives out, by their identity."""
    bodies = [graph.model.graph, *graph.model.functions.values()]
    bodies += [body for node in graph.nodes for body in node.graphs.values()]
    return frozenset(id(tensor) for body in bodies for tensor in body.outputs)


def _halves(island: Island) -> set[str | None]:
    """The half dtypes on both sides: from float16 to bfloat16 is a cast that does something."""
    given = [node.inputs[0] for node in island.up]
    return {tensor.dtype for tensor in (*given, *(node.outputs[0] for node in island.down)) if tensor is not None}


def is_cast_up(node: Node) -> bool:
    """Whether a node casts half to float32."""
    return _casts(node, HALF, frozenset(("float32",)))


def is_cast_down(node: Node) -> bool:
    """Whether a node casts float32 to half."""
    return _casts(node, frozenset(("float32",)), HALF)


def _casts(node: Node, before: frozenset[str], after: frozenset[str]) -> bool:
    source = node.inputs[0] if node.inputs else None
    return (
        node.kind is OpKind.CAST and source is not None and bool(node.outputs) and source.dtype in before and node.outputs[0].dtype in after
    )


def _grow(start: Node, seen: set[int], outputs: frozenset[int]) -> Island | None:
    """The region that a cast up belongs to; None where it also begins or ends otherwise."""
    up: list[Node] = []
    down: list[Node] = []
    inner: list[Node] = []
    whole = True
    stack = [start]
    seen.add(id(start))

    def meet(node: Node) -> None:
        if id(node) not in seen:
            seen.add(id(node))
            stack.append(node)

    while stack:
        node = stack.pop()
        (up if is_cast_up(node) else down if is_cast_down(node) else inner).append(node)
        if not is_cast_up(node):
            for tensor in node.inputs:
                if tensor is not None and tensor.dtype == "float32" and tensor.weights is None:
                    if tensor.producer is None:
                        whole = False
                    else:
                        meet(tensor.producer)
        if not is_cast_down(node):
            for tensor in _floats(node.outputs):
                readers = _readers(tensor)
                whole = whole and id(tensor) not in outputs and bool(readers) and not tensor.shown
                for user in readers:
                    meet(user)
        if len(inner) > LARGEST:
            whole = False
    return Island(tuple(up), tuple(inner), tuple(down)) if whole and up and down else None


def _readers(tensor: Tensor) -> list[Node]:
    """The nodes that do something with a tensor, checks left out."""
    return [node for node in tensor.consumers if node.kind is not OpKind.CHECK]


def _floats(tensors: tuple[Tensor, ...]) -> Iterator[Tensor]:
    return (tensor for tensor in tensors if tensor.dtype == "float32")


def lossy_pairs(graph: GraphFacts) -> Iterator[tuple[Node, Node]]:
    """Casts of float32 to half that are cast back at once: they cost time and 13 or more bits, and save nothing."""
    outputs = results(graph)
    for node in graph.nodes:
        readers = _readers(node.outputs[0]) if is_cast_down(node) else []
        if readers and all(is_cast_up(user) for user in readers) and not node.outputs[0].shown and id(node.outputs[0]) not in outputs:
            yield node, readers[0]


def heavy_in(island: Island) -> tuple[Node, ...]:
    """The products and convolutions that an island computes in float32."""
    return tuple(node for node in island.nodes if node.kind in HEAVY)
