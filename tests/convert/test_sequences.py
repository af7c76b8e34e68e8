"""What models that go step by step are proven on: sequences in which steps follow each other, and what is stored at each step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model, rng

from mplint.conversion.api import convert_file
from mplint.conversion.onnx.read import read
from mplint.conversion.onnx.samples import samples
from mplint.conversion.onnx.stepwise import mark, step_by_step
from mplint.conversion.onnx.types import infer_types
from mplint.conversion.onnx.widths import walked
from mplint.conversion.plausible import SEQUENCES, sequence
from mplint.conversion.policy import Options, policy

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


KINDS = {"LSTM": (4, ["y", "h", "c"]), "GRU": (3, ["y", "h"]), "RNN": (1, ["y", "h"])}


@pytest.mark.parametrize("opset", [8, 11, 17])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize("lengths", [(), (17, 40)])
def test_step_by_step_an_operator_gives_what_it_gives_at_once(
    kind: str, direction: str, opset: int, starts: bool, lengths: tuple[int, ...]
) -> None:
    gates, names = KINDS[kind]
    count = 2 if direction == "bidirectional" else 1
    weights = {"W": rng(count, gates * 5, 3), "R": rng(count, gates * 5, 5, seed=1), "B": rng(count, gates * 10, seed=2)}
    first = ["", "h0", "c0"][: 3 if kind == "LSTM" else 2] if starts else []
    weights |= {name: rng(count, 2, 5, seed=3) for name in first if name}
    if lengths:
        first = ["lengths", *first[1:]]
        weights["lengths"] = np.array(lengths, np.int32)
    node = helper.make_node(kind, ["x", "W", "R", "B", *first], names, hidden_size=5, direction=direction)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", 2, 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    feed = {"x": rng(40, 2, 3)}
    expected = ort.InferenceSession(proto.SerializeToString()).run(None, feed)
    mark(proto.graph.node[0], TensorProto.FLOAT)
    step_by_step(proto)
    assert "Scan" in {one.op_type for one in proto.graph.node} and kind not in {one.op_type for one in proto.graph.node}
    got = ort.InferenceSession(proto.SerializeToString()).run(None, feed)
    for one, other in zip(expected, got, strict=True):
        assert one.shape == other.shape and np.allclose(one, other, atol=1e-6)


def half(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32)


def gru(x: np.ndarray, weights: dict[str, np.ndarray], *, stored: bool) -> np.ndarray:
    """The states of a GRU in NumPy, in the order of ONNX's gates; `stored` in half at each step."""
    w, r, b = (weights[name][0] for name in "WRB")
    size = r.shape[1]
    state, made = np.zeros(size, np.float32), []
    for step in x:
        taken, kept = w @ step + b[: 3 * size], r @ state + b[3 * size :]
        update, reset = (1 / (1 + np.exp(-(taken[at : at + size] + kept[at : at + size]))) for at in (0, size))
        new = np.tanh(taken[2 * size :] + (r[2 * size :] @ (reset * state)) + b[5 * size :])
        state = (1 - update) * new + update * state
        state = half(state) if stored else state
        made.append(state)
    return np.stack(made)


def test_a_state_that_forgets_little_stays_float32_where_half_would_lose_it_step_by_step(tmp_path: Path) -> None:
    """What a step adds to the state is less than half of the distance to the next float16: it is lost each time."""
    weights = {"W": rng(1, 75, 24) / 8, "R": rng(1, 75, 25, seed=1) / 16, "B": np.zeros((1, 150), np.float32)}
    weights["B"][0, :25] = 8
    text = "g (float[T,24] x) => (float[T,1,1,25] y) { a = Unsqueeze(x, one) y, h = GRU<hidden_size=25>(a, W, R, B) }"
    path = model(text, tmp_path / "a.onnx", one=np.array([1]), **weights)
    feeds = [sequence((300, 24), 0, "held", np.random.default_rng(seed)).astype(np.float32) for seed in range(4)]
    for at, x in enumerate(feeds):
        np.savez(tmp_path / f"{at}.npz", x=x)
    exact = gru(feeds[0], weights, stored=False)
    rounded = {name: half(array) for name, array in weights.items()}
    at_once, by_steps = half(gru(half(feeds[0]), rounded, stored=False)), gru(half(feeds[0]), rounded, stored=True)
    far = [float(np.abs(one - exact).max() / np.abs(exact).max()) for one in (at_once, by_steps)]
    assert far[0] < 0.002 and far[1] > 0.006, far
    result = convert_file(path, path, policy("mixed_float16", 0.006), Options(), [str(tmp_path)], "cuda")
    assert not result.problems and result.heavy_half == 0, result.error


@pytest.mark.framework
@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_programs_are_tried_on_sequences(batch_first: bool) -> None:
    torch = pytest.importorskip("torch")
    from mplint.conversion.torch.samples import examples, leaves, sequences

    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner = torch.nn.Linear(12, 8), torch.nn.GRU(8, 4, batch_first=batch_first)

        def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return self.inner(self.first(x))[0] + other.mean()

    program = torch.export.export(Recurrent(), (torch.randn((2, 50, 12) if batch_first else (50, 2, 12)), torch.randn(7)))
    made = [leaves(program, one) for one in sequences(program, examples(program), Options())]
    steps = [x.movedim(1 if batch_first else 0, 0) for x, _ in made]
    assert [np.corrcoef(x[1:].flatten(), x[:-1].flatten())[0, 1] > 0.8 for x in steps] == [True] * 3
    assert all(torch.equal(other, made[0][1]) for _, other in made)


@pytest.mark.parametrize("norm", ["BatchNormalization", "BatchNormalization<spatial=1>"])
def test_what_a_state_loses_is_told_beside_operators_that_opset_9_has_changed(norm: str, tmp_path: Path) -> None:
    """The gates forget so little that what each step rounds away adds up."""
    text = f"""g (float[1500,1,8] x) => (float[1,1,8] h) {{ t = Transpose<perm=[0,2,1]>(x) a = Unsqueeze<axes=[3]>(t)
               n = {norm}(a, one, zero, zero, one) s = Squeeze<axes=[3]>(n) u = Transpose<perm=[0,2,1]>(s)
               y, h = GRU<hidden_size=8, linear_before_reset=1>(u, W, R, B) }}"""
    kept = np.zeros((1, 48), np.float32)
    kept[0, :8] = 8.5
    weights = {"W": rng(1, 24, 8), "R": rng(1, 24, 8, seed=1) * np.float32(0.3), "B": kept}
    path = model(text, tmp_path / "a.onnx", opset=8, one=np.ones(8, np.float32), zero=np.zeros(8, np.float32), **weights)
    np.savez(tmp_path / "d.npz", x=rng(1500, 1, 8, seed=5) * np.float32(0.3))
    result = convert_file(path, path, policy("mixed_float16"), Options(), [str(tmp_path / "d.npz")], "cuda")
    assert result.proven and not result.heavy_half, result.error
