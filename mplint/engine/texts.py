"""The texts that findings point into: lines and documents, read again when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from mplint.findings import Location
from mplint.graph.names import is_model
from mplint.python.document import Document, InputError


class Texts:
    """Reads files by the paths of findings; `given` are the texts, by path, that stand for what lies on disk."""

    def __init__(self, given: Mapping[str, bytes] = {}) -> None:
        self._given = given
        self.lines = lru_cache(maxsize=16)(self._lines)
        self.document = lru_cache(maxsize=4)(self._document)

    def holds(self, path: str, data: bytes) -> bool:
        """Whether `data` is the text given for a path."""
        return self._given.get(path) == data

    def line(self, location: Location) -> str | None:
        """The line of a place, without its end; None where there is none."""
        lines = self.lines(location.path, location.cell)
        return lines[location.line - 1] if location.line is not None and 0 < location.line <= len(lines) else None

    def _lines(self, path: str, cell: int | None) -> list[str]:
        document = self.document(path)
        if document is None:
            return self._raw(path).decode("utf-8", "replace").splitlines() if cell is None and not path.endswith(".ipynb") else []
        lines = document.source.split("\n")
        if cell is None:
            return [] if document.cells else lines
        starts = [c.first_line - 1 for c in document.cells] + [len(lines)]
        for number, found in enumerate(document.cells):
            if found.index == cell:
                return lines[starts[number] : starts[number + 1]]
        return []

    def _document(self, path: str) -> Document | None:
        from mplint.python.load import load

        try:
            return load(path, self._raw(path))
        except InputError:
            return None

    def _raw(self, path: str) -> bytes:
        given = self._given.get(path)
        if given is not None:
            return given
        if is_model(path):
            return b""  # it may be huge, and has no lines to show
        from mplint.python.load import read_file

        try:
            return read_file(path)
        except OSError:
            return b""
