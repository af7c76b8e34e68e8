"""The limits in code are those of the table."""

import tomllib
from pathlib import Path

import mplint
from mplint import limits

TABLE = tomllib.loads((Path(mplint.__file__).parent / "data" / "dtypes.toml").read_text(encoding="utf-8"))["dtype"]


def test_limits_are_those_of_the_table() -> None:
    half, brain = TABLE["float16"], TABLE["bfloat16"]
    assert (half["max"], brain["max"]) == (limits.FLOAT16_MAX, limits.BFLOAT16_MAX)
    assert (half["min_normal"], half["underflow_to_zero_at"]) == (limits.FLOAT16_SMALLEST_NORMAL, limits.FLOAT16_ZERO)
    assert {"float16": half["max_exact_int"], "bfloat16": brain["max_exact_int"]} == limits.EXACT_INTEGERS
