"""Operators that choose: they are judged by what they choose from, and where near ties decide nothing is proven."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_models import model, rng

from mplint.conversion.api import convert_file
from mplint.conversion.policy import Options, policy
from mplint.conversion.result import Conversion, Verdict

BEST = "g (float[N,8] x) => (int64[N] best) { a = MatMul(x, W) best = ArgMax<axis=1, keepdims=0>(a) }"
FIRST = """g (float[N,8] x) => (float[N,3] t, int64[N,3] at) { a = MatMul(x, W) t, at = TopK(a, k) }"""
HIGHEST = """g (float[N,8] x) => (float[N,3] y) { a = MatMul(x, W) t, at = TopK(a, k) y = Mul(t, two) }"""
CLEAR = np.eye(8, dtype=np.float32)
NEAR = np.repeat(rng(8, 1), 8, axis=1) * (1 + np.arange(8, dtype=np.float32) * 2e-4)


def converted(text: str, tmp_path: Path, data: np.ndarray, metric: object = None, **weights: np.ndarray) -> Conversion:
    path = model(text, tmp_path / "a.onnx", **weights)
    np.savez(tmp_path / "d.npz", x=data)
    return convert_file(path, path, policy("mixed_float16", metric=metric), Options(), [str(tmp_path / "d.npz")], "cuda")  # type: ignore[arg-type]


def ranked(rows: int) -> np.ndarray:
    """Rows whose numbers are far apart."""
    return np.stack([np.random.default_rng(at).permutation(8) for at in range(rows)]).astype(np.float32)


@pytest.mark.parametrize("text", [BEST, FIRST])
def test_a_clear_choice_is_proven_and_what_it_is_made_from_is_compared(text: str, tmp_path: Path) -> None:
    result = converted(text, tmp_path, ranked(5), W=CLEAR, k=np.array([3]))
    assert result.verdict is Verdict.PROVEN and result.heavy_half == 1
    operator = "ArgMax" if text == BEST else "TopK"
    assert any(trial.sample.endswith(f"zeros, what {operator} chooses from") for trial in result.trials)


@pytest.mark.parametrize("text", [BEST, FIRST])
def test_a_choice_among_near_ties_is_unproven(text: str, tmp_path: Path) -> None:
    data = ranked(5)
    data[0, :2] = 1000.4, 1000.0  # 1000.5 and 1000.0 in half: the same choice, by luck
    result = converted(text, tmp_path, data, W=CLEAR, k=np.array([3]))
    assert result.verdict is Verdict.UNPROVEN and result.heavy_half == 1
    assert any("chooses among what is nearly equal on" in gap and "d.npz" in gap for gap in result.gaps)


def test_the_largest_numbers_are_no_choice_where_nobody_asks_which_they_are(tmp_path: Path) -> None:
    result = converted(HIGHEST, tmp_path, np.abs(rng(5, 8)), W=np.abs(NEAR), k=np.array([3]), two=np.float32(2))
    assert result.verdict is Verdict.PROVEN and result.heavy_half == 1


def test_a_metric_of_the_user_judges_choices(tmp_path: Path) -> None:
    def regret(expected: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> float:
        return 0.0 if expected["best"].shape == got["best"].shape else 1.0

    data = ranked(5)
    data[0, :2] = 1000.4, 1000.0
    assert converted(BEST, tmp_path, data, regret, W=CLEAR).verdict is Verdict.PROVEN
