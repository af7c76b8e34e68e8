"""Policies of single layers: another half dtype, or none, by patterns of names."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from mplint.cli.main import main
from mplint.conversion.policy import ConversionError, asked, policy

TEXT = """<ir_version: 10, opset_import: ["" : 17]> g (float[n,32] x) => (float[n,32] y)
<float[32,32] w = {%s}> { [first] p = MatMul(x, w) [bend] t = Relu(p) [second] q = MatMul(t, w) [last] y = MatMul(q, w) }"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    numbers = np.random.default_rng(0).standard_normal(1024) / 5
    onnx.save(onnx.parser.parse_model(TEXT % ", ".join(f"{number:.5f}" for number in numbers)), tmp_path / "a.onnx")
    return str(tmp_path / "a.onnx")


def takes(model: onnx.ModelProto, name: str) -> int:
    """The dtype of the weights that a node takes."""
    node = next(node for node in model.graph.node if node.name == name)
    return next(tensor.data_type for tensor in model.graph.initializer if tensor.name == node.input[1])


def test_a_layer_of_an_onnx_model_gets_the_half_dtype_that_its_name_is_given(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "b.onnx"
    assert (
        main(["convert", path, "-o", str(out), "--policy", "mixed_float16", "--policy", "sec*=bfloat16", "--policy", "last=float32"]) == 0
    )
    told = capsys.readouterr().out
    assert "2 of 3 matmuls" in told and "true float16 and bfloat16 semantics" in told and "allowed: 0.08" in told
    model = onnx.load(out)
    assert [takes(model, name) for name in ("first", "second", "last")] == [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT]


def test_what_float16_cannot_hold_is_half_in_bfloat16(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers beyond 65,504 keep a product in float32, unless it is to be bfloat16."""
    model = onnx.load(path)
    scale = onnx.helper.make_tensor("s", TensorProto.FLOAT, [], [1e5])
    model.graph.initializer.append(scale)
    at = next(number for number, node in enumerate(model.graph.node) if node.name == "second")
    model.graph.node.insert(at, onnx.helper.make_node("Mul", ["t", "s"], ["large"], name="grow"))
    model.graph.node[at + 1].input[0] = "large"
    onnx.save(model, path)
    assert main(["convert", path, "-o", str(tmp_path / "b.onnx")]) == 0
    assert takes(onnx.load(tmp_path / "b.onnx"), "second") == TensorProto.FLOAT
    words = ["--policy", "grow=bfloat16", "--policy", "second=bfloat16", "--policy", "last=bfloat16"]
    assert main(["convert", path, "-o", str(tmp_path / "c.onnx"), *words]) == 0
    assert "3 of 3 matmuls" in capsys.readouterr().out
    assert takes(onnx.load(tmp_path / "c.onnx"), "second") == TensorProto.BFLOAT16


def test_a_layer_of_a_keras_model_gets_its_own_policy(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    layers = [keras.layers.Dense(8, name=name, activation="relu") for name in ("one", "two")]
    keras.Sequential([keras.Input((16,)), *layers, keras.layers.Dense(4, name="out")]).save(tmp_path / "a.keras")
    assert main(["convert", str(tmp_path / "a.keras"), "-o", str(tmp_path / "b.keras"), "--policy", "two=bfloat16"]) == 0
    config = json.loads(zipfile.ZipFile(tmp_path / "b.keras").read("config.json"))
    found = {layer["config"]["name"]: layer["config"]["dtype"] for layer in config["config"]["layers"][1:]}
    names = {name: dtype["config"]["name"] for name, dtype in found.items()}
    assert names == {"one": "mixed_float16", "two": "mixed_bfloat16", "out": "float32"}


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("sekond=bfloat16", "names nothing in the model; did you mean second?"),
        ("second=half", "say mixed_float16, mixed_bfloat16, second=bfloat16"),
        ("fast", "say mixed_float16, mixed_bfloat16, PATTERN=bfloat16"),
    ],
)
def test_a_policy_that_means_nothing_is_misuse(word: str, told: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", path, "-o", str(tmp_path / "b.onnx"), "--policy", word]) == 2
    assert told in capsys.readouterr().err


def test_a_model_has_one_policy_and_the_wider_tolerance_of_its_layers() -> None:
    with pytest.raises(ConversionError, match="one policy"):
        asked(["mixed_float16", "mixed_bfloat16"])
    wishes = asked(["a=bfloat16", "mixed_float16", "b=float32"])
    assert (wishes.name, wishes.halves, wishes.keep) == ("mixed_float16", (("a", "bfloat16"),), ("b",))
    assert policy("mixed_float16", None, None, wishes.halves).tolerance == policy("mixed_bfloat16").tolerance
    assert policy("mixed_float16", 0.01, None, wishes.halves).tolerance == 0.01
