"""MP308: a loss-scaling optimizer inside another divides every update by the scale once too often."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.framework
keras = pytest.importorskip("keras")


def update(*, wrappers: int, divide: bool = False) -> float:
    """What one step of SGD(0.1) takes from a weight whose gradient is 0.5."""
    optimizer = keras.optimizers.SGD(0.1)
    for _ in range(wrappers):
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    weight = keras.Variable([1.0])
    optimizer.build([weight])
    gradient = keras.ops.convert_to_tensor([0.5]) * optimizer.scale_loss(1.0)
    if divide:
        gradient = gradient / optimizer.dynamic_scale
    optimizer.apply([gradient], [weight])
    return 1.0 - float(keras.ops.convert_to_numpy(weight.value)[0])


def test_one_wrapper_steps_right() -> None:
    assert update(wrappers=1) == pytest.approx(0.05)


def test_two_wrappers_or_a_division_all_but_stop_training() -> None:
    assert update(wrappers=2) < 1e-4
    assert update(wrappers=1, divide=True) < 1e-4
