"""What Keras and TensorFlow loops do wrong with the loss scale: the Keras part of MP301, MP302 and MP306."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Change, Confidence, Finding, Fix, Replace, Severity, When
from mplint.rule import Rule
from mplint.source.file import SourceFile
from mplint.source.flow import Event
from mplint.source.keras.evidence import Float16, chooses_precision, float16_at, graph_loop_in_half, loop_major, speaks_of_scaling
from mplint.source.keras.loop import Update
from mplint.source.keras.loss_scale import makes_loss_scale_optimizer
from mplint.source.keras.mixed_layers import unscaled_training
from mplint.source.keras.scaling_fix import late_scaling, scale_in_tape, unscale_after, wrap_optimizer
from mplint.source.syntax import argument

TOKENS = ("mixed_float16", "GradientTape", "compute_gradients")
LOST = "float16 gradients below 6e-8 become 0 before they reach a weight; a loss scale, 32768 to begin with, would lift them"
ADVICE = {
    3: "wrap the optimizer in `keras.mixed_precision.LossScaleOptimizer` and take the gradients of `optimizer.scale_loss(loss)`",
    2: "wrap the optimizer in `LossScaleOptimizer`; `get_scaled_loss` in the tape, `get_unscaled_gradients` after it",
    None: "wrap the optimizer in `LossScaleOptimizer` and scale the loss in the tape (`scale_loss` in Keras 3; in Keras 2 "
    "`get_scaled_loss`, and `get_unscaled_gradients` on the gradients)",
}


def missing_loss_scaling(rule: Rule, file: SourceFile) -> Iterator[Finding]:
    """MP301: float16 gradients of a loss that nothing scales."""
    for update in file.keras.loop.updates:
        if update.scaled or update.by_hand:
            continue
        optimizer = update.optimizer
        if optimizer.certainly_plain or (optimizer.opaque and not optimizer.wrapped and not optimizer.model):
            yield from plain_optimizer(rule, file, update)
        elif (optimizer.model or optimizer.wrapped) and not (update.unscaled or update.scales_itself) and loop_major(file) != 3:
            yield from idle_wrapper(rule, file, update)
    yield from mixed_layers(rule, file)


def plain_optimizer(rule: Rule, file: SourceFile, update: Update) -> Iterator[Finding]:
    """A loop around an optimizer that scales nothing, under a policy that computes in float16."""
    half = float16_at(file, update.node)
    level = half.level
    if level == "open" and graph_loop_in_half(file, update):
        level = "maybe"
    elif not update.optimizer.certainly_plain:
        return
    if level == "no" or (level != "certain" and speaks_of_scaling(file)):
        return
    doubtful = level == "maybe" or update.optimizer.overridden
    why = LOST
    if update.optimizer.overridden:
        why += "; `compile()` adds one only to the optimizer that Keras itself is given"
    condition = " in mixed precision" if level == "maybe" else ""
    yield rule.finding(
        file,
        update.gradients[0],
        f"`{file.text(update.receiver)}` gets float16 gradients{condition}, and nothing scales the loss",
        severity=Severity.WARNING if doubtful else Severity.ERROR,
        confidence=Confidence.MEDIUM if level == "maybe" else Confidence.HIGH,
        why=why,
        help=ADVICE[loop_major(file)],
        related=(*policies(half), *((made, "the optimizer is made here, without a loss scale") for made in update.optimizer.plain[:1])),
        fix=full_scaling(file, update, half),
        when=When("float16", file.syntax.qualname(update.node)) if level == "open" else None,
    )


def idle_wrapper(rule: Rule, file: SourceFile, update: Update) -> Iterator[Finding]:
    """A loop around a LossScaleOptimizer that never scales the loss (Keras 2, or a Keras that the program doesn't tell)."""
    half = float16_at(file, update.node)
    wrapped = update.optimizer.wrapped
    if half.level == "no" or "auto_scale_loss" in file.document.text or (half.level != "certain" and not wrapped and half.level != "open"):
        return
    major = loop_major(file)
    certain = half.level == "certain" or (half.level == "open" and not wrapped)
    harm = LOST if major == 2 else f"in Keras 2 {LOST}; in Keras 3 every update is divided by it"
    changes = together(scale_in_tape(file, update, "get_scaled_loss"), unscale_after(file, update)) if major == 2 else None
    who = "the optimizer becomes a LossScaleOptimizer here" if wrapped else "under this policy `compile()` wraps the optimizer"
    yield rule.finding(
        file,
        update.gradients[0],
        f"the LossScaleOptimizer `{file.text(update.receiver)}` gets gradients of a loss that was never scaled",
        severity=Severity.ERROR if certain else Severity.WARNING,
        confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
        why=harm,
        help="a custom loop has to scale the loss itself: `scale_loss` in the tape (Keras 3), or `get_scaled_loss` in the tape and "
        "`get_unscaled_gradients` after it (Keras 2)",
        related=tuple((node, who) for node in (wrapped or half.setters)[:1]),
        fix=Fix("Scale the loss in the tape and unscale the gradients", Applicability.UNSAFE, changes) if changes else None,
        when=When("float16", file.syntax.qualname(update.node)) if half.level == "open" and not wrapped else None,
    )


def mixed_layers(rule: Rule, file: SourceFile) -> Iterator[Finding]:
    """Layers in mixed_float16 under a model whose own policy is another: `compile()` looks at the model's only."""
    for training in unscaled_training(file):
        yield rule.finding(
            file,
            training.call,
            f"`{file.text(training.call.func)}` trains float16 layers without loss scaling",
            severity=Severity.WARNING,
            confidence=Confidence.MEDIUM,
            why=f"`compile()` scales only where the model's own policy is mixed_float16; {LOST}",
            help="set the global policy to mixed_float16 before the model is built, or give compile() a LossScaleOptimizer",
            related=((training.cause, training.reason),),
        )


def policies(half: Float16) -> tuple[tuple[ast.AST, str], ...]:
    """The calls that put float16 in force."""
    return tuple((setter, "layers compute in float16 from here on") for setter in half.setters[:1])


def full_scaling(file: SourceFile, update: Update, half: Float16) -> Fix | None:
    """Wrap the optimizer, scale the loss and, in Keras 2, unscale the gradients."""
    major = loop_major(file)
    wrapped = wrap_optimizer(file, update, half.setters)
    if major is None or half.level != "certain":
        return None
    if major == 3:
        changes = together(wrapped, scale_in_tape(file, update, "scale_loss"))
    else:
        changes = together(wrapped, scale_in_tape(file, update, "get_scaled_loss"), unscale_after(file, update))
    return Fix("Wrap the optimizer in a LossScaleOptimizer and scale the loss", Applicability.UNSAFE, changes) if changes else None


def together(*parts: tuple[Change, ...] | None) -> tuple[Change, ...] | None:
    """All changes, or None where one of them can't be made."""
    found: list[Change] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return tuple(found)


def unscaled_step(rule: Rule, file: SourceFile) -> Iterator[Finding]:
    """MP302: scaled and never unscaled, unscaled and never scaled (Keras 2), or scaled where no tape records it."""
    reported: set[ast.AST] = set()
    for update in file.keras.loop.updates:
        if update.by_hand:
            continue
        late = [event for way in update.ways for event in way.late if is_scaling(file, event, update)]
        if late:
            if late[0].node not in reported:
                yield scaled_too_late(rule, file, update, late[0])
            reported.add(late[0].node)
        elif (scale := never_unscaled(update)) is not None:
            yield scaled_only(rule, file, update, scale)
        elif (unscale := never_scaled(update)) is not None:
            yield unscaled_only(rule, file, update, unscale)


def is_scaling(file: SourceFile, event: Event, update: Update) -> bool:
    """Whether the call really multiplies: `scale_loss` of a plain optimizer returns the loss as it is."""
    if event.subject == "get_scaled_loss":
        return True
    return bool(update.optimizer.wrapped) or (update.optimizer.model and float16_at(file, update.node).level == "certain")


def never_unscaled(update: Update) -> Event | None:
    """The Keras 2 scaling after which no way unscales."""
    ways = [way for way in update.ways if any(e.subject == "get_scaled_loss" for e in way.scales)]
    if not ways or update.scales_itself or any(way.unscales for way in ways):
        return None
    return next(e for e in ways[0].scales if e.subject == "get_scaled_loss")


def never_scaled(update: Update) -> Event | None:
    """The Keras 2 unscaling that no way with a scaled loss leads to."""
    ways = [way for way in update.ways if way.unscales]
    if not ways or update.scales_itself or any(way.scales for way in ways):
        return None
    return ways[0].unscales[0]


def scaled_too_late(rule: Rule, file: SourceFile, update: Update, scale: Event) -> Finding:
    """The tape is closed when the loss is scaled, so it has no gradient."""
    changes = late_scaling(file, update, scale.node)
    return rule.finding(
        file,
        scale.node,
        "the loss is scaled after the tape has closed, so the scaled loss has no gradient",
        why="operations outside the tape are not recorded: `gradient()` returns None for every weight, and the optimizer raises ValueError",
        help="scale the loss inside the `with` block of the tape",
        related=tuple((node, "the gradients of the scaled loss are None here") for node in update.gradients),
        fix=Fix("Scale the loss inside the tape", Applicability.SAFE, changes) if changes else None,
    )


def scaled_only(rule: Rule, file: SourceFile, update: Update, scale: Event) -> Finding:
    """Gradients of a scaled loss reach the weights as they are."""
    changes = unscale_after(file, update) if same_conditions(update, scale) else None
    return rule.finding(
        file,
        update.node,
        f"`{file.text(update.node.func)}` applies gradients that are still multiplied by the loss scale",
        why="in Keras 2 applying doesn't unscale: with a scale of 32768 SGD moves the weights 32768 times too far",
        help=f"unscale them first: `{file.text(update.receiver)}.get_unscaled_gradients(gradients)`",
        related=((scale.node, "the loss is scaled here"), *((node, "the gradients are computed here") for node in update.gradients)),
        fix=Fix("Unscale the gradients", Applicability.SAFE, changes) if changes else None,
    )


def unscaled_only(rule: Rule, file: SourceFile, update: Update, unscale: Event) -> Finding:
    """Gradients of an unscaled loss are divided by the loss scale."""
    gradient = next(e for way in update.ways if way.unscales for e in way.gradients)
    extra = [guard for guard in unscale.guards if guard not in gradient.guards]
    simple = len(extra) <= 1 and all(guard.holds for guard in extra) and not unscale.calls[len(gradient.calls) :]
    changes = scale_in_tape(file, update, "get_scaled_loss", extra[0].text if extra else None) if simple else None
    return rule.finding(
        file,
        unscale.node,
        "the gradients are divided by a loss scale that the loss was never multiplied by",
        why="with a scale of 32768 every update is 32768 times too small, and nothing lifts small float16 gradients",
        help=f"scale the loss inside the tape: `{file.text(update.receiver)}.get_scaled_loss(loss)`",
        related=tuple((node, "these gradients are of the loss as it is") for node in update.gradients),
        fix=Fix("Scale the loss inside the tape", Applicability.SAFE, changes) if changes else None,
    )


def same_conditions(update: Update, scale: Event) -> bool:
    """Whether the loss is scaled whenever the gradients are computed."""
    return all(guard in event.guards for way in update.ways for event in way.gradients for guard in scale.guards)


def scaler_with_bfloat16(rule: Rule, file: SourceFile) -> Iterator[Finding]:
    """MP306: a LossScaleOptimizer where layers compute in bfloat16."""
    if "LossScaleOptimizer" not in file.document.text:
        return
    for call in file.syntax.all(ast.Call):
        if not makes_loss_scale_optimizer(file, call):
            continue
        state = file.keras.policy.policy_at(call)
        if not state.certain or state.names != {"mixed_bfloat16"} or chooses_precision(file, call):
            continue
        inner = argument(call, "inner_optimizer", 0) or argument(call, "optimizer") or argument(call, "opt")
        methods = {node.attr for node in file.syntax.all(ast.Attribute)}
        bound = methods & {"get_scaled_loss", "get_unscaled_gradients", "inner_optimizer", "dynamic_scale", "loss_scale", "initial_scale"}
        fix = (
            Fix("Use the optimizer itself", Applicability.SAFE, (Replace(file.span(call), file.text(inner)),))
            if inner and not bound
            else None
        )
        yield rule.finding(
            file,
            call,
            "a LossScaleOptimizer under mixed_bfloat16 has nothing to do",
            severity=Severity.WARNING,
            why="bfloat16 reaches down to 1.2e-38 like float32, so gradients don't underflow; the wrapper checks each of them for nothing",
            help="use the optimizer itself",
            related=tuple((setter, "layers compute in bfloat16 from here on") for setter in state.setters[:1]),
            fix=fix,
        )
