"""Which tensors of a program may be stored in half: measured by running its graph with them rounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx

from mplint.conversion.distance import Distance
from mplint.conversion.fill import Cost
from mplint.conversion.planner import FLOAT, HEAVY_GAIN, HEAVY_SHARE, MARGIN, Trials, inherit, misfits
from mplint.conversion.policy import POLICIES, Policy
from mplint.conversion.rank import PICKED, Seen, Step, compared, contributions
from mplint.conversion.torch.operators import BOUNDING, EXACT, FILLING, base_name
from mplint.conversion.torch.program import Program, is_float
from mplint.conversion.torch.run import Arrays, Runner, flat_run, in_half, torch_half
from mplint.conversion.torch.samples import Sample
from mplint.conversion.torch.steps import by_steps, is_recurrent
from mplint.conversion.torch.verify import Expected

MEMBER = "<built-in function getitem>"
ADDING = frozenset(("add", "sub", "rsub", "cat", "concat", "stack"))


Group = tuple[int, ...]  # candidates that are rounded together, by their numbers: those of a heavy operation, or one


class Measurement:
    """What the float32 tensors of a program hold on some samples, and how the outputs move when they are rounded."""

    def __init__(self, program: Program, policy: Policy, expected: Expected) -> None:
        self.program, self.policy, self.expected = program, policy, expected
        self.largest: dict[fx.Node, float] = {}
        self.vanishing: set[fx.Node] = set()
        self.references: list[Arrays] = [flat_run(program.exported, sample, self._look(MARGIN)) for sample in expected.samples]
        for sample in expected.wider:
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
                self.reasons[value] = f"it would be 0 in {' and '.join(program.halves_of(value))}"
            elif not saturates(value) and (beyond := self._beyond(value)):
                self.reasons[value] = beyond
            else:
                self.candidates.append(value)
        self.numbers = {value: number for number, value in enumerate(self.candidates)}
        self.beside: dict[int, list[fx.Node]] = {}  # the tensors that each operation makes or takes
        for value in program.producers:
            for number in program.around(value):
                self.beside.setdefault(number, []).append(value)
        self.runs = 0
        self.found = dict(self.reasons)  # what must stay float32, as far as anyone knows by now
        self.tried: _Trials | None = None

    def learn(self, sample: Sample, name: str) -> None:
        """Measure on one more sample from now on."""
        self.references.append(flat_run(self.program.exported, sample, self._look(MARGIN)))
        self.expected.learned.add(len(self.expected.samples))
        self.expected.samples.append(sample)
        self.expected.names.append(name)

    def unsafe(self, tolerance: float, tell: Callable[[str], None] = lambda _: None) -> dict[fx.Node, str]:
        """The tensors that must stay float32, and why; `tell` hears how far the search is.

        Asked again, with less of a tolerance or more samples, it goes on from there: what had to stay float32 stays.
        """
        found = self.found
        operations = self.program.operations
        working = [number for number, one in enumerate(operations) if one.gain == HEAVY_GAIN and not one.stays]
        heavy = list(dict.fromkeys(group for number in working if (group := self._around(number, found))))
        with_heavy = {number for group in heavy for number in group}
        light = [(number,) for number, value in enumerate(self.candidates) if number not in with_heavy and value not in found]
        tried = self.tried = self.tried or _Trials(self, tell)
        tried.limit = tolerance * HEAVY_SHARE
        bad = misfits(heavy, light, tried, tolerance)
        good = {number for group in (*heavy, *light) if group not in bad for number in group}
        for group, far in bad.items():
            how = far.broken or (f"it moves an output by {far.error:.2g}" if far.error < float("inf") else "it moves an output too far")
            found |= {
                self.candidates[at]: f"rounded to {' and '.join(self.program.halves_of(self.candidates[at]))}, {how}"
                for at in group
                if at not in good
            }
        inherit(found, self.derived)
        return dict(found)

    def _around(self, number: int, lost: Collection[fx.Node]) -> Group:
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

    def far(self, chosen: Collection[int], at: int) -> Distance:
        """How far the outputs are on a sample when the chosen candidates are rounded."""
        among = frozenset(chosen)

        def after(node: fx.Node, result: Any) -> Any:
            number = self.numbers.get(node)
            return result if number is None or number not in among else self._rounded(node, result)

        class Stepping(Runner):
            def run_node(runner, n: fx.Node) -> Any:
                if not is_recurrent(n) or n.kwargs or not any(self.numbers.get(user) in among for user in n.users):
                    return super().run_node(n)
                args, _ = runner.fetch_args_kwargs_from_env(n)
                return by_steps(n.target, args, torch_half(self.program.halves_of(next(iter(n.users)))[0]))

        return self.expected.far(self.references, at, flat_run(self.program.exported, self.expected.samples[at], after, Stepping))

    def look(self, at: int) -> dict[fx.Node, float]:
        """What each candidate moves the outputs by, estimated from a run on a sample and one with all candidates rounded."""
        graph = self.program.exported.graph
        plain: dict[fx.Node, torch.Tensor] = {}
        seen: dict[fx.Node, Seen] = {}

        def keep(node: fx.Node, result: Any) -> Any:
            if node.graph is graph and is_float(node) and isinstance(result, torch.Tensor) and result.numel():
                plain[node] = _picked(result)
            return result

        def compare(node: fx.Node, result: Any) -> Any:
            stored = self._stored(node, result) if node in self.numbers else result
            if node in plain and isinstance(result, torch.Tensor):
                seen[node] = compared(plain[node].numpy(), _picked(result).numpy(), _picked(stored).numpy())
            return stored

        sample = self.expected.samples[at]
        flat_run(self.program.exported, sample, keep)
        flat_run(self.program.exported, sample, compare)
        steps = [
            Step([one for one in _made_of(node) if is_float(one)], (node,), adds=base_name(node.target) in ADDING)
            for node in graph.nodes
            if node.op == "call_function"
        ]
        ends = next(node for node in reversed(graph.nodes) if node.op == "output").all_input_nodes
        return contributions(steps, ends, seen)

    def _beyond(self, value: fx.Node) -> str:
        """Why a tensor is too large for what would hold it; "" where it is not."""
        for half in self.program.halves_of(value):
            most = POLICIES[f"mixed_{half}"].largest
            if self.largest.get(value, 0.0) > most:
                return f"it may reach {self.largest[value]:.3g}, beyond the {most:.5g} of {half}"
        return ""

    def _stored(self, node: fx.Node, value: torch.Tensor) -> torch.Tensor:
        """A tensor as it would be stored, what is beyond the range as the largest number."""
        for half in map(torch_half, self.program.halves_of(node)):
            value = in_half(value, half).float()
        return value

    def _rounded(self, node: fx.Node, value: torch.Tensor) -> torch.Tensor:
        if saturates(node):
            return self._stored(node, value)
        for half in map(torch_half, self.program.halves_of(node)):
            value = (value * MARGIN).to(half).float() / MARGIN if half == torch.float16 else value.to(half).float()
        return value

    def _look(self, margin: float) -> Callable[[fx.Node, Any], Any]:
        def after(node: fx.Node, result: Any) -> Any:
            if is_float(node) and result.numel():
                sizes = result.detach().abs()
                sizes = sizes.masked_fill(~sizes.isfinite(), 0.0)
                self.largest[node] = max(self.largest.get(node, 0.0), float(sizes.max()) * margin)
                constant = self.program.producers.get(node, FLOAT) is None
                if constant and result.numel() == 1 and float(sizes) > 0 and not float(self._stored(node, sizes)):
                    self.vanishing.add(node)
            return result

        return after

    def _sources(self, value: fx.Node) -> list[fx.Node]:
        """The tensors whose values `value` only hands on; [] where it is computed anew."""
        node = value
        if node.op == "call_function" and str(node.target) == MEMBER and isinstance(node.args[0], fx.Node):
            node = node.args[0]
        if node.op != "call_function" or base_name(node.target) not in EXACT or node not in self.program.numbers:
            return []
        return [operand for operand in node.all_input_nodes if is_float(operand)]


def _made_of(node: fx.Node) -> list[fx.Node]:
    """What a tensor is computed from: a member of several results, from what makes them all."""
    while str(node.target) == MEMBER and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node.all_input_nodes


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


class _Trials(Trials[Group]):
    """Tries groups of candidates on samples: on all of them, or on those that something failed on."""

    def __init__(self, measurement: Measurement, tell: Callable[[str], None]) -> None:
        super().__init__(self._on_few, self._on_all)
        self.measurement, self.tell, self.limit = measurement, tell, 0.0
        self.failed: list[int] = []  # samples, by their numbers
        self.known: dict[fx.Node, float] = {}
        self.looked = 0
        self.far: dict[frozenset[int], dict[int, Distance]] = {}  # how far the outputs are with some candidates rounded, by sample

    def _on_few(self, chosen: Collection[Group]) -> Distance:
        return self._far(chosen, self.failed)

    def _on_all(self, chosen: Collection[Group]) -> Distance:
        rest = [at for at in range(len(self.measurement.expected.samples)) if at not in self.failed]
        return self._far(chosen, [*self.failed, *rest])

    def cost(self) -> Cost[Group]:
        """What tells what a group moves the outputs by: a heavy operation by itself is tried, of others two runs of a sample show it.

        In a deep network every error on the way grows or fades, and an estimate is soon off by much.
        """
        for at in self.failed[self.looked :]:
            for value, cost in self.measurement.look(at).items():
                self.known[value] = max(self.known.get(value, 0.0), cost)
        self.looked = len(self.failed)
        known, values, failed = self.known, self.measurement.candidates, tuple(self.failed)

        def of(group: Group) -> float:
            if len(group) > 1:
                return max(self._alone(group, at) for at in failed)
            return math.sqrt(sum(known.get(values[number], 0.0) ** 2 for number in group))

        return of

    def _alone(self, group: Group, at: int) -> float:
        """How far the outputs are on a sample with one group alone rounded."""
        known = self.far.setdefault(frozenset(group), {})
        if at not in known:
            self.tell(f"measuring operations, number {len(self.far)}")
            known[at] = self.measurement.far(group, at)
        return float("inf") if known[at].broken else known[at].error

    def _far(self, chosen: Collection[Group], among: Sequence[int]) -> Distance:
        """How far the outputs are: the worst sample's, or the first that is too far."""
        self.measurement.runs += 1
        self.tell(f"measuring tensors, trial {self.measurement.runs}")
        worst, at = Distance(0.0), among[0]
        numbers = {number for group in chosen for number in group}
        known = self.far.setdefault(frozenset(numbers), {})
        for number in among:
            if number not in known:
                known[number] = self.measurement.far(numbers, number)
            found = known[number]
            if found.broken or found.error > worst.error:
                worst, at = found, number
            if not found.within(self.limit):
                break
        if at not in self.failed and not (self.failed and worst.within(self.limit)):
            self.failed.append(at)
        return worst


def _picked(value: torch.Tensor) -> torch.Tensor:
    """Elements of a tensor, spread over it."""
    flat = value.detach().reshape(-1)
    return flat[torch.linspace(0, flat.numel() - 1, min(PICKED, flat.numel()), dtype=torch.float64).long()].float().cpu()
