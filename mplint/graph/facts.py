"""What graph rules ask of a model: the model, the targets, and what is derived from both once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from mplint.findings import NodePlace, Severity
from mplint.graph.model import FLOATS, HALF, HEAVY, ModelGraph, Node, Tensor
from mplint.graph.operations import computes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mplint.graph.density import Density
    from mplint.graph.operands import Operand, Operands
    from mplint.graph.ranges import Range
    from mplint.graph.stored import Stored
    from mplint.targets import Targets

TORCH = ("torch-export", "torchscript")


class GraphFacts:
    """One model with its targets, as `Rule.check_graph` gets it."""

    def __init__(self, model: ModelGraph, targets: Targets) -> None:
        self.model = model
        self.targets = targets
        self.alike: dict[tuple[str, str], tuple[Node, ...]] = {}

    def first_of(self, code: str, nodes: Sequence[Node]) -> Node:
        """The node at which a rule reports all of the `nodes`, which `alike` has by the code and its name."""
        self.alike[code, nodes[0].name] = tuple(nodes)
        return nodes[0]

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

    def operand(self, tensor: Tensor | None) -> Operand | None:
        """What is known of a tensor that no input of the model changes: a weight, a number written into an operation, a fill, a constant
        expression; None for data.
        """
        return None if tensor is None else self._operands.of(tensor)

    @cached_property
    def _operands(self) -> Operands:
        from mplint.graph.operands import Operands

        return Operands(self.range_of, torch=self.model.format in TORCH)

    def density_of(self, node: Node) -> Density:
        """How many positions what a node makes has for one of the input's."""
        from mplint.graph.density import Density

        return next((self._densities[id(tensor)] for tensor in node.outputs if id(tensor) in self._densities), Density())

    @cached_property
    def _densities(self) -> dict[int, Density]:
        from mplint.graph.density import densities

        return densities(self.nodes)

    def half_of(self, node: Node) -> str | None:
        """The half dtype that matters for a node: that it computes in, or that a conversion of a float32 model would give it.

        The conversion is the one that `--policy` asks about, else the usual one to float16.
        """
        if node.compute_dtype in HALF:
            return node.compute_dtype
        return self.assumed if self.is_float and node.compute_dtype == "float32" else None

    @property
    def assumed(self) -> str:
        """The half dtype of the conversion that is thought of where a model is float32."""
        return (self.targets.policy or "mixed_float16").removeprefix("mixed_")

    @property
    def is_asked(self) -> bool:
        """Whether the user asks what a conversion of the model would meet."""
        return self.targets.policy is not None

    def is_half_work(self, dtype: str | None) -> bool:
        """Whether work on a dtype is, or after the conversion that the user asks about would be, done in half."""
        return dtype in HALF or (self.is_asked and dtype == "float32" and not self.half)

    def severity_of(self, severity: Severity) -> Severity:
        """How bad it is what a half dtype does to this model: a float32 one is right as it is, until someone asks for its conversion."""
        return severity if not self.is_float else Severity.WARNING if self.is_asked else Severity.INFO

    @cached_property
    def working(self) -> tuple[Node, ...]:
        """The nodes that compute: all but moves, casts, checks, sizes and calls."""
        return tuple(node for node in self.nodes if computes(node))

    @cached_property
    def heavy(self) -> tuple[Node, ...]:
        """The nodes that do nearly all the work: products, convolutions, attention, recurrences."""
        return tuple(node for node in self.nodes if node.kind in HEAVY)

    @cached_property
    def half(self) -> frozenset[str]:
        """The half dtypes that some node computes in."""
        return frozenset(node.compute_dtype for node in self.working if node.compute_dtype in HALF)

    @cached_property
    def is_half(self) -> bool:
        """Whether most of the work on floats is done in half: by operations where sizes are known, else by nodes."""
        from mplint.graph.work import work

        nodes = [node for node in self.heavy or self.working if node.compute_dtype in FLOATS]
        known = [size.flops if (size := work(node)) is not None else None for node in nodes]
        flops = [count for count in known if count]
        usual = sum(flops) / len(flops) if flops else 1
        shares = [count or usual for count in known]
        return 2 * sum(s for node, s in zip(nodes, shares, strict=True) if node.compute_dtype in HALF) > sum(shares)

    @cached_property
    def is_float(self) -> bool:
        """Whether all work on floats is done in float32: a model that may be converted one day."""
        dtypes = {node.compute_dtype for node in self.working} & FLOATS
        return bool(dtypes) and not dtypes & HALF


def first_output(node: Node) -> str:
    """The name of a node's first output that has one, its own where none has."""
    return next((tensor.name for tensor in node.outputs if tensor.name), node.name)
