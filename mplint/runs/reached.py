"""Which lines of a program were run, of a few that are asked about."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any


class Reached:
    """Traces, while it is entered, the functions in which a line that is asked about stands, until it was run.

    `lines` are files and lines; `found` are those that were run, as they were asked for. Other threads are not traced.
    """

    def __init__(self, lines: Iterable[tuple[str, int]]) -> None:
        self.found: set[tuple[str, int]] = set()
        self._asked: defaultdict[str, dict[int, tuple[str, int]]] = defaultdict(dict)
        for path, line in lines:
            self._asked[os.path.abspath(path)][line] = (path, line)
        self._absolute: dict[str, str] = {}
        self._concerned: dict[CodeType, bool] = {}

    def __enter__(self) -> None:
        if self._asked and sys.gettrace() is None:
            sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        if self._asked and sys.gettrace() == self._called:
            sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        concerned = self._concerned.get(code)
        if concerned is None:
            concerned = self._concerned[code] = self._holds(code)
        return self._traced if concerned else None

    def _holds(self, code: CodeType) -> bool:
        asked = self._asked.get(self._path(code.co_filename))
        return asked is not None and any(line in asked for _, _, line in code.co_lines())

    def _path(self, name: str) -> str:
        if name not in self._absolute:
            self._absolute[name] = os.path.abspath(name)
        return self._absolute[name]

    def _traced(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            asked = self._asked[self._path(frame.f_code.co_filename)]
            place = asked.pop(frame.f_lineno, None)
            if place is not None:
                self.found.add(place)
                self._concerned.clear()
        return self._traced
