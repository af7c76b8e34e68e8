"""MP208: a matrix product in an autograd function fails in its backward pass under autocast; with the decorators it does not."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.framework


def gradient(torch: Any, decorated: bool) -> Any:
    """The gradient of the weight, computed through an autograd function under autocast."""

    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return x @ weight

    def backward(ctx: Any, grad: Any) -> Any:
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad

    if decorated:
        forward = torch.amp.custom_fwd(device_type="cpu")(forward)
        backward = torch.amp.custom_bwd(device_type="cpu")(backward)
    product = type("Product", (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})
    x, weight = torch.ones(2, 3), torch.ones(3, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = product.apply(x, weight).sum()
    loss.backward()
    return weight.grad


def test_backward_fails_on_mixed_dtypes() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError, match="dtype"):
        gradient(torch, decorated=False)


def test_the_decorators_mend_it() -> None:
    torch = pytest.importorskip("torch")
    assert gradient(torch, decorated=True).tolist() == [[2.0] * 4] * 3
