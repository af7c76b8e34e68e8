"""Sizes that a file leaves open: what weights say of them, and the search where nothing does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_models import model, rng

from mplint.conversion.api import convert_file
from mplint.conversion.onnx.read import read
from mplint.conversion.onnx.widths import widths
from mplint.conversion.policy import Options, policy
from mplint.conversion.result import Conversion, Verdict


def converted(path: str) -> Conversion:
    return convert_file(path, path, policy("mixed_float16"), Options(), [], "cuda")


RECURRENT = """g (float[T,F] x, float[25] state) => (float[T,25] y) {
    rows = Unsqueeze(x, one)
    first = Unsqueeze(state, two)
    all, last = LSTM <hidden_size=25> (rows, W, R, B, , first)
    y = Squeeze(all, both)
}"""


def recurrent(path: Path) -> str:
    axes = {"one": np.array([1]), "two": np.array([0, 1]), "both": np.array([1, 2])}
    return model(RECURRENT, path, W=rng(1, 100, 37) / 8, R=rng(1, 100, 25, seed=1) / 8, B=rng(1, 200, seed=2) / 8, **axes)


def test_the_weights_of_a_recurrent_layer_say_how_many_features_it_takes(tmp_path: Path) -> None:
    result = converted(recurrent(tmp_path / "a.onnx"))
    assert result.verdict is Verdict.PROVEN and result.heavy_half == 1, (result.gaps, result.problems)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = MatMul(x, W)", {1: 37}),
        ("a = Relu(x) y = Gemm <transB=1> (a, V)", {1: 37}),
        ("a = Transpose <perm=[1,0]> (x) y = MatMul(V, a)", {1: 37}),
        ("a = Transpose <perm=[1,0]> (x) y = MatMul(a, W)", {0: 37}),
        ("a = Sub(x, m) y = Abs(a)", {1: 37}),
        ("a = Slice(x, zero, ten, first) y = MatMul(a, W)", {1: 37}),
        ("a = Slice(x, zero, ten, second) y = MatMul(a, W)", {}),
        ("a = Unsqueeze(x, first) b = Conv(a, C) y = Squeeze(b, first)", {0: 37}),
    ],
)
def test_what_operators_say_of_the_axes_of_an_input(body: str, expected: dict[int, int], tmp_path: Path) -> None:
    numbers = {"zero": [0], "ten": [10], "first": [0], "second": [1]}
    given = {"W": rng(37, 5), "V": rng(5, 37), "m": rng(37), "C": rng(4, 37, 3), **{name: np.array(one) for name, one in numbers.items()}}
    used = {
        name: array
        for name, array in given.items()
        if any(name == word for word in body.replace(",", " ").replace(")", " ").replace("(", " ").split())
    }
    read_in = read(model(f"g (float[N,M] x) => (float[K,L] y) {{ {body} }}", tmp_path / "a.onnx", **used))
    assert widths(read_in.graph.inputs[0]) == expected


def test_a_size_that_only_a_flattened_product_knows_is_searched(tmp_path: Path) -> None:
    text = """g (float[T,F] x) => (float[T,3] y) {
        a = Unsqueeze(x, axes) b = Conv <pads=[0,0,0,0]> (a, C) c = Transpose <perm=[2,1,0,3]> (b) d = Reshape(c, shape) y = MatMul(d, W)
    }"""
    given = {"axes": np.array([0, 1]), "shape": np.array([-1, 4 * 35]), "C": rng(4, 1, 3, 3), "W": rng(140, 3, seed=1)}
    result = converted(model(text, tmp_path / "a.onnx", **given))
    assert result.verdict is Verdict.PROVEN and result.heavy_half == 2, (result.gaps, result.problems)


def test_means_of_a_part_of_an_input_are_no_means_of_every_column(tmp_path: Path) -> None:
    text = """g (float[N,M,K] x) => (float[N,M,4] y) {
        a = Slice(x, zero, three, last) b = Sub(a, m) c = Div(b, d) y = MatMul(c, W)
    }"""
    given = {"m": rng(3), "d": np.abs(rng(3)) + 1, "W": rng(3, 4), "zero": np.array([0]), "three": np.array([3]), "last": np.array([2])}
    assert converted(model(text, tmp_path / "a.onnx", **given)).verdict is Verdict.PROVEN


def test_sequences_are_made_long_enough_for_the_errors_of_recurrent_layers_to_add_up(tmp_path: Path) -> None:
    assert widths(read(recurrent(tmp_path / "a.onnx")).graph.inputs[0]) == {0: 300, 1: 37}


def test_steps_that_filters_take_away_are_there(tmp_path: Path) -> None:
    text = "g (float[T,5] x) => (float[R,C,N,M] y) { a = Unsqueeze(x, axes) y = Conv(a, C1) }"
    path = model(text, tmp_path / "a.onnx", axes=np.array([0, 1]), C1=rng(2, 1, 21, 3, scale=0.1))
    result = converted(path)
    assert result.verdict is Verdict.PROVEN and result.heavy_half == 1, (result.gaps, result.problems)
