"""The fix of MP301 for PyTorch: build a scaler, scale the loss, unscale before clipping, step and update through it."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.findings import AddImport, Applicability, Change, Fix, InsertStatements, Replace
from mplint.source.file import SourceFile
from mplint.source.names import position
from mplint.source.torch.autocast import Region
from mplint.source.torch.gradients import CLIP, NORM
from mplint.source.torch.loop import BACKWARD, STEP, Act, TrainingLoop, receiver
from mplint.source.torch.scaler import words_of
from mplint.source.values import UNKNOWN

LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Place(NamedTuple):
    """Where the scaler is built, and under which name it is reached."""

    anchor: ast.stmt
    scaler: str
    after: bool


def scale_the_loss(file: SourceFile, loop: TrainingLoop, backward: Act, step: Act, region: Region) -> Fix | None:
    """Scale the one loss and step the one optimizer of a loop, or of a class, where all of it is in sight."""
    syntax = file.syntax
    loss, optimizer = receiver(backward), receiver(step)
    statements = [syntax.statement(a.node) for a in (backward, step)]
    here = [a for kind in (BACKWARD, STEP) for a in loop.acts(kind)]
    if loss is None or optimizer is None or backward.calls != step.calls or {a.node for a in here} != {backward.node, step.node}:
        return None
    if any(not isinstance(s, ast.Expr) for s in statements) or (isinstance(backward.node, ast.Call) and backward.node.args):
        return None
    place = before_the_loop(file, loop, backward, optimizer) or beside_the_optimizer(file, optimizer)
    built = construction(file, region, place) if place is not None else None
    if place is None or built is None:
        return None
    scaler = place.scaler
    changes: list[Change] = [
        InsertStatements(file.span(place.anchor), (f"{scaler} = {built}",), after=place.after),
        Replace(file.span(loss), f"{scaler}.scale({file.text(loss)})"),
        Replace(file.span(step.node), f"{scaler}.step({file.text(optimizer)})"),
        InsertStatements(file.span(statements[1]), (f"{scaler}.update()",), after=True),
    ]
    clips = sorted({a.node for kind in (CLIP, NORM) for a in loop.acts(kind)}, key=lambda n: getattr(n, "lineno", 0))
    if clips:
        first = syntax.statement(clips[0])
        if syntax.function(first) is not syntax.function(step.node) or [n for n, _ in backward.loops] != [n for n, _ in step.loops]:
            return None
        changes.append(InsertStatements(file.span(first), (f"{scaler}.unscale_({file.text(optimizer)})",)))
    if not any(a.name == "torch" and a.asname is None for i in file.syntax.all(ast.Import) for a in i.names):
        changes.append(AddImport("torch"))
    return Fix("Scale the loss with a GradScaler", Applicability.UNSAFE, tuple(changes))


def before_the_loop(file: SourceFile, loop: TrainingLoop, backward: Act, optimizer: ast.expr) -> Place | None:
    """Before the outermost loop around the backward, in a function (or module) that runs once for its optimizer."""
    syntax = file.syntax
    owner = syntax.function(backward.node)
    around = [p for p in syntax.ancestors(backward.node) if isinstance(p, LOOPS) and syntax.function(p) is owner]
    if not around:
        return None
    anchor = around[-1]
    for origin in loop.scalers.subjects.origins(optimizer):
        if isinstance(origin, ast.Call):
            if syntax.function(origin) is not owner or position(origin) > position(anchor):
                return None
        elif owner is None or file.values.call_sites.get(owner) or words_of(owner.name) & {"epoch", "step", "batch", "iteration"}:
            return None
    return Place(anchor, "scaler", after=False)


def beside_the_optimizer(file: SourceFile, optimizer: ast.expr) -> Place | None:
    """After the one statement that makes `self.optimizer`."""
    match optimizer:
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            owner = file.syntax.enclosing_class(optimizer)
            made = file.values.attributes.get((owner, attr), []) if owner is not None else []
            if len(made) == 1 and isinstance(made[0], ast.Call):
                return Place(file.syntax.statement(made[0]), "self.scaler", after=True)
    return None


def construction(file: SourceFile, region: Region, place: Place) -> str | None:
    """The call that builds the scaler for the region's device, enabled where the region is."""
    (autocast, *others) = [a for a in region.autocasts if a.half]
    if others or len(autocast.devices) != 1 or UNKNOWN in autocast.devices or not (autocast.new or autocast.old):
        return None
    (device,) = autocast.devices
    enabled = ""
    if autocast.enabled == "maybe":
        flag = autocast.guard
        if (
            not flag.replace(".", "_").isidentifier()
            or place.scaler != "scaler"
            or not known_before(file, autocast.node, flag.partition(".")[0], place.anchor)
        ):
            return None
        enabled = f"enabled={flag}"
    if file.settings.torch_lacks("2.3"):
        return f"torch.cuda.amp.GradScaler({enabled})" if device == "cuda" else None
    return f'torch.amp.GradScaler("{device}"{", " if enabled else ""}{enabled})'


def known_before(file: SourceFile, node: ast.expr, name: str, anchor: ast.stmt) -> bool:
    """Whether a name that is read in `node` has had its value since before `anchor`."""
    read = next((n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name), None)
    bindings = file.names.lookup(read)[1] if read is not None else []
    return bool(bindings) and all(isinstance(b.node, ast.arg) or position(b.node) < position(anchor) for b in bindings)
