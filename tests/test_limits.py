"""The limits in code are those of the dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mplint import limits


def test_the_largest_and_the_smallest_normal_numbers() -> None:
    half, brain = ml_dtypes.finfo(np.float16), ml_dtypes.finfo(ml_dtypes.bfloat16)
    assert (float(half.max), float(brain.max)) == (limits.FLOAT16_MAX, limits.BFLOAT16_MAX)
    assert (float(half.smallest_normal), float(brain.smallest_normal)) == (
        limits.FLOAT16_SMALLEST_NORMAL,
        limits.BFLOAT16_SMALLEST_NORMAL,
    )
    assert float(np.finfo(np.float32).max) == limits.FLOAT32_MAX


def test_what_is_rounded_to_zero() -> None:
    for zero, dtype in ((limits.FLOAT16_ZERO, np.float16), (limits.BFLOAT16_ZERO, ml_dtypes.bfloat16)):
        assert float(dtype(zero)) == 0 < float(dtype(zero * (1 + 2.0**-10)))


@pytest.mark.parametrize(("name", "dtype"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_up_to_where_whole_numbers_are_exact(name: str, dtype: type) -> None:
    limit = limits.EXACT_INTEGERS[name]
    assert all(int(dtype(number)) == number for number in range(limit + 1)) and int(dtype(limit + 1)) != limit + 1
