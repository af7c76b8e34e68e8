"""From the declarative changes of a fix to edits on the text of its file or cells."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from mplint.findings import (
    Change,
    Edit,
    Fix,
    InsertStatements,
    MoveStatement,
    RemoveImport,
    RemoveStatement,
    Replace,
    Span,
    UnwrapBlock,
    WrapStatements,
)
from mplint.python.document import Cell, Document
from mplint.rewrite.errors import FixError
from mplint.rewrite.lines import Hunk, extent_of, extents, line_edit, place, refine


def realize(document: Document, fix: Fix) -> tuple[Edit, ...]:
    """The edits that carry out all changes of `fix`, in the order of their places; FixError where one can't be carried out."""
    lines = document.text.split("\n")
    replaces = _replaces(document, lines, [change for change in fix.changes if isinstance(change, Replace)])
    changes = tuple(change for change in fix.changes if not isinstance(change, Replace))
    hunks: list[Hunk] = []
    if changes:
        hunks = rearranged(document, changes, tuple(replace.span for replace in replaces))
        if any(hunk.start - 1 <= r.span.end_line and r.span.line <= hunk.end for hunk in hunks for r in replaces):
            hunks, replaces = _one_after_the_other(document, replaces, changes), []
    commands = _commands(document, lines)
    for start, end in [*((r.span.line, r.span.end_line) for r in replaces), *((hunk.start, hunk.end - 1) for hunk in hunks)]:
        if not commands.isdisjoint(range(start, end + 1)):
            raise FixError(f"{place(document, start)}: a notebook command stands there")
    written = document.source.split("\n")
    edits = [Edit(document.location(r.span), r.text) for r in replaces]
    edits += [line_edit(document, hunk, written) for hunk in hunks]
    return tuple(sorted(edits, key=lambda edit: (edit.location.cell or 0, edit.location.line or 0, edit.location.column or 0)))


def rearranged(document: Document, changes: tuple[Change, ...], replaced: tuple[Span, ...]) -> list[Hunk]:
    """The lines that changes of whole statements change, in the language of the document."""
    if document.language == "r":
        from mplint.rewrite import r_lines

        return r_lines.rearrange(document, changes, replaced)
    from mplint.rewrite.structure import rearrange

    return rearrange(document, changes, replaced)


def _commands(document: Document, lines: list[str]) -> set[int]:
    """The lines on which a notebook has a magic or a shell command instead of the program's text."""
    if not document.raw:
        return set()
    return {number for number, (line, raw) in enumerate(zip(lines, document.raw.split("\n"), strict=True), 1) if line != raw}


def _replaces(document: Document, lines: list[str], replaces: Sequence[Replace]) -> list[Replace]:
    """The replacements in order, each once, insertions at one place joined; FixError where one does not fit."""
    ordered: list[Replace] = []
    for change in sorted(dict.fromkeys(replaces), key=lambda change: change.span):
        line, column, end_line, end_column = change.span
        where = place(document, min(max(line, 1), len(lines)))
        inside = 1 <= line <= end_line <= len(lines)
        if not (inside and 0 <= column <= len(lines[line - 1]) and 0 <= end_column <= len(lines[end_line - 1])):
            raise FixError(f"{where}: there is no such place in the program")
        if (end_line, end_column) < (line, column) or extent_of(document, line) != extent_of(document, end_line):
            raise FixError(f"{where}: a replacement has to begin before it ends, and in the same cell")
        if ordered and (line, column) < ordered[-1].span[2:]:
            raise FixError(f"{where}: two replacements of one fix overlap")
        if ordered and ordered[-1].span == change.span:
            ordered[-1] = Replace(change.span, ordered[-1].text + change.text)
        else:
            ordered.append(change)
    return ordered


def _one_after_the_other(document: Document, replaces: Sequence[Replace], changes: tuple[Change, ...]) -> list[Hunk]:
    """Replacements and rearrangements that touch: replace first, rearrange the result, compare with the original."""
    shift = _Shift(document, replaces)
    replaced = shift.document
    lines = replaced.text.split("\n")
    hunks = rearranged(replaced, tuple(shift.change(change) for change in changes), tuple(shift.span(r.span) for r in replaces))
    old = document.text.split("\n")
    result = []
    for before, after in zip(extents(document), extents(replaced), strict=True):
        new = lines[after.first - 1 : after.last]
        for hunk in reversed(hunks):
            if after.first <= hunk.start <= after.last + 1:
                new[hunk.start - after.first : hunk.end - after.first] = hunk.lines
        result += refine(Hunk(before.first, before.last + 1, tuple(new)), old)
    return result


class _Shift:
    """The program after the replacements, and where its places went."""

    def __init__(self, document: Document, replaces: Sequence[Replace]) -> None:
        self.starts = [0, *accumulate(len(line) + 1 for line in document.text.split("\n"))]
        self.moves: list[tuple[int, int, int]] = []
        parts: list[str] = []
        done = 0
        for change in replaces:
            start, end = self.offset(*change.span[:2]), self.offset(*change.span[2:])
            parts += [document.text[done:start], change.text]
            done = end
            self.moves.append((start, end, len(change.text)))
        text = "".join([*parts, document.text[done:]])
        self.new_starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        cells = [self.cell(document, replaces, cell) for cell in document.cells]
        self.document = Document(document.path, text, tuple(cells), language=document.language)

    def cell(self, document: Document, replaces: Sequence[Replace], cell: Cell) -> Cell:
        added = sum(r.text.count("\n") - (r.span.end_line - r.span.line) for r in replaces if r.span.line < cell.first_line)
        return Cell(cell.index, cell.first_line + added)

    def offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def place(self, line: int, column: int, last: bool) -> tuple[int, int]:
        """Where a place went; one inside a replacement goes to its end (`last`) or its start."""
        if not 1 <= line < len(self.starts):
            return line, column
        offset = self.offset(line, column)
        new = offset
        for start, end, length in self.moves:
            if end <= offset:
                new += length - (end - start)
            elif start < offset:
                new += start - offset + (length if last else 0)
        line = bisect_right(self.new_starts, new)
        return line, new - self.new_starts[line - 1]

    def span(self, span: Span) -> Span:
        return Span(*self.place(span.line, span.column, False), *self.place(span.end_line, span.end_column, True))

    def change(self, change: Change) -> Change:
        match change:
            case InsertStatements():
                return change._replace(anchor=self.span(change.anchor))
            case MoveStatement():
                return change._replace(span=self.span(change.span), anchor=self.span(change.anchor))
            case WrapStatements():
                return change._replace(first=self.span(change.first), last=self.span(change.last))
            case RemoveStatement() | UnwrapBlock() | RemoveImport():
                return change._replace(span=self.span(change.span))
        return change
