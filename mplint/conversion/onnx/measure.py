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

SURE = 0.3  # of a tolerance: what all in half may be off by on ordinary samples where faint ones need not be asked before the result is
WORST = 2  # samples that a filling begins with
SURVEYED = 12  # samples among which they are looked for
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
        self.hasty = True  # whether what is clearly good on ordinary samples is taken
        self.took_hastily = False
        self.held: tuple[frozenset[int], Session] | None = None
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
        if stress is not None and stress.feeds:
            rest = [(number,) for number in self._light(found)]
            kept = [(number,) for number in sorted(good - {number for (number,) in rest})]
            larger = _Trials(self, stress, tolerance, tell)
            if rest and not larger.everywhere([*kept, *rest]).within(tolerance):
                bad = fill.misfits(rest, larger.everywhere, tolerance, cost=tried.cost())
                found |= {
                    (value := self.candidates[number]): f"{self._moved(value, far)} on larger inputs" for (number,), far in bad.items()
                }
        self.release()
        inherit(found, self.derived)
        return found

    def close(self) -> None:
        """Free what is open."""
        self.release()
        if self.tried is not None:
            self.tried.close()

    def carefully(self, tolerance: float, tell: Callable[[str], None], stress: Samples | None) -> dict[ir.Value, str]:
        """The same, asked of all samples from now on."""
        self.hasty = self.took_hastily = False
        return self.unsafe(tolerance, tell, stress)

    def rounding(self, numbers: Collection[int]) -> Session:
        """The model with some candidates rounded, which stays open for as long as the same are asked for."""
        chosen = frozenset(numbers)
        if self.held is None or self.held[0] != chosen:
            self.release()
            self.held = chosen, Session(self.stencil.copy(Change(numbers)))
        return self.held[1]

    def release(self) -> None:
        """Free the model that is open."""
        if self.held is not None:
            self.held[1].close()
        self.held = None

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
        how = far.broken or (f"it moves an output by {far.moved:.2g}" if far.error < float("inf") else "it moves an output too far")
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

    def first(self, half: Collection[Group]) -> Distance:
        """How far they are on ordinary samples, where that is clearly good, else on all; the result is tried on all of them anyway."""
        ordinary = [at for at in range(len(self.samples.all_feeds())) if not self.samples.is_faint(at)]
        if self.measurement.hasty and not self.failed and len(ordinary) < len(self.samples.all_feeds()):
            far = self._far(half, ordinary)
            if far.within(self.limit / HEAVY_SHARE * SURE):
                self.measurement.took_hastily = True
                return far
        return self._on_all(half)

    def survey(self, half: Collection[Group]) -> Distance:
        """How far they are on all samples; those that are worst are tried from now on."""
        order = [*self.failed[::-1], *(at for at in range(len(self.samples.all_feeds())) if at not in self.failed)]
        numbers = {number for group in half for number in group}
        known = self._known(numbers)
        for at in order[:SURVEYED]:
            if at not in known:
                self._run(numbers, [at], known)
        worse = [at for at in order[:SURVEYED] if not known[at].within(self.limit)]
        if worse and not self.looked:
            self.failed = sorted(worse, key=lambda at: (bool(known[at].broken), known[at].error))[-WORST:]
        return self._on_all(half)

    def cost(self) -> Cost[Group]:
        """What tells what a group moves the outputs by, as far as two runs of a sample show it."""
        measurement = self.measurement
        if self.ranking is None:
            self.ranking = Ranking(measurement.program, measurement.stencil, measurement.reasons)
        feeds = self.samples.all_feeds()
        measurement.release()
        for at in self.failed[self.looked :]:
            self.tell("ranking tensors")
            self.ranking.look(feeds[at])
        self.looked = len(self.failed)
        values, known, beyond = measurement.candidates, self.ranking.costs, self.ranking.beyond

        def of(group: Group) -> float:
            if not beyond.isdisjoint(values[number] for number in group):
                return float("inf")
            return math.sqrt(sum(known.get(values[number], 0.0) ** 2 for number in group))

        return of

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
        known = self._known(numbers)
        bad = next((at for at in among if at in known and not known[at].within(self.limit)), None)
        if bad is None:
            bad = self._run(numbers, [at for at in among if at not in known], known)
        at = bad if bad is not None else max(among, key=lambda at: known[at].error)
        if at not in self.failed and not (self.failed and bad is None):
            self.failed.append(at)
        return known[at]

    def _known(self, numbers: Collection[int]) -> dict[int, Distance]:
        """What is known of some candidates, rounded, by sample."""
        return self.samples.tried.setdefault(frozenset(self.measurement.candidates[number] for number in numbers), {})

    def _run(self, numbers: Collection[int], among: Sequence[int], known: dict[int, Distance]) -> int | None:
        """Learn how far the outputs are on some samples, up to the first that is too far, which is returned."""
        if not among:
            return None
        self.runs += 1
        self.tell(f"measuring tensors, trial {self.runs}")
        left = list(among)
        try:
            session = self.measurement.rounding(numbers)
            for at, found in self.samples.distances(session.run, among):
                known[at] = self.samples.weighed(at, found)
                left.remove(at)
                if not known[at].within(self.limit):
                    return at
        except ConversionError:
            raise
        except Exception:  # a rounded index outside its table, a rounded size that does not fit
            known[left[0]] = Distance(float("inf"))
            return left[0]
        return None
