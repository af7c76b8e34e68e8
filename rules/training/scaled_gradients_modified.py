"""MP314: gradients are changed by a fixed amount, or by a fixed threshold, while they are multiplied by the loss scale."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.frameworks.keras import steps as keras_steps
from mplint.frameworks.torch import steps
from mplint.program.trace import Trace
from mplint.program.values import Step
from mplint.python.syntax import argument, walk_expressions
from mplint.rule import Consequence, Rule
from mplint.source.file import SourceFile
from mplint.source.keras.modified_gradients import modified_gradients
from mplint.source.torch.gradients import RESCALE
from mplint.source.torch.loop import (
    BACKWARD,
    HANDED,
    MODIFY,
    SCALED,
    SCALER_STEP,
    STEP,
    UNSCALE,
    WRAPPED,
    ZERO_GRAD,
    Act,
    TrainingLoop,
    receiver,
)
from mplint.source.torch.modifications import NAN, NOISE, PENALTY, THRESHOLD, modification
from mplint.source.torch.scaler import Scalers

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
MEASURES = frozenset({"norm", "vector_norm", "pow", "square", "clamp", "relu"})


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
                for scaled in steps.scaled_at(event):
                    step = steps.next_scaler_step(entry, event, scaled.path) if not scaled.unscaled else None
                    if step is None:
                        continue
                    verdict = trace.verdict(entry, scaled.path)
                    yield self.at(
                        trace,
                        event.place,
                        f"`{trace.text(event.place)}` changes gradients that are still multiplied by the loss scale{verdict.condition()}",
                        why="what is added or cut off is measured against gradients that are 65536 times too large to begin with",
                        help="call `scaler.unscale_(optimizer)` before it, or change them by as much as the scale",
                        confidence=Confidence.MEDIUM,
                        steps=(Step(scaled.place, "the loss is scaled here"), Step(step.place, "the gradients are unscaled only here")),
                    )
                    break
            for misused, later in keras_steps.clipped_scaled(entry):
                verdict = trace.verdict(entry, misused.path)
                yield self.at(
                    trace,
                    misused.event.place,
                    f"{MESSAGES[THRESHOLD]}{verdict.condition()}",
                    why=WHYS[THRESHOLD].replace("65536", "32768"),
                    help="do it after `get_unscaled_gradients`" if later.kind == keras_steps.ENDS[0] else KERAS_3[THRESHOLD],
                    confidence=Confidence.HIGH if verdict.proven and entry.script else Confidence.MEDIUM,
                    steps=(Step(misused.cause.place, "the loss is scaled here"), Step(later.place, "the gradients are unscaled only here")),
                )

    def check_source(self, file: SourceFile) -> Iterator[Finding]:
        """Report each change of scaled gradients, and each penalty on them."""
        text = file.document.text
        if ".grad" in text and ".step(" in text:
            yield from self._changes(file)
        if "autograd.grad" in text or "import grad" in text:
            yield from self._penalties(file)
        if "GradientTape" in text and ("scale_loss" in text or "get_scaled_loss" in text):
            yield from self._in_keras(file)

    def _in_keras(self, file: SourceFile) -> Iterator[Finding]:
        for found in modified_gradients(file):
            late = isinstance(found.unscaled, ast.Call) and "get_unscaled" in ast.unparse(found.unscaled.func)
            yield self.finding(
                file,
                found.node,
                MESSAGES[found.kind],
                why=WHYS[found.kind].replace("65536", "32768"),
                help="do it after `get_unscaled_gradients`" if late else KERAS_3.get(found.kind, "change them by as much as the scale"),
                related=((found.scaled, "the loss is scaled here"), (found.unscaled, "the gradients are unscaled only here")),
            )

    def _changes(self, file: SourceFile) -> Iterator[Finding]:
        loop = file.fact(TrainingLoop)
        if not any(modification(file, n) for n in file.syntax.all(ast.Call, ast.AugAssign, ast.Assign)):
            return
        found: dict[ast.AST, tuple[Act, Act, Act]] = {}
        for path in loop.paths():
            for index, act in enumerate(path):
                scaled = scaled_at(path, index) if act.kind == MODIFY and act.node not in found else None
                step = step_after(path, index, scaled)[0] if scaled is not None else None
                if scaled is not None and step is not None and not loop.chooses_precision(act, scaled):
                    found[act.node] = (act, scaled, step)
        for node, (act, scaled, step) in found.items():
            kind = modification(file, node)
            if kind is None or unscaled_before(file, loop, node):
                continue
            owner = receiver(step)
            yield self.finding(
                file,
                node,
                MESSAGES[kind],
                why=WHYS[kind],
                help=f"call `{file.text(owner) if owner else 'scaler'}.unscale_(…)` before it",
                related=(
                    (loop.seen_from(scaled, act), "the loss is scaled here"),
                    (loop.seen_from(step, act), "the gradients are unscaled only here"),
                ),
            )

    def _penalties(self, file: SourceFile) -> Iterator[Finding]:
        for call in file.names.calls_of("grad"):
            if file.names.resolve(call.func) != "torch.autograd.grad":
                continue
            outputs = argument(call, "outputs", 0)
            scaled = next((s for d in file.values.definitions(outputs) if (s := scaling_in(file, d)) is not None), None)
            function = file.syntax.function(call)
            if scaled is None or function is None or any(word in ast.unparse(function) for word in ("get_scale", "inv_scale", "unscale")):
                continue
            measured = next((n for n in ast.walk(function) if measures(file, n, call)), None)
            if measured is not None:
                yield self.finding(
                    file,
                    call,
                    "the gradients of a scaled loss are used as they are",
                    why="they are 65536 times too large to begin with, so a penalty on their squared norm is 4e9 times too large",
                    help="divide them by `scaler.get_scale()` first",
                    related=((scaled, "the loss is scaled here"), (measured, "they are measured here")),
                )


def unscaled_before(file: SourceFile, loop: TrainingLoop, node: ast.AST) -> bool:
    """Whether on some path something unscales the gradients between the backward and `node`."""
    for path in loop.paths():
        for index, act in enumerate(path):
            for before in reversed(path[:index]) if act.node is node else ():
                if before.kind in (UNSCALE, HANDED) or (before.kind == RESCALE and modification(file, before.node) is None):
                    return True
                if before.kind in (SCALED, SCALER_STEP, ZERO_GRAD):
                    break
    return False


def scaling_in(file: SourceFile, definition: ast.AST) -> ast.Call | None:
    """The `scaler.scale(…)` in an expression."""
    for item in walk_expressions(definition):
        match item:
            case ast.Call(func=ast.Attribute(attr="scale", value=owner)) if file.fact(Scalers).scaler_of(owner):
                return item
    return None


def measures(file: SourceFile, node: ast.AST, gradients: ast.Call) -> bool:
    """Whether a call or power takes the size of what `gradients` gives."""
    match node:
        case ast.Call(func=ast.Attribute(attr=method)) if method in MEASURES:
            pass
        case ast.BinOp(op=ast.Pow()):
            pass
        case _:
            return False
    names = [item for item in walk_expressions(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)]
    return any(stands_for(file, name, gradients) for name in names)


def stands_for(file: SourceFile, name: ast.Name, gradients: ast.Call) -> bool:
    """Whether a name is bound to the gradients, or to one of them by a loop over them."""
    for binding in file.names.reaching(name):
        values = [binding.value] if binding.value is not None else []
        parent = file.syntax.parents.get(binding.node)
        if isinstance(parent, (ast.For, ast.comprehension)) and isinstance(parent.iter, ast.Name):
            values += [b.value for b in file.names.reaching(parent.iter) if b.value is not None]
        if any(item is gradients for value in values for item in walk_expressions(value)):
            return True
    return False


def scaled_at(path: tuple[Act, ...], index: int) -> Act | None:
    """The scaled backward whose gradients are still scaled at a place of the path, or None."""
    for act in reversed(path[:index]):
        if act.kind == SCALED:
            return act
        if act.kind in (UNSCALE, HANDED, WRAPPED, RESCALE, SCALER_STEP, ZERO_GRAD, BACKWARD, STEP):
            return None
    return None


def step_after(path: tuple[Act, ...], index: int, scaled: Act) -> tuple[Act | None, Act | None]:
    """The scaler's next step after a place of the path, where nothing starts over before it, and an `unscale_` in between."""
    late = None
    for act in path[index + 1 :]:
        if act.kind == SCALER_STEP and act.scaler == scaled.scaler:
            return act, late
        if act.kind == UNSCALE and act.scaler == scaled.scaler:
            late = act
        if act.kind in (STEP, SCALER_STEP, ZERO_GRAD, BACKWARD, WRAPPED, HANDED):
            return None, None
    return None, None
