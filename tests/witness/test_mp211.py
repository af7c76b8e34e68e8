"""MP211: sums of squares overflow in float16; in float32 they do not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.framework


def test_a_sum_of_squares_overflows_in_float16() -> None:
    torch = pytest.importorskip("torch")
    x = torch.full((300,), 16.0).half()
    assert torch.isinf((x * x).sum())
    assert float(x.float().square().sum()) == 76800.0


def test_a_mean_of_squares_overflows_above_256() -> None:
    torch = pytest.importorskip("torch")
    x = torch.full((4,), 257.0).half()
    assert torch.isinf((x * x).mean())
    assert float((x.float() * x.float()).mean()) == 257.0**2


def test_a_variance_overflows_where_the_standard_deviation_exceeds_256() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([-300.0, 300.0]).half()
    assert torch.isinf(x.var())
    assert float(x.float().var()) == 180000.0


def test_features_added_up_over_a_map_are_infinite_before_they_are_divided() -> None:
    torch = pytest.importorskip("torch")
    weights, features = torch.full((1, 1, 128 * 128), 0.5), torch.full((1, 128 * 128, 1), 8.5)
    with torch.autocast("cpu", dtype=torch.float16):
        late = torch.bmm(weights, features) / weights.sum(-1, keepdim=True)
        first = torch.bmm(weights / weights.sum(-1, keepdim=True), features)
    assert torch.isinf(late).all()
    assert float(first) == pytest.approx(8.5, rel=1e-2)
