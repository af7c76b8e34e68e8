"""Comparisons of one unknown with numbers exclude each other, as far as numbers do."""

from __future__ import annotations

import pytest

from mplint.program.conditions import Bound, Condition, extend, has_numbers


def compared(op: str, number: float, sense: bool = True) -> Condition:
    return ("true", f"n {op} {number}", Bound("n", op, number)), sense


def equal_to(*numbers: float, sense: bool = True) -> Condition:
    return ("in", "n", frozenset(numbers)), sense


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (equal_to(1), compared(">", 1)),
        (equal_to(1), compared(">=", 2)),
        (equal_to(0, 1), compared(">", 1)),
        (compared(">", 1), compared("<=", 1)),
        (compared(">", 1), compared(">=", 1, sense=False)),
        (compared(">", 1), compared("<", 2)),
        (compared(">", 0), (("true", "n"), False)),
    ],
)
def test_comparisons_that_exclude_each_other_contradict(one: Condition, other: Condition) -> None:
    assert extend(frozenset({one}), frozenset({other})) is None
    assert extend(frozenset({other}), frozenset({one})) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (equal_to(1), compared(">=", 1)),
        (equal_to(1, 2), compared(">", 1)),
        (compared(">", 0), compared("<", 1)),
        (compared(">=", 1), compared("<=", 1)),
        (compared(">", 1), equal_to(2, sense=False)),
        (compared(">=", 0), (("true", "n"), False)),
        (equal_to(1), (("true", "m > 1", Bound("m", ">", 1)), True)),
    ],
)
def test_comparisons_that_some_number_meets_hold_together(one: Condition, other: Condition) -> None:
    assert extend(frozenset({one}), frozenset({other})) is not None
    assert extend(frozenset({other}), frozenset({one})) is not None


def test_bounds_wider_than_a_machine_word_hold_numbers() -> None:
    assert has_numbers([(">=", 1), ("<", 10**30)], [])
    assert not has_numbers([(">", 3), ("<", 4)], [])
