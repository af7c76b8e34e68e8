"""Which tensors may be stored in half: measured on the model itself, not read off a list of operators.

Each trial is a copy of the model in which the chosen tensors are rounded where they are made, and no others. It sees overflow, underflow,
cancellation, indices above 2048 and vanished epsilons alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from mplint.conversion import fill
from mplint.conversion.distance import Distance
from mplint.conversion.fill import Cost
from mplint.conversion.onnx.constants import damage, tensor_of
from mplint.conversion.onnx.growth import grows, unbounded
from mplint.conversion.onnx.instrument import Change, Stencil
from mplint.conversion.onnx.program import Program, is_constant
from mplint.conversion.onnx.ranking import Ranking
from mplint.conversion.onnx.run import Session
from mplint.conversion.onnx.samples import Samples
from mplint.conversion.onnx.unseen import unseen
from mplint.conversion.planner import HEAVY_GAIN, HEAVY_SHARE, Trials, inherit, misfits
from mplint.conversion.policy import ConversionError, Policy

LARGE = 1 << 16  # elements; larger constants are judged by reading them before they are tried
# Operators whose results are values of their inputs: what goes in rounded comes out rounded.
EXACT = frozenset(
    (
        "Relu",
        "Transpose",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Slice",
        "Concat",
        "Gather",
        "GatherElements",
        "GatherND",
        "Max",
        "Min",
        "Identity",
    )
) | frozenset(
    ("Neg", "Abs", "Flatten", "Split", "Expand", "Tile", "MaxPool", "GlobalMaxPool", "Where", "DepthToSpace", "SpaceToDepth", "Compress")
)


class Measurement:
    """The tensors of a program on some feeds, and how the outputs move when they are rounded."""

    def __init__(self, program: Program, policy: Policy, samples: Samples) -> None:
        self.program, self.policy, self.samples = program, policy, samples
        self.reasons: dict[ir.Value, str] = {}
        self.candidates: list[ir.Value] = []
        self.derived: dict[ir.Value, list[ir.Value]] = {}
        growing = unbounded(program, [value for value in program.producers if grows(value)], samples.feeds)
        self.reasons |= unseen(program, samples.all_feeds())
        for value in program.producers:
            if value in growing and value not in self.reasons:
                self.reasons[value] = "an exp grows beyond any sample: data not seen may exceed the range"
            if not any(not program.operations[number].stays for number in program.around(value)):
                continue
            if is_constant(value):
                tensor = tensor_of(value)
                if tensor is None:
                    self.reasons[value] = "its value is not in the file"
                    continue
                halves = program.halves_of(value) if tensor.size > LARGE else ()
                if why := next(filter(None, (damage(tensor, replace(policy, half=half)) for half in halves)), ""):
                    self.reasons[value] = why
            if value in self.reasons:
                continue
            sources = self._sources(value)
            if sources:
                self.derived[value] = sources
            else:
                self.candidates.append(value)
        self.stencil = Stencil(program.model, self.candidates, [program.halves_of(value) for value in self.candidates])
        self.costs: dict[ir.Value, float] = {}  # what the rounding of each moves the outputs by, by an estimate
        self.found = dict(self.reasons)  # what must stay float32, as far as anyone knows by now
        self.tried: _Trials | None = None
        self.numbers = {value: number for number, value in enumerate(self.candidates)}
        self.beside: dict[int, list[ir.Value]] = {}  # the tensors that each operation makes or takes
        for value in program.producers:
            for number in program.around(value):
                self.beside.setdefault(number, []).append(value)

    def _sources(self, value: ir.Value) -> list[ir.Value]:
        """The tensors whose values `value` only hands on; [] where it is computed anew."""
        node = value.producer()
        if node is None or node.op_type not in EXACT or node.domain not in ("", "ai.onnx"):
            return []
        number = self.program.producers.get(value)
        if number is None or value not in node.outputs or node.outputs.index(value) not in self.program.operations[number].outputs:
            return []
        return [v for at, v in enumerate(node.inputs) if v is not None and at in self.program.operations[number].inputs]

    def _weight(self, value: ir.Value) -> int:
        """Tensors beside heavy operations are tried first: they have the first claim on the tolerance."""
        return 0 if any(self.program.operations[number].gain == HEAVY_GAIN for number in self.program.around(value)) else 1

    def unsafe(self, tolerance: float, tell: Callable[[str], None] = lambda _: None, stress: Samples | None = None) -> dict[ir.Value, str]:
        """The tensors that must stay float32, and why; `tell` hears how far the search is.

        What does not bear the larger inputs of `stress` stays too; what reaches a heavy operation is not asked for that. Asked again, when
        the samples have become more, it goes on from there: what had to stay float32 stays.
        """
        found = self.found
        tolerance *= self.samples.room
        tried = self.tried = self.tried or _Trials(self, self.samples, tolerance * HEAVY_SHARE, tell)
        heavy = list(dict.fromkeys(group for number in self._heavy() if (group := self._around(number, found))))
        with_heavy = {number for group in heavy for number in group}
        light = [(number,) for number, value in enumerate(self.candidates) if number not in with_heavy and value not in found]
        bad = misfits(heavy, light, tried, tolerance)
        good = {number for group in (*heavy, *light) if group not in bad for number in group}
        for group, far in bad.items():
            found |= {(value := self.candidates[number]): self._moved(value, far) for number in group if number not in good}
        self.costs = tried.costs()
        tried.close()
        if stress is not None and stress.feeds:
            rest = [(number,) for number in self._light(found)]
            kept = [(number,) for number in sorted(good - {number for (number,) in rest})]
            larger = _Trials(self, stress, tolerance, tell)
            if rest and not larger.everywhere([*kept, *rest]).within(tolerance):
                bad = fill.misfits(rest, larger.everywhere, tolerance, cost=tried.cost())
                found |= {
                    (value := self.candidates[number]): f"{self._moved(value, far)} on larger inputs" for (number,), far in bad.items()
                }
        inherit(found, self.derived)
        return found

    def _heavy(self) -> Iterable[int]:
        """The heavy operations that may be half."""
        operations = self.program.operations
        return (number for number, one in enumerate(operations) if one.gain == HEAVY_GAIN and not one.stays)

    def _around(self, number: int, lost: Collection[ir.Value]) -> tuple[int, ...]:
        """The candidates that an operation takes and makes, be it through operators that only hand values on; () where one is lost."""
        found: set[int] = set()
        stack = list(self.beside.get(number, ()))
        while stack:
            value = stack.pop()
            if value in lost:
                return ()
            if value in self.numbers:
                found.add(self.numbers[value])
            stack += self.derived.get(value, ())
        return tuple(sorted(found))

    def _moved(self, value: ir.Value, far: Distance) -> str:
        how = far.broken or (f"it moves an output by {far.error:.2g}" if far.error < float("inf") else "it moves an output too far")
        return f"rounded to {' and '.join(self.program.halves_of(value))}, {how}"

    def _light(self, found: Mapping[ir.Value, str]) -> list[int]:
        """The candidates that no heavy operation makes or takes, be it through operators that only hand values on."""
        near = {value for value in self.program.producers if not self._weight(value)}
        for value, sources in reversed(self.derived.items()):
            if value in near:
                near.update(sources)
        return [at for at, value in enumerate(self.candidates) if value not in near and value not in found]


Group = tuple[int, ...]  # candidates that are rounded together, by their numbers


class _Trials(Trials[Group]):
    """Tries groups of candidates on samples: on all of them, or on those that something failed on."""

    def __init__(self, measurement: Measurement, samples: Samples, limit: float, tell: Callable[[str], None]) -> None:
        super().__init__(self._on_few, self._on_all)
        self.measurement, self.samples, self.limit, self.tell = measurement, samples, limit, tell
        self.failed: list[int] = []  # samples, by their numbers
        self.looked = 0  # how many of them the ranking has seen
        self.runs = 0
        self.ranking: Ranking | None = None

    def _on_few(self, chosen: Collection[Group]) -> Distance:
        """How far the outputs are on the samples that something failed on, the last of them first: it has the least room."""
        return self._far(chosen, self.failed[::-1])

    def _on_all(self, chosen: Collection[Group]) -> Distance:
        """How far they are on all samples, up to the first that is too far, which joins those that are tried most."""
        rest = [at for at in range(len(self.samples.all_feeds())) if at not in self.failed]
        return self._far(chosen, [*self.failed[::-1], *rest])

    def cost(self) -> Cost[Group]:
        """What tells what a group moves the outputs by, as far as two runs of a sample show it."""
        measurement = self.measurement
        if self.ranking is None:
            self.ranking = Ranking(measurement.program, measurement.stencil, measurement.reasons)
        feeds = self.samples.all_feeds()
        for at in self.failed[self.looked :]:
            self.tell("ranking tensors")
            self.ranking.look(feeds[at])
        self.looked = len(self.failed)
        known = self.ranking.costs
        values = measurement.candidates
        return lambda group: math.sqrt(sum(known.get(values[number], 0.0) ** 2 for number in group))

    def costs(self) -> dict[ir.Value, float]:
        """What each candidate moves the outputs by, as far as a ranking was needed."""
        return dict(self.ranking.costs) if self.ranking is not None else {}

    def close(self) -> None:
        """Free what the ranking holds."""
        if self.ranking is not None:
            self.ranking.close()

    def _far(self, chosen: Collection[Group], among: Sequence[int]) -> Distance:
        """How far the outputs are when the chosen groups alone are rounded: the worst sample's, or the first that is too far."""
        numbers = {number for group in chosen for number in group}
        values = frozenset(self.measurement.candidates[number] for number in numbers)
        known = self.samples.tried.setdefault(values, {})
        bad = next((at for at in among if at in known and not known[at].within(self.limit)), None)
        if bad is None:
            bad = self._run(numbers, [at for at in among if at not in known], known)
        at = bad if bad is not None else max(among, key=lambda at: known[at].error)
        if at not in self.failed and not (self.failed and bad is None):
            self.failed.append(at)
        return known[at]

    def _run(self, numbers: Collection[int], among: Sequence[int], known: dict[int, Distance]) -> int | None:
        """Learn how far the outputs are on some samples, up to the first that is too far, which is returned."""
        if not among:
            return None
        self.runs += 1
        self.tell(f"measuring tensors, trial {self.runs}")
        left = list(among)
        try:
            session = Session(self.measurement.stencil.copy(Change(numbers)))
            try:
                for at, found in self.samples.distances(session.run, among):
                    known[at] = found
                    left.remove(at)
                    if not found.within(self.limit):
                        return at
            finally:
                session.close()
        except ConversionError:
            raise
        except Exception:  # a rounded index outside its table, a rounded size that does not fit
            known[left[0]] = Distance(float("inf"))
            return left[0]
        return None
