"""How a converted Keras model is proven with Keras, and what becomes of layers that half can't hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mplint
from mplint.cli.main import main
from mplint.conversion.distance import Distance
from mplint.conversion.keras import runtime
from mplint.conversion.keras.archive import convert
from mplint.conversion.keras.convert import convert_archive
from mplint.conversion.keras.samples import samples_of
from mplint.conversion.keras.verify import Original, prove
from mplint.conversion.policy import ConversionError, Options, policy
from mplint.conversion.result import Conversion, Verdict

pytestmark = pytest.mark.framework
keras = pytest.importorskip("keras")
from keras import layers, ops  # noqa: E402

FLOAT16 = policy("mixed_float16")
constant = keras.initializers.Constant


@keras.saving.register_keras_serializable("tests")
class Scale(layers.Layer):
    def build(self, shape: tuple[int, ...]) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x: object) -> object:
        return x * self.scale


class Own(layers.Layer):
    def call(self, x: object) -> object:
        return x * 2.0


def large_weights(x: object) -> object:
    return layers.Dense(8, kernel_initializer=constant(1e5), name="fragile")(layers.Rescaling(1e-5)(x))


def large_results(x: object) -> object:
    grown = layers.Dense(8, kernel_initializer=constant(1e4), name="fragile")(x)
    return layers.Rescaling(1e-4, name="fragile_too")(grown)


def large_sums(x: object) -> object:
    wide = layers.Dense(256, kernel_initializer=constant(200.0), activation="relu", name="fragile")(x)
    return layers.Dense(4)(ops.sum(wide, axis=-1, keepdims=True) * 1e-5)


def cancelled(x: object) -> object:
    return (layers.Dense(8, name="fragile")(x) + 5000.0) - 5000.0


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (large_weights, "its weights reach 1e+05"),
        (large_results, "its results reach"),
        (large_sums, "what 'sum' makes of it: its results reach"),
        (cancelled, "in float16 the outputs are off by"),
    ],
)
def test_layers_that_half_cannot_hold_are_found_and_kept(body: Callable[[object], object], why: str, tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    x = keras.Input((8,), name="x")
    hidden = layers.Dense(8, activation="relu", name="safe")(body(x))
    path = tmp_path / "a.keras"
    keras.Model(x, layers.Dense(2)(hidden)).save(path)
    result = convert_archive(str(path), "b.keras", FLOAT16, Options(), [])
    assert result.proven and result.error is not None and result.error < FLOAT16.tolerance
    kept = dict(result.kept)
    assert why in kept["fragile (Dense)"] and result.planned["safe"] == "mixed_float16"


def test_layers_that_must_stay_are_found_without_loading_a_model_for_each_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keras.utils.set_random_seed(0)
    y = x = keras.Input((8,))
    for at in range(12):
        y = layers.Dense(8, activation="tanh", name=f"hidden_{at}")(cancelled(y) if at == 5 else y)
    keras.Model(x, layers.Dense(2)(y)).save(tmp_path / "a.keras")
    loaded: list[str] = []
    load = runtime.load
    monkeypatch.setattr(runtime, "load", lambda path, custom: loaded.append(path) or load(path, custom))
    result = convert_archive(str(tmp_path / "a.keras"), "b.keras", FLOAT16, Options(), [])
    assert result.proven and result.heavy_half >= 8 and "fragile (Dense)" in dict(result.kept)
    assert len(loaded) <= 4, loaded


def test_parts_of_another_model_are_chosen_in_one_that_stands(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    x = keras.Input((4, 8))
    y = layers.Bidirectional(layers.LSTM(4), name="both")(layers.Masking(name="masked")(x))
    model = keras.Model(x, layers.Dense(2, name="head")(y))
    other = keras.models.clone_model(model)
    other.set_weights([weight * 2 for weight in model.get_weights()])
    mixed = runtime.Mixed(model, other, ["both", "head"])
    feed = [np.random.default_rng(0).standard_normal((2, 4, 8)).astype(np.float32)]
    for chosen, like in (((), model), (("both", "head"), other)):
        assert np.allclose(mixed.caller(chosen)(feed)[0], runtime.caller(like)(feed)[0], atol=1e-6)
    assert not np.allclose(mixed.caller(("head",))(feed)[0], runtime.caller(model)(feed)[0], atol=1e-3)


def test_recurrent_layers_are_tried_on_sequences_that_go_over_into_each_other() -> None:
    x, other = keras.Input((None, 12)), keras.Input((5, 4))
    y = layers.Bidirectional(layers.GRU(4))(layers.Conv1D(8, 3, padding="same")(x))
    model = keras.Model([x, other], layers.Dense(1)(layers.Concatenate()([y, layers.Flatten()(other)])))
    made, why = samples_of(model, [], {})
    alike = [np.corrcoef(one[0][:, 1:].ravel(), one[0][:, :-1].ravel())[0, 1] for one in made]
    assert not why and sum(share > 0.8 for share in alike) == 3 and {one[0].shape[1] for one in made} == {16, 300}
    assert all(np.corrcoef(one[1][:, 1:].ravel(), one[1][:, :-1].ravel())[0, 1] < 0.8 for one in made)


def test_probabilities_near_1_hide_no_error(tmp_path: Path) -> None:
    """The first class wins by far on every sample, so that nothing that half does to the numbers before the softmax shows in it."""
    keras.utils.set_random_seed(0)
    x = keras.Input((8,))
    hidden = (layers.Dense(8, name="fragile")(x) + 5000.0) - 5000.0
    biased = keras.initializers.Constant(np.array([40.0, 0.0, -40.0], np.float32))
    keras.Model(x, layers.Dense(3, activation="softmax", bias_initializer=biased)(hidden)).save(tmp_path / "a.keras")
    result = convert_archive(str(tmp_path / "a.keras"), "b.keras", FLOAT16, Options(), [])
    assert not result.problems and "fragile (Dense)" in dict(result.kept)


def test_probabilities_that_are_0_or_1_to_the_last_digit_prove_nothing(tmp_path: Path) -> None:
    x = keras.Input((8,))
    biased = keras.initializers.Constant(np.array([4000.0, 0.0, -4000.0], np.float32))
    made = layers.Dense(3, activation="softmax", bias_initializer=biased, name="sure")(layers.Dense(8)(x))
    keras.Model(x, [made, layers.Dense(1)(x)]).save(tmp_path / "a.keras")
    result = convert_archive(str(tmp_path / "a.keras"), "b.keras", FLOAT16, Options(), [])
    assert result.verdict is Verdict.UNPROVEN and "'sure' is 0 or 1 whatever half does" in result.gaps[0]


def test_a_model_that_nothing_cures_is_not_written(tmp_path: Path) -> None:
    """The tolerance asks for more than half gives, so that no layer may compute in it."""
    x = keras.Input((8,))
    keras.Model(x, layers.Dense(2)(layers.Dense(8, activation="tanh")(x))).save(tmp_path / "a.keras")
    result = convert_archive(str(tmp_path / "a.keras"), "b.keras", policy("mixed_float16", 1e-12), Options(), [])
    assert result.proven and not result.in_half  # all of them kept: the cure is the original
    original = Original(str(tmp_path / "a.keras"), [], Options(), None)
    original.expected = [[array + 1.0 for array in arrays] for arrays in original.expected]

    def plan(reasons: dict[str, str]) -> Conversion:
        return convert(str(tmp_path / "a.keras"), "b.keras", FLOAT16, Options(), {}, reasons)

    refuted = prove(plan({}), original, plan, {}, Options())
    assert not refuted.proven and "the outputs are off by" in refuted.problems[0]


def test_the_command_writes_nothing_that_verification_refutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(2)]).save(tmp_path / "a.keras")
    monkeypatch.setattr("mplint.conversion.keras.verify.distance", lambda *_, **__: Distance(1.0))
    target = tmp_path / "b.keras"
    assert main(["convert", str(tmp_path / "a.keras"), "-o", str(target)]) == 1 and not target.exists()
    assert "not written, since verification failed" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "a.keras"), "-o", str(target), "--force"]) == 1 and target.exists()


def test_a_layer_with_another_policy_than_was_written_is_a_problem(tmp_path: Path) -> None:
    path = str(tmp_path / "a.keras")
    keras.Sequential([keras.Input((4,)), layers.Dense(4, name="hidden"), layers.Dense(2)]).save(path)
    result = convert(path, "b.keras", FLOAT16, Options(), {})
    assert result.planned["hidden"] == "mixed_float16"
    result.planned["hidden"] = "float32"
    proven = prove(result, Original(path, [], Options(), None), lambda _: result, {}, Options())
    assert proven.problems == ["the policy of 'hidden' is not the one that was written"]


def test_custom_layers_get_a_policy_where_their_classes_are_there(tmp_path: Path) -> None:
    x = keras.Input((8,))
    keras.Model(x, layers.Dense(2)(Scale(name="own")(layers.Dense(8)(x)))).save(tmp_path / "a.keras")
    result = convert_archive(str(tmp_path / "a.keras"), "b.keras", FLOAT16, Options(), [])
    assert result.proven and result.error is not None and result.planned["own"] == "mixed_float16"
    result.save(str(tmp_path / "b.keras"))
    assert keras.models.load_model(tmp_path / "b.keras").get_layer("own").compute_dtype == "float16"


def test_custom_layers_stay_float32_where_nobody_can_run_them(tmp_path: Path) -> None:
    x = keras.Input((8,))
    keras.Model(x, layers.Dense(2)(Own(name="own")(layers.Dense(8)(x)))).save(tmp_path / "a.keras")
    result = convert_archive(str(tmp_path / "a.keras"), "b.keras", FLOAT16, Options(), [])
    assert "a custom layer" in dict(result.kept)["own (Own)"]


@keras.saving.register_keras_serializable("tests")
class Net(keras.Model):
    """A model that makes its layers itself, and hands its policy on to them if `hands_on`."""

    def __init__(self, width: int = 8, hands_on: bool = True, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.width, self.hands_on = width, hands_on
        self.hidden = layers.Dense(width, dtype=self.dtype_policy if hands_on else "float32")
        self.head = layers.Dense(2, dtype="float32")

    def call(self, x: object) -> object:
        return self.head(self.hidden(x))

    def build(self, shape: tuple[int, ...]) -> None:
        self.hidden.build(shape)
        self.head.build((None, self.width))

    def get_config(self) -> dict[str, object]:
        return {**super().get_config(), "width": self.width, "hands_on": self.hands_on}


@pytest.mark.parametrize("hands_on", [True, False])
def test_a_subclassed_model_gets_the_policy_that_it_hands_on(hands_on: bool, tmp_path: Path) -> None:
    model = Net(hands_on=hands_on)
    model(rows := np.random.default_rng(0).normal(size=(4, 8)).astype("float32"))
    model.save(tmp_path / "a.keras")
    np.savez(tmp_path / "d.npz", x=rows)
    result = mplint.convert(str(tmp_path / "a.keras"), calibration=[str(tmp_path / "d.npz")])
    if not hands_on:
        assert result.verdict is Verdict.UNCHANGED and any("does not hand its policy on" in note for note in result.notes)
        return
    assert (result.heavy_half, result.heavy, result.operations_half) == (1, 2, 1), result.kept
    assert result.proven, (result.gaps, result.problems)
    result.save(str(tmp_path / "b.keras"))
    assert keras.models.load_model(tmp_path / "b.keras").hidden.compute_dtype == "float16"


def test_a_live_model_is_proven_with_its_own_classes_and_code(tmp_path: Path) -> None:
    x = keras.Input((8,))
    model = keras.Model(x, layers.Dense(2)(layers.Lambda(lambda t: t * 2.0)(Own()(layers.Dense(8)(x)))))
    result = mplint.convert(model)
    assert result.proven and result.error is not None
    result.save(str(tmp_path / "b.keras"))
    assert model.layers[1].dtype_policy.name == "float32" and (tmp_path / "b.keras").exists()


def test_lookups_and_quantized_layers_are_left_alone(tmp_path: Path) -> None:
    ids, x = keras.Input((1,), dtype="int32", name="ids"), keras.Input((16,), name="x")
    found = layers.Flatten()(layers.Embedding(5, 4)(layers.IntegerLookup(vocabulary=[1, 2, 3], name="lookup")(ids)))
    quantized = layers.Dense(16, name="quantized")
    joined = layers.Concatenate()([found, quantized(x)])
    model = keras.Model([ids, x], layers.Dense(2)(joined))
    quantized.quantize("int8")
    model.save(tmp_path / "a.keras")
    result = convert_archive(str(tmp_path / "a.keras"), "b.keras", FLOAT16, Options(), [])
    kept = dict(result.kept)
    assert result.proven and kept["lookup (IntegerLookup)"] == "it looks values up and computes nothing"
    assert kept["quantized (Dense)"] == "its policy is int8_from_float32 (quantized) already"


def test_a_model_that_is_mixed_already_is_left_as_it_is(tmp_path: Path) -> None:
    x = keras.Input((8,))
    keras.Model(x, layers.Dense(2)(layers.Dense(8, dtype="mixed_float16")(x))).save(tmp_path / "a.keras")
    result = convert_archive(str(tmp_path / "a.keras"), "b.keras", FLOAT16, Options(), [])
    assert result.proven and result.error == 0.0
    assert result.notes == ["nothing changes: 1 of its layers has another policy already, and the others must stay float32"]


def test_inputs_are_made_up_as_the_first_layers_expect_them(tmp_path: Path) -> None:
    from mplint.conversion.keras.samples import samples_of

    ids, image, raw = keras.Input((4,), dtype="int32"), keras.Input((8, 8, 3)), keras.Input((2,))
    parts = [
        layers.Flatten()(layers.Embedding(500, 4)(ids)),
        layers.Flatten()(layers.Rescaling(1 / 255)(image)),
        layers.Normalization(mean=[1e6, 2e6], variance=[1e8, 1e8])(raw),
    ]
    samples, why = samples_of(keras.Model([ids, image, raw], layers.Concatenate()(parts)), [], {})
    first, second, third = samples[0]
    assert not why and first.max() > 100 and first.max() < 500
    assert second.max() > 200 and third.min() > 9e5 and not np.array_equal(samples[0][2], samples[1][2])


def test_a_subclassed_live_model_is_refused_with_what_to_do() -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x: object) -> object:
            return self.dense(x)

        def get_config(self) -> dict[str, object]:
            return {}

    model = Net()
    with pytest.raises(ConversionError, match="no weights yet"):
        mplint.convert(model)
    model(np.ones((2, 4), "float32"))
    with pytest.raises(ConversionError, match="set_global_policy"):
        mplint.convert(model)


def test_training_gets_loss_scaling_by_the_lines_that_are_printed(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(2)])
    model.compile("sgd", keras.losses.MeanSquaredError())
    model.save(tmp_path / "a.keras")
    result = mplint.convert(str(tmp_path / "a.keras"))
    result.save(str(tmp_path / "b.keras"))
    printed = "\n".join(result.advice)
    assert "load_model('converted.keras')" in printed and "The optimizer's state" in printed
    try:
        keras.mixed_precision.set_global_policy("mixed_float16")
        loaded = keras.models.load_model(tmp_path / "b.keras")
        assert isinstance(loaded.optimizer, keras.mixed_precision.LossScaleOptimizer)
        history = loaded.fit(np.ones((8, 4), "float32"), np.ones((8, 2), "float32"), epochs=3, verbose=0)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert history.history["loss"][-1] < history.history["loss"][0]
    plain = keras.models.load_model(tmp_path / "b.keras")
    assert not isinstance(plain.optimizer, keras.mixed_precision.LossScaleOptimizer)  # so the lines are needed


def test_kernels_that_the_cpu_lacks_keep_no_layer_in_float32(tmp_path: Path) -> None:
    """TensorFlow has no float16 kernel for MaxPooling3D on the CPU, and one on GPUs."""
    x = keras.Input((6, 6, 6, 2))
    pooled = layers.MaxPooling3D(name="pooled")(layers.Conv3D(4, 3)(x))
    keras.Model(x, layers.Dense(2)(layers.Flatten()(pooled))).save(tmp_path / "a.keras")
    result = convert_archive(str(tmp_path / "a.keras"), "b.keras", FLOAT16, Options(), [])
    assert result.proven and result.planned["pooled"] == "mixed_float16"


def test_what_can_not_be_run_is_said(tmp_path: Path) -> None:
    keras.Sequential([layers.Dense(4), layers.Dense(2)]).save(tmp_path / "unbuilt.keras")
    x = keras.Input((1,), dtype="string", name="words")
    found = layers.StringLookup(vocabulary=["a"], output_mode="one_hot")(x)
    keras.Model(x, layers.Dense(2)(layers.Dense(4)(found))).save(tmp_path / "words.keras")
    for name, why in [("unbuilt", "what its inputs are is not known"), ("words", "the input 'words' takes strings: give")]:
        result = convert_archive(str(tmp_path / f"{name}.keras"), "b.keras", FLOAT16, Options(), [])
        assert result.verdict is Verdict.UNPROVEN and result.error is None and any(why in gap for gap in result.gaps)


def test_an_output_that_never_moves_proves_nothing(tmp_path: Path) -> None:
    x = keras.Input((8,))
    hidden = layers.Dense(8)(x)
    still = layers.Dense(2, kernel_initializer="zeros", bias_initializer="ones", name="still")(hidden)
    keras.Model(x, [layers.Dense(2)(hidden), still]).save(tmp_path / "a.keras")
    result = convert_archive(str(tmp_path / "a.keras"), "b.keras", FLOAT16, Options(), [])
    assert result.verdict is Verdict.UNPROVEN and "the output 'still' is the same" in result.gaps[0]
