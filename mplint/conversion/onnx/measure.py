"""Which tensors may be stored in half: measured on the model itself, not read off a list of operators.

One session in which every candidate tensor t becomes `Where(flag_t, rounded(t), t)`; group testing by bisection finds those that move
the outputs too far in about k·log n runs. It sees overflow, underflow, cancellation, indices above 2048 and vanished epsilons alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.constants import damage, tensor_of
from mplint.conversion.onnx.growth import grows, unbounded
from mplint.conversion.onnx.instrument import FLAGS, instrumented
from mplint.conversion.onnx.program import Program, is_constant
from mplint.conversion.onnx.run import Feed, Session
from mplint.conversion.onnx.samples import Samples
from mplint.conversion.onnx.unseen import unseen
from mplint.conversion.planner import HEAVY_GAIN, inherit, unsafe_groups
from mplint.conversion.policy import Policy

FIRST_WHERE = 9  # the first opset with Where; in older ones each test is a session of its own
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
    """The instrumented session of a program on some feeds."""

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
        self.candidates.sort(key=self._weight)
        self.session: Session | None = None

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

    def unsafe(
        self, tolerance: float, deadline: float, tell: Callable[[str], None] = lambda _: None, stress: Samples | None = None
    ) -> dict[ir.Value, str]:
        """The tensors that must stay float32, and why; `tell` hears how far the search is.

        What does not bear the larger inputs of `stress` stays too; what reaches a heavy operation is not asked for that.
        """
        found = dict(self.reasons)
        every = range(len(self.candidates))
        session = Session(instrumented(self.program.model, self.candidates, self.policy.half, every))
        holds = self._holds(session, {}, self.samples, tolerance)
        bears = stress is None or self._holds(session, {}, stress, self.policy.tolerance)
        session.close()
        if not holds:
            moved = f"rounded to {self.policy.half}, it moves an output too far"
            self._search(found, every, self.samples, tolerance, deadline, moved, tell)
        if not bears and stress is not None:
            moved = f"rounded to {self.policy.half}, it moves an output too far on larger inputs"
            self._search(found, self._light(found), stress, self.policy.tolerance, deadline, moved, tell)
        if self.session is not None:
            self.session.close()
        inherit(found, self.derived)
        return found

    def _light(self, found: Mapping[ir.Value, str]) -> list[int]:
        """The candidates that no heavy operation makes or takes, be it through operators that only hand values on."""
        near = {value for value in self.program.producers if not self._weight(value)}
        for value, sources in reversed(self.derived.items()):
            if value in near:
                near.update(sources)
        return [at for at, value in enumerate(self.candidates) if value not in near and value not in found]

    def _search(
        self,
        found: dict[ir.Value, str],
        items: Sequence[int],
        samples: Samples,
        tolerance: float,
        deadline: float,
        why: str,
        tell: Callable[[str], None],
    ) -> None:
        bad = unsafe_groups(
            items,
            lambda chosen: self._passes(chosen, samples, tolerance),
            deadline=deadline,
            progress=lambda done, of: tell(f"measuring tensors one group after the other: {done} of {of}"),
        )
        late = time.monotonic() > deadline
        found |= {self.candidates[number]: "not measured in the time allowed" if late else why for number in bad}

    def _passes(self, chosen: set[int], samples: Samples, tolerance: float) -> bool:
        """Whether the outputs stay within `tolerance` when the chosen candidates are rounded."""
        if self.program.model.opset_imports.get("", 1) < FIRST_WHERE:
            session = Session(instrumented(self.program.model, self.candidates, self.policy.half, chosen))
            holds = self._holds(session, {}, samples, tolerance)
            session.close()
            return holds
        if self.session is None:
            self.session = Session(instrumented(self.program.model, self.candidates, self.policy.half))
        flags = np.zeros(max(1, len(self.candidates)), dtype=bool)
        flags[list(chosen)] = True
        return self._holds(self.session, {FLAGS: flags}, samples, tolerance)

    def _holds(self, session: Session, flags: Feed, samples: Samples, tolerance: float) -> bool:
        try:
            return all(found.within(tolerance) for found in samples.distances(lambda feed: session.run({**feed, **flags})))
        except Exception:  # a rounded index outside its table, a rounded size that does not fit
            return False
