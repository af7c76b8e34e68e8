"""How the items are found that may not be half."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from mplint.conversion.distance import Distance
from mplint.conversion.fill import Effort, misfits

FAR, NEAR = Distance(1.0), Distance(0.0)


def failing(*groups: set[int]) -> Callable[[Collection[int]], Distance]:
    """A measure that fails where one of the groups is in half as a whole."""
    return lambda half: FAR if any(group <= set(half) for group in groups) else NEAR


@pytest.mark.parametrize("bad", [{3}, {0, 63}, {5, 6, 40}])
def test_single_culprits_are_found_in_few_trials(bad: set[int]) -> None:
    calls = []
    measure = failing(*({one} for one in bad))

    def counted(half: Collection[int]) -> Distance:
        calls.append(len(half))
        return measure(half)

    assert set(misfits(range(64), counted, 0.1)) == bad
    assert len(calls) <= 2 * 8 + 3 * 3 * len(bad)


def test_items_that_only_fail_together_lose_one_of_them() -> None:
    found = misfits(range(16), failing({2, 11}), 0.1)
    assert set(found) == {11} and found[11] == FAR


def test_what_is_untried_when_the_trials_are_spent_counts_as_misfits() -> None:
    measure = failing(*({one} for one in range(0, 64, 2)))
    found = set(misfits(range(64), measure, 0.1, effort=Effort(10, 32)))
    assert measure(set(range(64)) - found) == NEAR


def test_one_item_is_tried_alone() -> None:
    assert set(misfits([7], failing({7}), 0.1)) == {7} and not misfits([7], failing({8}), 0.1)


def test_what_nobody_suspects_is_taken_at_once() -> None:
    tried: list[int] = []
    measure = failing({60}, {61})

    def counted(half: Collection[int]) -> Distance:
        tried.append(len(half))
        return measure(half)

    assert set(misfits(range(64), counted, 0.1, cost=lambda one: float("inf") if one in (60, 61) else 1.0)) == {60, 61}
    assert tried[0] == 62 and len(tried) <= 4
