"""MP105: float16 weights lose small updates; float32 weights under mixed precision keep them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.framework


def trained_keras_weight(policy: str) -> float:
    keras = pytest.importorskip("keras")
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(policy)
    try:
        model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(1e-4), loss=lambda y_true, y_pred: y_pred)
        ones = keras.ops.ones((1, 1))
        for _ in range(10):
            model.train_on_batch(ones, ones)
        return float(keras.ops.convert_to_numpy(model.layers[0].kernel)[0, 0])
    finally:
        keras.mixed_precision.set_global_policy(before)


def test_keras_float16_policy_never_moves_the_weight() -> None:
    assert trained_keras_weight("float16") == 1.0


def test_keras_mixed_policy_moves_it() -> None:
    assert trained_keras_weight("mixed_float16") == pytest.approx(0.999, abs=1e-5)


def trained_torch_weight(*, half: bool) -> float:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    x = torch.ones(1, 1)
    if half:
        model, x = model.half(), x.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=not half):
            loss = model(x).sum()
        loss.backward()
        optimizer.step()
    return float(model.weight.detach())


def test_torch_half_module_never_moves_the_weight() -> None:
    assert trained_torch_weight(half=True) == 1.0


def test_torch_autocast_moves_it() -> None:
    assert trained_torch_weight(half=False) == pytest.approx(0.999, abs=1e-5)


def test_the_scaler_refuses_float16_parameters() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(1, 1).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(model(torch.ones(1, 1).half()).sum()).backward()
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(optimizer)
