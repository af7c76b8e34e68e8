"""The scaled loss is the loss times a scale that changes while the loss does not."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def records(steps: int) -> tuple[list[float], list[float]]:
    """The loss and the scaled loss of each step of a training whose second step overflows."""
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    scaler = torch.amp.GradScaler("cpu")
    plain, scaled = [], []
    for step in range(steps):
        optimizer.zero_grad()
        loss = (weight**2).sum()
        value = scaler.scale(loss)
        value.backward()
        if step == 1:
            weight.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        plain.append(loss.item())
        scaled.append(value.item())
    return plain, scaled


def test_the_scaled_loss_halves_after_an_overflow_and_the_loss_does_not() -> None:
    plain, scaled = records(3)
    assert scaled[0] == pytest.approx(65536 * plain[0])
    assert plain[2] == pytest.approx(plain[1], rel=1e-4)
    assert scaled[2] == pytest.approx(scaled[1] / 2, rel=1e-4)
