"""What one run writes down, line by line, so that a run that dies has told what it saw until then."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO

FLUSHED_EVERY = 0.5  # seconds
SUMMED_UP_EVERY = 2.0
WORTH = 30  # so many times as long as summing up takes nothing is summed up again


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
    """Writes the steps of a run to a file and ends the run when `limit` of them are made.

    Without a stream this is a process that the run has started: it writes to a file of its own beside `path`, once it has something to
    tell, and ends itself after the last step.
    """

    def __init__(self, stream: TextIO | None, limit: int, path: str = "") -> None:
        self._stream = stream
        self._limit = limit
        self._path = path
        self._main = stream is not None
        self._early: dict[str, object] = {}  # facts of a process that has told nothing yet
        self._at_end: list[Callable[[], None]] = []
        self._in_child: list[Callable[[], object]] = []
        self._made = 0
        self._before = time.perf_counter()
        self._flushed = self._summed_up = self._before
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """This is another process now: what is in the buffer of the stream belongs to the one before."""
        self._stream, self._main, self._made = None, False, 0
        self._early.clear()
        for call in self._in_child:
            call()

    def in_child(self, call: Callable[[], object]) -> None:
        """Have a function called in every process that is forked."""
        self._in_child.append(call)

    @property
    def main(self) -> bool:
        """Whether this is the process of the run itself."""
        return self._main

    def step(self, loss: float | None, scale: float | None, skipped: bool = False, times: int = 1) -> None:
        """Note a step that ends now, or as many as a function of the program has made; raises Finished after the last one."""
        now = time.perf_counter()
        for _ in range(times):
            self._write({"step": [(now - self._before) / times, loss, scale, skipped]})
        self._made += times
        if now - self._flushed > FLUSHED_EVERY:
            self._flush()
            self._flushed = now
        if self._made >= self._limit:
            self._finish()
        if now > self._summed_up:
            self.end()
            self._summed_up = time.perf_counter() + max(SUMMED_UP_EVERY, WORTH * (time.perf_counter() - now))
        self._before = time.perf_counter()

    def _finish(self) -> NoReturn:
        if self._main:
            raise Finished
        self.end()
        self._flush()
        os._exit(0)  # the others of its group have made as many steps

    def _flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def fact(self, name: str, value: object) -> None:
        """Note something about the run as a whole; the last one of a name counts."""
        if self._main or self._stream is not None:
            self._write({name: value})
            self._flush()
        else:
            self._early[name] = value

    def last_words(self, facts: Mapping[str, object]) -> None:
        """Note what ends this process, though it may have told nothing before."""
        self._write(facts)
        self._flush()

    def event(self, kind: str, **details: object) -> None:
        """Note something that happened, in the order of events."""
        self._write({"event": [kind, details]})
        self._flush()

    def at_end(self, call: Callable[[], None]) -> None:
        """Have a function called when the program is over, however it ended, and now and then before, since it may die."""
        self._at_end.append(call)

    def end(self) -> None:
        """The program is over, or may be soon."""
        for call in self._at_end:
            call()

    @property
    def made(self) -> int:
        """The number of steps that are noted."""
        return self._made

    def _write(self, line: Mapping[str, object]) -> None:
        if self._stream is None:
            self._stream = open(f"{self._path}.{os.getpid()}", "a", encoding="utf-8")  # noqa: SIM115
            self._end_with_process()
            if self._early:
                self._stream.write(json.dumps(self._early) + "\n")
        self._stream.write(json.dumps(line) + "\n")

    def _end_with_process(self) -> None:
        """Sum up when a process of multiprocessing ends: it calls no other functions then."""
        from multiprocessing import util

        util.Finalize(None, self.end, exitpriority=100)


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


def with_processes(run: Run, path: Path) -> Run:
    """A run with what the processes that it started have told: of those that train alike, the first stands for all.

    The steps are those of the process that made the most; `path` is where the run itself wrote.
    """
    others = [read_run(file, run.policy, run.repeat) for file in sorted(path.parent.glob(f"{path.name}.*"))]
    if not others:
        return run
    first = max(others, key=lambda other: len(other.steps))
    known = [(event.kind, event.details.get("place")) for event in run.events]
    events = [event for other in (first, *others) for event in other.events]
    fresh = list(run.events)
    for event in events:
        if (event.kind, event.details.get("place")) not in known:
            known.append((event.kind, event.details.get("place")))
            fresh.append(event)
    facts = {**first.facts, **run.facts} if len(run.steps) >= len(first.steps) else {**run.facts, **first.facts}
    for name in ("reached", "files"):
        lists = [found.facts[name] for found in (run, *others) if isinstance(found.facts.get(name), list)]
        facts[name] = list({json.dumps(item): item for each in lists for item in each}.values())  # type: ignore[attr-defined]
    facts["processes"] = len(others)
    failed = min((other for other in others if other.text("error")), key=lambda other: other.number("error_at") or 0.0, default=first)
    for name in ("ended", "error", "error_text", "error_calls"):
        if name in run.facts:
            facts[name] = run.facts[name]
        elif name in failed.facts:
            facts[name] = failed.facts[name]
    return run._replace(steps=max(run.steps, first.steps, key=len), facts=facts, events=tuple(fresh))


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
