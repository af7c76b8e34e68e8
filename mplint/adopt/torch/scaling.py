"""A GradScaler for losses that run under autocast in float16, for the device of the program."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from mplint.adopt.torch.backwards import region_of
from mplint.adopt.torch.spelling import Spelling, imports_torch, torch_name
from mplint.findings import AddImport, Applicability, Fix
from mplint.python.names import position
from mplint.recipes.scaler.insertion import Insertion, Training
from mplint.recipes.scaler.looks import looks
from mplint.recipes.scaler.plan import NoFix
from mplint.source.file import SourceFile
from mplint.source.torch.forward import region_behind
from mplint.source.torch.loop import BACKWARD, STEP, Act, TrainingLoop, receiver

POLICY = "mixed_float16"
# What to do about the commonest reasons.
ADVICE = {
    "the optimizer is not made in one place": "its optimizer comes from elsewhere, and the scaler belongs beside it: build a "
    "`torch.amp.GradScaler` there, hand it in, and scale, step and update with it here",
    "the optimizer's step is not in sight": "the step of its optimizer is not in sight: scale the loss, step and update with a "
    "`torch.amp.GradScaler` there",
    "the optimizer is made under a condition": "its optimizer is made under a condition: build a `torch.amp.GradScaler` once, and scale, "
    "step and update with it",
    "gradients are clipped or read in a function of their own": "a function of its own clips or reads the gradients: unscale them there "
    "first (`scaler.unscale_(optimizer)`)",
    "another loss is not scaled": "another loss of its function can't be scaled with it",
}


def scaled(file: SourceFile, backwards: Sequence[ast.Call]) -> Fix:
    """The fix that scales the losses of these backward passes; raises NoFix where not all of it is in sight."""
    loop = file.fact(TrainingLoop)
    for act in loop.acts(BACKWARD):
        loss = receiver(act)
        if act.node in backwards and loss is not None:
            bound = loop.scalers.subjects.bound(loss, act.calls)[0]
            region = (
                loop.region_around(act)
                or region_behind(file, bound)
                or (region_of(file, act.node) if isinstance(act.node, ast.Call) else None)
            )
            if region is None:
                raise NoFix(f"the forward pass of `{file.text(loss)}` is not under autocast")
    try:
        inserted = Insertion(file, training_of(file, loop, backwards), free_name(file), Spelling(file, POLICY).scaler)
        changes = tuple(dict.fromkeys(inserted.changes()))
    except NoFix as reason:
        raise NoFix(ADVICE.get(str(reason), str(reason))) from None
    if torch_name(file) != "torch" or imports_torch(file):
        changes = tuple(change for change in changes if change != AddImport("torch"))
    return Fix("Scale the loss with a GradScaler", Applicability.UNSAFE, changes)


def training_of(file: SourceFile, loop: TrainingLoop, backwards: Sequence[ast.Call]) -> Training:
    """What the losses of these backward passes are trained by."""
    plain = calls_of(loop.acts(BACKWARD))
    scaled = [call for call in plain if call in backwards]
    steps = calls_of(step for path in loop.paths() for step in steps_of(path, scaled))
    others = [call for call in plain if call not in backwards]
    return Training(scaled, others, steps, looks(file), loop.scalers.subjects.origins)


def steps_of(path: tuple[Act, ...], backwards: Sequence[ast.Call]) -> Iterator[Act]:
    """The steps on a path whose last backward pass before them is one of those to scale."""
    last: ast.AST | None = None
    for act in path:
        if act.kind == BACKWARD:
            last = act.node
        elif act.kind == STEP and last in backwards:
            yield act


def calls_of(acts: Iterable[Act]) -> list[ast.Call]:
    """The calls at which acts happen, each once, in source order."""
    return sorted({act.node for act in acts if isinstance(act.node, ast.Call)}, key=position)


def free_name(file: SourceFile) -> str:
    """`scaler`, or another name where the program uses that one."""
    bound = {n.id for n in file.syntax.all(ast.Name)} | {n.arg for n in file.syntax.all(ast.arg)}
    bound |= {n.attr for n in file.syntax.all(ast.Attribute)}
    return next(name for name in ("scaler", "grad_scaler", "loss_scaler", "amp_scaler") if name not in bound)
