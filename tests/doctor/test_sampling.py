"""How many steps are looked at closely: never more than three times the run's own time, or as many as were asked for."""

from __future__ import annotations

import pytest

from mplint.doctor.sampling import GRACE, Sampling, Share


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(steps: int, own: float, slower: float, every: int = 0, always: float = 1.0) -> tuple[float, int]:
    """The time that a run takes when each step takes `own` seconds, and so many times that where it is looked at; and how many were.

    What is watched in every step makes it `always` times as slow.
    """
    clock = Clock()
    sampling = Sampling(every, clock)
    for _ in range(steps):
        clock.now += own * always * (slower if sampling.close else 1)
        sampling.done()
    return clock.now, sampling.looked_at


@pytest.mark.parametrize("slower", [1.0, 2.0, 5.0, 20.0, 50.0])
def test_a_run_takes_at_most_three_times_its_own_time(slower: float) -> None:
    taken, looked_at = run(100, 0.01, slower)
    assert taken <= 3 * 100 * 0.01
    assert looked_at >= 3


@pytest.mark.parametrize("slower", [2.0, 5.0, 20.0])
def test_what_is_watched_in_every_step_is_part_of_the_three_times(slower: float) -> None:
    taken, looked_at = run(500, 0.005, slower, always=1.7)
    assert taken <= 3 * 500 * 0.005
    assert looked_at >= 3


def test_cheap_steps_are_all_looked_at() -> None:
    assert run(100, 0.01, 1.5)[1] >= 95


def test_every_nth_step_is_looked_at_where_that_is_asked_for() -> None:
    assert run(100, 0.01, 50.0, every=10)[1] == 10
    assert run(20, 0.01, 50.0, every=1)[1] == 20


@pytest.mark.parametrize("operations", [50_000, 2_000_000])
def test_looking_ends_within_a_step_that_is_too_long(operations: int) -> None:
    own, looking = 0.0001, 0.002
    clock = Clock()
    share = Share(clock)
    looked_at = 0
    for _ in range(operations):
        clock.now += own
        if not share.used_up:
            clock.now += looking
            share.took(looking)
            looked_at += 1
    assert looked_at * looking >= GRACE
    assert clock.now <= 2 * operations * own + GRACE + 0.1


def test_short_steps_are_looked_at_as_a_whole() -> None:
    share = Share(Clock())
    share.took(GRACE)
    assert not share.used_up
