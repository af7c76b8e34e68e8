"""What `mplint convert` makes of ONNX models: valid, true to the original under half semantics, and half wherever it can be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import dtypes, model, rng

from mplint.cli.main import main
from mplint.conversion.cut import Edge, Problem, cheapest
from mplint.conversion.onnx.convert import convert
from mplint.conversion.policy import ConversionError, Options, policy
from mplint.conversion.result import Conversion

FLOAT16 = policy("mixed_float16")


def converted(path: str, out: Path, *calibration: str, **options: object) -> Conversion:
    result = convert(path, FLOAT16, Options(**options), calibration)  # type: ignore[arg-type]
    assert result.proven, result.problems
    result.save(str(out))
    onnx.checker.check_model(str(out), full_check=True)
    return result


def data(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_a_chain_is_half_between_float32_ends(tmp_path: Path) -> None:
    path = model(
        "g (float[N,8] x) => (float[N,8] y) { a = MatMul(x, W) b = Relu(a) y = MatMul(b, V) }",
        tmp_path / "a.onnx",
        W=rng(8, 8),
        V=rng(8, 8),
    )
    result = converted(path, tmp_path / "b.onnx")
    assert (result.heavy_half, result.heavy, result.casts_added) == (2, 2, 2)
    kinds = dtypes(tmp_path / "b.onnx")
    assert kinds["x"] == kinds["y"] == "float" and "float16" in kinds.values()
    assert {tensor.data_type for tensor in onnx.load(tmp_path / "b.onnx").graph.initializer} == {onnx.TensorProto.FLOAT16}


def test_what_overflows_stays_float32_and_the_rest_does_not(tmp_path: Path) -> None:
    text = "g (float[2,8] x) => (float[2,8] y) { a = MatMul(x, W) s = Mul(a, a) r = Sqrt(s) y = MatMul(r, V) }"
    path = model(text, tmp_path / "a.onnx", W=rng(8, 8, scale=300), V=rng(8, 8, scale=1e-3))
    result = converted(path, tmp_path / "b.onnx", data(tmp_path / "c.npz", x=rng(2, 8)))
    assert (result.heavy_half, result.heavy) == (2, 2)
    assert any(name.startswith("s ") and "infinite" in reason for name, reason in result.kept)


def test_a_mask_constant_beyond_the_range_stays_finite(tmp_path: Path) -> None:
    text = """g (float[2,4] x, bool[2,4] m) => (float[2,4] y) {
        f = Cast<to=1>(m) n = Mul(f, big) s = Add(x, n) p = Softmax(s) y = MatMul(p, W) }"""
    path = model(text, tmp_path / "a.onnx", big=np.float32(-1e9), W=rng(4, 4))
    feed = data(tmp_path / "c.npz", x=rng(2, 4), m=np.array([[False, False, True, True], [False, True, True, True]]))
    converted(path, tmp_path / "b.onnx", feed)
    values = [onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "b.onnx").graph.initializer]
    assert all(np.isfinite(value.astype(np.float32)).all() for value in values)


@pytest.mark.parametrize(
    "text",
    [
        # a branch captures an outer activation and an outer weight
        """g (float[4,8] x, bool c) => (float[4,8] y) { a = MatMul(x, W)
           b = If (c) <then_branch = t () => (float[4,8] u) { u = MatMul(a, W) }, else_branch = e () => (float[4,8] v) { v = Relu(a) }>
           y = MatMul(b, W) }""",
        # a loop carries a state and scans out
        """g (float[4,8] x) => (float[4,8] y, float[N,4,8] z) { k = Constant<value_int=3>() t = Constant<value = bool {1}>()
           a = MatMul(x, W)
           y, z = Loop (k, t, a) <body = b (int64 i, bool c, float[4,8] h) => (bool d, float[4,8] o, float[4,8] s)
             { d = Identity(c) m = MatMul(h, W) o = Tanh(m) s = Mul(o, o) }> }""",
        # an output is an input, and another an initializer
        "g (float[4,8] x) => (float[4,8] y, float[8,8] W) { y = MatMul(x, W) }",
        # nothing to convert
        "g (int64[4,8] x) => (int64[4,8] y) { y = Add(x, x) }",
        # a name that the half version would like to have is taken
        "g (float[4,8] x) => (float[4,8] y) { x_float16 = Relu(x) y = MatMul(x_float16, W) }",
    ],
)
def test_structure_survives(text: str, tmp_path: Path) -> None:
    path = model(text, tmp_path / "a.onnx", **({"W": rng(8, 8, scale=0.3)} if "W" in text else {}))
    before = onnx.load(path)
    result = converted(path, tmp_path / "b.onnx")
    after = onnx.load(tmp_path / "b.onnx")
    assert list(after.graph.input) == list(before.graph.input) and list(after.graph.output) == list(before.graph.output)
    assert result.heavy_half == result.heavy


def test_bfloat16_raises_the_opset_only_where_convolutions_need_it(tmp_path: Path) -> None:
    text = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) { y = Conv<pads=[1,1,1,1]>(x, W) }"
    path = model(text, tmp_path / "a.onnx", W=rng(4, 4, 3, 3, scale=0.2))
    result = convert(path, policy("mixed_bfloat16"), Options())
    assert result.proven and result.heavy_half == 1
    assert result.notes == ["raised from opset 17 to 22, in which the heavy operators take bfloat16"]
    matmul = model("g (float[2,8] x) => (float[2,8] y) { y = MatMul(x, W) }", tmp_path / "m.onnx", W=rng(8, 8))
    assert convert(matmul, policy("mixed_bfloat16"), Options()).notes == []


def test_what_the_user_keeps_is_kept_with_the_reason(tmp_path: Path) -> None:
    path = model("g (float[2,8] x) => (float[2,8] y) { a = MatMul(x, W) y = MatMul(a, W) }", tmp_path / "a.onnx", W=rng(8, 8))
    result = converted(path, tmp_path / "b.onnx", keep=("a",))
    assert result.heavy_half == 1 and ("a (MatMul)", "asked to stay float32") in result.kept


def test_half_io_turns_inputs_and_outputs(tmp_path: Path) -> None:
    path = model("g (float[2,8] x) => (float[2,8] y) { y = MatMul(x, W) }", tmp_path / "a.onnx", W=rng(8, 8))
    result = converted(path, tmp_path / "b.onnx", half_io=True)
    kinds = dtypes(tmp_path / "b.onnx")
    assert kinds["x"] == kinds["y"] == "float16" and result.casts_added == 0


def test_missing_data_is_named(tmp_path: Path) -> None:
    path = model("g (float[2,8] x) => (float[2,8] y) { y = Relu(x) }", tmp_path / "a.onnx")
    with pytest.raises(ConversionError, match="no array for the input 'x'; it holds z"):
        convert(path, FLOAT16, Options(), [data(tmp_path / "c.npz", z=rng(2, 8))])


def test_the_command_writes_the_model_and_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model("g (float[2,8] x) => (float[2,8] y) { y = MatMul(x, W) }", tmp_path / "a.onnx", W=rng(8, 8))
    out, report = tmp_path / "b.onnx", tmp_path / "r.json"
    assert main(["convert", path, "-o", str(out), "--report", str(report)]) == 0
    assert "1 of 1 matmuls and convolutions in float16" in capsys.readouterr().out
    assert json.loads(report.read_text())["proven"] is True and dtypes(out)["y"] == "float"
    assert main(["convert", path, "--dry-run"]) == 0
    assert "not written" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{model}"], "say where to write"),
        (["{model}", "-o", "{model}"], "the input itself"),
        (["{folder}/none.onnx", "-o", "{folder}/b.onnx"], "no such file"),
        (["{model}", "-o", "{folder}/none/b.onnx"], "does not exist"),
        (["{model}", "-o", "{folder}/b.onnx", "--tolerance", "2"], "not between 0 and 1"),
        (["{folder}/text.onnx", "-o", "{folder}/b.onnx"], "the content is no onnx file"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model("g (float[2,8] x) => (float[2,8] y) { y = Relu(x) }", tmp_path / "a.onnx")
    (tmp_path / "text.onnx").write_text("not a model\n")
    assert main(["convert", *(argument.format(model=path, folder=tmp_path) for argument in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.onnx", "text.onnx"]


def test_the_cut_serves_all_takers_of_a_tensor_with_one_cast() -> None:
    """A heavy chain around a float32 operation: casting one shared tensor beats leaving a heavy operation in float32."""
    edges = [Edge(0, (1, 2, 3)), Edge(1, (4,)), Edge(2, (4,)), Edge(3, (4,)), Edge(4, (0,))]
    assert cheapest(Problem([0, 0.4, 0.4, 0.4, 100], edges, frozenset({0}))) == [False, True, True, True, True]
    assert cheapest(Problem([0, 0.4, 0.4, 0.4, 0.1], edges, frozenset({0}))) == [False, False, False, False, False]


def test_an_interruption_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mplint.conversion.onnx import convert as converting

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    path = model("g (float[2,8] x) => (float[2,8] y) { y = MatMul(x, W) }", tmp_path / "a.onnx", W=rng(8, 8))
    monkeypatch.setattr(converting.os, "replace", interrupt)
    assert main(["convert", path, "-o", str(tmp_path / "b.onnx")]) == 130
    assert [item.name for item in tmp_path.iterdir()] == ["a.onnx"]


def test_progress_is_one_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model("g (float[2,8] x) => (float[2,8] y) { y = MatMul(x, W) }", tmp_path / "a.onnx", W=rng(8, 8))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert main(["convert", path, "--dry-run"]) == 0
    shown = capsys.readouterr().err.partition("in any precision\n")[2]  # after the advice against so small a model
    assert "measuring which tensors may be half" in shown and "\n" not in shown and shown.endswith("\x1b[K")


@pytest.mark.parametrize("large", [False, True], ids=["in memory", "as large models are handled"])
def test_weights_in_a_file_of_their_own_stay_in_one(large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr("mplint.conversion.onnx.run.INLINE_BYTES", 1)
        monkeypatch.setattr("mplint.conversion.onnx.convert.INLINE_BYTES", 1)
    path = model("g (float[2,64] x) => (float[2,64] y) { y = MatMul(x, W) }", tmp_path / "a.onnx", W=rng(64, 64, scale=0.1))
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="a.weights", size_threshold=0)
    before = (tmp_path / "a.weights").read_bytes()
    result = convert(path, FLOAT16, Options())
    assert result.proven and result.heavy_half == 1, result.problems
    result.save(str(tmp_path / "b.onnx"))
    assert (tmp_path / "a.weights").read_bytes() == before
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.onnx", "a.weights", "b.onnx", "b.onnx.data"]
    assert dtypes(tmp_path / "b.onnx")["y"] == "float" and (tmp_path / "b.onnx.data").stat().st_size == 64 * 64 * 2


def test_weights_of_the_input_are_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model("g (float[2,64] x) => (float[2,64] y) { y = MatMul(x, W) }", tmp_path / "a.onnx", W=rng(64, 64, scale=0.1))
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="b.onnx.data", size_threshold=0)
    before = (tmp_path / "b.onnx.data").read_bytes()
    assert main(["convert", path, "-o", str(tmp_path / "b.onnx")]) == 2
    assert "choose another name" in capsys.readouterr().err and (tmp_path / "b.onnx.data").read_bytes() == before
    assert not (tmp_path / "b.onnx").exists()
