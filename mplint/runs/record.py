"""What one run writes down, line by line, so that a run that dies has told what it saw until then."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

FLUSHED_EVERY = 0.5  # seconds


class Finished(BaseException):
    """Raised into the user's program when it has made all the steps that were asked for; no `except Exception` stops it."""


class StepLine(NamedTuple):
    """One step of the optimizer: seconds since the one before, the loss as the program computed it, the loss scale, and whether the
    scaler skipped it. What is not known is None.
    """

    seconds: float
    loss: float | None
    scale: float | None
    skipped: bool


class Recorder:
    """Writes the steps of a run to a file and ends the run when `limit` of them are made."""

    def __init__(self, stream: TextIO, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._at_end: list[Callable[[], None]] = []
        self._made = 0
        self._before = time.perf_counter()
        self._flushed = self._before

    def step(self, loss: float | None, scale: float | None, skipped: bool = False) -> None:
        """Note a step that ends now; raises Finished after the last one."""
        now = time.perf_counter()
        self._write({"step": [now - self._before, loss, scale, skipped]})
        self._made += 1
        if now - self._flushed > FLUSHED_EVERY:
            self._stream.flush()
            self._flushed = now
        if self._made >= self._limit:
            raise Finished
        self._before = time.perf_counter()

    def fact(self, name: str, value: object) -> None:
        """Note something about the run as a whole; the last one of a name counts."""
        self._write({name: value})
        self._stream.flush()

    def event(self, kind: str, **details: object) -> None:
        """Note something that happened, in the order of events."""
        self._write({"event": [kind, details]})
        self._stream.flush()

    def at_end(self, call: Callable[[], None]) -> None:
        """Have a function called when the program is over, however it ended."""
        self._at_end.append(call)

    def end(self) -> None:
        """The program is over."""
        for call in self._at_end:
            call()

    @property
    def made(self) -> int:
        """The number of steps that are noted."""
        return self._made

    def _write(self, line: Mapping[str, object]) -> None:
        self._stream.write(json.dumps(line) + "\n")


class Event(NamedTuple):
    """Something that happened in a run: what kind of thing, and its details."""

    kind: str
    details: Mapping[str, object]

    def text(self, name: str) -> str:
        """A detail that is a text, "" where there is none."""
        value = self.details.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> float:
        """A detail that is a number, 0 where there is none."""
        value = self.details.get(name)
        return float(value) if isinstance(value, int | float) else 0.0


class Run(NamedTuple):
    """What a run has told: its steps, facts by name, and events in order."""

    policy: str
    repeat: int
    steps: tuple[StepLine, ...]
    facts: Mapping[str, object]
    events: tuple[Event, ...] = ()

    def text(self, name: str) -> str:
        """A fact that is a text, "" where the run did not tell."""
        value = self.facts.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> float | None:
        """A fact that is a number."""
        value = self.facts.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def read_run(path: Path, policy: str, repeat: int) -> Run:
    """The run that wrote the file at `path`; a line that was cut off counts as not written."""
    steps: list[StepLine] = []
    facts: dict[str, object] = {}
    events: list[Event] = []
    for line in _lines(path):
        if "step" in line:
            steps.append(StepLine(*line["step"]))  # type: ignore[misc]
        elif "event" in line:
            events.append(Event(*line["event"]))  # type: ignore[misc]
        else:
            facts |= line
    return Run(policy, repeat, tuple(steps), facts, tuple(events))


def _lines(path: Path) -> Iterable[dict[str, object]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return
