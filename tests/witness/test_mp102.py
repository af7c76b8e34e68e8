"""MP102: the removed names raise before the first step; what the fix writes runs."""

from __future__ import annotations

import importlib

import pytest

pytestmark = pytest.mark.framework
keras = pytest.importorskip("keras")


def test_the_experimental_module_is_gone() -> None:
    with pytest.raises(ImportError):
        importlib.import_module("tensorflow.keras.mixed_precision.experimental")
    with pytest.raises(AttributeError):
        keras.mixed_precision.experimental  # noqa: B018
    with pytest.raises(AttributeError):
        keras.mixed_precision.set_policy("mixed_float16")


def test_the_old_arguments_fail_and_the_new_form_is_built() -> None:
    weights = [keras.Variable([1.0])]
    with pytest.raises(Exception, match="string"):
        keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(), "dynamic").build(weights)
    with pytest.raises(ValueError, match="loss_scale"):
        keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(), loss_scale="dynamic")
    with pytest.raises(ValueError, match="dynamic"):
        keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(), dynamic=False, initial_scale=256)
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD())
    optimizer.build(weights)
    assert float(optimizer.dynamic_scale) == 2.0**15


def test_keras_2_methods_are_gone() -> None:
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD())
    for method in ("get_scaled_loss", "get_unscaled_gradients", "minimize", "loss_scale"):
        assert not hasattr(optimizer, method)
    assert hasattr(optimizer, "scale_loss")


def test_the_replacement_sets_the_policy() -> None:
    before = keras.mixed_precision.global_policy()
    try:
        keras.mixed_precision.set_global_policy(keras.mixed_precision.Policy("mixed_float16"))
        assert keras.mixed_precision.global_policy().compute_dtype == "float16"
    finally:
        keras.mixed_precision.set_global_policy(before)
