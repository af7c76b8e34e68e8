"""What a loss scaler does when unscale_, step and update come in the wrong order."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def parts():
    """A weight, its optimizer, and an enabled scaler."""
    weight = torch.nn.Parameter(torch.ones(1))
    return weight, torch.optim.SGD([weight], lr=1.0), torch.amp.GradScaler("cpu")


def test_unscale_on_every_micro_batch_raises_and_at_the_boundary_it_does_not() -> None:
    weight, optimizer, scaler = parts()
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.scale(weight.sum()).backward()
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called"):
        scaler.unscale_(optimizer)

    weight, optimizer, scaler = parts()
    for _ in range(2):
        scaler.scale(weight.sum() / 2).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert weight.item() == 0.0


def test_unscale_after_step_raises() -> None:
    weight, optimizer, scaler = parts()
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="after step"):
        scaler.unscale_(optimizer)


def test_update_before_step_raises() -> None:
    weight, _, scaler = parts()
    scaler.scale(weight.sum()).backward()
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()


def test_update_between_two_steps_unscales_the_second_with_the_wrong_scale() -> None:
    def second_weight_after(update_between: bool) -> float:
        first, second = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
        one, two = torch.optim.SGD([first], lr=1.0), torch.optim.SGD([second], lr=1.0)
        scaler = torch.amp.GradScaler("cpu", growth_interval=1)
        scaler.scale((first + second).sum()).backward()
        scaler.step(one)
        if update_between:
            scaler.update()
        scaler.step(two)
        scaler.update()
        return float(second.detach())

    assert second_weight_after(update_between=True) == 0.5
    assert second_weight_after(update_between=False) == 0.0


def test_unscale_and_update_in_each_round_lose_all_rounds_but_the_last() -> None:
    def gradient(in_each_round: bool) -> float:
        weight, optimizer, scaler = parts()
        for last in (False, True):
            scaler.scale(weight.sum()).backward()
            if in_each_round or last:
                scaler.unscale_(optimizer)
            if in_each_round and not last:
                scaler.update()
        return float(weight.grad)

    assert gradient(in_each_round=False) == 2.0
    assert gradient(in_each_round=True) == pytest.approx(1.0, abs=1e-3)
