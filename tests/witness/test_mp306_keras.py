"""MP306 in Keras: under mixed_bfloat16 a LossScaleOptimizer changes no result and does more work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.framework


@pytest.fixture
def keras() -> Iterator[Any]:
    pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield keras
    keras.config.set_dtype_policy(before)


def trained(keras: Any, wrapped: bool) -> tuple[float, int]:
    """The weight after one step with a gradient of 1e-30, and how many variables the optimizer keeps."""
    import tensorflow as tf

    optimizer = keras.optimizers.SGD(1.0)
    if wrapped:
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    ones = tf.ones((1, 1))
    layer(ones)
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(tf.cast(layer(ones), "float32")[0, 0] * 1e-30)
    optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
    return -float(layer.kernel.numpy()[0, 0]), len(optimizer.variables)


def test_tiny_bfloat16_gradients_arrive_with_and_without_the_wrapper(keras: Any) -> None:
    assert trained(keras, wrapped=True)[0] == pytest.approx(1e-30, rel=0.01)
    assert trained(keras, wrapped=False)[0] == pytest.approx(1e-30, rel=0.01)


def test_the_wrapper_keeps_and_updates_a_scale_for_nothing(keras: Any) -> None:
    assert trained(keras, wrapped=True)[1] > trained(keras, wrapped=False)[1]
