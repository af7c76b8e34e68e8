"""Without loss scaling the small gradients of a float16 forward become 0."""

import pytest

pytestmark = pytest.mark.framework


def test_small_gradients_are_lost_in_float16_without_a_scaler_and_kept_with_one() -> None:
    torch = pytest.importorskip("torch")

    def moved(scaled: bool) -> float:
        weight = torch.nn.Parameter(torch.ones(1, 1))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler = torch.amp.GradScaler("cpu", enabled=scaled)
        with torch.autocast("cpu", dtype=torch.float16):
            output = torch.nn.functional.linear(torch.full((1, 1), 1000.0), weight)
        scaler.scale(output.float().sum() * 1e-8).backward()
        scaler.step(optimizer)
        scaler.update()
        return abs(float(weight.detach()) - 1.0)

    assert moved(scaled=False) == 0.0
    assert moved(scaled=True) == pytest.approx(1e-5, rel=0.02)
