"""What `mplint convert` makes of TensorFlow SavedModels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mplint
from mplint.cli.main import main
from mplint.cli.paths import check_paths
from mplint.conversion.policy import ConversionError
from mplint.conversion.result import Conversion
from mplint.conversion.tensorflow.savedmodel import lacks_pass
from mplint.errors import UsageError


def test_a_folder_must_be_a_savedmodel_and_the_result_a_new_folder(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for path in (given, tmp_path / "nothing"):
        with pytest.raises(UsageError, match=r"saved_model\.pb|no such file"):
            check_paths(str(path), "out", False, None)
    (given / "saved_model.pb").write_bytes(b"")
    taken, full = tmp_path / "file", tmp_path / "full"
    taken.write_bytes(b"")
    full.mkdir()
    (full / "something").write_bytes(b"")
    for source in (given, given / "saved_model.pb"):
        for target, why in [
            (given, "is the input itself"),
            (given / "out", "in the input folder"),
            (taken, "is a file"),
            (full, "something in it"),
        ]:
            with pytest.raises(UsageError, match=why):
                check_paths(str(source), str(target), False, None)
        check_paths(str(source), str(tmp_path / "new"), False, None)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module with two signatures, a nested function, a branch, a loop, and a table that is an asset."""
    tf = pytest.importorskip("tensorflow")
    folder = tmp_path_factory.mktemp("models")
    words = folder / "words.txt"
    words.write_text("a\nb\nc\n")

    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            init = tf.lookup.TextFileInitializer(
                str(words), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
            )
            self.table = tf.lookup.StaticVocabularyTable(init, 1)
            rng = tf.random.Generator.from_seed(0)
            self.square, self.narrow = tf.Variable(rng.normal([8, 8])), tf.Variable(rng.normal([8, 3]))
            self.rows = tf.Variable(rng.normal([4, 8]))

        @tf.function
        def inner(self, x: Any) -> Any:
            return tf.matmul(x, self.square)

        @tf.function(input_signature=[tf.TensorSpec([None, 8])])
        def numbers(self, x: Any) -> Any:
            y = self.inner(x)
            y = tf.cond(tf.reduce_sum(y) > 0, lambda: tf.matmul(y, self.square), lambda: tf.exp(-tf.abs(y)))
            for _ in tf.range(3):
                y = tf.tanh(tf.matmul(y, self.square))
            return {"y": tf.matmul(y, self.narrow), "count": tf.shape(y)[0]}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def words(self, words: Any) -> Any:
            return {"p": tf.nn.softmax(tf.matmul(tf.gather(self.rows, self.table.lookup(words)), self.narrow))}

    module = Module()
    tf.saved_model.save(module, str(folder / "saved"), signatures={"numbers": module.numbers, "words": module.words})
    return folder / "saved"


@pytest.fixture(scope="module")
def converted(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Conversion, Path]]:
    made = {}
    for policy in ("mixed_float16", "mixed_bfloat16"):
        result = mplint.convert(str(saved), policy)
        target = tmp_path_factory.mktemp("out") / policy
        result.save(str(target))
        made[policy] = (result, target)
    return made


@pytest.mark.framework
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_signatures_assets_and_variables_stay_and_matmuls_are_in_half(
    policy: str, saved: Path, converted: dict[str, tuple[Conversion, Path]]
) -> None:
    import tensorflow as tf

    result, target = converted[policy]
    if lacks_pass(result.policy.half):
        assert not result.operations_half and any("needs a processor with AVX-512" in note for note in result.notes)
        pytest.skip("TensorFlow's pass for bfloat16 does nothing on this processor")
    assert result.proven and result.error is not None and 0 < result.error < result.policy.tolerance
    assert (result.heavy, result.heavy_half) == (5, 5) and result.casts_added > 0
    for path in saved.rglob("*"):
        if path.is_file() and path.name not in ("saved_model.pb", "fingerprint.pb"):
            assert (target / path.relative_to(saved)).read_bytes() == path.read_bytes()
    before, after = tf.saved_model.load(str(saved)), tf.saved_model.load(str(target))
    assert set(after.signatures) == set(before.signatures)
    x = tf.random.stateless_normal([5, 8], seed=(1, 2))
    for name, given in (("numbers", {"x": x}), ("words", {"words": tf.constant(["a", "c", "z"])})):
        expected, got = before.signatures[name](**given), after.signatures[name](**given)
        for key, array in expected.items():
            assert got[key].dtype == array.dtype
            assert np.abs(got[key].numpy() - array.numpy()).max() <= result.policy.tolerance * np.abs(array.numpy()).max()


