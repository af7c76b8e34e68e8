"""MP301 in Keras: small float16 gradients vanish in a loop without loss scaling, and compile() wraps only under a model-level policy."""

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
    yield keras
    keras.config.set_dtype_policy(before)


def step_size(keras: Any, policy: str, scaled: bool) -> float:
    """How far one step of SGD at learning rate 1 moves a weight whose gradient is 1e-8."""
    import tensorflow as tf

    keras.config.set_dtype_policy(policy)
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    ones = tf.ones((1, 1))
    layer(ones)
    optimizer = keras.optimizers.SGD(1.0)
    if scaled:
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    with tf.GradientTape() as tape:
        loss = tf.cast(layer(ones), "float32")[0, 0] * 1e-8
        loss = optimizer.scale_loss(loss)
    optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
    return -float(layer.kernel.numpy()[0, 0])


def compiled_optimizer(keras: Any, model: Any) -> str:
    """The class of the optimizer that compile() leaves in a model."""
    model.compile(optimizer=keras.optimizers.Adam(), loss="mse")
    return type(model.optimizer).__name__


def test_a_small_gradient_is_lost_without_a_loss_scale(keras: Any) -> None:
    assert step_size(keras, "mixed_float16", scaled=False) == 0.0


def test_a_small_gradient_arrives_with_a_loss_scale(keras: Any) -> None:
    assert step_size(keras, "mixed_float16", scaled=True) == pytest.approx(1e-8, rel=0.01)


def test_bfloat16_needs_no_loss_scale(keras: Any) -> None:
    assert step_size(keras, "mixed_bfloat16", scaled=False) == pytest.approx(1e-8, rel=0.01)


def test_compile_does_not_wrap_for_mixed_layers_under_a_float32_model_policy(keras: Any) -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(8, dtype="mixed_float16"), keras.layers.Dense(1, dtype="float32")])
    assert compiled_optimizer(keras, model) == "Adam"


def test_compile_does_not_wrap_for_a_policy_map(keras: Any) -> None:
    keras.config.set_dtype_policy(keras.dtype_policies.DTypePolicyMap(default_policy="mixed_float16"))
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    assert model.layers[0].compute_dtype == "float16"
    assert compiled_optimizer(keras, model) == "Adam"


def test_compile_wraps_under_a_global_mixed_float16_policy(keras: Any) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    assert compiled_optimizer(keras, keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])) == "LossScaleOptimizer"
