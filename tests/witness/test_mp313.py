"""MP313: a Keras 3 train_step that doesn't scale the loss gets its updates divided by the loss scale."""

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
    keras.config.set_dtype_policy("mixed_float16")
    yield keras
    keras.config.set_dtype_policy(before)


def model_class(keras: Any, scaled: bool) -> Any:
    """A model of one weight, 1 at first, whose loss has the gradient 0.5 and is scaled in the tape or not."""
    import tensorflow as tf

    class Custom(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, data: Any) -> dict[str, Any]:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.cast(self(data[0]), "float32")) * 0.5
                objective = self.optimizer.scale_loss(loss) if scaled else loss
            gradients = tape.gradient(objective, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    return Custom


def step_size(keras: Any, scaled: bool) -> float:
    """How far one step of SGD at learning rate 0.1 moves the weight; 0.05 is right."""
    import numpy as np

    model = model_class(keras, scaled)()
    model.compile(optimizer=keras.optimizers.SGD(0.1), run_eagerly=True)
    ones = np.ones((1, 1), "float32")
    model.fit(ones, ones, epochs=1, verbose=0)
    return 1.0 - float(model.trainable_variables[0].numpy()[0, 0])


def adam_step(keras: Any, optimizer: Any, gradient: float) -> float:
    """How far the optimizer moves a weight that gets `gradient`."""
    import tensorflow as tf

    weight = keras.Variable(1.0)
    optimizer.apply([tf.constant(gradient)], [weight])
    return 1.0 - float(weight.numpy())


def test_an_unscaled_step_is_divided_by_32768(keras: Any) -> None:
    assert step_size(keras, scaled=False) == pytest.approx(0.05 / 32768, rel=0.1)


def test_a_scaled_step_moves_the_weight_as_it_should(keras: Any) -> None:
    assert step_size(keras, scaled=True) == pytest.approx(0.05, rel=1e-3)


def test_adam_hardly_moves_either(keras: Any) -> None:
    wrapped = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(0.1))
    assert adam_step(keras, wrapped, 1e-3) < 0.001
    assert adam_step(keras, keras.optimizers.Adam(0.1), 1e-3) == pytest.approx(0.1, rel=1e-2)


def test_a_fixed_loss_scale_factor_divides_as_well(keras: Any) -> None:
    assert adam_step(keras, keras.optimizers.SGD(0.1, loss_scale_factor=1024), 0.5) == pytest.approx(0.05 / 1024, rel=0.01)
