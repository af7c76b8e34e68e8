"""Where in the user's own code something happens."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import FrameType

FOREIGN = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class Places:
    """Tells the user's code from that of libraries: it lies under `root` and in no folder of installed packages."""

    def __init__(self, root: str) -> None:
        self._root = os.path.join(os.path.abspath(root), "")
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
        return path.startswith(self._root) and not any(part in path for part in FOREIGN) and os.path.isfile(path)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back
