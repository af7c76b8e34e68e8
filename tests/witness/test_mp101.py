"""The old names warn (and a plain rename is silently wrong) under torch; what the fix writes runs without a warning."""

from __future__ import annotations

import warnings

import pytest

from mplint.api import fix_text

pytestmark = pytest.mark.framework

PRELUDE = "import functools\nimport torch\nx = torch.ones(2)\noptions = {'enabled': False}\n"
# A program that uses an old name, and an expression that must hold before and after the fix ("" where only warnings matter).
FORMS = [
    ("with torch.cuda.amp.autocast(False): pass", ""),
    ("with torch.cuda.amp.autocast(False, torch.bfloat16, False) as region: pass", ""),
    ("region = torch.cuda.amp.autocast((x.sum() > 5).item(), dtype=torch.bfloat16)", "region.fast_dtype is torch.bfloat16"),
    ("region = torch.cuda.amp.autocast(**options)", "region._enabled is False"),
    ("region = torch.cpu.amp.autocast(True)", "region.device == 'cpu' and region._enabled and region.fast_dtype is torch.bfloat16"),
    ("scaler = torch.cpu.amp.GradScaler(1024.0, 3.0, 0.25, 7)", "scaler._init_scale == 1024.0 and scaler._growth_interval == 7"),
    ("scaler = torch.cpu.amp.GradScaler(*[1024.0, 3.0])", "scaler._init_scale == 1024.0 and scaler._growth_factor == 3.0"),
    ("from torch.cuda import amp\nscaler = amp.GradScaler(enabled=False)", "not scaler.is_enabled()"),
    ("import torch.cuda.amp as amp\nscaler = amp.grad_scaler.GradScaler(enabled=False)", "not scaler.is_enabled()"),
    ("from torch.cpu.amp import GradScaler as Scaler\nscaler = Scaler(init_scale=2.0)", "scaler._init_scale == 2.0"),
    ("from torch.cpu.amp import autocast\n@autocast()\ndef f(a): return torch.mm(a, a)", "f(torch.ones(2, 2)).dtype is torch.bfloat16"),
    ("part = functools.partial(torch.cpu.amp.autocast, False)\nregion = part()", "region._enabled is False"),
    ("make = torch.cpu.amp.autocast\nregion = make(enabled=False)", "region._enabled is False"),
    ("from torch.cuda.amp import custom_fwd, custom_bwd\n@custom_fwd\ndef f(ctx, a): return a\n@custom_bwd\ndef g(ctx, a): return a", ""),
    ("@torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)\ndef f(ctx, a): return a", ""),
    ("class Mine(torch.cpu.amp.GradScaler):\n    def __init__(self, scale):\n        super().__init__(scale, growth_interval=5)\n"
     "scaler = Mine(8.0)", "scaler._init_scale == 8.0 and scaler._growth_interval == 5"),
    ("class Off(torch.cuda.amp.autocast):\n    def __init__(self): super().__init__(False)\nregion = Off()", "region._enabled is False"),
    ("from torch.cpu.amp import GradScaler\nclass Mine(GradScaler):\n    def __init__(self, scale):\n"
     "        GradScaler.__init__(self, scale)\nscaler = Mine(8.0)", "scaler._init_scale == 8.0"),
    ("dtype = torch.get_autocast_gpu_dtype()", "dtype is torch.float16"),
    ("torch.set_autocast_cpu_dtype(torch.bfloat16)", "torch.get_autocast_dtype('cpu') is torch.bfloat16"),
    ("on = torch.is_autocast_cpu_enabled()\ntorch.set_autocast_cpu_enabled(on)", "on is False"),
]  # fmt: skip


def deprecations(program: str, expression: str) -> int:
    """How many deprecation warnings the program gives; what it computes must be as the expression says."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scope: dict[str, object] = {}
        exec(compile(program, "program.py", "exec"), scope)
        assert not expression or eval(expression, scope)
    return sum("deprecated" in str(w.message) for w in caught)


@pytest.mark.parametrize(("program", "expression"), FORMS, ids=[program.splitlines()[-1][:60] for program, _ in FORMS])
def test_the_old_form_warns_and_the_fixed_form_does_the_same_without_a_warning(program: str, expression: str) -> None:
    before = PRELUDE + program + "\n"
    after = fix_text(before, "train.py", {}, select=["MP101"])
    assert deprecations(before, expression) > 0
    assert deprecations(after, expression) == 0
    assert fix_text(after, "train.py", {}, select=["MP101"]) == after


def test_a_plain_rename_loses_the_scale_silently() -> None:
    import torch

    scaler = torch.amp.GradScaler(1024.0, enabled=False)
    assert scaler._device == 1024.0
    assert torch.amp.GradScaler("cpu")._init_scale == 65536.0
