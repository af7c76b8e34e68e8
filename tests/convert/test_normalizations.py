"""LayerNorms that are written out: one operator where the opset has it, one precision elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import model, rng

from mplint.conversion.onnx.convert import convert
from mplint.conversion.policy import Options, policy

NORM = """m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps) r = Sqrt(e) z = Div(d, r)
          s = Mul(z, scale) t = Add(s, shift)"""
WEIGHTS = {
    "two": np.float32(2),
    "eps": np.float32(1e-12),
    "scale": rng(8, scale=0.1) + np.float32(1),
    "shift": rng(8, scale=0.1),
    "W": rng(8, 8),
}


def operators(text: str, folder: Path, *, opset: int = 17, **weights: np.ndarray) -> tuple[list[str], int]:
    """The operators of a model converted without data, and the casts added."""
    path = model(text, folder / "a.onnx", opset=opset, **(WEIGHTS | weights))
    result = convert(path, policy("mixed_float16"), Options())
    assert result.proven, result.problems
    assert result.heavy_half == result.heavy
    result.save(str(folder / "b.onnx"))
    return [node.op_type for node in onnx.load(folder / "b.onnx").graph.node], result.casts_added


def test_it_becomes_one_operator(tmp_path: Path) -> None:
    found, casts = operators(f"g (float[4,8] x) => (float[4,8] y) {{ {NORM} y = MatMul(t, W) }}", tmp_path)
    assert "LayerNormalization" in found and "Sqrt" not in found
    assert casts == 2


def test_names_of_outputs_stay(tmp_path: Path) -> None:
    operators(f"g (float[4,8] x) => (float[4,8] t, float[4,8] y) {{ {NORM} y = MatMul(t, W) }}", tmp_path)
    assert [value.name for value in onnx.load(tmp_path / "b.onnx").graph.output] == ["t", "y"]


@pytest.mark.parametrize(
    ("norm", "opset"),
    [
        (NORM, 16),  # no such operator
        (NORM.replace("d = Sub(x, m)", "d = Sub(x, scale)"), 17),  # not its own mean
        (NORM.replace("axes=[-1]>(q)", "axes=[0]>(q)"), 17),  # another axis
        (NORM.replace("Div(d, r)", "Div(x, r)"), 17),  # not centered
    ],
)
def test_it_stays_written_out_where_it_is_something_else(norm: str, opset: int, tmp_path: Path) -> None:
    found, _ = operators(f"g (float[4,8] x) => (float[4,8] y) {{ {norm} y = MatMul(t, W) }}", tmp_path, opset=opset)
    assert "LayerNormalization" not in found


def test_it_stays_written_out_where_a_part_of_it_is_used(tmp_path: Path) -> None:
    found, _ = operators(f"g (float[4,8] x) => (float[4,8] y, float[4,1] r) {{ {NORM} y = MatMul(t, W) }}", tmp_path)
    assert "LayerNormalization" not in found
