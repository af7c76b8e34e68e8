"""Copies of an ONNX model in which tensors are rounded to half and read back, and others are looked at."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from mplint.conversion.onnx.constants import rounded, tensor_of
from mplint.conversion.onnx.lean import Lean, array_of, lean
from mplint.conversion.onnx.program import is_constant
from mplint.conversion.onnx.stepwise import mark
from mplint.conversion.onnx.types import Body
from mplint.conversion.planner import MARGIN
from mplint.conversion.rank import PICKED
from mplint.limits import FLOAT16_MAX

FACTOR = "mplint_margin"
FIRST_BROADCAST = 7  # the first opset whose Mul ONNX Runtime has; in older ones nothing is grown
Added = tuple[str, list[str], dict[str, int]]  # an operator, what it takes besides, its attributes
LIMITS = (("top", FLOAT16_MAX), ("least", -FLOAT16_MAX))
WATCHED = ("If", "Loop", "Scan")  # whose bodies can be looked into


class Change(NamedTuple):
    """What a copy does: the candidates that are rounded, by their numbers, and the values that it gives instead of its outputs, by theirs.

    `saturating`, what is beyond the range becomes the largest number and not infinite.
    """

    chosen: Collection[int] = ()
    watched: Mapping[ir.Value, int] = {}
    saturating: bool = False


class Stencil:
    """A model, written out once, of which copies with other roundings are made; it stays as it is.

    A copy renames a value where it is made, and what rounds it takes its name: nothing else changes. `halves` are the dtypes of each
    candidate, one after the other.
    """

    def __init__(self, model: ir.Model, candidates: Sequence[ir.Value], halves: Sequence[tuple[str, ...]]) -> None:
        self.model, self.candidates, self.halves = model, candidates, halves
        self.numbers = {value: number for number, value in enumerate(candidates)}
        self.base = lean(model)
        self.large = self._large()
        self.grown = any("float16" in given for given in halves) and model.opset_imports.get("", 1) >= FIRST_BROADCAST
        self.constants: dict[ir.Value, np.ndarray] = {}
        self.beyond: dict[ir.Value, bool] = {}
        self.parts: list[_Part] = []  # the nodes of the main graph
        self.frame = onnx.ModelProto()  # all but them

    def copy(self, change: Change) -> Lean:
        """The model with a change."""
        proto = onnx.ModelProto()
        copying = _Copying(self, change)
        if change.watched or self.model.functions:
            proto.CopyFrom(self.base.proto)
            seen = copying.body(self.model.graph, proto.graph)
        else:
            self._cut()
            proto.CopyFrom(self.frame)
            seen = copying.body(self.model.graph, proto.graph, self.parts)
        for function in proto.functions:
            copying.function(self.model.functions[function.domain, function.name, function.overload], function)
        for tensor in proto.graph.initializer:
            if tensor.name in copying.weights:
                tensor.CopyFrom(numpy_helper.from_array(copying.weights[tensor.name], tensor.name))
            tensor.name = copying.aliases.get(tensor.name, tensor.name)  # the default of an input
        if self.grown and not change.saturating:
            proto.graph.initializer.append(numpy_helper.from_array(np.array(MARGIN, dtype=np.float32), FACTOR))
        if change.watched:
            del proto.graph.output[:]
            proto.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in seen)
        renamed = {value.name: _raw(self.numbers[value]) for value in copying.large}
        for tensor in proto.graph.initializer:
            tensor.name = renamed.get(tensor.name, tensor.name)
        weights = {renamed.get(name, name): tensor for name, tensor in self.base.weights.items() if name not in copying.weights}
        return Lean(proto, weights, copying.aliases)

    def _cut(self) -> None:
        """Cut the main graph into its nodes, each of which is written once for each of the changes in it."""
        if self.parts:
            return
        self.frame.CopyFrom(self.base.proto)
        del self.frame.graph.node[:]
        before: dict[ir.Node, list[int]] = {}
        for value, node in self.large.items():
            before.setdefault(node, []).append(self.numbers[value])
        for node, proto in zip(self.model.graph, self.base.proto.graph.node, strict=True):
            inside = [value for value in _made_in(node) if value in self.numbers]
            numbers = sorted({*(self.numbers[value] for value in inside), *before.get(node, ())})
            self.parts.append(_Part(node, proto, tuple(numbers), {}))

    def _large(self) -> dict[ir.Value, ir.Node]:
        """The candidates among the weights that lie outside the message, each with the node of the main graph that takes it first.

        A copy rounds them as it runs, where they are taken: no second one of them stands in memory.
        """
        places = {node: at for at, node in enumerate(self.model.graph)}
        holders = holders_of(self.model)
        found = {}
        for value in self.candidates:
            if value.is_initializer() and value.name in self.base.weights:
                takers = [top for use in value.uses() if (top := outermost(use.node, holders)) in places]
                if takers:
                    found[value] = min(takers, key=places.__getitem__)
        return found

    def constant(self, value: ir.Value) -> np.ndarray:
        """A constant, rounded."""
        if value not in self.constants:
            tensor = tensor_of(value)
            assert tensor is not None
            self.constants[value] = self.rounded(value, tensor.numpy())
        return self.constants[value]

    def is_beyond(self, value: ir.Value) -> bool:
        """Whether a large weight holds finite numbers that float16 does not, and stores as the largest that it has."""
        if value not in self.beyond:
            tensor = tensor_of(value)
            assert tensor is not None
            array = array_of(tensor)  # in the one map of its file, and with no second one of its size
            top, least = np.max(array, initial=0.0, where=np.isfinite(array)), np.min(array, initial=0.0, where=np.isfinite(array))
            self.beyond[value] = max(float(top), -float(least)) > FLOAT16_MAX
        return self.beyond[value]

    def rounded(self, value: ir.Value, array: np.ndarray) -> np.ndarray:
        """What a candidate would be in half."""
        for half in self.halves[self.numbers[value]]:
            array = rounded(array.astype(np.float32), half).astype(np.float32)
        return array


class _Part(NamedTuple):
    """A node of the main graph, its message, the candidates that it makes or that are rounded in front of it, and its messages by the
    chosen ones among them and by whether they saturate."""

    node: ir.Node
    proto: onnx.NodeProto
    numbers: tuple[int, ...]
    written: dict[tuple[bool, tuple[int, ...]], bytes]


def _made_in(node: ir.Node) -> Iterator[ir.Value]:
    """The values that a node makes, and those in its bodies."""
    yield from node.outputs
    for attribute in node.attributes.values():
        if not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPH:
            body = attribute.as_graph()
            yield from (*body.inputs, *body.initializers.values())
            for inner in body:
                yield from _made_in(inner)


def _constants_in(node: ir.Node) -> Iterator[ir.Value]:
    """The initializers of the bodies in a node."""
    for attribute in node.attributes.values():
        if not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPH:
            yield from attribute.as_graph().initializers.values()
            for inner in attribute.as_graph():
                yield from _constants_in(inner)


class _Copying:
    def __init__(self, stencil: Stencil, change: Change) -> None:
        self.stencil, self.change = stencil, change
        self.numbers = frozenset(change.chosen)
        self.chosen = {stencil.candidates[number]: number for number in change.chosen}
        self.weights: dict[str, np.ndarray] = {}  # initializers that are rounded
        self.aliases: dict[str, str] = {}
        self.main = stencil.model.graph
        self.large = [value for value in self.chosen if value in stencil.large]
        self.before: dict[ir.Node, list[ir.Value]] = {}  # large weights that are rounded in front of a node
        for value in self.large:
            self.before.setdefault(stencil.large[value], []).append(value)

    def body(self, body: ir.Graph, proto: onnx.GraphProto, parts: Sequence[_Part] = ()) -> list[str]:
        """Change a body; the names of what it shows of the values that are watched, in the order of their numbers.

        With `parts`, the message has no nodes yet, and they are put together of what was written before.
        """
        nodes: list[onnx.NodeProto] = []
        shown: dict[int, str] = {}
        for value, given in zip(body.inputs, proto.input, strict=True):
            old = given.name
            given.name = self.made(value, old, nodes, shown)
            if given.name != old and body is self.main:
                self.aliases[old] = given.name
        for value in body.initializers.values():
            if value in self.chosen and value not in self.stencil.large:
                self.weights[value.name or ""] = self.stencil.constant(value)
        if body is not self.main:
            for tensor in proto.initializer:
                if tensor.name in self.weights:
                    tensor.CopyFrom(numpy_helper.from_array(self.weights[tensor.name], tensor.name))
        if parts:
            proto.node.extend(nodes)
            proto.MergeFromString(b"".join(map(self.part, parts)))
        else:
            self.nodes(body, proto.node, nodes, shown)
            del proto.node[:]
            proto.node.extend(nodes)
        return [shown[number] for number in sorted(shown)]

    def part(self, part: _Part) -> bytes:
        """A node of the main graph, with what rounds, as the node field of a graph's message."""
        chosen = tuple(number for number in part.numbers if number in self.numbers)
        key = self.change.saturating, chosen
        for value in _constants_in(part.node) if chosen else ():
            if value in self.chosen and value not in self.stencil.large:
                self.weights[value.name or ""] = self.stencil.constant(value)
        if key not in part.written:
            made, nodes = onnx.NodeProto(), list[onnx.NodeProto]()
            made.CopyFrom(part.proto)
            self.nodes([part.node], [made], nodes, {})
            part.written[key] = onnx.GraphProto(node=nodes).SerializeToString()
        return part.written[key]

    def function(self, body: ir.Function, proto: onnx.FunctionProto) -> None:
        """Change a function, in which nothing is watched."""
        nodes: list[onnx.NodeProto] = []
        for at, value in enumerate(body.inputs):
            proto.input[at] = self.made(value, proto.input[at], nodes, {}, inside=True)
        self.nodes(body, proto.node, nodes, {}, inside=True)
        del proto.node[:]
        proto.node.extend(nodes)

    def nodes(
        self,
        body: Iterable[ir.Node],
        given: Iterable[onnx.NodeProto],
        nodes: list[onnx.NodeProto],
        shown: dict[int, str],
        *,
        inside: bool = False,
    ) -> None:
        """The nodes of a body with those that round and show values behind them; `inside` a function."""
        for node, made in zip(body, given, strict=True):
            held = [a.as_graph() for a in node.attributes.values() if not a.is_ref() and a.type == ir.AttributeType.GRAPH]
            protos = [attribute.g for attribute in made.attribute if attribute.type == onnx.AttributeProto.GRAPH]
            seen = [self.body(graph, proto) for graph, proto in zip(held, protos, strict=True)]
            for value in self.before.get(node, ()):
                nodes += self.stored(value)
            nodes.append(made)
            if any(seen) and node.op_type in WATCHED and not inside:
                self.lead_out(made, protos, seen, shown)
            for at, value in enumerate(node.outputs):
                if value in self.chosen and is_constant(value):
                    del made.attribute[:]
                    made.attribute.append(helper.make_attribute("value", numpy_helper.from_array(self.stencil.constant(value))))
                elif value.name:
                    if value in self.chosen:
                        mark(made, int(ir.DataType[self.stencil.halves[self.chosen[value]][0].upper()]))
                    made.output[at] = self.made(value, made.output[at], nodes, shown, inside=inside)

    def made(self, value: ir.Value, name: str, nodes: list[onnx.NodeProto], shown: dict[int, str], *, inside: bool = False) -> str:
        """The name under which a value is to be made; what rounds it and shows it goes to the `nodes`."""
        number = self.chosen.get(value)
        raw = source = name
        if number is not None and not is_constant(value):
            raw = _raw(number)
            halves = self.stencil.halves[number]
            for at, half in enumerate(halves):
                target = name if at == len(halves) - 1 else f"mplint_{number}_as_{half}"
                nodes += self.rounding(raw if not at else source, target, f"mplint_{number}_{at}", half, inside=inside)
                source = target
        if value in self.change.watched and not inside:
            at = self.change.watched[value]
            shown[at] = f"mplint_watch_{at}"
            nodes += _picking(raw, shown[at])
        return raw

    def stored(self, value: ir.Value) -> list[onnx.NodeProto]:
        """Nodes that round a large weight; what half can't hold at all was found by reading it."""
        number = self.chosen[value]
        nodes: list[onnx.NodeProto] = []
        source, *targets = _raw(number), *(f"mplint_{number}_as_{half}" for half in self.stencil.halves[number][:-1]), value.name or ""
        for half, target in zip(self.stencil.halves[number], targets, strict=True):
            steps: list[Added] = []
            if half == "float16" and self.stencil.is_beyond(value):
                nodes += [_constant(np.array(limit, np.float32), f"{target}_{what}") for what, limit in LIMITS]
                steps = [("Min", [f"{target}_top"], {}), ("Max", [f"{target}_least"], {})]
            steps += [("Cast", [], {"to": int(ir.DataType[half.upper()])}), ("Cast", [], {"to": TensorProto.FLOAT})]
            nodes += _chain(steps, source, target, f"{target}_stored")
            source = target
        return nodes

    def rounding(self, source: str, name: str, prefix: str, dtype: str, *, inside: bool) -> list[onnx.NodeProto]:
        """Nodes that store `source` in half and read it back as `name`, at `MARGIN` times its size: the range is used up earlier."""
        half = int(ir.DataType[dtype.upper()])
        saturating = self.change.saturating and dtype == "float16"
        nodes: list[onnx.NodeProto] = []
        before: list[Added] = []
        after: list[Added] = []
        if saturating:
            nodes += [_constant(np.array(limit, np.float32), f"{prefix}_{what}") for what, limit in LIMITS]
            before = [("Min", [f"{prefix}_top"], {}), ("Max", [f"{prefix}_least"], {})]
        elif self.stencil.grown and dtype == "float16" and not self.change.saturating:
            factor = FACTOR
            if inside:
                factor = f"{prefix}_margin"
                nodes.append(_constant(np.array(MARGIN, dtype=np.float32), factor))
            before, after = [("Mul", [factor], {})], [("Div", [factor], {})]
        steps: list[Added] = [*before, ("Cast", [], {"to": half}), ("Cast", [], {"to": TensorProto.FLOAT}), *after]
        return nodes + _chain(steps, source, name, prefix)

    def lead_out(
        self, node: onnx.NodeProto, bodies: Sequence[onnx.GraphProto], seen: Sequence[Sequence[str]], shown: dict[int, str]
    ) -> None:
        """Let a node give what is shown in its bodies; a branch that does not have it gives zeros."""
        for body, own in zip(bodies, seen, strict=True):
            for other in seen:
                for name in other:
                    if other is not own:
                        body.node.append(_constant(np.zeros(PICKED, dtype=np.float32), name))
                    body.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        for names in seen:
            for name in names:
                outer = f"{name}_out"
                node.output.append(outer)
                shown[int(name.removesuffix("_out" * name.count("_out")).rpartition("_")[2])] = outer


