"""Mending .keras archives: only their configuration changes, their weights stay bit for bit, and Keras gives the same outputs."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers, ops

from mplint.api import check, fix
from mplint.config import Config
from mplint.engine.results import FixResult
from mplint.findings import Applicability

pytestmark = pytest.mark.framework
CONFIG = Config(select=("ALL",), cache=False, isolated=True)


@pytest.fixture(autouse=True)
def seeded() -> None:
    keras.utils.set_random_seed(3)


def casts_that_cancel() -> keras.Model:
    given = layers.Input((12,), name="x")
    x = layers.Dense(16, dtype="mixed_float16", name="first")(given)
    x = ops.cast(x, "float32")
    x = ops.relu(x)
    x = ops.reshape(x, (-1, 4, 4))
    x = ops.cast(x, "float16")
    x = layers.Flatten(dtype="mixed_float16")(x)
    return keras.Model(given, layers.Dense(3, name="head")(x))


def casts_in_a_nested_model() -> keras.Model:
    inner = layers.Input((8,), dtype="float16", name="inner_input")
    x = ops.cast(ops.cast(inner, "float32"), "float16")
    block = keras.Model(inner, layers.Dense(8, dtype="mixed_float16", name="inside")(x), name="block")
    given = layers.Input((8,), name="x")
    x = layers.Dense(8, dtype="mixed_float16", name="first")(given)
    return keras.Model(given, layers.Dense(2, name="head")(block(x)))


def half_head() -> keras.Model:
    given = layers.Input((12,), name="x")
    x = layers.Dense(16, dtype="mixed_float16", activation="relu", name="first")(given)
    return keras.Model(given, layers.Dense(5, dtype="mixed_float16", activation="softmax", name="head")(x))


def half_head_and_reshape() -> keras.Model:
    half = {"dtype": "mixed_float16"}
    stack = [layers.Input((12,)), layers.Dense(16, activation="relu", **half), layers.Dense(6, name="scores", **half)]
    return keras.Sequential([*stack, layers.Reshape((2, 3), **half), layers.Activation("sigmoid", name="probabilities", **half)])


def wrapped_head() -> keras.Model:
    given = layers.Input((6, 12), name="x")
    x = layers.LSTM(8, return_sequences=True, dtype="mixed_float16", name="first")(given)
    one = layers.Dense(4, activation="softmax", dtype="mixed_float16", name="one")
    return keras.Model(given, layers.TimeDistributed(one, dtype="mixed_float16", name="head")(x))


def saved(build: Callable[[], keras.Model], folder: Path, suffix: str = ".keras") -> Path:
    model = build()
    path = folder / f"model{suffix}"
    model.save(path)
    return path


def codes(path: Path) -> set[str]:
    return {f.code for f in check(str(path), CONFIG).findings}


def mend(path: Path, select: str, *, unsafe: bool = False, apply: bool = True) -> FixResult:
    return fix([str(path)], CONFIG._replace(select=(select,)), unsafe=unsafe, apply=apply)


def outputs(path: Path) -> np.ndarray:
    model = keras.models.load_model(path, compile=False)
    shape = (8, *model.inputs[0].shape[1:])
    drawn = np.random.default_rng(5).normal(size=shape).astype("float32")
    return np.asarray(keras.ops.convert_to_numpy(model(drawn)))


@pytest.mark.parametrize(
    ("build", "code", "tolerance"),
    [
        (casts_that_cancel, "MP405", 0.0),
        (casts_in_a_nested_model, "MP405", 0.0),
        (half_head, "MP201", 2e-3),
        (half_head_and_reshape, "MP201", 2e-3),
        (wrapped_head, "MP201", 2e-3),
    ],
)
def test_a_mistake_is_mended_and_only_it(build: Callable[[], keras.Model], code: str, tolerance: float, tmp_path: Path) -> None:
    path = saved(build, tmp_path)
    before, given, archive = codes(path), outputs(path), path.read_bytes()
    assert code in before
    weights = zipfile.ZipFile(path).read("model.weights.h5")
    shown = mend(path, code, apply=False)
    assert shown.applied == 1 and not shown.unproven and "proven by Keras" in shown.models[0]
    assert path.read_bytes() == archive
    done = mend(path, code)
    assert done.models == shown.models and not done.faults
    assert codes(path) - {"MP407"} == before - {code, "MP407"}  # a head in float32 may be half of a small model
    assert zipfile.ZipFile(path).read("model.weights.h5") == weights
    after = outputs(path)
    assert np.abs(after.astype("float64") - given).max() <= tolerance * np.abs(given).max()
    assert str(after.dtype) == "float32" and [p.name for p in tmp_path.iterdir()] == ["model.keras"]
    data = path.read_bytes()
    assert mend(path, code).applied == 0 and path.read_bytes() == data


def test_the_diff_names_layers_and_what_they_compute_in(tmp_path: Path) -> None:
    path = saved(half_head, tmp_path)
    (report,) = mend(path, "MP201", apply=False).models
    assert "MP201 at head (safe): compute Dense in float32 and emit it so" in report
    assert "- head: float16[?, 5] = Dense(first), computed in float16" in report
    assert "+ head: float32[?, 5] = Dense(first), computed in float32" in report
    assert "+ output head: float32[?, 5]" in report


def test_casts_to_the_other_half_dtype_and_rounding_stay(tmp_path: Path) -> None:
    def built() -> keras.Model:
        given = layers.Input((8,), name="x")
        x = layers.Dense(8, dtype="mixed_float16", name="first")(given)
        x = ops.cast(ops.cast(x, "float32"), "bfloat16")
        x = layers.Dense(8, name="second")(ops.cast(x, "float32"))
        x = ops.cast(ops.cast(x, "float16"), "float32")
        return keras.Model(given, layers.Dense(2, name="head")(x))

    path = saved(built, tmp_path)
    data = path.read_bytes()
    assert mend(path, "MP405").applied == 0 and path.read_bytes() == data
    fixes = [f.fix.applicability for f in check(str(path), CONFIG).findings if f.code == "MP405" and f.fix is not None]
    assert set(fixes) == {Applicability.UNSAFE}


def test_code_in_an_archive_is_not_run_and_its_fixes_are_not_made(tmp_path: Path) -> None:
    def built() -> keras.Model:
        given = layers.Input((8,), name="x")
        x = layers.Lambda(lambda t: t * 2, output_shape=(8,), name="code")(given)
        return keras.Model(given, layers.Dense(2, activation="softmax", dtype="mixed_float16", name="head")(x))

    path = saved(built, tmp_path)
    data = path.read_bytes()
    done = mend(path, "MP201")
    assert done.applied == 0 and path.read_bytes() == data
    assert len(done.unproven) == 1 and "it holds Python code, which is not run here" in done.unproven[0]


def test_a_shared_head_stays_and_is_said_to(tmp_path: Path) -> None:
    def exposed() -> keras.Model:
        one, two = layers.Input((8,), name="one"), layers.Input((8,), name="two")
        shared = layers.Dense(8, activation="softmax", dtype="mixed_float16", name="shared")
        return keras.Model([one, two], [shared(one), shared(two)])

    path = saved(exposed, tmp_path)
    done = mend(path, "MP201")
    assert done.applied == 0 and any("called more than once" in reason for reason in done.unproven)


@pytest.mark.parametrize("build", [half_head, half_head_and_reshape, wrapped_head])
def test_an_h5_model_is_mended_in_its_configuration_alone(build: Callable[[], keras.Model], tmp_path: Path) -> None:
    path = saved(build, tmp_path, ".h5")
    before = keras.models.load_model(path)
    weights = [np.asarray(weight) for weight in before.weights]
    given = [np.random.default_rng(0).standard_normal([1, *tensor.shape[1:]]).astype("float32") for tensor in before.inputs]
    expected = np.asarray(before(given, training=False)).astype("float32")
    assert "MP201" in codes(path)
    done = mend(path, "MP201")
    assert done.applied == 1 and not done.unproven and "MP201" not in codes(path)
    after = keras.models.load_model(path)
    assert all(np.array_equal(one, np.asarray(other)) for one, other in zip(weights, after.weights, strict=True))
    assert np.abs(np.asarray(after(given, training=False)).astype("float32") - expected).max() < 0.02
    assert mend(path, "MP201").applied == 0


def test_an_h5_model_with_code_is_not_loaded(tmp_path: Path) -> None:
    given = layers.Input((12,), name="x")
    x = layers.Lambda(lambda t: t + 1)(layers.Dense(16, dtype="mixed_float16")(given))
    path = tmp_path / "model.h5"
    keras.Model(given, layers.Dense(3, dtype="mixed_float16", activation="softmax")(x)).save(path)
    done = mend(path, "MP201")
    assert done.applied == 0 and any("Lambda" in reason for reason in done.unproven)


def test_h5_models_of_keras_2_have_no_fix(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = saved(half_head, tmp_path, ".h5")
    with h5py.File(path, "r+") as file:
        file.attrs["keras_version"] = "2.15.0"
    findings = [f for f in check(str(path), CONFIG).findings if f.code == "MP201"]
    assert findings and all(f.fix is None for f in findings)
