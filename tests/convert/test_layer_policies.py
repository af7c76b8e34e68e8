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


def test_a_module_of_a_torch_program_gets_the_half_dtype_that_its_name_is_given(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import mplint

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

        def forward(self, x: object) -> object:
            return self.head(torch.relu(self.body(x)))

    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(4, 8)
    path = str(tmp_path / "b.pt2")
    result = mplint.convert(torch.export.export(model, (x,)), ["mixed_float16", "*head*=bfloat16"])
    assert result.proven and (result.heavy_half, result.heavy) == (2, 2) and set(result.halves) == {"float16", "bfloat16"}
    result.save(path)
    made = torch.export.load(path)
    kinds = {name: tensor.dtype for name, tensor in made.state_dict.items()}
    assert kinds["body.weight"] == torch.float16 and kinds["head.weight"] == torch.bfloat16
    assert torch.allclose(made.module()(x), model(x), atol=0.08 * float(model(x).abs().max()))
    kept = mplint.convert(torch.export.export(model, (x,)), ["mixed_float16", "*head*=float32"])
    assert (kept.heavy_half, kept.heavy) == (1, 2)


def test_what_float16_cannot_hold_in_a_torch_program_is_half_in_bfloat16() -> None:
    torch = pytest.importorskip("torch")
    import mplint

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
            self.wide.weight.data *= 1e6

        def forward(self, x: object) -> object:
            return self.last(self.wide(x) * 1e-6)

    torch.manual_seed(0)
    program = torch.export.export(Model().eval(), (torch.randn(4, 8),))
    plain = mplint.convert(program, "mixed_float16")
    assert (plain.heavy_half, plain.heavy) == (1, 2)
    mixed = mplint.convert(program, ["mixed_float16", "wide=bfloat16", "mul*=bfloat16", "*.mul*=bfloat16"])
    assert mixed.proven and (mixed.heavy_half, mixed.heavy) == (2, 2)


def test_a_saved_model_has_one_half_dtype(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"\x08\x01\x12\x00")
    arguments = ["convert", str(tmp_path / "model"), "--policy", "mixed_float16", "--policy", "head=bfloat16", "-o", str(tmp_path / "b")]
    assert main(arguments) == 2
    assert "to one half dtype; say head=float32" in capsys.readouterr().err


def test_float8_is_refused_as_a_policy_and_weights_that_are_in_it_stay(tmp_path: Path) -> None:
    for word in ("mixed_float8", "head=float8_e4m3fn"):
        with pytest.raises(ConversionError, match="quantization"):
            asked([word])
    array = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["w8", "s"], ["w"]),
        onnx.helper.make_node("MatMul", ["x", "w"], ["a"]),
        onnx.helper.make_node("MatMul", ["a", "V"], ["y"]),
    ]
    constants = [
        onnx.helper.make_tensor("w8", TensorProto.FLOAT8E4M3FN, [8, 8], array.ravel().tolist()),
        onnx.numpy_helper.from_array(np.float32(1.0), "s"),
        onnx.numpy_helper.from_array(array, "V"),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 8]) for name in ("x", "y")]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    path, target = str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), path)
    assert main(["convert", path, "--policy", "mixed_float16", "-o", target]) == 0
    made = onnx.load(target).graph
    kinds = {tensor.name: tensor.data_type for tensor in made.initializer}
    assert kinds.pop("w8") == TensorProto.FLOAT8E4M3FN and set(kinds.values()) == {TensorProto.FLOAT16}
