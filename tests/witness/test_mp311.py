"""A model trains no further after the first step while one autocast region stays open."""

from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def losses(spanning: bool, cache: bool = True) -> list[float]:
    """The losses of four SGD steps, with one region around all of them or one around each forward pass."""
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x, y = torch.randn(64, 16), torch.randn(64, 16)
    seen = []
    around = torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cache) if spanning else nullcontext()
    with around:
        for _ in range(4):
            with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cache):
                loss = torch.nn.functional.mse_loss(model(x).float(), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(loss.item())
    return seen


def test_one_region_over_all_steps_freezes_the_loss() -> None:
    assert len(set(losses(spanning=True))) == 1


def test_a_region_for_each_step_trains_and_so_does_one_without_cache() -> None:
    for seen in (losses(spanning=False), losses(spanning=True, cache=False)):
        assert seen == sorted(seen, reverse=True) and len(set(seen)) == 4
