"""MP405: casts to float32 and back around a Relu give the bits that half gives without them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.framework


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_relu_between_casts_gives_the_bits_of_relu_in_half(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    assert torch.equal(torch.relu(x.float()).to(x.dtype), torch.relu(x))


def test_float32_cast_to_half_and_back_has_lost_bits_and_saved_nothing() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0001, 70000.0])
    back = x.half().float()
    assert back[0] == 1.0
    assert torch.isinf(back[1])
    assert back.dtype == x.dtype


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
def test_sum_and_product_in_float32_rounded_once_are_those_of_half(dtype: str, operation: str) -> None:
    torch = pytest.importorskip("torch")
    random = torch.Generator().manual_seed(1)
    scale = 2.0 ** torch.randint(-12, 8, (2, 100_000), generator=random)
    a, b = (torch.randn(2, 100_000, generator=random) * scale).to(getattr(torch, dtype))
    work = getattr(torch, operation)
    assert torch.equal(work(a.float(), b.float()).to(a.dtype), work(a, b))
