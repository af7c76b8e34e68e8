"""MP207: casting an operand by hand under autocast changes no bit; casting a model's input rounds what float32 operations see."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.framework


def test_operand_casts_change_nothing() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(torch.matmul(a.bfloat16(), b.bfloat16()), torch.matmul(a, b))


def test_input_casts_round_what_runs_in_float32() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.tensor([1000.0, 1001.0]), torch.tensor([1000.0, 1002.0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert float(torch.nn.functional.mse_loss(x, y)) == 0.5
        assert float(torch.nn.functional.mse_loss(x.bfloat16(), y.bfloat16())) != 0.5
