"""What a conversion says of the model and of what the user gave: faults of the original, advice before the work, data that does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import model, rng

from mplint.cli.main import main
from mplint.conversion.api import convert_file, without_folders
from mplint.conversion.onnx.read import faults_of
from mplint.conversion.policy import ConversionError, Options
from mplint.conversion.policy import policy as named
from mplint.conversion.result import Conversion, Verdict

SMALL = "g (float[N,8] x) => (float[N,8] y) { y = MatMul(x, W) }"


def converted(path: str, *data: str, policy: str = "mixed_float16") -> Conversion:
    return convert_file(path, path, named(policy), Options(), data, "cuda")


def test_what_speaks_against_a_model_is_said_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model(SMALL, tmp_path / "a.onnx", W=rng(8, 8))
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)

    convert_file(path, path, named("mixed_float16"), Options(tell=tell, warn=tell), [], "cuda")
    assert "does 0.0328 million operations for a batch of 256; below 40 million" in told[0] and told[1] == "reading the model"
    assert main(["convert", path, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert "mplint: advised against: the largest of its 1" in shown.err and "note: advised against" in shown.out


def test_a_model_without_heavy_operations_is_advised_against(tmp_path: Path) -> None:
    path = model("g (float[N,8] x) => (float[N,8] y) { a = Relu(x) y = Tanh(a) }", tmp_path / "a.onnx")
    assert any("none of its 2 operations is a matmul" in note for note in converted(path).notes)


def test_a_file_that_grows_is_advised_against_with_numbers(tmp_path: Path) -> None:
    text = "g (float[4,64] x, float[64,64] z) => (float[4,64] y, float[64,64] u) { y = MatMul(x, W) c = Add(W, z) u = Sin(c) }"
    path = model(text, tmp_path / "a.onnx", W=rng(64, 64))
    result = convert_file(path, path, named("mixed_float16"), Options(("Add",)), [], "cuda")
    assert any("advised against: the file grows by 8192 bytes (50%)" in note for note in result.notes)


def test_wrong_shapes_of_the_original_are_mended_in_the_copy(tmp_path: Path) -> None:
    path = model("g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) y = MatMul(a, W) }", tmp_path / "a.onnx", W=rng(8, 8))
    message = onnx.load(path)
    message.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 1  # a rank that it does not have
    message.graph.value_info.append(onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [4, 9]))
    onnx.save(message, path)
    fault, mends = faults_of(path)
    assert fault and len(mends) == 3
    result = converted(path)
    mended = [note for note in result.notes if "refuses the original" in note]
    assert result.proven and mended and "the shapes of the outputs are those that follow" in mended[0]
    result.save(str(tmp_path / "b.onnx"))
    onnx.checker.check_model(str(tmp_path / "b.onnx"), full_check=True)


def test_sizes_of_minus_one_are_open_in_the_copy(tmp_path: Path) -> None:
    path = model("g (float[N,3,H,V] x) => (float[N,4,H,V] y) { y = Conv(x, K) }", tmp_path / "a.onnx", K=rng(4, 3, 1, 1))
    message = onnx.load(path)
    for value in (message.graph.input[0], message.graph.output[0]):
        for dim in value.type.tensor_type.shape.dim[2:]:
            dim.dim_value = -1
    onnx.save(message, path)
    result = converted(path)
    result.save(str(tmp_path / "b.onnx"))
    dims = onnx.load(tmp_path / "b.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [0, 3, 0, 0] and any("sizes of -1 are open" in note for note in result.notes)


def test_an_opset_that_can_not_be_raised_is_the_cause_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model("g (float[1,3,8,8] x) => (float[1,3,8,8] y) { y = Conv(x, K) }", tmp_path / "a.onnx", K=rng(3, 3, 1, 1))
    monkeypatch.setattr("mplint.conversion.onnx.convert.raised", lambda *_: None)
    result = converted(path, policy="mixed_bfloat16")
    assert result.verdict is Verdict.UNCHANGED
    assert any("take bfloat16 from opset 22 on, and the model can't be raised to it from 17" in note for note in result.notes)
    assert any("nothing converted" in note and "Conv and what else it computes with have no bfloat16" in note for note in result.notes)


def test_a_quantized_model_is_named_as_such(tmp_path: Path) -> None:
    text = """g (uint8[4,8] x) => (int32[4,8] y) { y = MatMulInteger(x, W) }"""
    path = model(text, tmp_path / "a.onnx", W=np.ones((8, 8), np.uint8))
    result = converted(path)
    assert result.verdict is Verdict.UNCHANGED and any(note.startswith("nothing converted") for note in result.notes)


def test_data_for_keras_that_does_not_fit_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keras = pytest.importorskip("keras")
    keras.Sequential([keras.Input((8,), name="x"), keras.layers.Dense(4), keras.layers.Dense(2)]).save(tmp_path / "a.keras")
    for arrays, told in [
        ({"x": np.zeros((2, 9), np.float32)}, "d.npz: the array 'x' is float32[2, 9], and the input takes float32[?, 8]"),
        ({"xx": np.zeros((2, 8), np.float32)}, "d.npz has no array for the input 'x'; it holds xx; did you mean xx?"),
        ({"x": np.array([["a"] * 8])}, "the array 'x' is <U1[1, 8]"),
    ]:
        np.savez(tmp_path / "d.npz", **arrays)
        code = main(["convert", str(tmp_path / "a.keras"), "-o", str(tmp_path / "b.keras"), "--calibration", str(tmp_path / "d.npz")])
        assert code == 2 and told in capsys.readouterr().err and not (tmp_path / "b.keras").exists()


def test_data_for_a_saved_model_that_does_not_fit_is_misuse(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")

    class Net(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.w = tf.Variable(tf.random.normal((8, 8)))

        @tf.function(input_signature=[tf.TensorSpec((None, 8), name="x")])  # type: ignore[untyped-decorator]
        def __call__(self, x: object) -> object:
            return {"y": tf.matmul(x, self.w)}

    tf.saved_model.save(Net(), str(tmp_path / "a"))
    unfit = "the array 'x' is float32[2, 9], and the input takes float32[?, 8]"
    for name, size, told in [("x", 9, unfit), ("z", 8, "no array for the input 'x'")]:
        np.savez(tmp_path / "d.npz", **{name: np.zeros((2, size), np.float32)})
        with pytest.raises(ConversionError, match=r"d\.npz") as caught:
            converted(str(tmp_path / "a"), str(tmp_path / "d.npz"))
        assert told in str(caught.value)


def test_data_and_devices_for_a_program_that_do_not_fit_are_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    program = torch.export.export(torch.nn.Linear(8, 4), (torch.zeros(2, 8),))
    torch.export.save(program, tmp_path / "a.pt2")
    np.savez(tmp_path / "d.npz", input=np.zeros((2, 9), np.float32))
    asked = ["convert", str(tmp_path / "a.pt2"), "-o", str(tmp_path / "b.pt2")]
    assert main([*asked, "--calibration", str(tmp_path / "d.npz")]) == 2
    assert "the array 'input' is float32[2, 9], and the input takes float32[2, 8]" in capsys.readouterr().err
    assert main([*asked, "--device", "cudda"]) == 2
    assert "did you mean cuda?" in capsys.readouterr().err


def test_temporary_folders_are_told_to_nobody() -> None:
    told = without_folders("Load model from /tmp/mplint-ab12_x/model.onnx failed: no kernel", "a.onnx")
    assert told == "Load model from a.onnx failed: no kernel"
    assert without_folders("can't write /data/.mplint-q9/b.onnx", "a.onnx") == "can't write a.onnx"
    assert without_folders("see docs/mplint-guide.md", "a.onnx") != "a.onnx"


def test_a_model_that_is_half_already_is_no_wrong_result_where_its_own_rounding_shows(tmp_path: Path) -> None:
    text = (
        "g (float16[4,8] x) => (float16[4,8] y) { a = Mul(x, big) b = Mul(a, a) y = Sqrt(b) }"  # b is infinite where it is stored in half
    )
    path = model(text, tmp_path / "a.onnx", big=np.array(600, np.float16))
    result = converted(path)
    assert result.verdict is Verdict.UNCHANGED and not result.problems
    assert any("it computes in float16 already" in note for note in result.notes)


def test_an_output_with_no_elements_is_no_output_that_never_moves(tmp_path: Path) -> None:
    text = "g (float[4,8] x) => (float[4,8] y, float[4,0] state) { y = MatMul(x, W) state = Slice(x, start, end, axis) }"
    at = {"start": np.array([8]), "end": np.array([9]), "axis": np.array([1])}
    result = converted(model(text, tmp_path / "a.onnx", W=rng(8, 8), **at))
    assert result.verdict is Verdict.PROVEN, result.gaps


def test_what_the_half_operations_of_the_original_do_is_said_as_its_own(tmp_path: Path) -> None:
    """300 squared is infinite where half is half: the half part was wrong before, and what is converted besides is right."""
    text = """g (float[4,8] x) => (float[4,8] y, float[4,8] z) {
        h = Cast<to=10>(x) s = Mul(h, h) r = Sqrt(s) y = Cast<to=1>(r)
        a = MatMul(x, W) b = Relu(a) z = MatMul(b, W)
    }"""
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8, scale=0.3))
    for at in range(4):
        np.savez(tmp_path / f"{at}.npz", x=300 * rng(4, 8, seed=at))
    result = convert_file(path, path, named("mixed_float16"), Options(), [str(tmp_path)], "cuda")
    assert result.proven and result.heavy_half == 2, (result.problems, result.kept)
    assert any("the original's own half operations are off" in note for note in result.notes), result.notes
