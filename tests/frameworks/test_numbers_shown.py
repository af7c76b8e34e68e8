"""Numbers in messages: as the program writes them, else so that they can't be taken for another."""

from __future__ import annotations

import pytest

from mplint.frameworks.torch.half import number_shown


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("1e-8", 1e-8, "1e-8"),
        ("self.eps", 1e-8, "1e-08"),
        ("1.0 - eps", 1 - 1e-8, "0.99999999"),
        ("one", 1.0, "1"),
        ("top", 65536.0, "65536"),
    ],
)
def test_a_bound_of_nearly_one_is_not_shown_as_one(text: str, value: float, shown: str) -> None:
    assert number_shown(text, value) == shown
