"""How far converted outputs may be from the original's."""

import numpy as np
import pytest

from mplint.conversion.distance import distance, is_decided, judge, undecided
from mplint.conversion.policy import policy
from mplint.conversion.result import Conversion

ONE = np.array([1.0, -4.0], np.float32)


@pytest.mark.parametrize(
    ("got", "broken"),
    [
        ([np.array([np.nan, -4.0], np.float32)], "an output became infinite or NaN"),
        ([ONE[:1]], "an output has the shape (1,) instead of (2,)"),
        ([], "the number of outputs differs"),
    ],
)
def test_what_breaks_an_output_is_named(got: list[np.ndarray], broken: str) -> None:
    assert distance([ONE], got)[:2] == (float("inf"), broken)


def test_integers_must_be_equal_and_infinities_of_the_original_do_not_count() -> None:
    assert distance([np.array([3])], [np.array([4])]).broken == "an integer output differs"
    assert distance([np.array([np.inf, 2.0])], [np.array([1.0, 2.0])]).error == 0


def test_the_error_is_relative_to_the_largest_value_and_the_worst_sample_counts() -> None:
    result = Conversion(policy("mixed_float16"), save=lambda _: None)
    judge(result, [distance([ONE], [ONE]), distance([ONE], [ONE + 0.4])])
    assert result.error == pytest.approx(0.1, rel=1e-3) and not result.proven


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_probabilities_that_are_decided_hide_an_error_that_shows_where_they_are_not(kind: str) -> None:
    logits = np.array([[9.0, 0.0, -3.0]])
    moved = logits + np.array([[0.4, 0.0, 0.0]])

    def made(given: np.ndarray) -> np.ndarray:
        return np.exp(given) / np.exp(given).sum(-1, keepdims=True) if kind == "softmax" else 1 / (1 + np.exp(-given))

    assert abs(made(moved) - made(logits)).max() < 1e-4
    level = np.where(logits == 9.0, 0.0, logits)  # where the first is no longer sure of itself
    shown = abs(made(level + moved - logits) - made(level)).max()
    assert shown / 1.2 < undecided(kind, made(logits).astype(np.float32), made(moved).astype(np.float32)) < 1.2 * shown
    assert is_decided(made(2 * logits + 0.01), "softmax") and not is_decided(made(level), kind)
