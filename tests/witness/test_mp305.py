"""backward() inside autocast computes the gradients of a float32 forward in half precision."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def gradient(inside: bool):
    """The weight gradient of a float32 forward, with the backward inside or outside a bfloat16 region."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(64, 64))
    loss = (torch.randn(32, 64) @ weight).square().mean()
    if inside:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss.backward()
    else:
        loss.backward()
    return weight.grad


def test_backward_inside_autocast_loses_precision_and_outside_it_does_not() -> None:
    outside = gradient(inside=False)
    error = ((gradient(inside=True) - outside).norm() / outside.norm()).item()
    assert 1e-3 < error < 1e-2
    assert torch.equal(gradient(inside=False), outside)
