"""What the wrong calls of torch.autocast do under torch, and that the fixed ones work."""

from __future__ import annotations

import warnings

import pytest

from mplint.api import fix_text

pytestmark = pytest.mark.framework

PRELUDE = "import torch\nx = torch.ones(2, 2)\n"
RAISING = [
    ("with torch.autocast(): pass\nhost = 'cpu'", TypeError),
    ("with torch.autocast(True): pass\nhost = 'cpu'", ValueError),
    ("with torch.autocast(torch.device('cpu')): pass", ValueError),
    ("@torch.autocast\ndef f(): return x @ x\nhost = 'cpu'", ValueError),
    ("with torch.autocast(torch.bfloat16): pass\nhost = 'cpu'", ValueError),
]
ENTERING = ["torch.autocast('cpu', True)", "torch.autocast('cpu', dtype='bfloat16')"]


def run(program: str) -> dict[str, object]:
    scope: dict[str, object] = {}
    exec(compile(PRELUDE + program, "program.py", "exec"), scope)
    return scope


@pytest.mark.parametrize(("program", "error"), RAISING)
def test_the_call_raises_and_the_fixed_call_does_not(program: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        run(program)
    run(fix_text(program, "train.py", {}, select=["MP107"]))


def test_the_number_of_a_device_raises_even_where_autocast_is_off() -> None:
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        run("with torch.autocast(0, enabled=False): pass")


@pytest.mark.parametrize("call", ENTERING)
def test_a_dtype_that_is_none_raises_on_entering_and_the_fixed_call_computes_in_half(call: str) -> None:
    program = f"import torch\nwith {call}:\n    y = x @ x\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TypeError):
            run(program)
    after = run(fix_text(program, "train.py", {}, select=["MP107"]))
    assert str(after["y"].dtype) == "torch.bfloat16"  # type: ignore[attr-defined]


def test_autocast_for_cuda_is_off_on_another_device() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scope = run("with torch.autocast('cuda', dtype=torch.bfloat16):\n    y = x @ x\n")
    assert str(scope["y"].dtype) == "torch.float32"  # type: ignore[attr-defined]


def test_float32_turns_autocast_off_on_the_cpu() -> None:
    with pytest.warns(UserWarning, match="float32|Disabling"):
        scope = run("with torch.autocast('cpu', dtype=torch.float32):\n    y = x @ x\n")
    assert str(scope["y"].dtype) == "torch.float32"  # type: ignore[attr-defined]


@pytest.mark.parametrize("call", ["torch.cpu.amp.autocast(device_type='cpu')", "torch.cpu.amp.autocast('cpu')"])
def test_the_old_class_does_not_take_the_device_type(call: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TypeError, match=r"device_type|must be bool"):
            run(f"with {call}:\n    y = x @ x\n")


def test_the_new_scaler_takes_a_flag_for_the_device_and_stays_enabled() -> None:
    program = "from torch.amp import GradScaler\nuse = False\nscaler = GradScaler(use)\n"
    assert run(program)["scaler"].is_enabled()  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after = run(fix_text(program + "host = 'cuda'\n", "train.py", {}, select=["MP107"]))
    assert not after["scaler"].is_enabled()  # type: ignore[attr-defined]


def test_the_new_decorators_need_a_device_type() -> None:
    with pytest.raises(TypeError, match="device_type"):
        run("@torch.amp.custom_fwd\ndef forward(ctx, x): return x\n")
    run("@torch.amp.custom_fwd(device_type='cuda')\ndef forward(ctx, x): return x\n")
