"""What graph rules ask of a model: the model, the targets, and what is derived from both once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from mplint.findings import NodePlace
from mplint.graph.model import FLOATS, HALF, HEAVY, ModelGraph, Node, OpKind, Tensor

if TYPE_CHECKING:
    from mplint.graph.ranges import Range
    from mplint.graph.stored import Stored
    from mplint.targets import Targets

PASSING = (OpKind.MOVE, OpKind.CAST)


class GraphFacts:
    """One model with its targets, as `Rule.check_graph` gets it."""

    def __init__(self, model: ModelGraph, targets: Targets) -> None:
        self.model = model
        self.targets = targets

    @property
    def path(self) -> str:
        """The model file."""
        return self.model.path

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node of the graph, its bodies and functions, in order."""
        return tuple(self.model.nodes())

    def place_of(self, node: Node) -> NodePlace:
        """Where a node lies in the model, as fixes name it."""
        return NodePlace(self._scopes.get(id(node), ()), first_output(node))

    @cached_property
    def _scopes(self) -> dict[int, tuple[str, ...]]:
        found: dict[int, tuple[str, ...]] = {}
        bodies = [(self.model.graph, ()), *((body, (name,)) for name, body in self.model.functions.items())]
        while bodies:
            body, scope = bodies.pop()
            for node in body.nodes:
                found[id(node)] = scope
                bodies += [(inner, (*scope, f"{first_output(node)}/{name}")) for name, inner in node.graphs.items()]
        return found

    @cached_property
    def stored(self) -> Stored | None:
        """The matrices of a file that holds weights and no operations; None for a graph."""
        from mplint.graph.stored import Stored

        return None if self.nodes or not self.model.graph.constants else Stored(self.model)

    def range_of(self, tensor: Tensor | None) -> Range:
        """The values that a tensor can take."""
        from mplint.graph.ranges import ANY

        return ANY if tensor is None else self._ranges.get(id(tensor), ANY)

    @cached_property
    def _ranges(self) -> dict[int, Range]:
        from mplint.graph.ranges import ranges

        return ranges(self.model, self.targets.input_ranges)

    def concerns(self, node: Node) -> bool:
        """Whether it matters what float16 makes of this node: it computes in it, or the whole model is float32 and may be converted."""
        return node.compute_dtype == "float16" or (self.is_float and node.compute_dtype == "float32")

    @cached_property
    def heavy(self) -> tuple[Node, ...]:
        """The nodes that do nearly all the work: products, convolutions, attention, recurrences."""
        return tuple(node for node in self.nodes if node.kind in HEAVY)

    @cached_property
    def half(self) -> frozenset[str]:
        """The half dtypes that some node computes in."""
        return frozenset(node.compute_dtype for node in self.nodes if node.compute_dtype in HALF)

    @cached_property
    def is_half(self) -> bool:
        """Whether most of the heavy work, or all work where none is heavy, is done in half."""
        dtypes = [n.compute_dtype for n in self.heavy or self.nodes if n.compute_dtype in FLOATS]
        return 2 * sum(dtype in HALF for dtype in dtypes) > len(dtypes)

    @cached_property
    def is_float(self) -> bool:
        """Whether all work on floats is done in float32: a model that may be converted one day."""
        dtypes = {node.compute_dtype for node in self.nodes if node.kind is not OpKind.SHAPE} & FLOATS
        return bool(dtypes) and not dtypes & HALF


def first_output(node: Node) -> str:
    """The name of a node's first output that has one, its own where none has."""
    return next((tensor.name for tensor in node.outputs if tensor.name), node.name)


def source(tensor: Tensor, through: tuple[OpKind, ...] = PASSING) -> Tensor:
    """The tensor that `tensor` is a moved or cast copy of: the first on the way back that a real operation, or nothing, produces."""
    for _ in range(1000):
        node = tensor.producer
        if node is None or node.kind not in through or not node.inputs or node.inputs[0] is None:
            break
        tensor = node.inputs[0]
    return tensor


def users(tensor: Tensor, through: tuple[OpKind, ...] = (OpKind.MOVE,)) -> Iterator[Node]:
    """The real operations that read `tensor`, also by way of nodes that only move it."""
    seen = {id(tensor)}
    stack = [tensor]
    while stack:
        for node in stack.pop().consumers:
            if node.kind not in through:
                yield node
                continue
            for output in node.outputs:
                if id(output) not in seen:
                    seen.add(id(output))
                    stack.append(output)
