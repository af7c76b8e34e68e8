"""A document: the program text of a .py, .pyi, .ipynb, .R, .Rmd or .qmd file and the way back to its own lines."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

from mplint.findings import Location, Span


class InputError(Exception):
    """A file, or one cell of a notebook, that cannot be read as a program; it is reported at its place.

    Lines and columns count from 1, columns in characters; with `cell` they count within that cell.
    """

    def __init__(self, message: str, line: int | None = None, column: int | None = None, cell: int | None = None) -> None:
        super().__init__(message, line, column, cell)
        self.message = message
        self.line = line
        self.column = column
        self.cell = cell

    def __str__(self) -> str:
        return self.message

    def location(self, path: str) -> Location:
        """The place as a report shows it: one character wide, or the whole file where no place is known."""
        end = None if self.column is None else self.column + 1
        return Location(path, self.line, self.column, self.line, end, self.cell)


class Cell(NamedTuple):
    """One code cell of a notebook: its index among all cells and the first program line it occupies (from 1)."""

    index: int  # type: ignore[assignment]  # the field's name; nobody asks a cell for the index of a value
    first_line: int


class Document(NamedTuple):
    """Program text with `\\n` line ends, as `ast.parse` sees it.

    In a notebook all code cells are joined into one program (magics and shell lines neutralized in
    place, so that no line or column of the Python that stays moves); `cells` maps program lines back.
    Empty `cells`: a plain file, or a notebook without Python.

    `raw` is the same lines as the user wrote them, where they differ from `text` (empty: they do not).
    `problems` are the cells that could not be parsed; they are blank in `text`. `language` is "r" for R.
    """

    path: str
    text: str
    cells: tuple[Cell, ...] = ()
    raw: str = ""
    problems: tuple[InputError, ...] = ()
    language: str = "python"

    @property
    def source(self) -> str:
        """The program's lines as the user wrote them: what a report shows, and what a fix must keep."""
        return self.raw or self.text

    def cell_at(self, line: int) -> Cell | None:
        """The cell that holds a program line; None in a plain file."""
        if not self.cells:
            return None
        return self.cells[max(bisect_right(self.cells, line, key=_first_line) - 1, 0)]

    def location(self, span: Span) -> Location:
        """Turn a span of the program into a place of the file (or of its cell)."""
        cell, offset = None, 0
        found = self.cell_at(span.line)
        if found is not None:
            cell, offset = found.index, found.first_line - 1
        return Location(self.path, span.line - offset, span.column + 1, span.end_line - offset, span.end_column + 1, cell)

    def span(self, location: Location) -> Span | None:
        """Turn a place of the file back into a span of the program; None where it names no line or no cell of it."""
        if location.line is None:
            return None
        offset = 0
        if self.cells:
            first = next((cell.first_line for cell in self.cells if cell.index == location.cell), None)
            if first is None:
                return None
            offset = first - 1
        line, column = location.line, location.column or 1
        end_line, end_column = location.end_line or line, location.end_column or column
        return Span(line + offset, column - 1, end_line + offset, end_column - 1)


def _first_line(cell: Cell) -> int:
    return cell.first_line


# Scripts, or folders of scripts, that time a few steps and throw the weights away.
MEASURES = re.compile(r"(bench|profil|throughput|speed_?test)[^/]*(/[^/]*)?$", re.IGNORECASE)


def measures(path: str) -> bool:
    """Whether a script times a few steps and throws the weights away, as its path says."""
    return MEASURES.search(path.replace("\\", "/")) is not None


TESTS = frozenset({"test", "tests", "testing", "unit_test", "unit_tests", "integration_test", "integration_tests"})


def is_test_path(path: str) -> bool:
    """Whether a path says that the file is test code, which sets policies on purpose."""
    parts = path.replace("\\", "/").lower().split("/")
    name = parts[-1]
    return name.startswith("test_") or name.endswith(("_test.py", "_tests.py")) or name == "conftest.py" or not TESTS.isdisjoint(parts[:-1])
