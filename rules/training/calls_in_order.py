"""Edits that show where the calls of a scaler belong: moved behind or before its step, or left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from mplint.findings import Applicability, Fix, MoveStatement, RemoveStatement
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace
from mplint.program.values import Place
from mplint.python.file import SourceFile
from mplint.python.names import position

LOOKS = ("clip", "gradients read", "gradients changed")


def left_out(trace: Trace, place: Place, kept: Place | None = None) -> Fix | None:
    """A call that is one too many, without it; `kept` is the one that does its work, None where that is no call of its kind."""
    file, statement = statement_at(trace, place)
    if file is None or not isinstance(statement, ast.Expr):
        return None
    if kept is not None:
        other, beside = statement_at(trace, kept)
        if file is not other or beside is None or not runs_wherever(file, beside, statement):
            return None
    return Fix("leave this call out", Applicability.DISPLAY, (RemoveStatement(file.span(statement)),))


def runs_wherever(file: SourceFile, kept: ast.stmt, statement: ast.stmt) -> bool:
    """Whether a statement runs in every round in which another one does: in a block around it, or under no condition that it has not."""
    above = [statement, *(parent for parent in file.syntax.ancestors(statement) if isinstance(parent, ast.stmt))]
    held = {ast.unparse(parent.test) for parent, child in zip(above[1:], above, strict=False) if is_arm(parent, child)}
    for child, parent in zip([kept, *file.syntax.ancestors(kept)], file.syntax.ancestors(kept), strict=False):
        block = next((found for found in blocks(parent) if child in found), [])
        if any(part in above for part in block):
            return True
        if not is_arm(parent, child) or ast.unparse(parent.test) not in held:
            return False
    return False


def is_arm(parent: ast.AST, child: ast.AST) -> TypeGuard[ast.If]:
    """Whether a statement is what an `if` does where its condition holds."""
    return isinstance(parent, ast.If) and child in parent.body


def moved_behind(trace: Trace, place: Place, step: Place) -> Fix | None:
    """A call that comes too early, behind the step."""
    file, statement = statement_at(trace, place)
    other, anchor = statement_at(trace, step)
    if file is None or file is not other or not isinstance(statement, ast.Expr) or not isinstance(anchor, ast.Expr):
        return None
    if file.syntax.function(statement) is not file.syntax.function(anchor):
        return None
    return Fix("move it behind the step", Applicability.DISPLAY, (MoveStatement(file.span(statement), file.span(anchor), after=True),))


def moved_to_the_step(trace: Trace, entry: Entry, unscale: Event, step: Event) -> Fix | None:
    """What unscales in every round, and the clipping behind it, moved under the condition of the step."""
    file, statement = statement_at(trace, unscale.place)
    other, anchor = statement_at(trace, step.place)
    if file is None or file is not other or statement is None or anchor is None:
        return None
    parents = file.syntax.parents
    clips = {found for event in entry.of("clip") if (found := statement_at(trace, event.place)[1]) is not None}
    around = parents[statement]
    if isinstance(around, ast.If) and not around.orelse and all(part is statement or part in clips for part in around.body):
        statement = around
    block = next((held for held in blocks(parents[statement]) if statement in held), [])
    if anchor in block or parents[statement] not in file.syntax.ancestors(anchor):
        return None  # under the same condition, or elsewhere
    moved = [statement]
    for following in block[block.index(statement) + 1 :]:
        if following not in clips:
            break
        moved.append(following)
    left = (found for event in entry.of(*LOOKS) if (found := statement_at(trace, event.place)[1]) is not None)
    if any(position(moved[-1]) < position(look) < position(anchor) for look in left if look not in moved):
        return None  # what is done to the gradients before the step would meet them scaled
    changes = tuple(MoveStatement(file.span(part), file.span(anchor)) for part in moved)
    return Fix("unscale and clip where the optimizer is stepped", Applicability.DISPLAY, changes)


def statement_at(trace: Trace, place: Place) -> tuple[SourceFile | None, ast.stmt | None]:
    """The statement around a place, with its file."""
    found = trace.node(place)
    return (found[0], found[0].syntax.statement(found[1])) if found is not None else (None, None)


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements that a statement holds."""
    for name in ("body", "orelse", "finalbody"):
        held = getattr(node, name, None)
        if isinstance(held, list):
            yield held
