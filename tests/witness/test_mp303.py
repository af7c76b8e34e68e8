"""Without update() the scaler's second step raises, and the scale never adapts."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def test_second_step_without_update_raises_and_with_update_it_does_not() -> None:
    def train(update: bool) -> None:
        weight = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(weight.sum()).backward()
            scaler.step(optimizer)
            if update:
                scaler.update()

    with pytest.raises(RuntimeError, match="already been called since the last update"):
        train(update=False)
    train(update=True)


def test_scale_is_halved_after_an_overflow_only_by_update() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale((weight * 1e38).sum()).backward()
    scaler.step(optimizer)
    assert scaler.get_scale() == 65536
    scaler.update()
    assert scaler.get_scale() == 32768
