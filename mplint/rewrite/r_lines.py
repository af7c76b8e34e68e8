"""Statements of R put in, taken out and moved: each stands on lines of its own."""

from __future__ import annotations

from itertools import pairwise

from mplint.findings import Change, InsertStatements, MoveStatement, RemoveStatement, Span, WrapStatements
from mplint.python.document import Document
from mplint.rewrite.errors import FixError
from mplint.rewrite.lines import Hunk, place

CLOSING = "})"
STEP = "  "  # one level deeper, as R is laid out


def rearrange(document: Document, changes: tuple[Change, ...], replaced: tuple[Span, ...]) -> list[Hunk]:
    """The lines that `changes`, none of them a Replace, change; FixError where a change can't be carried out."""
    lines = document.text.split("\n")
    hunks: list[Hunk] = []
    for change in dict.fromkeys(changes):
        match change:
            case InsertStatements():
                indent, after = alone(document, lines, change.anchor), change.after
                at = change.anchor.end_line + 1 if after else change.anchor.line
                hunks.append(Hunk(at, at, tuple(f"{indent}{line}" for line in change.lines)))
            case RemoveStatement():
                alone(document, lines, change.span)
                hunks.append(Hunk(change.span.line, change.span.end_line + 1, ()))
            case MoveStatement():
                hunks += moved(document, lines, change)
            case WrapStatements():
                indent = alone(document, lines, change.first)
                alone(document, lines, change.last)
                inner = [f"{STEP}{line}" if line.strip() else line for line in lines[change.first.line - 1 : change.last.end_line]]
                hunks.append(Hunk(change.first.line, change.last.end_line + 1, (f"{indent}{change.header}", *inner, f"{indent}{CLOSING}")))
            case _:
                raise FixError(f"{document.path}: R has no such change")
    hunks.sort(key=lambda hunk: hunk[:2])
    if any(one.end > other.start for one, other in pairwise(hunks)):
        raise FixError(f"{document.path}: two changes of one fix overlap")
    return hunks


def moved(document: Document, lines: list[str], change: MoveStatement) -> list[Hunk]:
    """A statement taken out of its place, and put in at another with the indentation there."""
    old, new = alone(document, lines, change.span), alone(document, lines, change.anchor)
    taken = lines[change.span.line - 1 : change.span.end_line]
    at = change.anchor.end_line + 1 if change.after else change.anchor.line
    put = tuple(new + line.removeprefix(old) if line.strip() else line for line in taken)
    return [Hunk(change.span.line, change.span.end_line + 1, ()), Hunk(at, at, put)]


def alone(document: Document, lines: list[str], span: Span) -> str:
    """The indentation of a statement; FixError where something else stands on its lines."""
    before = lines[span.line - 1][: span.column]
    after = lines[span.end_line - 1][span.end_column :].strip()
    if before.strip() or (after and not after.startswith("#")):
        raise FixError(f"{place(document, span.line)}: something else stands on the lines of this statement")
    return before
