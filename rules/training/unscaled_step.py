"""MP302: an optimizer steps on gradients that are still multiplied by the loss scale."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from mplint.findings import Applicability, Change, Confidence, Finding, Fix, InsertStatements, Replace, Severity
from mplint.frameworks.keras import steps as keras_steps
from mplint.frameworks.keras.steps import Misused
from mplint.frameworks.parts import is_supposed
from mplint.frameworks.torch import steps
from mplint.frameworks.torch.protocol import key_of
from mplint.program.conditions import Path, extend
from mplint.program.machine import Event as Happening
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import NONE, Class, Constant, Object, State, Step, Tensor, Unknown
from mplint.recipes.loss_in_tape import late_scaling, loop_of, scale_in_tape, unscale_after
from mplint.rule import Consequence, Rule

from .trainer_bypass import past_trainers


class UnscaledStep(Rule):
    """Optimizer step that bypasses the scaler

    ## What it does
    Finds `optimizer.step()` on gradients of `scaler.scale(loss)`, also after `scaler.unscale_`, a plain step that follows
    `scaler.step(optimizer)`, a plain step of an optimizer that a scaler steps, and the step of a scaler with gradients that another one
    has scaled. A loss without the scale whose gradients add up with those of a scaled one. In a Keras 2
    loop: gradients of a scaled loss that
    are applied without `get_unscaled_gradients`, gradients that are unscaled though the loss was never scaled, and a loss that is
    scaled after the tape has closed. Around accelerate or Fabric in float16: `loss.backward()` and torch's `clip_grad_norm_` in place
    of the trainer's own, which scale and unscale.

    ## Why is this bad?
    The gradients are multiplied by the loss scale, 65536 to begin with. SGD then moves the weights 65536 times too far; Adam hides the
    factor and loses what the scaler is for: an overflow is no longer noticed, and infinite gradients go into the weights. A second,
    plain step applies the same gradients twice. In Keras the scale is 32768: updates are that much too large, or that much too
    small; a loss that no tape saw being scaled has no gradient at all.

    ## Example
    ```python
    import torch

    def train(model, loader, scaler):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            optimizer.step()
            scaler.update()
    ```
    ```python
    import tensorflow as tf

    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))

    def train_step(model, x, y, loss_fn):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
            scaled_loss = optimizer.get_scaled_loss(loss)
        gradients = tape.gradient(scaled_loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader, scaler):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```
    ```python
    import tensorflow as tf

    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))

    def train_step(model, x, y, loss_fn):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
            scaled_loss = optimizer.get_scaled_loss(loss)
        gradients = tape.gradient(scaled_loss, model.trainable_variables)
        gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    ```

    ## Fix safety
    Safe: `scaler.step(optimizer)` unscales and steps; `scaler.update()` is added where the loop has none. There is no fix where the
    scaler isn't at hand, or where the step also serves a branch without a scaler. accelerate's own `backward` and clipping take the place
    of the others. In Keras the missing half is added
    (`get_unscaled_gradients`, or `get_scaled_loss` in the tape), or the scaling moves into the tape.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp302.py; the loss that is scaled after the tape by tests/witness/test_mp302_keras.py.
    Keras 2 is not installed beside Keras 3, so its two cases rest on its guide (below).

    ## References
    - <https://docs.pytorch.org/docs/stable/notes/amp_examples.html#typical-mixed-precision-training>
    - <https://www.tensorflow.org/guide/mixed_precision#training_the_model_with_a_custom_training_loop>
    """

    code = "MP302"
    name = "unscaled-step"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("torch", "keras")
    tokens = (".scale(", "Accelerator", "Fabric", "get_scaled_loss", "get_unscaled_gradients", "scale_loss")
    program = True
    adoption = Consequence("the gradients are unscaled before they are applied", mends=True, fatal=True, scaling=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report the plain steps of optimizers whose gradients a scaler has scaled, or has stepped with already."""
        for entry in trace.entries:
            for event in entry.of("optimizer step"):
                yield from self._plain_step(trace, entry, event)
            yield from past_trainers(self, trace, entry)
            for step, backward in never_scaled_losses(entry):
                yield self._never_scaled(trace, entry, step, backward)
            for step, backward, other in beside_scaled_losses(entry):
                if not handles_gradients(trace, backward):
                    yield self._beside_scaled(trace, entry, step, backward, other)
            for step, scaled in stepped_by_another(entry):
                yield self._by_another(trace, entry, step, scaled)
            yield from self.of_keras(trace, entry)

    def _plain_step(self, trace: Trace, entry: Entry, event: Happening) -> Iterator[Finding]:
        """What is wrong with a step that does not go through the scaler."""
        text = trace.text(event.place)
        if (case := bypassing(trace, entry, event)) is not None:
            scaled, again = case
            verdict = self.verdict(trace, entry, scaled.path, event.place)
            yield self.at(
                trace,
                event.place,
                f"`{text}` applies gradients a second time that the scaler's step has applied{verdict.condition()}"
                if again
                else f"`{text}` applies gradients that are still multiplied by the loss scale{verdict.condition()}",
                why=TWICE if again else TOO_LARGE,
                help="remove it: the scaler's step is the optimizer's" if again else THROUGH_THE_SCALER,
                confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                steps=(Step(scaled.place, "the loss is scaled here"),),
                fix=None if again else step_by_scaler(trace, entry, event, scaled),
            )
        elif (unchecked := unchecked_after_unscale(entry, event)) is not None:
            scaled, unscale = unchecked
            yield self.at(
                trace,
                event.place,
                f"`{text}` applies unscaled gradients without the scaler's check for infinities",
                why="where the scale, 65536 at first, overflows, `scaler.step` skips the step; a plain one puts infinity into the weights",
                help=THROUGH_THE_SCALER,
                severity=Severity.WARNING,
                confidence=Confidence.MEDIUM,
                steps=(Step(unscale.place, "the gradients are unscaled here, and infinities are noted"),),
                fix=step_by_scaler(trace, entry, event, scaled),
            )
        elif (real := before_training(entry, event)) is not None:
            yield self.at(
                trace,
                event.place,
                f"`{text}` bypasses the scaler that steps this optimizer",
                why="no backward has run yet: it only hides the warning that a learning rate scheduler ran before the first step",
                help="remove it",
                severity=Severity.WARNING,
                confidence=Confidence.MEDIUM,
                steps=(Step(real.place, "the scaler steps the optimizer here"),),
            )

    def _never_scaled(self, trace: Trace, entry: Entry, step: Happening, backward: Happening) -> Finding:
        """The backward of a loss that should have been scaled."""
        verdict = self.verdict(trace, entry, step.path, backward.place)
        text, stepped = trace.text(backward.place), trace.text(step.place)
        scaler = stepped.rpartition(".step(")[0]
        loss, method, rest = text.rpartition(".backward(")
        fix = None
        if method and backward.frame == step.frame and all(part.isidentifier() for part in scaler.split(".")):
            scaled = f"{scaler}.scale({loss}).backward({rest}"
            fix = Fix(f"Scale the loss: `{scaled}`", Applicability.SAFE, (Replace(trace.span(backward.place), scaled),))
        return self.at(
            trace,
            backward.place,
            f"`{text}` has no loss scale, but `{stepped}` steps with its gradients{verdict.condition()}",
            why="a scaler that has scaled nothing raises AssertionError in `step`; one that has divides the gradients by a scale of 65536",
            help=f"scale the loss: `{scaler or 'scaler'}.scale({loss or 'loss'}).backward()`",
            confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
            steps=(Step(step.place, "the scaler steps with these gradients"),),
            fix=fix,
        )

    def _beside_scaled(self, trace: Trace, entry: Entry, step: Happening, backward: Happening, scaled: Happening) -> Finding:
        """The backward of one loss that is not scaled, where another one of the same step is."""
        verdict = self.verdict(trace, entry, step.path, backward.place)
        text, stepped = trace.text(backward.place), trace.text(step.place)
        loss = text.rpartition(".backward(")[0]
        return self.at(
            trace,
            backward.place,
            f"`{text}` has no loss scale, but `{stepped}` divides its gradients by one{verdict.condition()}",
            why="the scale starts at 65536: beside the loss that is scaled, this one hardly moves a weight",
            help=f"scale each loss that the step takes: `{stepped.rpartition('.step(')[0] or 'scaler'}.scale({loss or 'loss'}).backward()`",
            confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
            steps=(Step(scaled.place, "the other loss is scaled"), Step(step.place, "the scaler steps with the gradients of both")),
        )

    def _by_another(self, trace: Trace, entry: Entry, step: Happening, scaled: steps.Scaled) -> Finding:
        """The step of a scaler that has not scaled the gradients."""
        verdict = self.verdict(trace, entry, scaled.path, step.place)
        return self.at(
            trace,
            step.place,
            f"`{trace.text(step.place)}` steps with gradients that another scaler has scaled{verdict.condition()}",
            why="it divides them by a scale of its own, which is another one as soon as either has met an infinity, and the scaler that "
            "scaled them is never told what to adapt to",
            help="step and update with the scaler that scales the loss",
            confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
            steps=(Step(scaled.place, "the loss is scaled by another one here"),),
        )

    def of_keras(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """Report what a LossScaleOptimizer of Keras 2 scales and nobody unscales, or the other way round, and what it scales too late."""
        for misused in keras_steps.scaled_too_late(entry):
            fix = scaled_earlier(trace, entry, misused)
            yield self.told(trace, entry, misused, LATE, LATE_WHY, LATE_HELP, "the gradients of the scaled loss are None here", fix)
        for misused in keras_steps.never_unscaled(entry):
            message = f"`{method_of(trace, misused.event)}` applies gradients that are still multiplied by the loss scale"
            fix = unscaled_at_once(trace, entry, misused)
            yield self.told(trace, entry, misused, message, KERAS_TOO_LARGE, UNSCALE_FIRST, "the loss is scaled here", fix)
        for misused in keras_steps.never_scaled(entry):
            fix = scaled_in_tape(trace, entry, misused)
            yield self.told(trace, entry, misused, DIVIDED, DIVIDED_WHY, SCALE_FIRST, "these gradients are of the loss as it is", fix)

    def told(
        self, trace: Trace, entry: Entry, misused: Misused, message: str, why: str, advice: str, cause: str, fix: Fix | None
    ) -> Finding:
        """A finding about a custom loop of Keras."""
        verdict = self.verdict(trace, entry, misused.path, misused.event.place)
        return self.at(
            trace,
            misused.event.place,
            f"{message}{verdict.condition()}",
            why=why,
            help=advice,
            confidence=Confidence.HIGH if verdict.proven and entry.script else Confidence.MEDIUM,
            steps=(Step(misused.cause.place, cause),),
            fix=fix,
        )


TOO_LARGE = "the scale starts at 65536: the update is that much too large, and an overflow goes into the weights unnoticed"
THROUGH_THE_SCALER = "step through the scaler: `scaler.step(optimizer)`, then `scaler.update()`"
TWICE = "every batch counts twice, and the second step is taken even where the scaler has skipped the first for infinite gradients"


LATE = "the loss is scaled after the tape has closed, so the scaled loss has no gradient"
LATE_WHY = "operations outside the tape are not recorded: `gradient()` returns None for every weight, and the optimizer raises ValueError"
LATE_HELP = "scale the loss inside the `with` block of the tape"
KERAS_TOO_LARGE = "in Keras 2 applying doesn't unscale: with a scale of 32768 SGD moves the weights 32768 times too far"
UNSCALE_FIRST = "unscale them first: `optimizer.get_unscaled_gradients(gradients)`"
DIVIDED = "the gradients are divided by a loss scale that the loss was never multiplied by"
DIVIDED_WHY = "with a scale of 32768 every update is 32768 times too small, and nothing lifts small float16 gradients"
SCALE_FIRST = "scale the loss inside the tape: `optimizer.get_scaled_loss(loss)`"


def method_of(trace: Trace, event: Happening) -> str:
    """The method that an event calls, as it is written."""
    return trace.text(event.place).partition("(")[0]


def bypassing(trace: Trace, entry: Entry, event: Happening) -> tuple[steps.Scaled, bool] | None:
    """The scaled gradients that a plain step applies, and whether the scaler has stepped with them before; None where it may be right."""
    key = event.data["key"]
    if steps.is_fallback(entry, event, key):
        return None
    ways = steps.scaled_at(event)
    decided = {literal for other in entry.of("backward") for literal in other.path}
    made = [other for other in entry.of("optimizer made") if key_of(other.data["optimizer"]) == key]  # type: ignore[arg-type]
    decided |= {literal for other in made for literal in other.path}  # which of several optimizers it is
    for scaled in ways:
        if not scaled.certain and any(literal[0][0] == "true" and literal not in decided for literal in event.path):
            continue  # another flag decides here: which combinations occur is not known
        if type(event.data["optimizer"]) is Unknown and is_supposed(trace, scaled.path):
            continue  # what scales may have wrapped the optimizer as well
        if key not in scaled.unscaled:
            return scaled, False
        stepped = [other for other in entry.of("scaler step") if other.data["key"] == key and other.loops == event.loops]
        if any(other.path <= event.path and other.frame == event.frame for other in stepped):
            return scaled, True
    return None


def never_scaled_losses(entry: Entry) -> Iterator[tuple[Happening, Happening]]:
    """The steps of scalers on gradients of a loss that nothing has scaled, and the backward that computes these; each backward once."""
    scaled = entry.of("loss scaled")
    handed = {event.data["scaler"] for event in entry.of("scaler handed on")}
    used = {event.data["scaler"] for event in scaled} | handed
    rounds = {(event.frame, event.loops) for event in scaled}  # in which something is scaled, be it a gradient that is given
    found: set[object] = set()
    for step in entry.of("scaler step"):
        scales = step.data["scaler"] in used
        if type(step.data["scaler"]) is not Object or type(step.data["scaler"].type) is Class:
            continue  # heirs may scale in ways of their own
        alone = step.data["scaler"] not in handed and (step.frame, step.loops) not in rounds
        if scales and not (alone and entry.script and is_surely_on(entry, step)):
            continue
        states = [atom.data for _, atom in possible(step.data["gradients"], step.path) if type(atom) is State]  # type: ignore[arg-type]
        kinds = {str(data[0]) for data in states if isinstance(data, tuple)}
        places = {data[2] for data in states if isinstance(data, tuple) and data[0] == "plain"}
        if len(places) != 1 or not kinds <= {"plain", "none", "entry" if entry.script else ""} or (scales and kinds != {"plain"}):
            continue
        ran = [e for e in entry.of("backward") if e.place in places and extend(step.path, e.path) is not None]
        if scales:  # other losses: only what one round of one function does by itself
            ran = [e for e in ran if e.frame == step.frame and e.loops == step.loops and by_no_scale(e)]
        if any(computed(e, step.path) for e in ran) and all(unscaled(e, step.path) for e in ran) and ran[0].place not in found:
            found.add(ran[0].place)
            yield step, ran[0]


def is_surely_on(entry: Entry, step: Happening) -> bool:
    """Whether a scaler is made in sight, and enabled whatever the settings are."""
    made = [e for e in entry.of("scaler made") if e.data["scaler"] == step.data["scaler"]]
    ways = [atom for e in made for _, atom in possible(e.data["enabled"], step.path)]  # type: ignore[arg-type]
    return bool(ways) and all(type(atom) is Constant and atom.value is True for atom in ways)


def beside_scaled_losses(entry: Entry) -> Iterator[tuple[Happening, Happening, Happening]]:
    """Backwards of unscaled losses whose gradients add up with those of a scaled one until the scaler's step: step, backward, the other.

    Where an optimizer steps by itself the gradients may be its own, and where gradients are zeroed in between nothing adds up.
    """
    found: set[object] = set()
    rounds: dict[object, list[Happening]] = {}
    for event in entry.of("backward", "scaler step", *ENDS):
        rounds.setdefault((event.frame, event.loops), []).append(event)
    plain = entry.of("optimizer step")
    for happened in rounds.values():
        start = 0
        for number, step in enumerate(happened):
            if step.kind == "backward":
                continue
            backwards, start = happened[start:number], number + 1
            if step.kind != "scaler step" or any(extend(step.path, e.path) is not None for e in plain):
                continue
            scaled = [e for e in backwards if is_of_scaler(e, owner_of(step))]
            for event in backwards:
                other = next((e for e in scaled if extend(event.path, e.path) is not None), None)
                if other is None or event.place in found or not event.path <= step.path | other.path:
                    continue
                if computed(event, step.path) and by_no_scale(event):
                    found.add(event.place)
                    yield step, event, other


ENDS = ("gradients zeroed", "optimizer step", "unscale", "scaler update", "gradients changed", "scaler handed on")


def handles_gradients(trace: Trace, backward: Happening) -> bool:
    """Whether the function around a backward takes or clears gradients by hand, so that the step may never see these."""
    found = trace.node(backward.place)
    if found is None:
        return True
    around: ast.AST = found[0].syntax.function(found[1]) or found[0].syntax.tree
    return any(isinstance(part, ast.Attribute) and part.attr in BY_HAND for part in ast.walk(around))


BY_HAND = ("grad", "requires_grad_", "requires_grad")


def by_no_scale(backward: Happening) -> bool:
    """Whether a loss has been multiplied by no scale by hand either, nor is given a gradient, which may be one."""
    if backward.get("given") not in (None, NONE):
        return False
    ways = possible(backward.data["loss"], backward.path)  # type: ignore[arg-type]
    return all(type(atom) is Tensor and not atom.tags & {"times the scale", "scale"} for _, atom in ways)


def is_of_scaler(backward: Happening, owner: object) -> bool:
    """Whether a loss is one that a scaler has scaled, on each way."""
    ways = possible(backward.data["loss"], backward.path)  # type: ignore[arg-type]
    return bool(ways) and all(type(atom) is Tensor and atom.scaled == owner for _, atom in ways)


def stepped_by_another(entry: Entry) -> Iterator[tuple[Happening, steps.Scaled]]:
    """The steps of a scaler with gradients that another one has scaled, where the one steps nothing or the other scales nothing."""
    active = {owner_of(event) for event in entry.of("scaler step", "unscale", "scaler handed on")}
    scalings = entry.of("loss scaled")
    made = {owner_of(event) for event in scalings if type(event.data["scaler"]) is Object}
    used = {owner_of(event) for event in (*scalings, *entry.of("scaler handed on"))}
    for step in entry.of("scaler step"):
        ways = steps.scaled_at(step)
        others = {way.scaler for way in ways}
        if type(step.data["scaler"]) is not Object or len(others) != 1:
            continue
        beside = any(e.frame == step.frame and e.loops == step.loops and owner_of(e) in others for e in scalings)
        idle = owner_of(step) not in used and beside and all(way.certain for way in ways)
        if others <= made - active or (others <= made and idle):
            yield step, ways[0]


def computed(backward: Happening, path: Path) -> bool:
    """Whether a loss was computed where this can be seen: nobody has scaled it elsewhere."""
    ways = possible(backward.data["loss"], extend(path, backward.path) or backward.path)  # type: ignore[arg-type]
    return all(type(atom) is Tensor and "unknown" not in atom.tags and atom.scaled is None for _, atom in ways)


def unscaled(backward: Happening, path: Path) -> bool:
    """Whether a loss is nothing that a scaler has scaled, as far as can be seen."""
    ways = possible(backward.data["loss"], extend(path, backward.path) or backward.path)  # type: ignore[arg-type]
    return all(type(atom) is Tensor and atom.scaled is None for _, atom in ways)


def unchecked_after_unscale(entry: Entry, event: Happening) -> tuple[steps.Scaled, Happening] | None:
    """The unscaled gradients that a plain step applies though nobody has looked for infinities in them, and where they were unscaled."""
    key = event.data["key"]
    number = next(n for n, other in enumerate(entry.events) if other is event)
    for scaled in (*steps.scaled_at(event), *brought_along(event)):
        if key not in scaled.unscaled:
            continue
        for other in reversed(entry.events[:number]):
            if other.kind == "scaler step" and other.data["key"] == key:
                break
            if other.kind == "gradients changed" or (other.kind == "clip" and is_strict(other)):
                break
            if other.kind == "unscale" and key_of(other.data["optimizer"]) == key:  # type: ignore[arg-type]
                if other.loops == event.loops and event.path <= other.path:  # else the program asks for something first
                    return scaled, other
                break
    return None


def brought_along(event: Happening) -> Iterator[steps.Scaled]:
    """The gradients that were there before a function, and that its scaler has unscaled: somebody else has scaled the loss."""
    for path, state in possible(event.data["gradients"], event.path):  # type: ignore[arg-type]
        if type(state) is State and isinstance(state.data, tuple) and state.data[0] == "entry" and len(state.data) > 3 and state.data[3]:
            yield steps.Scaled(path, state.data[1], state.data[2], state.data[3], False)


def is_strict(clip: Happening) -> bool:
    """Whether a clip may raise where gradients are infinite, or tells whether they are."""
    return clip.data.get("strict") not in (None, Constant(False))


def before_training(entry: Entry, event: Happening) -> Happening | None:
    """The scaler's step of an optimizer that a plain one has stepped before anything was trained."""
    number = next(n for n, other in enumerate(entry.events) if other is event)
    if any(other.kind in STARTED for other in entry.events[:number]):
        return None
    later = (other for other in entry.events[number + 1 :] if other.kind == "scaler step" and other.data["key"] == event.data["key"])
    return next((other for other in later if event.path <= other.path and other.calls[: len(event.calls)] == event.calls), None)


STARTED = ("loss scaled", "backward", "trainer backward", "scaler handed on")


def step_by_scaler(trace: Trace, entry: Entry, event: Happening, scaled: steps.Scaled) -> Fix | None:
    """Step through the scaler, and update it where nothing does, if it is at hand whenever the step runs."""
    number = next(n for n, other in enumerate(entry.events) if other is event)
    scaling = next((e for e in reversed(entry.events[:number]) if e.kind == "loss scaled" and owner_of(e) == scaled.scaler), None)
    if scaling is None or scaling.frame != event.frame or not scaling.path <= event.path:
        return None
    match trace.node(scaling.place), trace.node(event.place):
        case (file, ast.Call(func=ast.Attribute(value=owner))), (_, ast.Call(func=ast.Attribute(value=optimizer), args=[]) as call):
            statement = file.syntax.statement(call)
        case _:
            return None
    if not isinstance(statement, ast.Expr) or statement.value is not call:
        return None
    scaler = file.text(owner)
    step = f"{scaler}.step({file.text(optimizer)})"
    changes: tuple[Change, ...] = (Replace(file.span(call), step),)
    last, updated = after(entry, event, scaling)
    if last and not updated:
        changes = (*changes, InsertStatements(file.span(statement), (f"{scaler}.update()",), after=True))
    return Fix(f"Use `{step}`", Applicability.SAFE, changes)


def owner_of(event: Happening) -> object:
    """What gradients know the scaler of an event by."""
    scaler = event.data["scaler"]
    return scaler.id if type(scaler) is Object else scaler


def after(entry: Entry, event: Happening, scaling: Happening) -> tuple[bool, bool]:
    """Whether the step is the last before the next backward, and whether the scaler is updated before the loss is scaled again."""
    last = same = True
    for other, _ in steps.following(entry, event, event.path):
        if other.kind == "loss scaled" and other.place == scaling.place:
            break
        if other.kind == "scaler update" and owner_of(other) == owner_of(scaling):
            return last, True
        same = same and other.kind != "backward"
        last = last and not (same and other.kind == "optimizer step")
    return last, False


def scaled_earlier(trace: Trace, entry: Entry, misused: Misused) -> Fix | None:
    """Move the scaling that follows the tape into it."""
    held, scale = loop_of(trace, misused.event, [misused.cause]), trace.node(misused.event.place)
    changes = late_scaling(held[0], held[1], scale[1]) if held is not None and scale is not None else None
    return Fix("Scale the loss inside the tape", Applicability.SAFE, changes) if changes else None


def unscaled_at_once(trace: Trace, entry: Entry, misused: Misused) -> Fix | None:
    """Unscale the gradients as soon as they are computed, where the loss is scaled whenever they are."""
    taken = keras_steps.taken_at(entry, misused)
    held = loop_of(trace, misused.event, taken)
    if held is None or any(not misused.cause.path <= event.path for event in taken):
        return None
    changes = unscale_after(*held)
    return Fix("Unscale the gradients", Applicability.SAFE, changes) if changes else None


def scaled_in_tape(trace: Trace, entry: Entry, misused: Misused) -> Fix | None:
    """Scale the loss inside the tape, under the condition under which the gradients are unscaled."""
    held = loop_of(trace, misused.event, [misused.cause])
    if held is None or misused.event.frame != misused.cause.frame:
        return None
    file, loop = held
    kept = set(file.syntax.ancestors(loop.gradients[0]))
    around = [loop.node, *file.syntax.ancestors(loop.node)]
    extra = [(parent, child) for child, parent in pairwise(around) if parent not in kept and isinstance(parent, (ast.If, ast.IfExp))]
    if len(extra) > 1 or any(child not in (body if isinstance(body := parent.body, list) else [body]) for parent, child in extra):
        return None
    changes = scale_in_tape(file, loop, "get_scaled_loss", file.text(extra[0][0].test) if extra else None)
    return Fix("Scale the loss inside the tape", Applicability.SAFE, changes) if changes else None
