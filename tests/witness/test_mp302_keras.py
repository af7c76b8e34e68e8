"""MP302: a loss that is scaled after the tape has closed has no gradient, and the optimizer refuses the update."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.framework


@pytest.fixture
def tf() -> Any:
    return pytest.importorskip("tensorflow")


def step(tf: Any, inside: bool) -> float:
    """The weight, 1 at first, after one step with a gradient of 0.5 at learning rate 0.1."""
    keras = pytest.importorskip("keras")
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    weight = keras.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = weight.value * 0.5
        scaled = optimizer.scale_loss(loss) if inside else None
    scaled = scaled if inside else optimizer.scale_loss(loss)
    optimizer.apply(tape.gradient(scaled, [weight.value]), [weight])
    return float(weight.numpy())


def test_a_loss_scaled_after_the_tape_has_no_gradient(tf: Any) -> None:
    with pytest.raises(ValueError, match="No gradients provided"):
        step(tf, inside=False)


def test_a_loss_scaled_in_the_tape_moves_the_weight_as_it_should(tf: Any) -> None:
    assert step(tf, inside=True) == pytest.approx(0.95)
