"""A model as a map: its operations in the boxes of their layers, by dtype, casts as edges; all that a page draws, as plain values."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mplint.findings import Finding
from mplint.graph.facts import GraphFacts, first_output
from mplint.graph.model import FLOATS, Graph, GraphError, Node, OpKind, Tensor
from mplint.graph.operations import chunks
from mplint.graph.ranges import Range
from mplint.graph.work import work
from mplint.report.page.layout import Box, Link, arrange

LARGEST = 30_000  # nodes
DEEPEST = 12  # boxes within each other; deeper scopes share one
NODE_WIDTH, NODE_HEIGHT = 128.0, 34.0
READ = 1 << 28  # bytes of weights whose values are looked at
_PATH = re.compile(r"/|\.(?!\d)")  # what stands between the parts of a layer's path: "encoder/layers.0", "encoder.layers.0"
IMPLICIT = ("keras", "keras-h5", "torch-export")  # formats whose operations cast what they read by themselves
PILLS = {"input": "input", "output": "output"}

Plain = dict[str, object]


@dataclass(slots=True)
class Scope:
    """A layer, a body or a function, with the layers in it."""

    name: str
    parent: Scope | None
    box: Box = field(default_factory=Box)
    inner: dict[str, Scope] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    number: int = 0

    def within(self, name: str) -> Scope:
        """The scope of this name in this one."""
        if name not in self.inner:
            self.inner[name] = Scope(name, self)
        return self.inner[name]


@dataclass(slots=True, eq=False)
class Mark:
    """Something that the map shows at one place: a node of the model, or one of its inputs or outputs."""

    kind: str
    name: str
    op: str
    dtype: str | None
    scope: Scope
    node: Node | None = None
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    weights: tuple[Tensor, ...] = ()
    box: Box = field(default_factory=lambda: Box(NODE_WIDTH, NODE_HEIGHT))
    number: int = 0


class Edge(NamedTuple):
    """A tensor on its way from one mark to another, and the dtypes at both ends: two of floats are a cast."""

    source: int
    target: int
    given: str | None
    taken: str | None

    @property
    def is_cast(self) -> bool:
        """Whether floats change their dtype on the way."""
        return self.given != self.taken and self.given in FLOATS and self.taken in FLOATS


class PrecisionMap(NamedTuple):
    """What the page draws (`drawn`), and what it says beside it: how many marks and casts there are, and operations of each dtype."""

    drawn: Plain
    nodes: int
    casts: int
    counts: tuple[tuple[str, int], ...]
    layers: tuple[Layer, ...]


class Layer(NamedTuple):
    """A box of the map as a table shows it: its name, how deep it lies, its operations on floats by dtype, its share of the work."""

    name: str
    depth: int
    dtypes: tuple[tuple[str, int], ...]
    work: float | None
    scope: int


def precision_map(
    facts: GraphFacts, reasons: Mapping[str, str] = {}, findings: Sequence[Finding] = (), sizes: Mapping[str, float] = {}
) -> PrecisionMap | None:
    """The map of a model, None where there is nothing to draw or too much.

    `reasons` say of nodes, by the names that they go by, why they are in the dtype that they are in, `sizes` how large tensors, or the
    results of nodes, became on samples.
    """
    if not 0 < len(facts.nodes) <= LARGEST:
        return None
    root, marks, ends = _marks(facts)
    edges = sorted(set(_edges(facts, marks, ends)))
    for old in _folded(root):
        old.parent = None
    scopes = list(_scopes(root))
    _lay_out(scopes, marks, edges)
    said = _Said(facts, reasons, findings, sizes, [mark for mark in marks if mark.node is not None])
    drawn = said.plain(scopes, marks, edges)
    dtypes = Counter(mark.dtype or "unknown" for mark in said.shown)
    counts = tuple(sorted(dtypes.items(), key=lambda item: (item[0] not in FLOATS, -item[1], item[0])))
    return PrecisionMap(drawn, len(said.shown), sum(edge.is_cast for edge in edges), counts, tuple(_layers(scopes, said)))


def _marks(facts: GraphFacts) -> tuple[Scope, list[Mark], dict[int, Mark]]:
    """The scopes, everything to show in an order in which it may run, and the marks of inputs by the identity of the tensor."""
    root = Scope("", None)
    graph = facts.model.graph
    marks = [_pill("input", graph, tensor, root) for tensor in graph.inputs]
    ends = {id(mark.outputs[0]): mark for mark in marks}
    bodies = [_Body(graph, root), *(_Body(body, root.within(f"function {name}")) for name, body in facts.model.functions.items())]
    marks += [_mark(node, scope) for body in bodies for node, scope in _placed(body) if not is_cast(node) and not _is_box(node)]
    marks += [_pill("output", graph, tensor, root) for tensor in graph.outputs]
    for number, mark in enumerate(marks):
        mark.number = number
        mark.scope.marks.append(mark)
    return root, marks, ends


class _Body(NamedTuple):
    """A graph, the scope that it fills, and the path of the layer that it is the body of."""

    graph: Graph
    scope: Scope
    path: str = ""


def _placed(body: _Body) -> Iterator[tuple[Node, Scope]]:
    """Every node with its scope, those of the bodies of a node right after it."""
    stack = [(body, iter(body.graph.nodes))]
    while stack:
        (_, scope, path), nodes = stack[-1]
        node = next(nodes, None)
        if node is None:
            stack.pop()
            continue
        place = _inner(scope, node.layer.removeprefix(path))
        yield node, place
        for name, inner in reversed(node.graphs.items()):
            box = place.within(node.name or node.op_type)
            own = box if len(node.graphs) == 1 else box.within(name)
            stack.append((_Body(inner, own, f"{node.layer}/{node.name}".strip("/")), iter(inner.nodes)))


def _inner(scope: Scope, layer: str) -> Scope:
    parts = [part for part in _PATH.split(layer) if part]
    for part in parts[: DEEPEST - 1]:
        scope = scope.within(part)
    return scope.within("/".join(parts[DEEPEST - 1 :])) if len(parts) >= DEEPEST else scope


def _mark(node: Node, scope: Scope) -> Mark:
    given = tuple(tensor for tensor in node.inputs if tensor is not None)
    held = tuple({id(tensor): tensor for tensor in (*given, *node.weights.values()) if tensor.weights is not None}.values())
    taken = tuple(tensor for tensor in given if tensor.weights is None)
    dtype = node.compute_dtype or next((tensor.dtype for tensor in node.outputs if tensor.dtype), None)
    return Mark("node", node.name or first_output(node), node.op_type, dtype, scope, node, taken, node.outputs, held)


def _pill(kind: str, graph: Graph, tensor: Tensor, scope: Scope) -> Mark:
    name = graph.public.get(id(tensor), tensor.name)
    ends = ((), (tensor,)) if kind == "input" else ((tensor,), ())
    return Mark(kind, name, PILLS[kind], tensor.dtype, scope, None, *ends)


def _is_box(node: Node) -> bool:
    """Whether a node is its body and nothing else: a model in a model, or a function that is called once."""
    return node.kind is OpKind.CALL and bool(node.graphs) and all(tensor.inside for tensor in node.outputs)


def is_cast(node: Node) -> bool:
    """Whether a node does nothing but turn floats into floats of another dtype: an edge of the map."""
    given = node.inputs[0] if node.inputs else None
    return (
        node.kind is OpKind.CAST
        and given is not None
        and given.weights is None
        and given.dtype in FLOATS
        and len(node.outputs) == 1
        and node.outputs[0].dtype in FLOATS
    )


def _edges(facts: GraphFacts, marks: Sequence[Mark], ends: Mapping[int, Mark]) -> Iterator[Edge]:
    by_node = {id(mark.node): mark for mark in marks if mark.node is not None}
    implicit = facts.model.format in IMPLICIT
    for mark in marks:
        for tensor in mark.inputs:
            for origin in _origins(tensor):
                maker = by_node.get(id(origin.producer)) if origin.producer is not None else ends.get(id(origin))
                if maker is None:
                    continue
                computes = mark.node.compute_dtype if mark.node is not None else None
                taken = computes if implicit and computes in FLOATS and tensor.dtype in FLOATS else tensor.dtype
                yield Edge(maker.number, mark.number, origin.dtype, taken)


def _origins(tensor: Tensor) -> Iterator[Tensor]:
    """What a tensor is before casts, in the body that it comes out of, and outside of the body that it is a parameter of."""
    seen: set[int] = set()
    stack = [tensor]
    while stack and len(seen) < 64:
        one = stack.pop()
        if id(one) in seen or one.weights is not None:
            continue
        seen.add(id(one))
        maker = one.producer
        if maker is not None and is_cast(maker) and maker.inputs[0] is not None:
            stack.append(maker.inputs[0])
        elif maker is not None and _is_box(maker):
            stack += one.inside
        elif maker is None and one.given:
            stack += one.given
        else:
            yield one


def _folded(root: Scope) -> Iterator[Scope]:
    """Let what holds a single thing be one with it; the scopes that went are given out."""
    scopes = list(_scopes(root))
    for scope in reversed(scopes[1:]):
        parent = scope.parent
        if parent is None:
            continue
        if not scope.marks and not scope.inner:
            del parent.inner[scope.name]
            yield scope
        elif not scope.inner and len(scope.marks) == 1:  # a layer of one operation
            (mark,) = scope.marks
            mark.scope = parent
            parent.marks.append(mark)
            del parent.inner[scope.name]
            yield scope
        elif not scope.marks and len(scope.inner) == 1:
            ((_, inner),) = scope.inner.items()
            scope.inner, scope.marks = inner.inner, inner.marks
            key, scope.name = scope.name, f"{scope.name}/{inner.name}"
            for mark in scope.marks:
                mark.scope = scope
            for below in scope.inner.values():
                below.parent = scope
            parent.inner = {(scope.name if name == key else name): one for name, one in parent.inner.items()}
            yield inner


def _scopes(root: Scope) -> Iterator[Scope]:
    stack = [root]
    while stack:
        scope = stack.pop()
        yield scope
        stack += reversed(scope.inner.values())


def _lay_out(scopes: Sequence[Scope], marks: Sequence[Mark], edges: Iterable[Edge]) -> None:
    """Give every scope and mark its place."""
    middle: dict[int, float] = {}  # of a scope in the order of running: its first operation alone may be a constant of its last
    count: dict[int, int] = {}
    for scope in reversed(scopes):
        scope.marks.sort(key=lambda mark: mark.number)
        within = list(scope.inner.values())
        count[id(scope)] = len(scope.marks) + sum(count[id(inner)] for inner in within)
        total = sum(mark.number for mark in scope.marks) + sum(middle[id(inner)] * count[id(inner)] for inner in within)
        middle[id(scope)] = total / max(1, count[id(scope)])
    position: dict[int, int] = {}  # of a box among those beside it, by its identity
    for number, scope in enumerate(scopes):
        scope.number = number
        members: list[tuple[float, Box]] = [(mark.number, mark.box) for mark in scope.marks]
        members += [(middle[id(inner)], inner.box) for inner in scope.inner.values()]
        scope.box.inner = [box for _, box in sorted(members, key=lambda member: member[0])]
        position |= {id(box): at for at, box in enumerate(scope.box.inner)}
    paths = [tuple(_path(mark)) for mark in marks]
    links: dict[int, set[Link]] = {}
    for edge in edges:
        holder, (source, target) = _parting(paths[edge.source], paths[edge.target])
        links.setdefault(id(holder), set()).add(Link(position[id(source)], position[id(target)]))
    scopes[0].box.header = 0.0
    arrange(scopes[0].box, links)


def _path(mark: Mark) -> Iterator[Box]:
    """The boxes from the whole to a mark."""
    found = [mark.box]
    scope: Scope | None = mark.scope
    while scope is not None:
        found.append(scope.box)
        scope = scope.parent
    return reversed(found)


def _parting(one: Sequence[Box], other: Sequence[Box]) -> tuple[Box, tuple[Box, Box]]:
    """The innermost box that two marks share, and the boxes in it that hold the one and the other."""
    at = next(at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] is not pair[1])
    return one[at - 1], (one[at], other[at])


class _Said:
    """What the map says of its marks, as plain values; texts and tensors stand in tables, each once."""

    def __init__(
        self,
        facts: GraphFacts,
        reasons: Mapping[str, str],
        findings: Sequence[Finding],
        sizes: Mapping[str, float],
        shown: Sequence[Mark],
    ) -> None:
        self.facts, self.reasons, self.sizes, self.shown = facts, reasons, sizes, shown
        self.words: dict[str, int] = {}
        self.tensors: dict[int, int] = {}
        self.rows: list[Plain] = []
        self.left = READ
        self.work = {id(mark): size.flops for mark in shown if mark.node is not None and (size := work(mark.node)) is not None}
        self.total = sum(self.work.values())
        self.found: dict[str, list[int]] = {}
        for number, finding in enumerate(findings):
            if finding.node is not None and finding.location.path == facts.path:
                self.found.setdefault(finding.node, []).append(number)

    def plain(self, scopes: Sequence[Scope], marks: Sequence[Mark], edges: Sequence[Edge]) -> Plain:
        """Everything that is drawn."""
        found: Plain = {
            "scopes": [self.scope(scope) for scope in scopes],
            "nodes": [self.mark(mark) for mark in marks],
            "edges": [[edge.source, edge.target, self.word(edge.given), self.word(edge.taken)] for edge in edges],
            "floats": [self.word(dtype) for dtype in sorted(FLOATS)],
        }
        return found | {"tensors": self.rows, "words": list(self.words)}

    def scope(self, scope: Scope) -> list[object]:
        """Place, size, parent, name, and its own operations by dtype."""
        parent = scope.parent.number if scope.parent is not None else -1
        counts = [[self.word(dtype), count] for dtype, count in sorted(dtypes_in(scope.marks).items())]
        return [*_rounded(scope.box), parent, scope.name, counts]

    def mark(self, mark: Mark) -> Plain:
        """A node with all that a click shows; what is not known is left out."""
        node = mark.node
        flops = self.work.get(id(mark))
        names = (mark.name, *((first_output(node), f"{node.layer}/{node.name}") if node is not None else ()))
        reason = next((self.reasons[name] for name in names if name in self.reasons), "")
        found = {
            "n": mark.name,
            "k": 0 if mark.kind == "node" else 1 if mark.kind == "input" else 2,
            "o": self.word(mark.op),
            "d": self.word(mark.dtype),
            "s": mark.scope.number,
            "l": node.layer if node is not None else "",
            "b": _rounded(mark.box)[:2],
            "r": self.word(reason) if reason else None,
            "f": flops,
            "p": round(100 * flops / self.total, 3) if flops and self.total else None,
            "i": [self.tensor(tensor) for tensor in mark.inputs],
            "u": [self.tensor(tensor) for tensor in mark.outputs],
            "w": [self.tensor(tensor) for tensor in mark.weights],
            "x": self.found.get(mark.name, []) if node is not None else [],
        }
        return {key: value for key, value in found.items() if value not in (None, [], "")}

    def tensor(self, tensor: Tensor) -> int:
        """The number of a tensor in the table."""
        if id(tensor) not in self.tensors:
            low, high = self.range(tensor)
            size = self.size(tensor)
            row = {"n": tensor.name, "d": self.word(tensor.dtype), "s": tensor.described.partition("[")[2].rstrip("]")}
            self.tensors[id(tensor)] = len(self.rows)
            self.rows.append({**row, "b": tensor.nbytes, "r": [low, high] if low is not None or high is not None else None, "m": size})
        return self.tensors[id(tensor)]

    def range(self, tensor: Tensor) -> tuple[float | None, float | None]:
        """The least and the largest value, as far as they are known."""
        if tensor.weights is not None and tensor.dtype in FLOATS and tensor.weights.nbytes <= self.left:
            self.left -= tensor.weights.nbytes
            return _ends_of(tensor)
        known: Range = self.facts.range_of(tensor)
        return _finite(known.low), _finite(known.high)

    def size(self, tensor: Tensor) -> float | None:
        """The largest |value| on samples; -1 for an infinite one, None where nothing is known."""
        if not self.sizes or tensor.weights is not None or tensor.dtype not in FLOATS:
            return None
        node = tensor.producer
        while node is not None and is_cast(node) and node.inputs[0] is not None:  # the copies of a tensor in other dtypes
            tensor, node = node.inputs[0], node.inputs[0].producer
        names = [tensor.name, *(tensor.name.removesuffix(f"_{dtype}") for dtype in sorted(FLOATS))]
        if node is not None and node.outputs[0] is tensor:
            names += [node.name, f"{node.layer}/{node.name}"]
        found = next((self.sizes[name] for name in names if name in self.sizes), None)
        return None if found is None else -1.0 if math.isinf(found) else float(f"{found:.4g}")

    def word(self, text: str | None) -> int:
        """The number of a text in the table."""
        return self.words.setdefault(text or "unknown", len(self.words))


def _ends_of(tensor: Tensor) -> tuple[float | None, float | None]:
    """The least and the largest element of a weight."""
    low, high = math.inf, -math.inf
    try:
        for chunk in chunks(tensor):
            if chunk.size:
                low, high = min(low, float(chunk.min())), max(high, float(chunk.max()))
    except GraphError:
        return None, None
    return _finite(low), _finite(high)


def _finite(number: float) -> float | None:
    return float(f"{number:.4g}") if math.isfinite(number) else None


def _rounded(box: Box) -> list[int]:
    return [round(box.x), round(box.y), round(box.width), round(box.height)]


def dtypes_in(marks: Iterable[Mark]) -> Counter[str]:
    """How many operations on floats compute in which dtype."""
    return Counter(mark.dtype for mark in marks if mark.node is not None and mark.dtype in FLOATS)


def _layers(scopes: Sequence[Scope], said: _Said) -> Iterator[Layer]:
    """The layers of the map with all that lies in them."""
    sums: dict[int, Counter[str]] = {}
    effort: dict[int, int] = {}
    for scope in reversed(scopes):
        within = list(scope.inner.values())
        sums[id(scope)] = sum((sums[id(inner)] for inner in within), dtypes_in(scope.marks))
        effort[id(scope)] = sum(effort[id(inner)] for inner in within) + sum(said.work.get(id(mark), 0) for mark in scope.marks)
    for scope in scopes[1:]:
        depth = sum(1 for _ in _above(scope)) - 1
        share = effort[id(scope)] / said.total if said.total else None
        counts = tuple(sorted(sums[id(scope)].items(), key=lambda item: (-item[1], item[0])))
        yield Layer(scope.name, depth, counts, share, scope.number)


def _above(scope: Scope) -> Iterator[Scope]:
    one: Scope | None = scope
    while one is not None and one.name:
        yield one
        one = one.parent
