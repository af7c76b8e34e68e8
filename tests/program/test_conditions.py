"""Comparisons of one unknown with numbers exclude each other, as far as numbers do."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import product

import pytest

from mplint.program.conditions import EMPTY, Bound, Condition, Path, either_way, extend, forget, has_numbers, spelled


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


FLAGS = ("amp", "cuda", "cpu", "resume")


def some_way(chance: random.Random) -> Path:
    return frozenset((("true", flag), chance.random() < 0.5) for flag in FLAGS if chance.random() < 0.6)


def holds(literals: Path, given: dict[str, bool]) -> bool:
    """What literals come to where each flag is given or not."""
    for key, sense in literals:
        if key[0] == "true":
            found = given[key[1]]
        elif key[0] == "all" or key[1] == "test":
            found = holds(key[-1], given)
        else:
            found = any(holds(way, given) for way in key[2])
        if found is not sense:
            return False
    return True


def worlds() -> list[dict[str, bool]]:
    return [dict(zip(FLAGS, senses, strict=True)) for senses in product((True, False), repeat=len(FLAGS))]


@pytest.mark.parametrize("seed", range(300))
def test_several_ways_are_told_as_they_are(seed: int) -> None:
    chance = random.Random(seed)
    ways = [some_way(chance) for _ in range(chance.randint(1, 5))]
    told, exact = either_way(ways)
    for given in worlds():
        either = any(holds(way, given) for way in ways)
        assert holds(told, given) == either if exact else holds(told, given) or not either


@pytest.mark.parametrize("seed", range(300))
def test_tests_contradict_each_other_where_no_run_meets_them(seed: int) -> None:
    chance = random.Random(seed)
    path: Path | None = EMPTY
    asked: list[Path] = []
    for _ in range(chance.randint(2, 4)):
        told, _ = either_way([some_way(chance) or frozenset({(("true", "amp"), True)}) for _ in range(chance.randint(1, 4))])
        literals = told if chance.random() < 0.7 else frozenset((key, not sense) for key, sense in told if len(told) == 1)
        asked.append(literals)
        path = extend(path, literals) if path is not None else None
    met = [given for given in worlds() if all(holds(literals, given) for literals in asked)]
    assert (path is not None) == bool(met)
    if path is not None:
        assert [given for given in worlds() if holds(path, given)] == met


PATHS = """
import random
from mplint.program.conditions import EMPTY, extend, spelled

FLAGS = ("amp", "cuda", "cpu", "resume", "half", "ddp")

def literal(chance):
    kind, flag = chance.random(), chance.choice(FLAGS)
    if kind < 0.75:
        return ("true", flag), chance.random() < 0.5
    if kind < 0.9:
        return ("in", flag, frozenset(chance.sample(["a", "b", "c", True], 2))), chance.random() < 0.7
    return ("all", frozenset((("true", flag), chance.random() < 0.5) for flag in chance.sample(FLAGS, 2))), False

def told(chance):
    kind = chance.random()
    if kind < 0.5:
        return literal(chance)
    way = lambda: frozenset(literal(chance) for _ in range(chance.randint(1, 3)))
    if kind < 0.8:
        return ("place", "ways", frozenset(way() for _ in range(chance.randint(2, 3)))), chance.random() < 0.75
    return ("place", "test", way()), False

for seed in range(1500):
    chance, path = random.Random(seed), EMPTY
    for _ in range(chance.randint(4, 9)):
        path = extend(path, [told(chance) for _ in range(chance.randint(1, 2))]) or path
    print(seed, sorted(map(spelled, path)))
"""


def test_paths_are_the_same_whatever_the_order_of_hashes() -> None:
    command = [sys.executable, "-c", PATHS]
    runs = [subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": s}, capture_output=True, check=True).stdout for s in "0123"]
    assert runs[0].count(b"ways") > 100
    assert runs.count(runs[0]) == len(runs)


@pytest.mark.parametrize("first", [True, 1])
def test_equal_constants_that_read_differently_stay_what_they_are(first: int) -> None:
    told: list[list[str]] = []
    for value in (first, 1 if first is True else True):
        forget()
        path = extend(frozenset({(("true", "amp"), True)}), frozenset({(("in", "mode", frozenset({value})), True)}))
        assert path is not None
        told.append(sorted(map(spelled, path)))
    assert told[0] != told[1]


def test_a_clause_that_tells_of_tests_within_tests_is_settled_once() -> None:
    a, b, c, e, f, h = ((("true", name), True) for name in "abcefh")

    def other(literal: Condition) -> Condition:
        return literal[0], not literal[1]

    inner = ("place", "ways", frozenset({frozenset({other(e), h}), frozenset({e, f})}))
    outer = ("place", "ways", frozenset({frozenset({other(c), (inner, True)}), frozenset({other(b), c})}))
    told = extend(frozenset({a}), frozenset({(("all", frozenset({a, (outer, False)})), False)}))
    assert told is not None
    assert (outer, True) in told
    assert extend(told, frozenset({other(c), other(f), other(h)})) is None
    assert extend(told, frozenset({b, c})) is None
    narrower = extend(told, frozenset({b}))
    assert narrower is not None
    assert (inner, True) in narrower


def test_tests_of_tests_are_spelled_in_a_bounded_text_that_tells_them_apart() -> None:
    forget()
    told = [(("true", "a"), True), (("true", "b"), True)]
    for depth in range(60):  # each speaks of the one before twice
        told = [
            (("place", "ways", frozenset({frozenset({literal}), frozenset({literal, (("true", f"c{depth}"), True)})})), True)
            for literal in told
        ]
    first, second = map(spelled, told)
    assert first != second
    assert len(first) < 2_000


def test_text_and_the_same_in_lower_case_are_one_choice() -> None:
    text = (("in", "precision\x00option", frozenset({"FP16"})), True)
    lower = ("in", "precision\x00option.lower", frozenset({"fp16"}))
    assert extend(frozenset({text}), [(lower, True)]) is not None
    assert extend(frozenset({text}), [(lower, False)]) is None
    assert extend(frozenset({(("in", "precision\x00option.lower", frozenset({"bf16"})), True)}), [text]) is None


def test_ways_that_are_too_many_to_keep_leave_a_condition_behind() -> None:
    ways = [frozenset({(("true", f"a{n}"), True), (("true", f"b{n}"), True)}) for n in range(20)]
    told, exact = either_way(ways)
    assert not exact and told, "nothing is proven by leaving them out"
    assert told == either_way(list(reversed(ways)))[0]
    assert told != either_way(ways[:-1])[0]
    assert extend(told, frozenset({(("true", "a0"), False)})) is not None
