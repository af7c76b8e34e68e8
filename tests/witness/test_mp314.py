"""What is added to scaled gradients counts for 65536 times less, and removed infinities hide overflows from the scaler."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def moved_by_decay(unscale_first: bool) -> float:
    """How far one SGD step at rate 1 moves a weight of 1 whose loss has no gradient, by a decay of 0.5."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale((weight * 0.0).sum()).backward()
    if unscale_first:
        scaler.unscale_(optimizer)
    weight.grad.add_(0.5 * weight.detach())
    scaler.step(optimizer)
    scaler.update()
    return 1.0 - float(weight.detach())


def scale_after_overflow(unscale_first: bool) -> tuple[float, float]:
    """The scale, and the weight, after a step whose gradients overflowed and were then replaced by numbers."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale((weight * 1e36).sum()).backward()
    if unscale_first:
        scaler.unscale_(optimizer)
    torch.nan_to_num(weight.grad, posinf=1e5, out=weight.grad)
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale(), float(weight.detach())


def test_weight_decay_on_scaled_gradients_is_divided_by_the_scale() -> None:
    assert moved_by_decay(unscale_first=False) == pytest.approx(0.5 / 65536, rel=1e-2)
    assert moved_by_decay(unscale_first=True) == pytest.approx(0.5)


def test_without_infinities_the_scaler_steps_and_keeps_its_scale() -> None:
    scale, weight = scale_after_overflow(unscale_first=False)
    assert scale == 65536.0
    assert weight != 0.0


def test_after_unscale_the_scaler_knows_of_the_overflow() -> None:
    assert scale_after_overflow(unscale_first=True) == (32768.0, 0.0)


def test_a_penalty_on_the_gradients_of_a_scaled_loss_is_too_large_by_the_square_of_the_scale() -> None:
    x = torch.ones(1, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu")
    (scaled,) = torch.autograd.grad(scaler.scale((3 * x).sum()), x)
    assert float(scaled.square()) == 9.0 * 65536.0**2
    assert float((scaled / scaler.get_scale()).square()) == 9.0
