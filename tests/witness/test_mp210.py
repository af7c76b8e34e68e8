"""MP210: a float16 weight does not move by small updates, and a GradScaler refuses it; a float32 weight moves."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.framework


def trained(torch: Any, dtype: Any) -> float:
    """A weight of 1.0 after 100 steps that take 1e-4 each."""
    weight = torch.ones(1, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-4)
    for _ in range(100):
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()
    return float(weight.detach())


def test_small_updates_are_lost_in_float16_and_kept_in_float32() -> None:
    torch = pytest.importorskip("torch")
    assert trained(torch, torch.float16) == 1.0
    assert trained(torch, torch.float32) == pytest.approx(0.99, abs=1e-4)


def test_the_loss_scaler_refuses_float16_gradients() -> None:
    torch = pytest.importorskip("torch")
    scaler = torch.amp.GradScaler("cpu")
    for dtype in (torch.float16, torch.float32):
        weight = torch.ones(1, dtype=dtype, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=1e-4)
        scaler.scale(weight.float().sum()).backward()
        if dtype is torch.float16:
            with pytest.raises(ValueError, match="unscale FP16 gradients"):
                scaler.unscale_(optimizer)
        else:
            scaler.unscale_(optimizer)
            assert float(weight.grad) == 1.0


@pytest.mark.parametrize(("dtype", "kept"), [("compute_dtype", 1.0), ("variable_dtype", 0.99)])
def test_a_keras_weight_in_the_compute_dtype_loses_small_updates(dtype: str, kept: float) -> None:
    keras = pytest.importorskip("keras")
    tf = pytest.importorskip("tensorflow")

    class Scale(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.gain = self.add_weight(name="gain", shape=(), initializer="ones", dtype=getattr(self, dtype))

        def call(self, x: Any) -> Any:
            return x * self.gain

    layer, optimizer = Scale(dtype="mixed_float16"), keras.optimizers.SGD(1e-4)
    for _ in range(100):
        with tf.GradientTape() as tape:
            loss = tf.cast(layer(tf.ones(1)), "float32")
        optimizer.apply([*tape.gradient(loss, [layer.gain.value])], [layer.gain])
    assert float(layer.gain) == pytest.approx(kept, abs=2e-3)
