"""MP311: one autocast region spans several optimizer steps, so that the cached casts of the weights go stale."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.frameworks.torch import steps
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace
from mplint.program.values import Step
from mplint.rule import Rule


class StepInsideAutocastRegion(Rule):
    """An autocast region that stays open around a training loop

    ## What it does
    Finds an autocast region, entered by `with`, as a decorator, by `__enter__` or by `torch.set_autocast_enabled`, that stays open
    while a training loop runs inside it: forward, backward and `step` of several batches.
    Silent where all that is trained is in half precision. Where the optimizer holds tensors of the program's own and no model's, a copy is
    kept only of those that a product takes as they are: low confidence.

    ## Why is this bad?
    Autocast keeps the half-precision copies of float32 weights until the outermost region ends. The steps update the weights, and
    every later forward uses the old copies: the loss stays where it was at the first batch (8.68, 8.68, 8.68 … where a region for each
    step gives 8.68, 7.61, 6.82 …), without an error. An autocast inside the loop doesn't help while an outer one is open.

    ## Example
    ```python
    import torch

    def train(model, loader, optimizer):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for x, y in loader:
                loss = torch.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader, optimizer):
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    ```

    ## Fix safety
    No fix is applied: enter the region in each round around the forward pass and the loss. `cache_enabled=False` also cures it, and casts
    every weight anew at each use.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp311.py

    ## References
    - <https://docs.pytorch.org/docs/stable/amp.html#torch.autocast>
    """

    code = "MP311"
    name = "step-inside-autocast-region"
    severity = Severity.ERROR
    fix = Applicability.DISPLAY
    frameworks = ("torch",)
    tokens = ("autocast",)
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each region that is entered outside a loop in which the optimizer steps."""
        for entry in trace.entries:
            entered = {event.data["autocast"].chain[:1]: event for event in entry.of("autocast entered")}  # type: ignore[attr-defined]
            for event in entry.of("optimizer step", "scaler step"):
                for path, region in steps.in_half(event.data["autocast"], event.path):
                    start = entered.get(region.chain[:1])
                    if start is None or not region.cache or len(start.loops) >= len(event.loops) or is_in_half(entry, event):
                        continue
                    around = [place for place, _ in event.loops[len(start.loops) :]]
                    if not any(place in {p for p, _ in other.loops} for other in entry.of(*BACKWARDS) for place in around):
                        continue
                    verdict = self.verdict(trace, entry, path, region.chain[0].place)
                    leaves = is_of_leaves(entry, event)
                    yield self.at(
                        trace,
                        region.chain[0].place,
                        f"the autocast region of `{trace.text(region.chain[0].place)}` stays open over all training steps"
                        + verdict.condition(),
                        why=f"{FROZEN}{LEAVES if leaves else ''}",
                        help="enter the region in each round, around the forward pass and the loss, or pass `cache_enabled=False`",
                        confidence=Confidence.LOW if leaves else Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                        steps=(Step(event.place, "the optimizer is stepped here, inside the region"),),
                    )


def is_in_half(entry: Entry, step: Event) -> bool:
    """Whether a step updates weights in half precision alone: only casts of float32 weights are kept."""
    return any(e.place == step.place and e.frame == step.frame and e.path <= step.path for e in entry.of("nothing to cast stepped"))


def is_of_leaves(entry: Entry, step: Event) -> bool:
    """Whether a step updates tensors of the program's own: a copy is kept only of those that a product takes as they are."""
    return any(e.place == step.place and e.frame == step.frame and e.path <= step.path for e in entry.of("leaves stepped"))


BACKWARDS = ("backward", "backward handed on")
FROZEN = "the half-precision copies of the weights are cached until it ends: after the first step the model trains no further"
LEAVES = ". This assumes that a product of matrices takes these tensors themselves, and nothing that is computed of them"
