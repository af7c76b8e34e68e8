"""Products that overflow before a constant scales them down: the scale moves before them, where that is worth it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx_models import model, rng

from mplint.conversion.onnx.convert import convert
from mplint.conversion.policy import Options, policy
from mplint.conversion.result import Conversion

SCORES = """q = MatMul(x, Q) k = MatMul(x, K) t = Transpose<perm=[0,2,1]>(k) p = MatMul(q, t) s = Mul(p, scale) m = Softmax<axis=-1>(s)
            y = MatMul(m, x)"""


def converted(text: str, folder: Path, **weights: np.ndarray) -> tuple[Conversion, list[str]]:
    path = model(f"g (float[1,16,8] x) => {text}", folder / "a.onnx", **weights)
    np.savez(folder / "data.npz", x=rng(1, 16, 8))
    result = convert(path, policy("mixed_float16"), Options(), [str(folder / "data.npz")])
    assert result.proven, result.problems
    result.save(str(folder / "b.onnx"))
    return result, [node.op_type for node in onnx.load(folder / "b.onnx").graph.node if node.op_type != "Cast"]


def test_scores_are_scaled_before_the_product(tmp_path: Path) -> None:
    weights = {"Q": rng(8, 8, scale=60), "K": rng(8, 8, scale=60), "scale": np.float32(1e-5)}
    result, operators = converted(f"(float[1,16,8] y) {{ {SCORES} }}", tmp_path, **weights)
    assert result.heavy_half == result.heavy == 4
    assert operators.count("Mul") == 1
    assert operators.index("Mul") < operators.index("Softmax") - 1
    assert any("scale moved before the product" in note for note in result.notes)


def test_a_division_moves_as_a_factor(tmp_path: Path) -> None:
    weights = {"Q": rng(8, 8, scale=60), "K": rng(8, 8, scale=60), "scale": np.float32(1e5)}
    result, operators = converted(f"(float[1,16,8] y) {{ {SCORES.replace('Mul(p', 'Div(p')} }}", tmp_path, **weights)
    assert result.heavy_half == 4
    assert "Div" not in operators


def test_scores_that_half_holds_stay_as_they_are(tmp_path: Path) -> None:
    weights = {"Q": rng(8, 8, scale=0.3), "K": rng(8, 8, scale=0.3), "scale": np.float32(0.35)}
    result, operators = converted(f"(float[1,16,8] y) {{ {SCORES} }}", tmp_path, **weights)
    assert result.heavy_half == 4
    assert operators.index("Mul") == operators.index("Softmax") - 1


def test_a_product_that_is_used_elsewhere_stays_as_it_is(tmp_path: Path) -> None:
    weights = {"Q": rng(8, 8, scale=60), "K": rng(8, 8, scale=60), "scale": np.float32(1e-5)}
    result, _ = converted(f"(float[1,16,8] y, float[1,16,16] p) {{ {SCORES} }}", tmp_path, **weights)
    assert result.heavy_half == 3
