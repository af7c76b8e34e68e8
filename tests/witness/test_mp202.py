"""MP202: exp, sums of squares and scaled losses overflow in float16; in float32 they do not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.framework


def test_exp_of_twelve_overflows_in_float16() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([12.0])
    assert torch.isinf(x.half().exp()).all()
    assert torch.isfinite(x.half().float().exp()).all()


def test_a_summed_loss_overflows_in_float16() -> None:
    torch = pytest.importorskip("torch")
    image, target = torch.full((300,), 16.0), torch.zeros(300)
    mse = torch.nn.functional.mse_loss
    assert torch.isinf(mse(image.half(), target.half(), reduction="sum"))
    assert float(mse(image.half().float(), target, reduction="sum")) == 76800.0


def test_a_loss_after_the_region_stays_half_and_overflows_when_scaled() -> None:
    torch = pytest.importorskip("torch")
    model, x, labels = torch.nn.Linear(4, 3), torch.ones(2, 4), torch.tensor([0, 1])
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(x)
        inside = torch.nn.functional.cross_entropy(outputs, labels)
    outside = torch.nn.functional.cross_entropy(outputs, labels)
    assert inside.dtype is torch.float32 and outside.dtype is torch.float16
    assert torch.isfinite(inside * 65536.0 * 2) and torch.isinf(outside * 65504.0 * 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_factorizations_and_quantiles_have_no_half_kernel(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    matrix = torch.eye(4) + 0.1 * torch.ones(4, 4)
    half = matrix.to(getattr(torch, dtype))
    linalg = torch.linalg
    refused = [linalg.eigh, linalg.svd, linalg.qr, linalg.inv, linalg.cholesky, linalg.det, lambda x: torch.quantile(x, 0.5)]
    for operation in (*refused, torch.fft.rfft):
        with pytest.raises(RuntimeError):
            operation(half)
        operation(half.float())
    assert linalg.matrix_exp(half).dtype is half.dtype


def test_what_multiplies_before_it_factors_gives_the_factorization_half_under_autocast() -> None:
    torch = pytest.importorskip("torch")
    rows = torch.rand(8, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # on the CPU autocast casts back for the factorization; on CUDA nothing does
        product = rows @ torch.rand(4, 2)
    assert product.dtype is torch.bfloat16
    with pytest.raises(RuntimeError):
        torch.linalg.qr(product)
    assert torch.svd_lowrank(rows, q=2)[1].dtype is torch.float32


def test_powers_of_a_loud_tone_are_infinite_in_float16_and_silence_is_zero() -> None:
    torch = pytest.importorskip("torch")
    tone = torch.sin(torch.arange(8192) * 2 * torch.pi * 64 / 2048)
    power = torch.stft(tone, 2048, 512, window=torch.hann_window(2048), return_complex=True).abs() ** 2
    filters = torch.ones(4, 1025)
    with torch.autocast("cpu", dtype=torch.float16):
        mel, quiet = filters @ power, filters @ torch.full((1025, 1), 1e-12)
        assert torch.isinf(mel).any()
        assert torch.isinf(torch.log10(quiet.clamp(min=1e-10).float())).all()
        with torch.autocast("cpu", enabled=False):
            outside = filters @ power
    assert torch.isfinite(outside).all()


def test_autocast_takes_back_casts_of_the_factors_of_a_product() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        q = layer(torch.rand(2, 4))
        again = q.float() @ q.float().t()
        with torch.autocast("cpu", enabled=False):
            outside = q.float() @ q.float().t()
    assert q.dtype is again.dtype is torch.bfloat16 and outside.dtype is torch.float32
