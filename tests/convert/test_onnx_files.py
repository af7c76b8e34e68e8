"""What a converted ONNX file keeps of the original besides its numbers: functions, descriptions, sparse and external weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from hard_cases import CASES
from onnx import TensorProto, helper, numpy_helper

from mplint.conversion.distance import distance
from mplint.conversion.onnx.convert import convert
from mplint.conversion.onnx.run import Session
from mplint.conversion.policy import Options, policy
from mplint.conversion.result import Conversion


def converted(model: onnx.ModelProto, folder: Path) -> tuple[onnx.ModelProto, Conversion]:
    onnx.save(model, folder / "a.onnx")
    result = convert(str(folder / "a.onnx"), policy("mixed_float16"), Options())
    assert result.proven, result.problems
    result.save(str(folder / "b.onnx"))
    return onnx.load(folder / "b.onnx"), result


def test_a_function_whose_calls_agree_stays_one_function(tmp_path: Path) -> None:
    found, _ = converted(CASES["function_twice"].model(), tmp_path)
    assert [function.name for function in found.functions] == ["layer"]
    assert [node.op_type for node in found.graph.node].count("layer") == 2


def test_a_function_whose_calls_differ_in_precision_becomes_two(tmp_path: Path) -> None:
    case = CASES["function_in_two_precisions"]
    onnx.save(case.model(), tmp_path / "a.onnx")
    np.savez(tmp_path / "data.npz", **case.feed(0))
    result = convert(str(tmp_path / "a.onnx"), policy("mixed_float16", case.tolerance), Options(), [str(tmp_path / "data.npz")])
    result.save(str(tmp_path / "b.onnx"))
    assert [function.name for function in onnx.load(tmp_path / "b.onnx").functions] == ["layer", "layer_2"]


def test_descriptions_are_kept(tmp_path: Path) -> None:
    before = CASES["everything_described"].model()
    after, _ = converted(before, tmp_path)
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string", "metadata_props", "opset_import"):
        assert getattr(before, name) == getattr(after, name)
    assert before.graph.doc_string == after.graph.doc_string
    assert list(before.graph.input) == list(after.graph.input)
    assert list(before.graph.output) == list(after.graph.output)


def test_what_a_converted_model_does_not_have_is_said(tmp_path: Path) -> None:
    _, result = converted(CASES["training_information"].model(), tmp_path)
    assert any("training" in note for note in result.notes)


def test_sparse_weights_become_dense(tmp_path: Path) -> None:
    values = helper.make_tensor("V", TensorProto.FLOAT, [2], [1.5, -2.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("at", TensorProto.INT64, [2, 2], [0, 3, 4, 1]), [8, 8])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "V"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
        sparse_initializer=[sparse],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    after, _ = converted(model, tmp_path)
    dense = np.zeros((8, 8), dtype=np.float16)
    dense[0, 3], dense[4, 1] = 1.5, -2.0
    assert np.array_equal(numpy_helper.to_array(after.graph.initializer[0]), dense)


def test_weights_at_any_place_of_several_files(tmp_path: Path) -> None:
    model = CASES["half_in_parts"].model()
    del model.graph.initializer[:]
    rng = np.random.default_rng(0)
    folder = tmp_path / "weights"
    folder.mkdir()
    for number, name in enumerate("VU"):
        values = rng.normal(0, 0.3, (8, 8)).astype(np.float16)
        (folder / f"{name}.bin").write_bytes(b"x" * (13 + number) + values.tobytes() + b"tail")
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT16, dims=[8, 8], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", f"weights/{name}.bin"), ("offset", str(13 + number)), ("length", "128")):
            tensor.external_data.add(key=key, value=value)
        model.graph.initializer.append(tensor)
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    result = convert(str(tmp_path / "a.onnx"), policy("mixed_float16"), Options())
    assert result.proven, result.problems
    (tmp_path / "out").mkdir()
    result.save(str(tmp_path / "out" / "b.onnx"))
    feed = CASES["half_in_parts"].feed(1)
    assert distance(Session(str(tmp_path / "a.onnx")).run(feed), Session(str(tmp_path / "out" / "b.onnx")).run(feed)).within(0.02)
