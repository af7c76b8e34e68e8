"""How far a run is: one line on a terminal, with counts and the time that is left."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from types import FrameType
from typing import TextIO

QUIET = 0.5  # seconds that a run may take before anything is shown
TURN = 0.1  # seconds between two lines that counts ask for
TICK = 1.0  # the same where nothing is counted
EARLY = 0.02  # the share of a stage before which nobody knows how long it takes
ERASE = "\r\x1b[K"


class Progress:
    """Counts what is done of each stage of a run, and shows it on `stream` where that is a terminal; no other thread is needed for it.

    Nothing is shown of the first `quiet` seconds. On its way to another process it becomes one that shows nothing.
    """

    def __init__(self, stream: TextIO | None = None, quiet: float = QUIET) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._shown_from = time.monotonic() + quiet
        self._drawn = 0.0
        self._visible = False
        self._ticking = False
        self._begun = time.monotonic()
        self.stage, self.total, self.done = "beginning", 0, 0
        self._work, self._worked = 0.0, 0.0

    def __reduce__(self) -> tuple[type[Progress], tuple[()]]:
        return Progress, ()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def __call__(self, stage: str) -> None:
        """Begin a stage of which nothing is counted."""
        self.begin(stage)

    def begin(self, stage: str, total: int = 0, work: float = 0) -> None:
        """Begin a stage, of so many steps where that is known; `work` is what they take together, where some take longer than others."""
        self.stage, self.total, self.done = stage, total, 0
        self._work, self._worked = work or total, 0.0
        self._begun = time.monotonic()
        if self._stream is not None:
            self._tick()
            self._draw(self._begun)

    def step(self, number: int = 1, work: float | None = None) -> None:
        """Count steps as done, and what they took."""
        self.done += number
        self._worked += number if work is None else work
        if self._stream is not None and (now := time.monotonic()) - self._drawn >= TURN:
            self._draw(now)

    def clear(self) -> None:
        """Take the line away, and draw no other until a stage begins."""
        if self._ticking:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            self._ticking = False
        if self._visible:
            self._write(ERASE)
            self._visible = False

    @property
    def told(self) -> str:
        """The stage and its counts in words."""
        return f"{self.stage}, {self.done:,} of {self.total:,} done" if self.total else self.stage

    def line(self, now: float) -> str:
        """What the line says at a time."""
        if not self.total:
            return f"mplint: {self.stage} … {lasting(now - self._begun)}" if now - self._begun >= TICK else f"mplint: {self.stage} …"
        text = f"mplint: {self.stage}: {self.done:,} of {self.total:,}"
        taken = now - self._begun
        if taken < 2 * TICK or self._worked < EARLY * self._work or not 0 < self._worked < self._work:
            return text
        return f"{text}, {lasting(taken / self._worked * (self._work - self._worked))} left"

    def _draw(self, now: float) -> None:
        if now < self._shown_from:
            return
        self._drawn, self._visible = now, True
        self._write(ERASE + self.line(now)[: max(20, _width(self._stream) - 1)])

    def _write(self, text: str) -> None:
        """Write past the stream's buffer, where it has a file: another text may be under way in it."""
        if self._stream is None:
            return
        with suppress(OSError):
            file = _file(self._stream)
            if file is None:
                self._stream.write(text)
            else:
                os.write(file, text.encode("utf-8", "replace"))

    def _tick(self) -> None:
        """Have the line drawn again each second, where the system has timers and nobody else uses this one."""
        if self._ticking or not hasattr(signal, "SIGALRM"):
            return
        with suppress(ValueError):  # not the main thread
            if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
                self._before = signal.signal(signal.SIGALRM, self._rung)
                signal.siginterrupt(signal.SIGALRM, False)
                signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
                self._ticking = True

    def _rung(self, number: int, frame: FrameType | None) -> None:
        if (now := time.monotonic()) - self._drawn >= TURN:
            self._draw(now)


SILENT = Progress()


def lasting(seconds: float) -> str:
    """A length of time in words, as exact as an estimate may be."""
    whole = round(seconds)
    if whole < 100:
        return f"{max(1, whole)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


def _file(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _width(stream: TextIO | None) -> int:
    file = _file(stream) if stream is not None else None
    try:
        return (os.get_terminal_size(file).columns if file is not None else 0) or 80
    except OSError:
        return 80
