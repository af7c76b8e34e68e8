"""An autocast around torch.export is not in the exported program; one inside the module is."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


class Half(torch.nn.Module):
    """Runs a module under autocast."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(x)


def test_a_program_exported_under_autocast_computes_in_float32() -> None:
    model, x = torch.nn.Linear(8, 8), torch.randn(2, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        called = model(x)
        program = torch.export.export(model, (x,))
    assert called.dtype is torch.bfloat16
    assert program.module()(x).dtype is torch.float32


def test_a_program_of_a_module_that_enters_autocast_computes_in_bfloat16() -> None:
    x = torch.randn(2, 8)
    program = torch.export.export(Half(torch.nn.Linear(8, 8)), (x,))
    assert program.module()(x).dtype is torch.bfloat16
