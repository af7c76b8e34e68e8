"""The fix of gradients that nothing scales in Keras: a LossScaleOptimizer, and a loss that the loop scales."""

from __future__ import annotations

import ast

from mplint.findings import Applicability, Change, Fix
from mplint.frameworks.keras.versions import loop_major
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace
from mplint.program.values import Object, Place
from mplint.python.file import SourceFile
from mplint.recipes.clip_in_optimizer import Clipping, clipping_by_optimizer
from mplint.recipes.loss_in_tape import Loop, loop_of, scale_in_tape, unscale_after, wrap_optimizer

from .unscaled_tapes import Unscaled, updates


def scaling_of(trace: Trace, case: Unscaled) -> Fix | None:
    """Scale the loss, in Keras 2 unscale the gradients, and wrap the optimizer if need be; None where this can't be written."""
    file = trace.file(case.applied.place.path)
    major = loop_major(file, trace.targets(case.applied.place.path)) if file is not None else None
    loops = loops_of(trace, case.optimizer)
    if file is None or major is None or loops is None or any(held is not file for held, _, _ in loops):
        return None
    if case.wrapped:
        changes = None if major == 3 else together(*(scaled(*loop, major) for loop in loops))
        return Fix("Scale the loss in the tape and unscale the gradients", Applicability.UNSAFE, changes) if changes else None
    changes = wrapped(trace, file, case, loops, major)
    return Fix("Wrap the optimizer in a LossScaleOptimizer and scale the loss", Applicability.UNSAFE, changes) if changes else None


Held = tuple[SourceFile, Loop, list[Event]]


def loops_of(trace: Trace, optimizer: Object) -> list[Held] | None:
    """Every loop of the program around an optimizer, with what happens to its gradients; None where one can't be followed."""
    found: dict[Place, Held] = {}
    for entry in trace.entries:
        around: dict[Place, tuple[Event, list[Event]]] = {}
        for applied, taken, _ in updates(entry):
            held = applied.data["optimizer"]
            if type(held) is Object and (held.id == optimizer.id or (held.made == optimizer.made and held.made is not None)):
                kept = around.setdefault(applied.place, (applied, []))[1]
                if all(other.place != taken.place for other in kept):
                    kept.append(taken)
        for applied, taken_here in around.values():
            loop = loop_of(trace, applied, taken_here)
            if loop is None:
                return None
            found.setdefault(applied.place, (*loop, changes_of(entry, taken_here)))
    return list(found.values())


def changes_of(entry: Entry, taken: list[Event]) -> list[Event]:
    """What happens to gradients after they are taken, each place once."""
    tags = {f"taken:{event.place.path}:{event.place.position}" for event in taken}
    found: dict[Place, Event] = {}
    for event in entry.of("keras gradients clipped", "keras gradients changed", "operation"):
        held = [t for _, t in event.data["ways"]] if "ways" in event.data else event.data["operands"]  # type: ignore[attr-defined]
        if any(tags & tensor.tags for tensor in held):  # type: ignore[attr-defined]
            found.setdefault(event.place, event)
    return list(found.values())


def wrapped(trace: Trace, file: SourceFile, case: Unscaled, loops: list[Held], major: int) -> tuple[Change, ...] | None:
    """The changes for an optimizer that scales nothing."""
    made = trace.node(case.optimizer.made) if case.optimizer.made is not None else None
    setter = trace.node(case.setter) if case.setter is not None else None
    if made is None or setter is None or not isinstance(made[1], ast.Call) or not isinstance(setter[1], ast.Call) or made[0] is not file:
        return None
    option, removed = "", []
    if major == 3:
        clippings = [clipping_by_optimizer(trace, file, changes, made[1], loop.receiver) for _, loop, changes in loops]
        options = {clipping.option for clipping in clippings if clipping is not None}
        if None in clippings or len(options) != 1:
            return None
        option = options.pop()
        removed = [clipping.changes for clipping in clippings if isinstance(clipping, Clipping)]
    wrap = wrap_optimizer(file, made[1], (setter[0], setter[1]), option)
    return together(wrap, *(scaled(*loop, major) for loop in loops), *removed)


def scaled(file: SourceFile, loop: Loop, changes: list[Event], major: int) -> tuple[Change, ...] | None:
    """The changes in one loop; a Keras 2 LossScaleOptimizer scales in `minimize` and `compute_gradients` by itself."""
    if major == 3:
        return scale_in_tape(file, loop, "scale_loss")
    if any(isinstance(g.func, ast.Attribute) and g.func.attr in ("minimize", "compute_gradients", "get_gradients") for g in loop.gradients):
        return ()
    return together(scale_in_tape(file, loop, "get_scaled_loss"), unscale_after(file, loop))


def together(*parts: tuple[Change, ...] | None) -> tuple[Change, ...] | None:
    """All changes, or None where one of them can't be made."""
    found: list[Change] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return tuple(found)
