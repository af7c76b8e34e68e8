"""MP201: the output of a model under mixed_float16 is float16 and loses small probabilities; dtype="float32" keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.framework


@pytest.fixture
def keras() -> Iterator[Any]:
    keras = pytest.importorskip("keras")
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    yield keras
    keras.mixed_precision.set_dtype_policy(before)


def probabilities(keras: Any, **head: str) -> Any:
    """A two-class softmax on logits 0 and 20, whose first probability is 2e-9."""
    inputs = keras.Input((2,))
    outputs = keras.layers.Dense(2, activation="softmax", kernel_initializer="identity", **head)(inputs)
    return keras.Model(inputs, outputs)(keras.ops.convert_to_tensor([[0.0, 20.0]]))


def test_float16_softmax_head_rounds_a_probability_to_zero(keras: Any) -> None:
    output = probabilities(keras)
    assert keras.backend.standardize_dtype(output.dtype) == "float16"
    assert float(output[0, 0]) == 0.0


def test_float32_softmax_head_keeps_it(keras: Any) -> None:
    output = probabilities(keras, dtype="float32")
    assert keras.backend.standardize_dtype(output.dtype) == "float32"
    assert float(output[0, 0]) == pytest.approx(2.06e-9, rel=0.01)


def test_a_wrapped_head_follows_its_wrapper(keras: Any) -> None:
    inputs = keras.Input((3, 4))

    def head(**wrapper: str) -> Any:
        return keras.layers.TimeDistributed(keras.layers.Dense(2, dtype="float32"), **wrapper)(inputs).dtype

    assert keras.backend.standardize_dtype(head()) == "float16"
    assert keras.backend.standardize_dtype(head(dtype="float32")) == "float32"


def test_a_reshape_after_a_float32_head_turns_it_back(keras: Any) -> None:
    inputs = keras.Input((4,))
    output = keras.layers.Reshape((2, 1))(keras.layers.Dense(2, activation="softmax", dtype="float32")(inputs))
    assert keras.backend.standardize_dtype(output.dtype) == "float16"
