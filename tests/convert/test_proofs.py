"""What a conversion counts as a proof: no epsilon is lost, silence and branches are tried, and what proves nothing is called unproven."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx_models import model, rng

from mplint.cli.main import main
from mplint.conversion.api import convert_file
from mplint.conversion.distance import distance
from mplint.conversion.onnx.convert import load
from mplint.conversion.onnx.half_emulation import to_strict
from mplint.conversion.onnx.instrument import Stencil
from mplint.conversion.onnx.probe import Probe
from mplint.conversion.onnx.run import Session
from mplint.conversion.onnx.samples import given, samples
from mplint.conversion.onnx.types import infer_types
from mplint.conversion.policy import Options, policy
from mplint.conversion.result import Conversion, Verdict
from mplint.conversion.stress import stressed


def converted(path: str, *data: str) -> Conversion:
    return convert_file(path, path, policy("mixed_float16"), Options(), data, "cuda")


def error_on(result: Conversion, path: str, **feed: np.ndarray) -> float:
    """How far a result is from its original on one input, where each half result is stored in half."""
    target = f"{path}.half.onnx"
    result.save(target)
    strict = ir.load(target)
    infer_types(strict)
    to_strict(strict)
    found = distance(Session(path).run(feed), Session(strict).run(feed))
    return float("inf") if found.broken else found.error


@pytest.mark.parametrize("guarded", ["l = Log(g)", "l = Reciprocal(g)", "q = Sqrt(g) l = Div(b, q)"])
def test_an_epsilon_that_half_makes_zero_stays_whatever_was_measured(guarded: str, tmp_path: Path) -> None:
    text = f"g (float[N,8] x) => (float[N,8] y) {{ a = MatMul(x, W) b = Abs(a) g = Add(b, e) {guarded} y = MatMul(l, V) }}"
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8), V=rng(8, 8, scale=0.1), e=np.float32(1e-9))
    np.savez(tmp_path / "d.npz", x=rng(4, 8) + 3)  # data on which the epsilon does not matter
    result = converted(path, str(tmp_path / "d.npz"))
    assert result.proven
    assert any(name.startswith("g ") and "epsilon 1e-09" in why for name, why in result.kept)
    assert np.isfinite(error_on(result, path, x=np.zeros((2, 8), np.float32)))


def test_faint_inputs_are_part_of_the_data(tmp_path: Path) -> None:
    text = """g (float[N,8] x) => (float[N,8] y) { a = MatMul(x, W) s = Mul(a, a) r = ReduceSum(s, axis) q = Sqrt(r) d = Div(a, q)
              y = MatMul(d, V) }"""
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8), V=rng(8, 8), axis=np.array([1]))
    np.savez(tmp_path / "d.npz", x=rng(4, 8))
    result = converted(path, str(tmp_path / "d.npz"))
    assert result.proven and result.heavy_half > 0
    assert error_on(result, path, x=rng(4, 8, seed=1) * np.float32(1e-3)) < 0.02


def test_stress_goes_down() -> None:
    made = dict(stressed({"x": np.arange(1, 7, dtype=np.float32).reshape(2, 3), "n": np.array([3])}))
    assert list(made) == ["zeros", "× 0.01", "× 0.001", "one element", "constant rows"]
    assert not made["zeros"]["x"].any() and np.count_nonzero(made["one element"]["x"]) == 1
    assert made["constant rows"]["x"].tolist() == [[1, 1, 1], [4, 4, 4]] and made["zeros"]["n"].tolist() == [3]


def test_a_branch_that_no_sample_takes_stays_float32(tmp_path: Path) -> None:
    text = """g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) m = ReduceMax<keepdims=0>(x) c = Greater(m, limit)
       y = If (c) <then_branch = t () => (float[4,8] u) { u = MatMul(a, V) },
                   else_branch = e () => (float[4,8] v) { v = MatMul(a, W) }> }"""
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8), V=rng(8, 8, scale=1e3), limit=np.float32(1e6))
    np.savez(tmp_path / "d.npz", x=rng(4, 8))
    result = converted(path, str(tmp_path / "d.npz"))
    assert (result.heavy_half, result.heavy) == (2, 3)
    assert any(name.startswith("u ") and "no sample reaches it" in why for name, why in result.kept)


def test_both_sides_of_a_switch_are_driven(tmp_path: Path) -> None:
    text = """g (float[4,8] x, int64 sr) => (float[4,8] y) { c = Equal(sr, rate)
       y = If (c) <then_branch = t () => (float[4,8] u) { u = MatMul(x, V) },
                   else_branch = e () => (float[4,8] v) { v = MatMul(x, W) }> }"""
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8), V=rng(8, 8), rate=np.array(16000))
    np.savez(tmp_path / "d.npz", x=rng(4, 8), sr=np.array(16000))
    for data in ((), (str(tmp_path / "d.npz"),)):
        result = converted(path, *data)
        assert result.proven and (result.heavy_half, result.heavy) == (2, 2)


def test_an_arm_that_is_never_chosen_stays_float32(tmp_path: Path) -> None:
    text = """g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) c = Greater(a, limit) b = MatMul(x, V) w = Where(c, b, a)
              y = MatMul(w, W) }"""
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8), V=rng(8, 8), limit=np.float32(1e6))
    np.savez(tmp_path / "d.npz", x=rng(4, 8))
    result = converted(path, str(tmp_path / "d.npz"))
    assert any(name.startswith("b ") and "no sample reaches it" in why for name, why in result.kept)


STILL = "g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) b = Sub(a, far) y = Relu(b) }"
UNFIT = "g (float[N] x) => (float[7,11] y) { r = Reshape(x, to) y = MatMul(r, W) }"


@pytest.mark.parametrize(("text", "why"), [(STILL, "the output 'y' is the same whatever"), (UNFIT, "no made-up input ran")])
def test_what_proves_nothing_is_unproven_and_not_written(text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = {"W": rng(8, 8), "far": np.float32(1e9)} if text == STILL else {"W": rng(11, 11), "to": np.array([7, 11])}
    path, out = model(text, tmp_path / "a.onnx", **weights), tmp_path / "b.onnx"
    assert main(["convert", path, "-o", str(out)]) == 1
    shown = capsys.readouterr()
    assert f"UNPROVEN: {why}" in shown.out and "nothing proves it" in shown.err and not out.exists()
    assert main(["convert", path, "-o", str(out), "--force"]) == 1 and out.exists()


def test_nothing_converted_has_its_own_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model("g (int64[4,8] x) => (int64[4,8] y) { y = Add(x, x) }", tmp_path / "a.onnx")
    assert main(["convert", path, "-o", str(tmp_path / "b.onnx")]) == 3
    assert "nothing in it turned to half" in capsys.readouterr().err and not (tmp_path / "b.onnx").exists()
    assert converted(path).verdict is Verdict.UNCHANGED


def test_signals_are_as_long_as_their_frames_ask(tmp_path: Path) -> None:
    text = """g (float[B,N] waveforms, int64[B] waveforms_lens) => (float[B,1,M] y, int64[B] n) { u = Unsqueeze(waveforms, axis)
              y = Conv<strides=[160]>(u, K) n = Identity(waveforms_lens) }"""
    path = model(text, tmp_path / "a.onnx", K=rng(1, 1, 400), axis=np.array([1]))
    found = samples(path, load(path).model, Options(), [])
    feed = found.feeds[0]
    assert feed["waveforms"].shape[-1] == 16000 and set(feed["waveforms_lens"].tolist()) == {16000}
    assert max(float(np.abs(one["waveforms"]).max()) for one in found.feeds) > 20000  # sound in 16-bit steps as well
    assert any(one.name == "zeros" for one in found.derived)


@pytest.mark.parametrize("size", ["N", "8000"])
def test_a_signal_with_its_channel_last_sounds_along_its_samples(size: str, tmp_path: Path) -> None:
    text = f"""g (float[1,{size},1] waveform) => (float[1,1,M] y) {{ t = Transpose<perm=[0,2,1]>(waveform)
              y = Conv<strides=[160]>(t, K) }}"""
    path = model(text, tmp_path / "a.onnx", K=rng(1, 1, 400))
    loaded = load(path).model
    heard = samples(path, loaded, Options(), []).feeds
    assert all(feed["waveform"].shape[1] >= 8000 and feed["waveform"].shape[2] == 1 for feed in heard)
    like_the_users = given(path, [{"waveform": rng(1, 8000, 1)}], loaded).unseen
    played = [one.feed for one in like_the_users if one.name == "an unseen input"]
    for feed in [*heard[:3], *played]:
        assert len(np.unique(feed["waveform"])) > 1000
    assert len(played) == 3


def test_sizes_that_paddle_leaves_open_are_open(tmp_path: Path) -> None:
    path = model("g (float[N,3,H,V] x) => (float[N,4,H,V] y) { y = Conv(x, K) }", tmp_path / "a.onnx", K=rng(4, 3, 1, 1))
    message = onnx.load(path)
    for dim in message.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = -1
    onnx.save(message, path)
    assert samples(path, load(path).model, Options(), []).feeds


SMALL = "g (float[N,8] x) => (float[N,8] y) { y = MatMul(x, W) }"


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.zeros((4, 9), np.float32), "d.npz: the array 'x' is float32[4, 9], and the input takes float32[?, 8]"),
        (np.zeros(8, np.float32), "is float32[8], and the input takes float32[?, 8]"),
        (np.array([["a"] * 8]), "the array 'x' is <U1[1, 8], and the input takes float32[?, 8]"),
    ],
)
def test_data_that_does_not_fit_is_told_by_file_and_array(
    array: np.ndarray, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model(SMALL, tmp_path / "a.onnx", W=rng(8, 8))
    np.savez(tmp_path / "d.npz", x=array)
    assert main(["convert", path, "-o", str(tmp_path / "b.onnx"), "--calibration", str(tmp_path / "d.npz")]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--keep", "MatMil"], "--keep MatMil names nothing in the model; did you mean MatMul?"),
        (["--input-range", "xx=0:1"], "no input 'xx'; it takes x; did you mean x?"),
        (["--device", "mps"], "has no device"),
        (["-o", "/proc/b.onnx"], "/proc/b.onnx can't be written"),
    ],
)
def test_what_means_nothing_is_an_error(
    options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model(SMALL, tmp_path / "a.onnx", W=rng(8, 8))
    if "-o" in options:  # known before the work

        def work(*_: object) -> Conversion:
            raise AssertionError

        monkeypatch.setattr("mplint.conversion.api.convert_file", work)
    assert main(["convert", path, *(["-o", str(tmp_path / "b.onnx")] if "-o" not in options else []), *options]) == 2
    assert told in capsys.readouterr().err


def test_an_interruption_says_what_it_left(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(SMALL, tmp_path / "a.onnx", W=rng(8, 8))

    def interrupted(*_: object) -> Conversion:
        raise KeyboardInterrupt

    monkeypatch.setattr("mplint.conversion.api.convert_file", interrupted)
    assert main(["convert", path, "-o", str(tmp_path / "b.onnx")]) == 130
    assert "interrupted: no " in capsys.readouterr().err


def test_the_cause_is_named_where_nothing_was_converted(tmp_path: Path) -> None:
    text = "g (float16[N,8] x) => (float16[N,8] y) { y = MatMul(x, W) }"
    half = converted(model(text, tmp_path / "a.onnx", W=rng(8, 8).astype(np.float16)))
    assert half.verdict is Verdict.UNCHANGED and "nothing converted: it computes in float16 already" in half.notes


def test_a_fault_of_the_original_is_named_as_its_own(tmp_path: Path) -> None:
    path = model("g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) y = MatMul(a, W) }", tmp_path / "a.onnx", W=rng(8, 8))
    message = onnx.load(path)
    message.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 9
    onnx.save(message, path)
    result = converted(path)
    assert not result.problems and any(note.startswith("the ONNX checker refuses the original") for note in result.notes)


def test_the_same_command_writes_the_same_bytes(tmp_path: Path) -> None:
    text = """g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) s = Mul(a, a) r = Sqrt(s) b = Exp(a) c = Mul(b, b) d = Add(c, r)
              y = MatMul(d, V) }"""
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8, scale=2), V=rng(8, 8, scale=1e-3))
    made = []
    for name in ("b.onnx", "c.onnx"):
        converted(path).save(str(tmp_path / name))
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]


def test_most_of_a_deep_network_is_half_where_no_single_tensor_is_to_blame(tmp_path: Path) -> None:
    steps = " ".join(f"a{n + 1} = MatMul(a{n}, W{n}) " for n in range(24))
    weights = {f"W{n}": np.linalg.qr(rng(16, 16, seed=n))[0] for n in range(24)}
    path = model(f"g (float[4,16] a0) => (float[4,16] a24) {{ {steps} }}", tmp_path / "a.onnx", **weights)
    np.savez(tmp_path / "d.npz", a0=rng(4, 16))
    whole = convert_file(path, path, policy("mixed_float16"), Options(), [str(tmp_path / "d.npz")], "cuda")
    assert whole.error is not None
    tight = convert_file(path, path, policy("mixed_float16", whole.error * 1.6), Options(), [str(tmp_path / "d.npz")], "cuda")
    assert tight.proven and tight.heavy_half >= 20


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_an_emulation_that_holds_weights_in_half_gives_the_same(half: str, tmp_path: Path) -> None:
    text = """g (float[2,48] x, bool c) => (float[2,48] y) { a = MatMul(x, W) b = MatMul(a, W)
              y = If(c) <then_branch = then () => (float[2,48] t) { t = MatMul(b, V) },
                         else_branch = other () => (float[2,48] e) { e = Relu(b) }> }"""
    path = model(text, tmp_path / "a.onnx", W=rng(48, 48, scale=0.1), V=rng(48, 48, scale=0.1))
    result = convert_file(path, path, policy(f"mixed_{half}"), Options(), (), "cuda")
    target = str(tmp_path / "b.onnx")
    result.save(target)
    outputs = []
    for thin in (False, True):
        strict = ir.load(target)
        infer_types(strict)
        to_strict(strict, thin=thin)
        held = [v for v in strict.graph.initializers.values() if v.dtype == ir.DataType[half.upper()]]
        assert len(held) == (2 if thin else 0)
        outputs += [Session(strict).run({"x": rng(2, 48, seed=1), "c": np.array(flag)}) for flag in (True, False)]
    assert all(np.array_equal(one[0], other[0]) for one, other in zip(outputs[:2], outputs[2:], strict=True))
    assert not np.array_equal(outputs[0][0], outputs[1][0])


def test_looking_whether_a_large_weight_is_beyond_the_range_keeps_no_map_of_it(tmp_path: Path) -> None:
    text = "g (float[2,48] x) => (float[2,48] y) { a = MatMul(x, W) y = MatMul(a, V) }"
    large = rng(48, 48)
    large[3, 4] = -7e4
    loaded = load(model(text, tmp_path / "a.onnx", W=rng(48, 48), V=large)).model
    weights = [loaded.graph.initializers[name] for name in "WV"]
    stencil = Stencil(loaded, weights, [("float16",)] * 2)
    assert [stencil.is_beyond(value) for value in weights] == [False, True]
    tensors = [value.const_value for value in weights]
    assert all(isinstance(tensor, ir.ExternalTensor) and tensor.raw is None for tensor in tensors)


def test_what_is_done_for_large_models_changes_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "g (float[N,48] x) => (float[N,48] y) { a = MatMul(x, W) b = Relu(a) y = MatMul(b, V) }"
    path = model(text, tmp_path / "a.onnx", W=rng(48, 48, scale=0.1), V=rng(48, 48, scale=0.1))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    written = []
    for name in ("usual", "large"):
        result = converted(path)
        assert result.proven and result.heavy_half == 2
        result.save(target := str(tmp_path / f"{name}.onnx"))
        written.append((result.error, Path(target).read_bytes()))
        for setting in ("run.LARGE", "run.COUNTING", "convert.COUNTING", "ranking.LARGE"):
            monkeypatch.setattr(f"mplint.conversion.onnx.{setting}", 0)
    assert written[0] == written[1]
    assert not list((tmp_path / "scratch").iterdir())


def test_a_weight_that_the_runtime_breaks_as_it_moves_transposes_is_no_fault_of_the_result(tmp_path: Path) -> None:
    text = """g (float[N,64,64,3] x) => (float[N,4,62,62] e) { a = Transpose<perm=[0,3,1,2]>(x) b = Conv<pads=[1,1,1,1]>(a, W) r = Relu(b)
              n = Neg(b) m = Relu(n) c = Transpose<perm=[0,2,3,1]>(m) p = Mul(c, s) d = Transpose<perm=[0,3,1,2]>(p) q = Add(r, d)
              e = Conv(q, V) }"""
    path = model(text, tmp_path / "a.onnx", W=rng(16, 3, 3, 3), V=rng(4, 16, 3, 3), s=rng(64, 64, 16))
    result = convert_file(path, path, policy("mixed_float16"), Options(), (), "cuda")
    assert result.proven and result.heavy_half == 2, result.problems


def test_a_probe_runs_no_more_than_what_it_looks_at_needs(tmp_path: Path) -> None:
    text = "g (float[4,64] x, float[4,64] c) => (float[4,64] y) { a = Neg(x) n = Greater(c, a) b = MatMul(x, W) y = Where(n, b, x) }"
    path = model(text, tmp_path / "a.onnx", W=rng(64, 64))  # a weight that is no part of the message
    loaded = load(path).model
    probe = Probe(loaded, [value for node in loaded.graph for value in node.outputs if value.name == "n"])
    assert probe.extents({"x": rng(4, 64), "c": np.full((4, 64), 9, np.float32)}) == [(1.0, 1.0)]
    assert not probe.session.held  # the weight of what is not looked at
