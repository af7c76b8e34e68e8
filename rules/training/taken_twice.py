"""Gradients that are taken twice, or by a scaler that has not scaled them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mplint.program.conditions import Path, extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace
from mplint.program.values import Object, Place
from mplint.python.file import SourceFile

BACKWARDS = ("backward", "backward handed on", "trainer backward", "gradients zeroed")


class Again(NamedTuple):
    """A call that takes gradients, the one before it, and the path of both."""

    event: Event
    before: Event
    path: Path


def plain_after_scaled(trace: Trace, entry: Entry) -> Iterator[Again]:
    """Plain steps of an optimizer that the scaler has just stepped, with no gradients in between."""
    happened = entry.of("scaler step", "optimizer step", *BACKWARDS)
    for number, event in enumerate(happened):
        if event.kind == "optimizer step" and is_one(event.data["optimizer"]):
            again = taken_before(happened[:number], event)
            if again is not None and are_together(trace, again.before.place, event.place):
                yield again


def taken_before(happened: Sequence[Event], event: Event) -> Again | None:
    """The scaler's step of the optimizer of a step, in the same round of the same run of a function, with no gradients since."""
    for number in range(len(happened) - 1, -1, -1):
        before = happened[number]
        if before.frame != event.frame or before.loops != event.loops:
            return None
        path = extend(before.path, event.path) if before.kind == "scaler step" and before.data["key"] == event.data["key"] else None
        if path is None:
            continue
        if before.data["several"]:
            return None
        since = (
            o for o in happened[number + 1 :] if o.kind in BACKWARDS or (o.kind == "optimizer step" and o.data["key"] == event.data["key"])
        )
        return Again(event, before, path) if all(extend(path, other.path) is None for other in since) else None
    return None


def is_one(value: object) -> bool:
    """Whether an optimizer is known."""
    return type(value) is Object


def are_together(trace: Trace, one: Place, other: Place) -> bool:
    """Whether two places stand in one function, neither of them in an arm of a condition or a handler that excludes the other."""
    (file, first), (_, second) = trace.node(one) or (None, None), trace.node(other) or (None, None)
    if (
        file is None
        or first is None
        or second is None
        or one.path != other.path
        or file.syntax.function(first) is not file.syntax.function(second)
    ):
        return False
    around = [*file.syntax.ancestors(second)]
    for node in file.syntax.ancestors(first):
        if isinstance(node, (ast.If, ast.Try, ast.Match)) and node in around and arm_of(file, node, first) != arm_of(file, node, second):
            return False
    return True


def arm_of(file: SourceFile, node: ast.AST, inner: ast.AST) -> str:
    """The part of a statement that something within it stands in."""
    path = [inner, *file.syntax.ancestors(inner)]
    child = path[path.index(node) - 1]
    return next((name for name, held in ast.iter_fields(node) if isinstance(held, list) and child in held), "")


def of_other_scalers(trace: Trace, entry: Entry) -> Iterator[Again]:
    """Unscalings and steps by a scaler that has scaled nothing since its update, of gradients that another scaler has scaled.

    `before`: where that one has.
    """
    happened = entry.of("loss scaled", "scaler update", "unscale", "scaler step", "gradients zeroed")
    for number, event in enumerate(happened):
        if event.kind not in ("unscale", "scaler step") or not is_one(event.data["scaler"]):
            continue
        before = scaled_by_another(happened[:number], event)
        path = extend(before.path, event.path) if before is not None else None
        if before is not None and path is not None and are_together(trace, before.place, event.place):
            yield Again(event, before, path)
    for number, event in enumerate(happened):
        if event.kind == "scaler step" and is_one(event.data["scaler"]) and is_one(event.data["optimizer"]):
            other = stepped_by_another(happened[:number], event)
            path = extend(other.path, event.path) if other is not None else None
            if other is not None and path is not None and are_together(trace, other.place, event.place):
                yield Again(event, other, path)


def scaled_by_another(happened: Sequence[Event], event: Event) -> Event | None:
    """The last scaling of a loss by another scaler since that of an event was updated in this round, and has scaled none."""
    found: Event | None = None
    for other in reversed(happened):
        if other.frame != event.frame or other.loops != event.loops:
            return None
        if extend(other.path, event.path) is None or other.kind == "gradients zeroed":
            continue
        same = other.data["scaler"] == event.data["scaler"]
        if other.kind == "loss scaled" and same:
            return None
        if other.kind == "loss scaled" and is_one(other.data["scaler"]):
            found = found or other
        if other.kind == "scaler update" and same:
            return found
    return None


def stepped_by_another(happened: Sequence[Event], event: Event) -> Event | None:
    """The step of the same optimizer by another scaler in this round, with nothing zeroed since."""
    for other in reversed(happened):
        if other.frame != event.frame or other.loops != event.loops or other.kind == "gradients zeroed":
            return None
        known = other.kind == "scaler step" and is_one(other.data["scaler"]) and not other.data["several"]
        if known and other.data["key"] == event.data["key"] and other.data["scaler"] != event.data["scaler"]:
            return other if extend(other.path, event.path) is not None else None
    return None
