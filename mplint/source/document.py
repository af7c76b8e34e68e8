"""A document: the program text of a .py, .pyi or .ipynb file and the way back to its own lines."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from mplint.findings import Location, Span


@dataclass(frozen=True, slots=True)
class Cell:
    """One code cell of a notebook: its index among all cells and the first program line it occupies (from 1)."""

    index: int
    first_line: int


@dataclass(frozen=True, slots=True)
class Document:
    """Program text with `\\n` line ends, as `ast.parse` sees it.

    In a notebook all code cells are joined into one program (magics and shell lines neutralized in
    place, so that no line or column moves); `cells` maps program lines back. Empty `cells`: a plain file.
    """

    path: str
    text: str
    cells: tuple[Cell, ...] = ()

    def location(self, span: Span) -> Location:
        """Turn a span of the program into a place of the file (or of its cell)."""
        cell, offset = None, 0
        if self.cells:
            found = self.cells[max(bisect_right([c.first_line for c in self.cells], span.line) - 1, 0)]
            cell, offset = found.index, found.first_line - 1
        return Location(self.path, span.line - offset, span.column + 1, span.end_line - offset, span.end_column + 1, cell)
