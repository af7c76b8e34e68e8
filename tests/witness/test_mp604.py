"""MP604: a half weight that no step moves, and the float32 master weight that the same steps move."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.framework


def trained(name: str) -> float:
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.ones(1, dtype=getattr(torch, name)))
    optimizer = torch.optim.SGD([weight], lr=1e-4)
    for _ in range(100):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    return float(weight.detach())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_hundred_small_steps_leave_a_half_weight_where_it_was(dtype: str) -> None:
    assert trained(dtype) == 1.0


def test_they_move_a_float32_weight() -> None:
    assert trained("float32") == pytest.approx(0.99, abs=1e-4)
