"""In Keras 3 gradients stay scaled until the optimizer applies them: a threshold in the loop acts on 32768 times the gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.framework


@pytest.fixture
def keras() -> Iterator[Any]:
    pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    yield keras
    keras.config.set_dtype_policy(before)


def moved(keras: Any, change: Callable[[Any, Any], Any], **options: Any) -> float:
    """How far one step of SGD at rate 1 moves a weight whose gradient is 1, after a change of the scaled gradient."""
    import tensorflow as tf

    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    ones = tf.ones((1, 1))
    layer(ones)
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(1.0, **options))
    optimizer.build(layer.trainable_variables)
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(tf.cast(layer(ones), "float32")[0, 0])
    (gradient,) = tape.gradient(loss, layer.trainable_variables)
    optimizer.apply([change(gradient, optimizer)], layer.trainable_variables)
    return -float(layer.kernel.numpy()[0, 0])


def test_a_threshold_in_the_loop_acts_on_scaled_gradients(keras: Any) -> None:
    import tensorflow as tf

    assert moved(keras, lambda g, _: tf.clip_by_norm(g, 0.5)) == pytest.approx(0.5 / 32768, rel=0.01)
    assert moved(keras, lambda g, o: tf.clip_by_norm(g, 0.5 * o.dynamic_scale)) == pytest.approx(0.5, rel=0.01)
    assert moved(keras, lambda g, _: g, clipnorm=0.5) == pytest.approx(0.5, rel=0.01)


def test_what_is_added_to_scaled_gradients_hardly_counts(keras: Any) -> None:
    assert moved(keras, lambda g, _: g + 2.0) == pytest.approx(1.0, rel=0.001)
    assert moved(keras, lambda g, o: g + 2.0 * o.dynamic_scale) == pytest.approx(3.0, rel=0.001)
