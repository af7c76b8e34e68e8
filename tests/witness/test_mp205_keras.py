"""The harm of MP205 in Keras: under a mixed policy an epsilon of 1e-8 is 0, and a division or logarithm meets 0."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.framework

tf = pytest.importorskip("tensorflow")
keras = tf.keras


class Unit(keras.layers.Layer):
    def __init__(self, epsilon: float, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def call(self, inputs: object) -> object:
        return inputs / (tf.norm(inputs, axis=-1, keepdims=True) + self.epsilon)


class Surprise(Unit):
    def call(self, inputs: object) -> object:
        return tf.math.log(tf.maximum(inputs, self.epsilon))


@pytest.mark.parametrize("layer", [Unit, Surprise])
def test_an_epsilon_that_float16_rounds_to_zero_guards_nothing(layer: type[Unit]) -> None:
    zeros = np.zeros((2, 4), "float32")
    assert not np.isfinite(layer(1e-8, dtype="mixed_float16")(zeros).numpy()).all()
    assert np.isfinite(layer(1e-4, dtype="mixed_float16")(zeros).numpy()).all()
    assert np.isfinite(layer(1e-8, dtype="float32")(zeros).numpy()).all()
