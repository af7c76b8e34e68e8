"""MP209: a float32 constant in a layer raises under mixed_float16; one in the compute dtype does not."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.framework


def scaled(tf: Any, policy: str, dtype: str | None) -> Any:
    """The output of a layer that divides by a constant of `dtype` (None: its compute dtype)."""

    class Scaled(tf.keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return inputs / tf.sqrt(tf.constant(64.0, dtype=dtype or self.compute_dtype))

    return Scaled(dtype=policy)(tf.ones((1, 2)))


def test_float32_constant_fails_under_a_mixed_policy_only() -> None:
    tf = pytest.importorskip("tensorflow")
    assert float(scaled(tf, "float32", "float32")[0, 0]) == 0.125
    with pytest.raises((tf.errors.InvalidArgumentError, TypeError, ValueError)):
        scaled(tf, "mixed_float16", "float32")


def test_constant_in_the_compute_dtype_works_under_both() -> None:
    tf = pytest.importorskip("tensorflow")
    for policy in ("float32", "mixed_float16"):
        assert float(scaled(tf, policy, None)[0, 0]) == 0.125
