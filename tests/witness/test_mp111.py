"""A dropped autocast changes nothing under torch; the fixed `with` computes in half."""

from __future__ import annotations

import pytest

from mplint.api import fix_text

pytestmark = pytest.mark.framework


def dtype_of(program: str) -> str:
    scope: dict[str, object] = {}
    exec(compile("import torch\nx = torch.ones(2, 2)\n" + program, "program.py", "exec"), scope)
    return str(scope["y"].dtype)  # type: ignore[attr-defined]


def test_an_autocast_that_is_dropped_has_no_effect() -> None:
    assert dtype_of("torch.autocast('cpu')\ny = x @ x\n") == "torch.float32"
    assert dtype_of("with torch.autocast('cpu'):\n    y = x @ x\n") == "torch.bfloat16"


def test_and_enters_only_the_last_context_manager() -> None:
    program = "import torch\nwith torch.autocast('cpu') and torch.no_grad():\n    y = x @ x\n"
    assert dtype_of(program) == "torch.float32"
    assert dtype_of(fix_text(program, "train.py", {}, select=["MP111"])) == "torch.bfloat16"
