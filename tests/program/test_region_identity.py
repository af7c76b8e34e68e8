"""A region is on or off: what it put into half precision while it was on does not meet it switched off, whatever conditions were lost."""

from __future__ import annotations

import pytest

from mplint.program.values import Place
from rules.numerics.unstable_op_in_half import begun_at

MADE = Place("train.py", 40)


@pytest.mark.parametrize("identity", [(MADE, ("train.py", 7)), ("trainer", (MADE, (Place("train.py", 3),), (), 0)), ("trainer", MADE)])
def test_a_region_begins_where_it_or_its_trainer_was_made(identity: object) -> None:
    assert begun_at(identity) == MADE


@pytest.mark.parametrize("identity", [None, (), "trainer", ("module", 3)])
def test_others_begin_nowhere(identity: object) -> None:
    assert not isinstance(begun_at(identity), Place)
