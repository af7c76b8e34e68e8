"""Which tensors of a program may be stored in half: measured by running its graph with them rounded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx

from mplint.conversion.distance import Distance, distance
from mplint.conversion.planner import FLOAT, HEAVY_GAIN, MARGIN, inherit, misfits
from mplint.conversion.policy import Policy
from mplint.conversion.torch.operators import BOUNDING, EXACT, FILLING, base_name
from mplint.conversion.torch.program import Program, is_float
from mplint.conversion.torch.run import Arrays, flat_run, half_of, in_half
from mplint.conversion.torch.samples import Sample


class Measurement:
    """What the float32 tensors of a program hold on some samples, and how the outputs move when they are rounded."""

    def __init__(self, program: Program, policy: Policy, samples: Sequence[Sample], wider: Sequence[Sample] = ()) -> None:
        self.program, self.policy, self.samples = program, policy, samples
        self.half = half_of(policy)
        self.largest: dict[fx.Node, float] = {}
        self.vanishing: set[fx.Node] = set()
        self.references: list[Arrays] = [flat_run(program.exported, sample, self._look(MARGIN)) for sample in samples]
        for sample in wider:
            flat_run(program.exported, sample, self._look(1.0))
        self.reasons: dict[fx.Node, str] = {}
        self.derived: dict[fx.Node, list[fx.Node]] = {}
        self.candidates: list[fx.Node] = []
        for value in program.producers:
            if grows(value):
                self.reasons[value] = "an exp grows beyond any sample: data not seen may exceed the range"
            elif not any(not program.operations[number].stays for number in program.around(value)):
                continue
            elif sources := self._sources(value):
                self.derived[value] = sources
            elif value in self.vanishing:
                self.reasons[value] = f"it would be 0 in {policy.half}"
            elif not saturates(value) and self.largest.get(value, 0.0) > policy.largest:
                self.reasons[value] = f"it may reach {self.largest[value]:.3g}, beyond the {policy.largest:.5g} of {policy.half}"
            else:
                self.candidates.append(value)
        self.candidates.sort(key=self._weight)
        self.numbers = {value: number for number, value in enumerate(self.candidates)}
        self.runs = 0

    def unsafe(self, tolerance: float, tell: Callable[[str], None] = lambda _: None) -> dict[fx.Node, str]:
        """The tensors that must stay float32, and why; `tell` hears how far the search is."""
        found = dict(self.reasons)
        heavy = [at for at, value in enumerate(self.candidates) if not self._weight(value)]
        light = [at for at, value in enumerate(self.candidates) if self._weight(value)]

        def tried(chosen: Collection[int]) -> Distance:
            tell(f"measuring tensors, run {self.runs}")
            return self.far(chosen)

        for at, far in misfits(heavy, light, tried, tolerance).items():
            how = far.broken or f"it moves an output by {far.error:.2g}"
            found[self.candidates[at]] = f"rounded to {self.policy.half}, {how}"
        inherit(found, self.derived)
        return found

    def far(self, chosen: Collection[int]) -> Distance:
        """How far the outputs are when the chosen candidates are rounded."""
        among = frozenset(chosen)

        def after(node: fx.Node, result: Any) -> Any:
            number = self.numbers.get(node)
            return result if number is None or number not in among else self._rounded(node, result)

        worst = Distance(0.0)
        for sample, reference in zip(self.samples, self.references, strict=True):
            self.runs += 1
            found = distance(reference, flat_run(self.program.exported, sample, after))
            if found.broken:
                return found
            worst = max(worst, found, key=lambda one: one.error)
        return worst

    def _rounded(self, node: fx.Node, value: torch.Tensor) -> torch.Tensor:
        if saturates(node) or self.half != torch.float16:
            return in_half(value, self.half).float()
        return (value * MARGIN).to(self.half).float() / MARGIN

    def _look(self, margin: float) -> Callable[[fx.Node, Any], Any]:
        def after(node: fx.Node, result: Any) -> Any:
            if is_float(node) and result.numel():
                sizes = result.detach().abs()
                sizes = sizes.masked_fill(~sizes.isfinite(), 0.0)
                self.largest[node] = max(self.largest.get(node, 0.0), float(sizes.max()) * margin)
                constant = self.program.producers.get(node, FLOAT) is None
                if constant and result.numel() == 1 and float(sizes) > 0 and not float(in_half(sizes, self.half)):
                    self.vanishing.add(node)
            return result

        return after

    def _sources(self, value: fx.Node) -> list[fx.Node]:
        """The tensors whose values `value` only hands on; [] where it is computed anew."""
        node = value
        if node.op == "call_function" and str(node.target) == "<built-in function getitem>" and isinstance(node.args[0], fx.Node):
            node = node.args[0]
        if node.op != "call_function" or base_name(node.target) not in EXACT or node not in self.program.numbers:
            return []
        return [operand for operand in node.all_input_nodes if is_float(operand)]

    def _weight(self, value: fx.Node) -> int:
        """Tensors beside heavy operations are tried first: they have the first claim on the tolerance."""
        return 0 if any(self.program.operations[number].gain == HEAVY_GAIN for number in self.program.around(value)) else 1


def saturates(node: fx.Node) -> bool:
    """Whether numbers beyond the range are written into a tensor as the largest finite one: constants, and what fills them in."""
    if node.op == "placeholder":
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and value.dim() == 0
    return node.op == "call_function" and base_name(node.target) in FILLING


def grows(value: fx.Node) -> bool:
    """Whether a tensor is an exp, or a sum of exps, whose argument nothing bounds from above."""
    node: object = value
    for _ in range(2):
        if isinstance(node, fx.Node) and node.op == "call_function" and base_name(node.target) in ("sum", "view", "squeeze", "unsqueeze"):
            node = node.args[0]
    if not isinstance(node, fx.Node) or node.op != "call_function" or base_name(node.target) != "exp":
        return False
    before = node.args[0]
    return not (isinstance(before, fx.Node) and before.op == "call_function" and base_name(before.target) in BOUNDING)
