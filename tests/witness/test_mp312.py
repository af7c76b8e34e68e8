"""A scaler that is built anew for every batch never finds the scale: every step is skipped."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def weight_after_training(one_scaler: bool) -> float:
    """A weight after eight batches whose gradients overflow float32 at the scale that a scaler begins with."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1e-36)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(8):
        if not one_scaler:
            scaler = torch.amp.GradScaler("cpu")
        optimizer.zero_grad()
        scaler.scale((weight * 1e35).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return float(weight.detach())


def test_a_new_scaler_for_every_batch_skips_every_step() -> None:
    assert weight_after_training(one_scaler=False) == 1.0


def test_one_scaler_finds_the_scale_and_trains() -> None:
    assert weight_after_training(one_scaler=True) < 1.0
