"""Where in the user's own code something happens."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator
from types import FrameType

from mplint.runs.project import is_own, project_of


class Places:
    """Tells the user's code, the files of the project that a script belongs to, from that of libraries."""

    def __init__(self, script: str) -> None:
        self._project = project_of(script)
        self._own: dict[str, bool] = {}

    def here(self) -> tuple[str, int] | None:
        """The file and line of the innermost frame of the user's code; None where there is none, as in a thread of the framework."""
        for frame in _frames():
            name = frame.f_code.co_filename
            place = self.own(name, frame.f_lineno)
            if place is not None:
                return place
        return None

    def own(self, name: str, line: int) -> tuple[str, int] | None:
        """A line of a file, None where that is not the user's own code."""
        known = self._own.get(name)
        if known is None:
            known = self._own[name] = self._is_own(name)
        return (os.path.abspath(name), line) if known else None

    def _is_own(self, name: str) -> bool:
        path = os.path.abspath(name)
        return is_own(path, self._project) and os.path.isfile(path)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


class MadeAt:
    """Where objects were made, as long as they are there. Nothing of the objects is called: a hash of their own may fail this early."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[object], tuple[str, int] | None]] = {}

    def note(self, made: object, place: tuple[str, int] | None) -> None:
        """An object is made."""
        key = id(made)
        self._known[key] = weakref.ref(made, lambda _: self._known.pop(key, None)), place

    def of(self, made: object) -> tuple[str, int] | None:
        """Where an object was made, None where that was not seen."""
        known = self._known.get(id(made))
        return known[1] if known is not None and known[0]() is made else None
