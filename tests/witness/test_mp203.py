"""MP203: a float16 input loses data before the first layer; a float32 input reaches a float32 layer whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.framework
VALUES = [[100000.0, 2049.0]]


@pytest.fixture
def keras() -> Iterator[Any]:
    keras = pytest.importorskip("keras")
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    yield keras
    keras.mixed_precision.set_dtype_policy(before)


def scaled(keras: Any, **given: str) -> list[float]:
    """The features, divided by 1000 in a float32 layer."""
    inputs = keras.Input((2,), **given)
    model = keras.Model(inputs, keras.layers.Rescaling(1e-3, dtype="float32")(inputs))
    return [float(x) for x in model(keras.ops.cast(keras.ops.convert_to_tensor(VALUES), given.get("dtype", "float32")))[0]]


def test_float16_input_overflows_and_rounds(keras: Any) -> None:
    assert scaled(keras, dtype="float16") == [float("inf"), 2.0480000972747803]


def test_float32_input_keeps_the_data(keras: Any) -> None:
    assert scaled(keras) == pytest.approx([100.0, 2.049])


def test_a_mixed_layer_casts_float32_input_itself(keras: Any) -> None:
    inputs = keras.Input((2,))
    assert keras.backend.standardize_dtype(inputs.dtype) == "float32"
    assert keras.backend.standardize_dtype(keras.layers.Dense(8)(inputs).dtype) == "float16"
