"""Decides which steps of a training are looked at closely, so that a run takes no more than three times its own time."""

from __future__ import annotations

import time
from collections.abc import Callable

PLAIN = 3  # steps that are only timed, before others are looked at
FIRST = 3  # steps at the beginning that are looked at closely
# So many times the time of its plain steps may a run take. What is watched in every step makes those slower as well: measured up to 1.7
# times where a step takes few milliseconds.
SLOWER = 1.7
# So many seconds may looking at operations take in any run, and this part of all the other time of a run beyond these.
GRACE = 2.0
SHARE = 0.7


class Share:
    """How much of the time of a run looking at operations takes: a step may be so long that it is looked at in part alone."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._taken = 0.0

    def took(self, seconds: float) -> None:
        """Looking at an operation took so long, without the operation itself."""
        self._taken += seconds

    @property
    def used_up(self) -> bool:
        """Looking has taken more than it may, until the run itself has gone on for longer."""
        beyond = self._taken - GRACE
        return beyond > 0 and beyond > SHARE * (self._clock() - self._began - self._taken)


class Sampling:
    """Counts steps. With `every` each such step is looked at, whatever it costs; without it as many as the time allows."""

    def __init__(self, every: int = 0, clock: Callable[[], float] = time.perf_counter) -> None:
        self._every = every
        self._clock = clock
        self._times: dict[bool, list[float]] = {True: [], False: []}
        self._began = clock()
        self.close = True  # this step is looked at

    @property
    def looked_at(self) -> int:
        """How many steps were."""
        return len(self._times[True])

    def done(self) -> None:
        """A step is over: decide on the next one."""
        now = self._clock()
        self._times[self.close].append(now - self._began)
        made = sum(map(len, self._times.values()))
        self.close = made % self._every == 0 if self._every else made < FIRST or self._affordable()
        self._began = self._clock()

    def put_off(self) -> None:
        """What went by since the last step is not a step's own time: a pause between epochs."""
        self._began = self._clock()

    def _affordable(self) -> bool:
        plain, close = self._times[False], self._times[True]
        if len(plain) < PLAIN:
            return False
        usual = sorted(plain)[len(plain) // 4]  # in some of them a graph is traced, or compiled
        costly = sorted(close[1:])[len(close[1:]) // 2]  # the first warms up
        return sum(close[1:]) + sum(plain) + costly < SLOWER * usual * (len(plain) + len(close))
