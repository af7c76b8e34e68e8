"""MP106: layers keep the policy under which they were built."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.framework
keras = pytest.importorskip("keras")


@pytest.fixture(autouse=True)
def policy() -> Iterator[None]:
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy("float32")
    yield
    keras.mixed_precision.set_global_policy(before)


def build() -> keras.Model:
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(1, dtype="float32")])


def test_a_policy_set_after_the_model_changes_nothing() -> None:
    model = build()
    keras.mixed_precision.set_global_policy("mixed_float16")
    model.compile("sgd", "mse")
    assert model.layers[0].compute_dtype == "float32"
    assert not isinstance(model.optimizer, keras.mixed_precision.LossScaleOptimizer)
    assert keras.models.clone_model(model).layers[0].compute_dtype == "float32"


def test_set_before_it_makes_the_model_mixed() -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    model = build()
    model.compile("sgd", "mse")
    assert model.layers[0].compute_dtype == "float16"
    assert isinstance(model.optimizer, keras.mixed_precision.LossScaleOptimizer)
