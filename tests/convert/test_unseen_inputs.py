"""What a proof is tried on besides the samples that the plan knows: other lengths, states of its own, what decides, and hints of names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx_models import model, rng

from mplint.conversion.api import convert_file
from mplint.conversion.distance import Distance
from mplint.conversion.onnx.convert import load
from mplint.conversion.onnx.evidence import evidence
from mplint.conversion.onnx.samples import Samples, given, larger, samples, states
from mplint.conversion.planner import FILL_SHARE, HEAVY_SHARE
from mplint.conversion.plausible import hinted, is_picture, is_sound, picture
from mplint.conversion.policy import Options
from mplint.conversion.policy import policy as named
from mplint.conversion.result import Conversion
from mplint.conversion.stress import midway, mixed


def converted(path: str, *data: str) -> Conversion:
    return convert_file(path, path, named("mixed_float16"), Options(), data, "cuda")


def found(path: str) -> Samples:
    return samples(path, load(path).model, Options(), [])


RATES = """g (float[1,N] audio, int64 sr) => (float[1,8] y) { c = Equal(sr, rate)
   y = If (c) <then_branch = t () => (float[1,8] u) { r = Reshape(audio, long) m = ReduceMean<axes=[1], keepdims=0>(r)
                                                      u = MatMul(m, V) },
               else_branch = e () => (float[1,8] v) { s = Reshape(audio, short) n = ReduceMean<axes=[1], keepdims=0>(s)
                                                      v = MatMul(n, V) }> }"""


def test_another_sample_rate_is_tried_at_its_own_length(tmp_path: Path) -> None:
    weights = {"V": rng(8, 8), "rate": np.array(16000), "long": np.array([1, 72, 8]), "short": np.array([1, 36, 8])}
    path = model(RATES, tmp_path / "a.onnx", **weights)
    np.savez(tmp_path / "d.npz", audio=rng(1, 576), sr=np.array(16000))
    result = converted(path, str(tmp_path / "d.npz"))
    assert result.proven and (result.heavy_half, result.heavy) == (2, 2)


def test_a_one_hot_takes_integers_below_its_depth(tmp_path: Path) -> None:
    text = "g (int64[2,3] kinds) => (float[2,3,5] y) { h = OneHot(kinds, depth, values) y = MatMul(h, W) }"
    path = model(text, tmp_path / "a.onnx", depth=np.array(40), values=np.float32([0, 1]), W=rng(40, 5))
    assert evidence(load(path).model.graph.inputs[0]).limit == 40


def test_states_are_those_that_the_model_gives_back(tmp_path: Path) -> None:
    text = """g (float[1,8] x, float[1,8] state) => (float[1,8] y, float[1,8] stateN) { a = MatMul(x, W) b = MatMul(state, V)
              stateN = Add(a, b) y = Tanh(stateN) }"""
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8), V=np.eye(8, dtype=np.float32))
    assert states(load(path).model) == {"state": 1}
    steps = [one for one in found(path).unseen if one.name == "after some steps"]
    assert steps and float(np.abs(steps[2].feed["state"]).max()) > 5  # it adds up


def test_a_result_is_tried_where_the_output_decides() -> None:
    def run(feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [1 / (1 + np.exp(-(feed["x"].sum(keepdims=True) - 100)))]

    loud = {"x": np.full(8, 100.0)}
    between = list(midway(run, loud, {"x": np.zeros(8)}))  # type: ignore[arg-type]
    assert len(between) == 1 and 0.2 < float(run(between[0])[0][0]) < 0.8
    assert not list(midway(run, loud, loud))  # type: ignore[arg-type]


def test_a_single_number_as_input_is_changed_like_any_other(tmp_path: Path) -> None:
    text = "g (float[4,8] x, float scale) => (float[4,8] y) { a = MatMul(x, W) y = Mul(a, scale) }"
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8))
    feeds = [{"x": rng(4, 8, seed=seed), "scale": np.array(1.0 + seed, np.float32)} for seed in range(2)]
    known = given(path, feeds, load(path).model)
    assert known.derived and all(one.compared for one in known.derived)
    assert len(larger(known).feeds) == 2 and any(one.name == "an unseen input" for one in known.unseen)
    assert isinstance(mixed(*feeds, 0.5)["scale"], np.ndarray)  # type: ignore[arg-type]


def test_a_plan_leaves_less_room_on_silence_beyond_which_nothing_is_worse(tmp_path: Path) -> None:
    path = model("g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) y = Sigmoid(a) }", tmp_path / "a.onnx", W=rng(8, 8))
    known = given(path, [{"x": rng(4, 8)}], load(path).model)
    faint = [at for at in range(len(known.all_feeds())) if known.is_faint(at)]
    assert faint and known.named()[faint[0]] == "zeros" and known.room < 1
    far = Distance(0.015)
    counted = known.weighed(faint[0], far)
    assert known.weighed(0, far) == far and counted.error < 0.02 * known.room * FILL_SHARE and counted.moved == pytest.approx(0.015)
    off = [{name: array + 0.015 for name, array in zip(("y",), one.reference, strict=True)} for one in known.unseen]  # type: ignore[operator]
    outputs = {id(one.feed): list(made.values()) for one, made in zip(known.unseen, off, strict=True)}
    known.unseen = [replace(one, faint=True) for one in known.unseen]
    assert known.surprises(lambda feed: outputs[id(feed)], 0.02 * HEAVY_SHARE) and not known.learned


def test_a_faint_signal_is_compared_where_noise_of_its_own_size_hardly_moves_the_output(tmp_path: Path) -> None:
    """Noise of the size of the loud sample would drown the quiet half of the faint one, and say that nothing can be told there."""
    text = """g (float[1,1,N] x) => (float[1,1] y) { s = Conv<strides=[32]>(x, W) p = Mul(s, s) q = Add(p, least) l = Log(q)
              y = ReduceMean<axes=[1], keepdims=0>(l) }"""
    text = text.replace("float[1,1] y", "float[1,M] y")
    path = model(text, tmp_path / "a.onnx", W=rng(4, 1, 32), least=np.array(1e-14, np.float32))
    sound = rng(1, 1, 4096)
    sound[..., 2048:] *= 1e-4
    known = given(path, [{"x": sound}], load(path).model)
    assert next(one for one in known.derived if one.name == "× 0.01").compared


def test_an_input_that_the_plan_did_not_know_is_learned(tmp_path: Path) -> None:
    """The data is loud, and a mean of squares vanishes in half where one input of two is faint."""
    text = """g (float[4,8] x, float[4,8] z) => (float[4,8] y) { s = Mul(x, x) r = ReduceMean<axes=[1]>(s) q = Sqrt(r) d = Div(x, q)
              a = MatMul(d, W) b = MatMul(z, W) y = Add(a, b) }"""
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8))
    np.savez(tmp_path / "d.npz", x=rng(4, 8), z=rng(4, 8, seed=1))
    known = given(path, [dict(np.load(tmp_path / "d.npz"))], load(path).model)
    assert any(one.name == "x × 0.001" for one in known.unseen)
    result = converted(path, str(tmp_path / "d.npz"))
    assert result.proven and any("no" not in why and name.startswith(("s ", "r ", "q ", "d ")) for name, why in result.kept)


def test_what_a_rule_says_of_many_nodes_is_planned_again_for_all(tmp_path: Path) -> None:
    text = """g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) p = Pow(a, two) b = MatMul(x, V) q = Pow(b, two) s = Add(p, q)
              y = MatMul(s, V) }"""
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8), V=rng(8, 8), two=np.float32(2))
    np.savez(tmp_path / "d.npz", x=rng(4, 8))
    result = converted(path, str(tmp_path / "d.npz"))
    assert result.proven and {name.split()[0] for name, why in result.kept if "MP202" in why} >= {"p", "q"}
    assert not any("says of the result" in note for note in result.notes)


def test_names_say_what_inputs_hold_in_every_format() -> None:
    assert is_sound("input_waveform") and not is_sound("x")
    sound, image = hinted("audio", (2, 16000, 1), 0), hinted("image", (2, 8, 8, 3), 0)
    assert sound is not None and sound.shape == (2, 16000, 1) and float(np.abs(sound).max()) == pytest.approx(1, abs=1e-6)
    assert image is not None and float(image.max()) > 200 and hinted("x", (2, 3), 0) is None


def test_keras_inputs_are_made_by_their_names_too() -> None:
    keras = pytest.importorskip("keras")
    from mplint.conversion.keras.samples import samples_of

    image, wave = keras.Input((8, 8, 3), name="image"), keras.Input((None, 1), name="waveform")
    ids = keras.Input((4,), dtype="int32", name="ids")
    layers = keras.layers
    parts = [
        layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(image)),
        layers.GlobalAveragePooling1D()(layers.Conv1D(4, 3)(wave)),
        layers.Flatten()(layers.Embedding(500, 4)(layers.Reshape((2, 2))(ids))),
    ]
    made, why = samples_of(keras.Model([image, wave, ids], layers.Concatenate()(parts)), [], {})
    assert not why and made[0][1].shape[1] == 16000 and made[0][2].max() > 100
    assert max(float(feed[0].max()) for feed in made) > 200


@pytest.mark.parametrize("dtype", ["bool", "int64"])
def test_a_mask_that_hides_everything_in_all_data_is_turned(dtype: str, tmp_path: Path) -> None:
    text = f"""g (float[2,8] x, {dtype}[2,8] hidden) => (float[2,4] y)
    {{ flag = Cast<to=9>(hidden) seen = Not(flag) number = Cast<to=1>(seen) left = Mul(x, number) y = Gemm(left, W, b) }}"""
    path = model(text, tmp_path / "a.onnx", W=rng(8, 4), b=rng(4, seed=1))
    for at in range(2):
        np.savez(tmp_path / f"{at}.npz", x=rng(2, 8, seed=at), hidden=np.ones((2, 8), dtype))
    result = convert_file(path, path, named("mixed_float16"), Options(), [str(tmp_path / f"{at}.npz") for at in range(2)], "cuda")
    assert result.proven and any(trial.sample.startswith("hidden = ") for trial in result.trials)


def test_a_picture_is_smooth_and_has_no_pixels_a_hundred_times_as_large_as_others(tmp_path: Path) -> None:
    path = model(
        "g (float[n,3,32,40] x) => (float[n,4,32,40] y) { y = Conv<pads=[1,1,1,1]>(x, W) }",
        tmp_path / "a.onnx",
        W=rng(4, 3, 3, 3),
    )
    third = found(path).feeds[2]["x"]
    assert np.abs(third).max() < 3 and np.abs(np.diff(third, axis=-1)).mean() < np.abs(third).mean() / 2
    last = picture((2, 32, 40, 3), np.random.default_rng(0))
    assert last.shape == (2, 32, 40, 3) and np.abs(np.diff(last, axis=2)).mean() < np.abs(last).mean() / 2


def test_what_has_many_channels_or_few_rows_is_no_picture() -> None:
    assert is_picture((2, 3, 64, 64)) and is_picture((2, 64, 64, 1))
    assert not is_picture((2, 16, 64, 64)) and not is_picture((2, 3, 8, 64)) and not is_picture((2, 64, 64))


def test_a_model_that_chooses_among_near_equals_is_said_to_be_compared_on_the_samples_alone(tmp_path: Path) -> None:
    text = "g (float[2,16] x) => (float[2,4] y, int64[2,4] i) { p = MatMul(x, W) y, i = TopK(p, k) }"
    path = model(text, tmp_path / "a.onnx", W=rng(16, 16), k=np.array([4]))
    np.savez(tmp_path / "d.npz", x=rng(2, 16))
    assert any(note.startswith("TopK chooses") for note in converted(path, str(tmp_path / "d.npz")).notes)
    plain = model("g (float[2,16] x) => (float[2,16] y) { y = MatMul(x, W) }", tmp_path / "b.onnx", W=rng(16, 16))
    assert not any("chooses" in note for note in converted(plain).notes)


def test_a_reason_tells_how_far_an_output_moves_on_a_faint_signal_and_not_what_counts_of_it(tmp_path: Path) -> None:
    text = """g (float[4,64] x) => (float[4,8] y) { a = MatMul(x, V) s = Mul(a, a) r = ReduceMean<axes=[1]>(s) e = Add(r, least) q = Sqrt(e)
              d = Div(a, q) b = MatMul(d, W) c = Mul(b, k) y = Softmax(c) }"""
    least, k = np.array(1e-7, np.float32), np.array(3, np.float32)
    path = model(text, tmp_path / "a.onnx", W=rng(64, 8), V=rng(64, 64, seed=3), least=least, k=k)
    np.savez(tmp_path / "d.npz", x=rng(4, 64))
    strict = replace(named("mixed_float16"), tolerance=0.003)
    result = convert_file(path, path, strict, Options(), [str(tmp_path / "d.npz")], "cuda")
    told = {float(why.rpartition(" ")[2]) for _, why in result.kept if "q: rounded" in why}
    assert told and min(told) > strict.tolerance, result.kept
