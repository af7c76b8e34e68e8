"""MP601: one float64 scalar takes a model's arithmetic to float64."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.framework


def test_float64_constant_makes_the_product_float64() -> None:
    torch, np = pytest.importorskip("torch"), pytest.importorskip("numpy")
    x = torch.ones(4)
    scale = torch.from_numpy(np.array([0.125]))
    assert (x * scale).dtype == torch.float64


def test_float32_constant_leaves_it_float32() -> None:
    torch, np = pytest.importorskip("torch"), pytest.importorskip("numpy")
    x = torch.ones(4)
    scale = torch.from_numpy(np.array([0.125], dtype=np.float32))
    assert (x * scale).dtype == torch.float32
