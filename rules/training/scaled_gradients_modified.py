"""MP314: gradients are changed by a fixed amount, or by a fixed threshold, while they are multiplied by the loss scale."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.frameworks.keras import steps as keras_steps
from mplint.frameworks.torch import steps
from mplint.frameworks.torch.protocol import taken_at
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace
from mplint.program.values import Step, Tensor
from mplint.python.document import is_test_path
from mplint.rule import Consequence, Rule

from .clip_before_unscale import unscale_text
from .needless_scalers import or_left_out

NOISE, PENALTY, NAN, THRESHOLD = "noise", "penalty", "nan", "threshold"
MESSAGES = {
    NOISE: "noise is added to gradients that are still multiplied by the loss scale",
    PENALTY: "a penalty is added to gradients that are still multiplied by the loss scale",
    NAN: "infinities and NaNs are removed from gradients before the scaler can see them",
    THRESHOLD: "gradients that are still multiplied by the loss scale are compared with a fixed threshold",
}
SHARE = "the gradients are 65536 times too large here to begin with, so what is added counts for 65536 times less"
WHYS = {
    NOISE: SHARE,
    PENALTY: SHARE,
    NAN: "the scaler finds an overflow by them; without them it steps with gradients that have lost it, and never lowers a scale of 65536",
    THRESHOLD: "the gradients are 65536 times too large here to begin with, and jump whenever the scale changes",
}
KERAS_3 = {
    THRESHOLD: "let the optimizer clip (`clipnorm`, `global_clipnorm`), which it does after unscaling, or multiply the threshold by "
    "`optimizer.dynamic_scale`",
    NOISE: "multiply the noise by `optimizer.dynamic_scale`",
    PENALTY: "add the penalty to the loss, or use the optimizer's `weight_decay`",
    NAN: "leave them: the optimizer skips such a step and lowers the scale",
}


class ScaledGradientsModified(Rule):
    """Scaled gradients changed or measured before they are unscaled

    ## What it does
    Finds noise, weight penalties, thresholds and the removal of NaNs that are applied to gradients between the scaled backward and
    `unscale_`, and `torch.autograd.grad` of a scaled loss whose result is measured without dividing by the scale. In Keras the same, and
    clipping, between the gradients of a scaled loss and `get_unscaled_gradients` (Keras 2) or the update, which unscales (Keras 3).

    ## Why is this bad?
    Gradients are multiplied by the scale there, 65536 to begin with: noise and penalties count for 65536 times less than intended, a
    threshold of 1 acts as 1.5e-5, and a gradient penalty is 65536 squared times too large. Where NaNs and infinities are replaced, the
    scaler no longer sees overflows: it applies what is left and never lowers the scale.

    ## Example
    ```python
    import torch

    def train(model, loader, optimizer, scaler):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            for p in model.parameters():
                p.grad += 0.01 * torch.randn_like(p)
            scaler.step(optimizer)
            scaler.update()
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader, optimizer, scaler):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            for p in model.parameters():
                p.grad += 0.01 * torch.randn_like(p)
            scaler.step(optimizer)
            scaler.update()
    ```

    ## Fix safety
    No fix is applied: call `scaler.unscale_(optimizer)` before the gradients are changed. Divide gradients from `torch.autograd.grad` by
    `scaler.get_scale()`. In Keras 2 change them after `get_unscaled_gradients`; in Keras 3 let the optimizer clip (`clipnorm`,
    `global_clipnorm`), or multiply the threshold by `optimizer.dynamic_scale`.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp314.py, for Keras 3 by tests/witness/test_mp314_keras.py

    ## References
    - <https://docs.pytorch.org/docs/stable/notes/amp_examples.html#working-with-unscaled-gradients>
    - <https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-penalty>
    """

    code = "MP314"
    name = "scaled-gradients-modified"
    severity = Severity.WARNING
    fix = Applicability.DISPLAY
    frameworks = ("torch", "keras")
    tokens = (".scale(", "scale_loss", "get_scaled_loss")
    program = True
    adoption = Consequence(fatal=True, scaling=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each change of gradients that are still scaled when the scaler steps with them."""
        for entry in trace.entries:
            for event in entry.of("gradients changed"):
                if not is_test_path(event.place.path):
                    yield from self._change(trace, entry, event)
            for event in entry.of("scaled gradients measured"):
                yield from self._measure(trace, entry, event)
            for misused, later in keras_steps.changed_scaled(entry):
                verdict = self.verdict(trace, entry, misused.path, misused.event.place)
                what = str(misused.event.data.get("what", THRESHOLD))
                yield self.at(
                    trace,
                    misused.event.place,
                    f"{MESSAGES[what]}{verdict.condition()}",
                    why=WHYS[what].replace("65536", "32768"),
                    help="do it after `get_unscaled_gradients`" if later.kind == keras_steps.ENDS[0] else KERAS_3[what],
                    confidence=Confidence.HIGH if verdict.proven and entry.script else Confidence.MEDIUM,
                    steps=(Step(misused.cause.place, "the loss is scaled here"), Step(later.place, "the gradients are unscaled only here")),
                )

    def _change(self, trace: Trace, entry: Entry, event: Event) -> Iterator[Finding]:
        ways = steps.scaled_at(event)
        if any(way.unscaled for way in ways):
            return
        for scaled in ways:
            step = steps.next_scaler_step(entry, event, scaled.path)
            if step is None:
                continue
            verdict = self.verdict(trace, entry, scaled.path, event.place)
            what = str(event.data["what"])
            known = what in MESSAGES
            text = MESSAGES[what] if known else f"`{trace.text(event.place)}` changes gradients that are still multiplied by the loss scale"
            yield self.at(
                trace,
                event.place,
                f"{text}{verdict.condition()}",
                why=WHYS.get(what, "what is added or cut off is measured against gradients that are 65536 times too large to begin with"),
                help=or_left_out(entry, step, f"call `{unscale_text(trace, step)}` before it, or change them by as much as the scale"),
                confidence=Confidence.HIGH if known and verdict.proven else Confidence.MEDIUM,
                steps=(Step(scaled.place, "the loss is scaled here"), Step(step.place, "the gradients are unscaled only here")),
            )
            break

    def _measure(self, trace: Trace, entry: Entry, event: Event) -> Iterator[Finding]:
        """Gradients of a scaled loss that nobody divides by the scale."""
        tensor = event.data["tensor"]
        taken = next((e for e in entry.of("gradients taken") if type(tensor) is Tensor and taken_at(e.place) in tensor.tags), None)
        if taken is None or is_test_path(taken.place.path):
            return
        verdict = self.verdict(trace, entry, event.path, taken.place)
        yield self.at(
            trace,
            taken.place,
            f"the gradients of a scaled loss are used as they are{verdict.condition()}",
            why="they are 65536 times too large to begin with, so a penalty on their squared norm is 4e9 times too large",
            help="divide them by `scaler.get_scale()` first",
            confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
            steps=(Step(event.place, "they are measured here"),),
        )
