"""What a PyTorch program needs to train in mixed precision."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.adopt.program import Adopted, Note, Program
from mplint.adopt.torch import hazards, judgment
from mplint.adopt.torch.attempt import Attempt, Refused, attempt
from mplint.adopt.torch.backwards import TRAINERS, Backward, backwards, is_scaled
from mplint.adopt.torch.models import Models
from mplint.adopt.torch.notes import notes_on, text_of
from mplint.adopt.torch.passages import Passages, loss_of
from mplint.adopt.torch.switches import switch_trainers
from mplint.findings import Severity
from mplint.program.values import Place
from mplint.python.names import position
from mplint.recipes.scaler.plan import NoFix

ADVICE = "run that forward pass under `torch.autocast`, and for float16 scale its loss with a `torch.amp.GradScaler`"


def adopt(program: Program, policy: str) -> Adopted:
    """Adopt `policy` where the program trains in float32; raises nothing."""
    trainers = switch_trainers(program, policy)
    loops = adopt_loops(trainers.program, policy)
    made, left = (*trainers.made, *loops.made), (*trainers.left, *loops.left)
    return Adopted(loops.program, made, left, trainers.trains or loops.trains)


def adopt_loops(program: Program, policy: str) -> Adopted:
    """Adopt `policy` in the loops that the program writes itself: all that is certain, and the rest is left with its reason."""
    found = backwards(program.execution)
    reasons = {b.number: reason for b in found if b.open and (reason := refusal(program, b, policy)) is not None}
    chosen = [b.number for b in found if b.open and b.number not in reasons]
    result = Attempt(program)
    evaluates = True
    while True:
        try:
            result = attempt(program, policy, chosen, evaluates) if chosen else Attempt(program)
            break
        except Refused as refused:
            if not refused.numbers:
                if not evaluates:
                    reasons.update(dict.fromkeys(chosen, refused.reason))
                    chosen = []
                evaluates = False
            reasons.update(dict.fromkeys(refused.numbers, refused.reason))
            chosen = [number for number in chosen if number not in refused.numbers]
    made, left = notes_on(program, result, policy, found, reasons, evaluates)
    if found and not any(backward.open for backward in found):
        left = (*left, *mistakes(program))
    hidden = (*out_of_sight(program), *trained_elsewhere(program, policy)) if not found else ()
    return Adopted(result.program, made, (*left, *hidden), bool(found or hidden))


def out_of_sight(program: Program) -> Iterator[Note]:
    """The steps of optimizers in a program that computes no gradients by itself, and has no trainer that does."""
    execution = program.execution
    if any(True for _ in execution.events(*TRAINERS)):
        return
    steps = {node for _, event in execution.events("optimizer step") if (node := execution.node(event.place)) is not None}
    for step in sorted(steps, key=position):
        yield Note(program.file.location(step), f"`{program.file.text(step)}` applies gradients that are computed out of sight: {ADVICE}")


def trained_elsewhere(program: Program, policy: str) -> Iterator[Note]:
    """The calls of a program that has no loop of its own which lead to one of another file that scales no loss."""
    execution = program.execution
    if any(True for _ in execution.events(*TRAINERS)):
        return
    found: dict[ast.AST, Place] = {}
    for _, event in execution.events("backward"):
        node = execution.innermost(event)
        if event.place.path != execution.path and isinstance(node, ast.Call) and not is_scaled(event):
            found.setdefault(node, event.place)
    made = {execution.node(event.place) for _, event in execution.events("optimizer made")} - {None}
    beside = "; for float16, build a `torch.amp.GradScaler` beside the optimizer here, and hand it in" if made else ""
    for node, place in sorted(found.items(), key=lambda item: position(item[0])):
        span = execution.trace.span(place)
        text = f"`{program.file.text(node.func)}` trains in `{place.path}:{span.line}`: adopt mixed precision there"  # type: ignore[attr-defined]
        yield Note(program.file.location(node), text + (beside if policy == "mixed_float16" else ""))


def mistakes(program: Program) -> Iterator[Note]:
    """What mplint finds wrong in a program that has adopted mixed precision already."""
    for finding in judgment.findings(program):
        if finding.severity is Severity.ERROR and finding.location.path == program.path:
            yield Note(finding.location, text_of(finding))


def refusal(program: Program, backward: Backward, policy: str) -> str | None:
    """Why a backward pass can't be adopted, as far as it is known beforehand."""
    execution = program.execution
    try:
        hazards.of_program(execution, policy)
        hazards.of_models(execution)
        models = Models(execution)
        hazards.of_backward(execution, backward.call, policy, statements_of(Passages(models, policy), backward))
        if not backward.covered and not models.runs(loss_of(backward.call)):
            hazards.of_passages(models, Passages(models, policy).of_backward(backward.call))
    except NoFix as reason:
        return str(reason)
    return None


def statements_of(passages: Passages, backward: Backward) -> list[ast.stmt]:
    """The statements that compute the loss of a backward pass; none where they are not in sight."""
    try:
        found = passages.of_backward(backward.call)
    except NoFix:
        return []
    return [statement for passage in found for statement in passages.between(passage.first, passage.last)]
