"""MP103: the graph rewrite is gone or does nothing to Keras layers; a dtype policy does."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.framework
tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")


def output_dtype() -> str:
    layer = keras.layers.Dense(8)
    return str(layer(tf.ones((2, 4))).dtype.name)


def test_the_wrapper_is_gone_and_its_twin_refuses_keras_optimizers() -> None:
    assert not hasattr(tf.train.experimental, "enable_mixed_precision_graph_rewrite")
    with pytest.raises(ValueError, match="optimizer"):
        tf.compat.v1.train.experimental.enable_mixed_precision_graph_rewrite(keras.optimizers.SGD())


def test_the_option_is_accepted_like_a_misspelled_one_and_leaves_layers_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TF_ENABLE_AUTO_MIXED_PRECISION", "1")
    tf.config.optimizer.set_experimental_options({"auto_mixed_precission": True})
    tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True})
    try:
        assert output_dtype() == "float32"
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD())
        assert not isinstance(model.optimizer, keras.mixed_precision.LossScaleOptimizer)
    finally:
        tf.config.optimizer.set_experimental_options({"auto_mixed_precision": False})


def test_the_policy_computes_in_float16_and_scales_the_loss() -> None:
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        assert output_dtype() == "float16"
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD())
        assert isinstance(model.optimizer, keras.mixed_precision.LossScaleOptimizer)
    finally:
        keras.mixed_precision.set_global_policy(before)
