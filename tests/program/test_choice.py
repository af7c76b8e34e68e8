"""What follows from the ways in which a test comes out."""

from __future__ import annotations

from mplint.program.conditions import extend
from mplint.program.expressions import by_choice

CHOICE, ONE, OTHER = ("true", "cfg.sharded"), ("true", "cfg.half"), ("true", "cfg.mixed")
ARMS = [frozenset({(CHOICE, True), (ONE, True)}), frozenset({(CHOICE, False), (OTHER, True)})]


def test_what_a_choice_asks_for_follows_from_either_side() -> None:
    told = by_choice(ARMS)
    assert told is not None
    assert extend(told, [(CHOICE, True), (ONE, False)]) is None
    assert extend(told, [(CHOICE, False), (OTHER, False)]) is None
    assert extend(told, [(CHOICE, False), (ONE, False)]) is not None


def test_a_choice_of_what_has_no_name_gives_no_clauses() -> None:
    unnamed = ("place", "loss.py", 3)
    assert by_choice([frozenset({(unnamed, True), (ONE, True)}), frozenset({(unnamed, False), (OTHER, True)})]) is None
