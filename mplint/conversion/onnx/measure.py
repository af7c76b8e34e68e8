"""Which tensors may be stored in half: measured on the model itself, not read off a list of operators.

Each trial is a copy of the model in which the chosen tensors are rounded where they are made, and no others. It sees overflow, underflow,
cancellation, indices above 2048 and vanished epsilons alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import onnx_ir as ir

from mplint.conversion.bisect_culprits import culprits
from mplint.conversion.distance import Distance
from mplint.conversion.onnx.constants import damage, tensor_of
from mplint.conversion.onnx.growth import grows, unbounded
from mplint.conversion.onnx.instrument import instrumented
from mplint.conversion.onnx.program import Program, is_constant
from mplint.conversion.onnx.run import Session
from mplint.conversion.onnx.samples import Samples
from mplint.conversion.onnx.unseen import unseen
from mplint.conversion.planner import HEAVY_GAIN, inherit, misfits
from mplint.conversion.policy import Policy

LARGE = 1 << 16  # elements; larger constants are judged by reading them, and are not part of the session
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
        growing = unbounded(program.model, [value for value in program.producers if grows(value)], samples.feeds, policy)
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
                if tensor.size > LARGE:
                    if why := damage(tensor, policy):
                        self.reasons[value] = why
                    continue
            if value in self.reasons:
                continue
            sources = self._sources(value)
            if sources:
                self.derived[value] = sources
            else:
                self.candidates.append(value)
        self.runs = 0
        self.last = 0  # the feed that failed last, which is tried first

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

        What does not bear the larger inputs of `stress` stays too; what reaches a heavy operation is not asked for that.
        """
        found = dict(self.reasons)
        heavy = [at for at, value in enumerate(self.candidates) if not self._weight(value)]
        light = [at for at, value in enumerate(self.candidates) if self._weight(value)]

        def tried(chosen: Collection[int]) -> Distance:
            self.runs += 1
            tell(f"measuring tensors, trial {self.runs}")
            return self._far(chosen, self.samples, tolerance)

        bad = misfits(heavy, light, tried, tolerance)
        found |= {self.candidates[at]: self._moved(far) for at, far in bad.items()}
        if stress is not None and stress.feeds:
            rest = self._light(found)
            kept = [at for at in range(len(self.candidates)) if at not in bad and at not in set(rest)]
            if not self._far([*kept, *rest], stress, tolerance).within(tolerance):
                bad = culprits(rest, lambda chosen: self._far(chosen, stress, tolerance), tolerance)
                found |= {self.candidates[at]: f"{self._moved(far)} on larger inputs" for at, far in bad.items()}
        inherit(found, self.derived)
        return found

    def _moved(self, far: Distance) -> str:
        how = far.broken or (f"it moves an output by {far.error:.2g}" if far.error < float("inf") else "it moves an output too far")
        return f"rounded to {self.policy.half}, {how}"

    def _light(self, found: Mapping[ir.Value, str]) -> list[int]:
        """The candidates that no heavy operation makes or takes, be it through operators that only hand values on."""
        near = {value for value in self.program.producers if not self._weight(value)}
        for value, sources in reversed(self.derived.items()):
            if value in near:
                near.update(sources)
        return [at for at, value in enumerate(self.candidates) if value not in near and value not in found]

    def _far(self, chosen: Collection[int], samples: Samples, tolerance: float) -> Distance:
        """How far the outputs are when the chosen candidates alone are rounded: the worst feed's, or the first that is too far."""
        session = Session(instrumented(self.program.model, self.candidates, self.policy.half, chosen))
        worst = Distance(0.0)
        try:
            for at, found in samples.distances(session.run, self.last):
                if found.broken or found.error > worst.error:
                    worst = found
                if not found.within(tolerance):
                    self.last = at
                    break
        except Exception:  # a rounded index outside its table, a rounded size that does not fit
            worst = Distance(float("inf"))
        session.close()
        return worst
