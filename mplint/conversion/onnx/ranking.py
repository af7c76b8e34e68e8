"""What each tensor of an ONNX model costs in half, estimated from one run of the model and one of it with every candidate rounded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.constants import tensor_of
from mplint.conversion.onnx.instrument import WATCHED, Change, Stencil, holders_of, owner_of
from mplint.conversion.onnx.lean import array_of, release
from mplint.conversion.onnx.program import Program, is_constant, is_float
from mplint.conversion.onnx.run import LARGE, Feed, Outputs, Session, weight_bytes
from mplint.conversion.onnx.types import Body
from mplint.conversion.planner import MARGIN
from mplint.conversion.rank import Seen, Step, compared, contributions
from mplint.limits import FLOAT16_MAX

EARLY = 16  # one in so many candidates is computed first
MANY = 1 << 14  # elements of a constant that are looked at
FIRST = 8  # the first opset whose Min and Max broadcast
ADDING = frozenset(("Add", "Sub", "Sum", "Mean", "Concat"))
Watched = Mapping[ir.Value, np.ndarray]


class Ranking:
    """The estimates of a program's candidates, from runs on any number of feeds."""

    def __init__(self, program: Program, stencil: Stencil, lost: Collection[ir.Value] = ()) -> None:
        self.program, self.stencil = program, stencil
        holders = holders_of(program.model)
        self.values = [v for v in program.producers if v not in lost and not is_constant(v) and _can_be_watched(program.model, v, holders)]
        self.steps = list(steps(program.model.graph))
        places: dict[ir.Value, int] = {}  # of what each tensor is made or taken by
        for place, step in enumerate(self.steps):
            for value in (*step.inputs, *step.outputs):
                places.setdefault(value, place)
        numbers = range(len(stencil.candidates))
        self.first = sorted(numbers, key=lambda number: places.get(stencil.candidates[number], 0))  # in the order of computation
        self.kept = weight_bytes(program.model) < LARGE  # whether sessions stay open for the next look
        self.sessions: dict[int, Session] = {}  # by how many of the candidates are rounded
        self.costs: dict[ir.Value, float] = {}
        self.beyond: set[ir.Value] = set()  # what leaves the range of float16 on a feed: nothing else may be wrong

    def look(self, feed: Feed) -> None:
        """Learn from a run on a feed; where the rounded model does not run on it, nothing."""
        if self.program.model.opset_imports.get("", 1) < FIRST:
            return
        try:
            everything = len(self.stencil.candidates)
            counts = (0, everything, -(-everything // EARLY))
            plain, moved, passed = (dict(zip(self.values, self._run(feed, count), strict=True)) for count in counts)
        except Exception:
            return
        self.beyond.update(value for value in self.values if "float16" in self.program.halves_of(value) and _leaves_range(plain[value]))
        costs = contributions(self.steps, self.program.model.graph.outputs, self._seen(plain, moved), _errors(plain, passed))
        for value, cost in costs.items():
            self.costs[value] = max(self.costs.get(value, 0.0), cost)

    def close(self) -> None:
        """Free the sessions; a further look opens them again."""
        for session in self.sessions.values():
            session.close()
        self.sessions = {}

    def _run(self, feed: Feed, count: int) -> Outputs:
        """Elements of each tensor that is watched, as they are before their own rounding, with the first candidates rounded, `count` of
        them."""
        if count not in self.sessions:
            watched = {value: number for number, value in enumerate(self.values)}
            self.sessions[count] = Session(self.stencil.copy(Change(self.first[:count], watched, saturating=True)))
        outputs = self.sessions[count].run(feed)
        if not self.kept:
            self.close()
        return outputs

    def _seen(self, plain: Mapping[ir.Value, object], moved: Mapping[ir.Value, object]) -> dict[ir.Value, Seen]:
        found = {}
        among = set(self.stencil.candidates)
        for value in self.stencil.candidates:
            tensor = tensor_of(value) if is_constant(value) else None
            if tensor is not None:
                array = np.array(picked(array_of(tensor)), dtype=np.float32)  # a copy: its file is not held
                release(tensor)
                found[value] = compared(array, array, self.stencil.rounded(value, array))
        for value in self.values:
            one, other = np.asarray(plain[value]).reshape(-1), np.asarray(moved[value]).reshape(-1)
            if one.shape == other.shape and one.size:
                found[value] = compared(one, other, self.stencil.rounded(value, other) if value in among else other)
        return found


def _errors(plain: Mapping[ir.Value, object], moved: Mapping[ir.Value, object]) -> dict[ir.Value, float]:
    """The relative error of each tensor of one run, as another gives it."""
    found = {}
    for value, given in plain.items():
        one, other = np.asarray(given).reshape(-1), np.asarray(moved[value]).reshape(-1)
        if one.shape == other.shape and one.size:
            found[value] = compared(one, other, other).before
    return found


def _leaves_range(elements: object) -> bool:
    """Whether elements of a tensor are too large for float16, with a margin."""
    array = np.asarray(elements)
    return bool(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)) * MARGIN > FLOAT16_MAX)


def picked(array: np.ndarray) -> np.ndarray:
    """Elements of a constant, spread over it: all of them where it is small."""
    flat = array.reshape(-1)
    return flat if flat.size <= MANY else flat[np.sort(np.random.default_rng(0).integers(0, flat.size, MANY))]


def steps(body: Body) -> Iterator[Step[ir.Value]]:
    """The operations of a body and of those within, in the order of computation."""
    for node in body:
        inner = [a.as_graph() for a in node.attributes.values() if not a.is_ref() and a.type == ir.AttributeType.GRAPH]
        for graph in inner:
            first = 2 if node.op_type == "Loop" else 0
            for formal, actual in zip(graph.inputs[first:], node.inputs[first:], strict=False):
                if actual is not None:
                    yield Step((actual,), (formal,), passes=True)
            yield from steps(graph)
            skipped = 1 if node.op_type == "Loop" else 0
            for made, output in zip(graph.outputs[skipped:], node.outputs, strict=False):
                yield Step((made,), (output,), passes=True)
        if not inner:
            yield Step([value for value in node.inputs if is_float(value) and value is not None], node.outputs, adds=node.op_type in ADDING)


def _can_be_watched(model: ir.Model, value: ir.Value, holders: Mapping[Body, ir.Node]) -> bool:
    """Whether a value lies in the main graph, or in bodies of Ifs, Loops and Scans in it."""
    owner = owner_of(value)
    while owner is not None and owner is not model.graph:
        node = holders.get(owner)
        if node is None or node.op_type not in WATCHED:
            return False
        owner = node.graph
    return owner is not None
