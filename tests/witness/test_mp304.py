"""Clipping before unscale_ clips the scaled gradients: the update shrinks by the loss scale."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def update_size(unscale_first: bool) -> float:
    """How far one SGD step with a clip at norm 1 moves a weight whose gradient has norm 4."""
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale((weight * 2.0).sum()).backward()
    if unscale_first:
        scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    scaler.step(optimizer)
    scaler.update()
    return float(weight.detach().norm())


def test_clip_before_unscale_shrinks_the_update_by_the_scale() -> None:
    assert update_size(unscale_first=False) == pytest.approx(1 / 65536, rel=1e-3)


def test_clip_after_unscale_gives_an_update_of_the_clipped_norm() -> None:
    assert update_size(unscale_first=True) == pytest.approx(1.0, rel=1e-3)
