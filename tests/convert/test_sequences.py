"""What models that go step by step are proven on: sequences in which steps follow each other, and what is stored at each step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_models import model, rng

from mplint.conversion.onnx.read import read
from mplint.conversion.onnx.samples import samples
from mplint.conversion.onnx.types import infer_types
from mplint.conversion.onnx.widths import walked
from mplint.conversion.plausible import SEQUENCES, sequence
from mplint.conversion.policy import Options

GRU = {"W": rng(1, 75, 37) / 8, "R": rng(1, 75, 25, seed=1) / 8}
NUMBERS = {"one": [1]}


@pytest.mark.parametrize(
    ("body", "shape", "axis"),
    [
        ("a = Unsqueeze(x, one) y, h = GRU<hidden_size=25>(a, W, R)", "T,37", 0),
        ("a = MatMul(x, M) b = Relu(a) c = Unsqueeze(b, one) y, h = GRU<hidden_size=25>(c, W, R)", "T,37", 0),
        ("a = Transpose<perm=[1,0,2]>(x) y, h = GRU<hidden_size=25>(a, W, R)", "N,T,37", 1),
        ("a = Conv<pads=[1,1]>(x, C) b = Transpose<perm=[2,0,1]>(a) y, h = GRU<hidden_size=25>(b, W, R)", "N,37,T", 2),
        ("a = Transpose<perm=[1,0,2]>(x) b, g = GRU<hidden_size=25>(a, W, R) c = Squeeze(b, one) d = MatMul(c, U) "
         "y, h = GRU<hidden_size=25>(d, W, R)", "N,T,37", 1),
        ("s, y = Scan<num_scan_inputs=1, body = b (float[37] state, float[37] step) => (float[37] t, float[37] out) "
         "{ t = Add(state, step) out = Identity(t) }>(first, x)", "T,37", 0),
        ("y = Loop(seven, true, start) <body = b (int64 i, bool c, float[37] s) => (bool c2, float[37] s2) "
         "{ c2 = Identity(c) row = Gather<axis=0>(x, i) s2 = Add(s, row) }>", "T,37", 0),
        ("a = MatMul(x, M) y = Relu(a)", "T,37", None),
        ("a = ReduceMean<keepdims=1>(x) b = Mul(a, R0) y, h = GRU<hidden_size=25>(b, W, R)", "N,T,37", None),
    ],
)  # fmt: skip
def test_the_axis_that_an_operator_goes_along_is_found_behind_others(body: str, shape: str, axis: int | None, tmp_path: Path) -> None:
    given = GRU | {name: np.array(one) for name, one in NUMBERS.items()}
    given |= {"M": rng(37, 37), "C": rng(37, 37, 3), "U": rng(25, 37), "R0": rng(5, 1, 37), "first": rng(37), "start": rng(37)}
    given |= {"seven": np.array(7), "true": np.array(True)}
    made = "A,D,N,H" if "GRU" in body else "A" if "Loop" in body else "A,B"
    words = body.replace(",", " ").replace(")", " ").replace("(", " ").split()
    used = {name: array for name, array in given.items() if name in words}
    found = read(model(f"g (float[{shape}] x) => (float[{made}] y) {{ {body} }}", tmp_path / "a.onnx", **used))
    infer_types(found)
    assert walked(found.graph.inputs[0]) == axis


@pytest.mark.parametrize("kind", SEQUENCES)
def test_steps_of_a_sequence_follow_each_other_and_so_do_features(kind: str) -> None:
    made = sequence((2, 300, 24), 1, kind, np.random.default_rng(0))
    flat = made.transpose(0, 2, 1).reshape(-1, 300)
    assert made.shape == (2, 300, 24) and np.corrcoef(flat[:, 1:].ravel(), flat[:, :-1].ravel())[0, 1] > 0.8
    assert np.corrcoef(made[..., 1:].ravel(), made[..., :-1].ravel())[0, 1] > 0.8
    if kind == "slow":
        assert np.abs(made[:, :50]).max() < 0.3 < 1 < np.abs(made[:, -50:]).max()
    if kind == "events":
        assert made.min() >= 0 and 2 < made.max() <= 8


def test_models_that_go_step_by_step_are_tried_on_sequences_and_on_longer_ones_afterwards(tmp_path: Path) -> None:
    text = "g (float[T,37] x) => (float[T,1,1,25] y) { a = Unsqueeze(x, one) y, h = GRU<hidden_size=25>(a, W, R) }"
    path = model(text, tmp_path / "a.onnx", one=np.array([1]), **GRU)
    found = read(path)
    infer_types(found)
    made = samples(path, found, Options(), [])
    alike = [np.corrcoef(feed["x"][1:].ravel(), feed["x"][:-1].ravel())[0, 1] for feed in made.feeds]
    assert sum(one > 0.8 for one in alike) >= 3, alike
    assert max(len(one.feed["x"]) for one in made.unseen) == 1200
