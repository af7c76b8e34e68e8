"""A plain step on scaled gradients moves the weights by the loss scale too far."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def test_plain_step_applies_the_scale_and_the_scalers_step_does_not() -> None:
    def moved(through_scaler: bool) -> float:
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale((weight * 2.0).sum()).backward()
        if through_scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        return abs(float(weight.detach()))

    assert moved(through_scaler=False) == 2.0 * 65536
    assert moved(through_scaler=True) == 2.0


def test_plain_step_puts_an_overflow_into_the_weights_and_the_scaler_skips_it() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale((weight * 1e38).sum()).backward()
    scaler.step(optimizer)
    assert weight.item() == 0.0
    optimizer.zero_grad()
    scaler.update()
    scaler.scale((weight * 1e38).sum()).backward()
    optimizer.step()
    assert weight.isinf().all()


def test_plain_step_after_the_scalers_applies_the_gradients_twice() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale((weight * 2.0).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.step()
    assert weight.item() == -4.0


def test_a_trainers_step_after_a_plain_backward_finds_no_scale() -> None:
    """What accelerate does after `prepare`: its optimizer steps through its scaler, which only its own backward has used."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    (weight * 2.0).sum().backward()
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.step(optimizer)


def test_torchs_clipping_of_gradients_that_a_trainer_has_scaled_leaves_next_to_nothing() -> None:
    def moved(unscaled_first: bool) -> float:
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale((weight * 0.5).sum()).backward()
        if unscaled_first:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        scaler.step(optimizer)
        return abs(float(weight.detach()))

    assert moved(unscaled_first=True) == 0.5
    assert moved(unscaled_first=False) == pytest.approx(1 / 65536)
