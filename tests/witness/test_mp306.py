"""bfloat16 keeps the gradients that float16 loses: a scaler changes nothing there."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def small_gradient(dtype, scaled: bool) -> float:
    """The gradient of a weight behind an activation whose own gradient is 1e-9, unscaled again."""
    weight = torch.nn.Parameter(torch.ones(1, 1))
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    with torch.autocast("cpu", dtype=dtype):
        output = torch.nn.functional.linear(torch.ones(1, 1), weight)
    scaler.scale(output.float().sum() * 1e-9).backward()
    scaler.unscale_(optimizer)
    return float(weight.grad)


def test_a_scaler_saves_gradients_in_float16_and_changes_nothing_in_bfloat16() -> None:
    assert small_gradient(torch.float16, scaled=False) == 0.0
    assert small_gradient(torch.float16, scaled=True) == pytest.approx(1e-9, rel=0.01)
    assert small_gradient(torch.bfloat16, scaled=False) == pytest.approx(1e-9, rel=0.01)
    assert small_gradient(torch.bfloat16, scaled=True) == pytest.approx(1e-9, rel=0.01)


def test_a_scaler_that_is_switched_off_passes_everything_through() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.item() == 0.0 and scaler.get_scale() == 1.0