def _raw(number: int) -> str:
    """What a candidate is called before it is rounded."""
    return f"mplint_{number}_raw"


def _chain(steps: Sequence[Added], source: str, name: str, prefix: str) -> list[onnx.NodeProto]:
    """Nodes one after the other, the last of which gives `name`."""
    nodes = []
    for at, (op_type, operands, attributes) in enumerate(steps):
        target = name if at == len(steps) - 1 else f"{prefix}_{at}"
        nodes.append(helper.make_node(op_type, [source, *operands], [target]))
        nodes[-1].attribute.extend(helper.make_attribute(key, number) for key, number in attributes.items())
        source = target
    return nodes


def _picking(source: str, name: str) -> list[onnx.NodeProto]:
    """Nodes that give elements of a value: `PICKED` of them, spread over it, whatever its size is."""
    return [
        _constant(np.sort(np.random.default_rng(0).random(PICKED)), f"{name}_places"),
        _constant(np.array([-1], dtype=np.int64), f"{name}_flat"),
        helper.make_node("Reshape", [source, f"{name}_flat"], [f"{name}_line"]),
        helper.make_node("Size", [source], [f"{name}_count"]),
        helper.make_node("Cast", [f"{name}_count"], [f"{name}_wide"], to=TensorProto.DOUBLE),
        helper.make_node("Mul", [f"{name}_wide", f"{name}_places"], [f"{name}_place"]),
        helper.make_node("Cast", [f"{name}_place"], [f"{name}_index"], to=TensorProto.INT64),
        helper.make_node("Gather", [f"{name}_line", f"{name}_index"], [name], axis=0),
    ]


def _constant(array: np.ndarray, name: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))


def owner_of(value: ir.Value) -> ir.Graph | ir.Function | None:
    """The body that a value belongs to."""
    producer = value.producer()
    return producer.graph if producer is not None else value.graph


def holders_of(model: ir.Model) -> dict[Body, ir.Node]:
    """The nodes that hold the bodies of a model's main graph."""
    found: dict[Body, ir.Node] = {}
    for node in model.graph.all_nodes():
        for attribute in node.attributes.values():
            if not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPH:
                found[attribute.as_graph()] = node
    return found


def outermost(node: ir.Node, holders: Mapping[Body, ir.Node]) -> ir.Node:
    """The node of the main graph that a node is, or in whose bodies it lies."""
    while node.graph is not None and node.graph in holders:
        node = holders[node.graph]
    return node