@pytest.mark.framework
def test_what_stays_float32_and_what_was_not_run_is_said(converted: dict[str, tuple[Conversion, Path]]) -> None:
    result, _ = converted["mixed_float16"]
    kept = dict(result.kept)
    assert kept["cond/Exp (Exp)"] == "its results depend on sizes and sums that float16 may not hold"
    assert any("'words' takes strings: give --calibration data" in note for note in result.notes)
    assert "the outputs of numbers" in result.verified[0] and result.verified[1] == "TensorFlow, which loads and runs it"


@pytest.mark.framework
def test_data_by_the_names_of_inputs_is_taken(saved: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "words.npz", words=np.array(["a", "b"]))
    result = mplint.convert(str(saved), calibration=[str(tmp_path / "words.npz")])
    assert "the outputs of words" in result.verified[0]
    assert any("'numbers' not run: the data has no array for its inputs x" in note for note in result.notes)


@pytest.mark.framework
def test_operations_that_half_cannot_hold_are_found_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tensorflow as tf

    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = tf.Variable(tf.random.Generator.from_seed(0).normal([8, 8]))

        @tf.function(input_signature=[tf.TensorSpec([None, 8])])
        def __call__(self, x: Any) -> Any:
            grown = tf.matmul(tf.matmul(x, self.weight, name="safe") * 1000.0 + 1000.0, self.weight, name="large") * 300.0
            return tf.matmul(grown / 1e6, self.weight, name="last")

    module = Module()
    tf.saved_model.save(module, str(tmp_path / "a"), signatures=module.__call__)
    assert main(["convert", str(tmp_path / "a"), "-o", str(tmp_path / "b")]) == 0
    printed = capsys.readouterr().out
    assert "2 of 3 matmuls" in printed
    assert "large (MatMul): in float16 with a quarter of its range an output became infinite or NaN" in printed
    assert tf.saved_model.load(str(tmp_path / "b")).signatures
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.framework
def test_an_interruption_leaves_nothing_behind(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mplint.conversion.tensorflow.savedmodel import save

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(str(saved), b"", str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())


@pytest.mark.framework
def test_a_damaged_savedmodel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01\x12\x05\xff\xff")
    with pytest.raises(ConversionError, match="saved_model"):
        mplint.convert(str(tmp_path))


@pytest.mark.framework
def test_a_graph_of_tensorflow_1_without_functions_is_converted(tmp_path: Path) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 8], name="x")
        weight = v1.get_variable("weight", [8, 8], use_resource=False)
        y = tf.matmul(tf.nn.relu(tf.matmul(x, weight, name="first")), weight, name="second")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, str(tmp_path / "a"), {"x": x}, {"y": y})
    result = mplint.convert(str(tmp_path / "a"))
    kept = dict(result.kept)
    assert result.proven and (result.heavy, result.heavy_half) == (2, 1)
    assert kept["second (MatMul)"] == "it makes an output, which stays float32" and not any("Assign" in name for name in kept)
    result.save(str(tmp_path / "b"))
    assert tf.saved_model.load(str(tmp_path / "b")).signatures["serving_default"](x=tf.ones([1, 8]))["y"].dtype == tf.float32


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_the_loops_of_recurrent_layers_are_converted_inside(kind: str, tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    x = keras.Input((6, 8))
    keras.Model(x, keras.layers.Dense(2)(getattr(keras.layers, kind)(16)(x))).export(str(tmp_path / "a"), verbose=False)
    result = mplint.convert(str(tmp_path / "a"))
    assert result.proven and result.heavy_half == result.heavy > 2, result.kept
    assert any("/while/" in name for name, _ in result.kept)
