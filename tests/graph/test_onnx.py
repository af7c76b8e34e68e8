"""The ONNX loader: what it says of models, and what it says of files that are none."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mplint.graph.load import load_graph
from mplint.graph.model import GraphError, ModelGraph, OpKind
from mplint.graph.onnx.file import encoded

MATMUL = """<ir_version: 8, opset_import: ["" : 17]>
model (float16[N, 64] x, float16[64, 32] w) => (float16[N, 32] y)
{
    a = MatMul(x, w)
    y = Softmax<axis=-1>(a)
}"""


def load(text: str, folder: Path) -> ModelGraph:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return load_graph(path)


def refused(path: Path) -> str:
    with pytest.raises(GraphError) as error:
        load_graph(path)
    return str(error.value)


def external(folder: Path, location: str, *, offset: int = 0, length: int = 16, elements: int = 4) -> Path:
    """A model that adds a float32 weight of `elements`, said to lie in a file."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[elements], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        weight.external_data.add(key=key, value=value)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [elements]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def test_nodes_have_kinds_types_and_what_connects_them(tmp_path: Path) -> None:
    model = load(MATMUL, tmp_path)
    product, softmax = model.graph.nodes
    assert (product.kind, softmax.kind) == (OpKind.MATMUL, OpKind.SOFTMAX)
    assert product.outputs[0].described == "float16[N, 32]"
    assert product.compute_dtype == "float16"
    assert product.outputs[0].consumers == [softmax]
    assert softmax.inputs[0].producer is product
    assert model.opset == {"ai.onnx": 17}
    assert softmax.attributes["axis"] == -1


def test_contrib_operators_pass_their_types_on(tmp_path: Path) -> None:
    model = load(
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        model (float16[N, 8] x, float16[8] g, float16[8] b, float16[8, 8] w) => (y)
        {
            s, m, v, t = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(x, x, g, b)
            f = com.microsoft.FastGelu(s)
            y = MatMul(f, w)
        }""",
        tmp_path,
    )
    norm, gelu, product = model.graph.nodes
    assert (norm.kind, gelu.kind, product.kind) == (OpKind.NORM, OpKind.ACTIVATION, OpKind.MATMUL)
    assert {n.outputs[0].dtype for n in model.graph.nodes} == {"float16"}
    assert gelu.outputs[0].shape == ("N", 8)


def test_bodies_read_the_tensors_around_them(tmp_path: Path) -> None:
    model = load(
        """<ir_version: 8, opset_import: ["" : 17]>
        model (float[4] x, bool c) => (float[4] y)
        {
            a = Relu(x)
            y = If (c) <
                then_branch = then () => (float[4] t) { t = Exp(a) },
                else_branch = other () => (float[4] e) { b = Neg(a) e = Log(b) }
            >
        }""",
        tmp_path,
    )
    choice = model.graph.nodes[1]
    assert choice.kind is OpKind.CONTROL
    inner = choice.graphs["then_branch"].nodes[0]
    assert inner.inputs[0] is model.graph.nodes[0].outputs[0]
    assert [n.op_type for n in model.nodes()] == ["Relu", "If", "Exp", "Neg", "Log"]
    assert all(t.dtype == "float32" for n in model.nodes() for t in n.outputs)


def test_functions_get_the_types_of_their_calls(tmp_path: Path) -> None:
    model = load(
        """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        model (float16[N, 8] x) => (float16[N, 8] y) { y = own.square(x) }
        <domain: "own", opset_import: ["" : 17]>
        square (a) => (b) { c = Identity(a) b = Mul(c, c) }""",
        tmp_path,
    )
    assert model.graph.nodes[0].kind is OpKind.CALL
    (body,) = model.functions.values()
    assert [n.compute_dtype for n in body.nodes] == [None, "float16"]


def test_sizes_and_lookups_are_told_from_data(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("Shape", ["rows"], ["sizes"]),
            helper.make_node("Gather", ["sizes", "last"], ["width"]),
            helper.make_node("Cast", ["width"], ["number"], to=TensorProto.FLOAT),
            helper.make_node("Div", ["rows", "number"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
        [numpy_helper.from_array(np.ones((10, 8), np.float32), "table"), numpy_helper.from_array(np.array(1), "last")],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    kinds = [node.kind for node in load_graph(path).graph.nodes]
    assert kinds == [OpKind.EMBEDDING, OpKind.SHAPE, OpKind.SHAPE, OpKind.SHAPE, OpKind.ELEMENTWISE]


def test_large_weights_stay_in_the_file_and_stream(tmp_path: Path) -> None:
    values = np.arange(100_000, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [100_000])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [100_000])],
        [numpy_helper.from_array(values, "w")],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    weights = load_graph(path).graph.constants["w"].weights
    assert weights is not None
    assert weights.nbytes == 400_000
    pieces = list(weights.chunks(1 << 16))
    assert max(piece.nbytes for piece in pieces) <= 1 << 16
    assert np.array_equal(np.concatenate(pieces), values)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int64", "bool"])
def test_weights_come_back_as_they_were_written(dtype: str, tmp_path: Path) -> None:
    import ml_dtypes

    values = np.arange(5000).astype(getattr(ml_dtypes, dtype, None) or dtype)
    made = onnx.TensorProto(name="w", dims=[5000], data_type=helper.np_dtype_to_tensor_dtype(values.dtype), raw_data=values.tobytes())
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [helper.make_tensor_value_info("y", 1, None)], [made])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    weight = load_graph(path).graph.constants["w"]
    assert weight.dtype == dtype
    assert weight.weights is not None
    assert np.concatenate(list(weight.weights.chunks())).tobytes() == values.tobytes()


def test_external_data_is_read_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 8 + np.arange(4, dtype=np.float32).tobytes())
    weights = load_graph(external(tmp_path, "w.bin", offset=8)).graph.constants["w"].weights
    assert weights is not None
    assert [v for chunk in weights.chunks() for v in chunk.tolist()] == [0, 1, 2, 3]


def test_external_data_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 16)
    os.symlink(tmp_path / "secret.bin", folder / "link.bin")
    for location in ("../secret.bin", str(tmp_path / "secret.bin"), "link.bin", "a/../../secret.bin", "C:\\secret.bin", ""):
        assert "data file" in refused(external(folder, location)), location


def test_download_cache_that_links_model_and_data_into_one_folder_is_read(tmp_path: Path) -> None:
    blobs, shown = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    shown.mkdir()
    external(blobs, "w.bin").rename(blobs / "1")
    (blobs / "2").write_bytes(b"\0" * 16)
    os.symlink(blobs / "1", shown / "model.onnx")
    os.symlink(blobs / "2", shown / "w.bin")
    assert load_graph(shown / "model.onnx").graph.constants["w"].nbytes == 16


def test_sizes_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 16)
    assert "w.bin, which has 16" in refused(external(tmp_path, "w.bin", offset=4))
    assert "w.bin, which has 16" in refused(external(tmp_path, "w.bin", elements=1 << 60, length=1 << 62))
    assert "bytes" in refused(external(tmp_path, "w.bin", length=12))
    assert "missing" in refused(external(tmp_path, "other.bin"))


def test_files_that_are_no_models_say_why(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(MATMUL), path)
    whole = path.read_bytes()
    for size in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert refused(path)
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert "git lfs pull" in refused(path)
    assert "no such file" in refused(tmp_path / "missing.onnx")


def test_cycles_and_dangling_names_are_refused(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    circle = [("Relu", ["b"], ["a"]), ("Relu", ["a"], ["b"]), ("Add", ["a", "b"], ["y"])]
    for wanted, reason in ((circle, "cycle"), ([("Relu", ["nowhere"], ["y"])], "nothing makes")):
        nodes = [helper.make_node(*node) for node in wanted]
        path = tmp_path / "m.onnx"
        path.write_bytes(helper.make_model(helper.make_graph(nodes, "g", [], [value])).SerializeToString())
        assert reason in refused(path)


def test_functions_that_call_each_other_end(tmp_path: Path) -> None:
    body = [helper.make_node("f", ["a"], ["b"], domain="own")]
    function = helper.make_function("own", "f", ["a"], ["b"], body, [helper.make_opsetid("own", 1)])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("f", ["x"], ["z"], domain="own"), helper.make_node("Relu", ["z"], ["y"])], "g", [x], [y])
    path = tmp_path / "m.onnx"
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    path.write_bytes(helper.make_model(graph, functions=[function], opset_imports=opsets).SerializeToString())
    assert any("calls itself" in note for note in load_graph(path).notes)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    def field(number: int, value: bytes) -> bytes:
        return encoded(number << 3 | 2) + encoded(len(value)) + value

    for depth, reason in ((20, ""), (300, "can't be decoded"), (3000, "can't be decoded")):
        graph = b""
        for _ in range(depth):
            body = field(1, b"body") + field(6, graph) + encoded(20 << 3) + b"\x05"  # an attribute: name, g, type
            node = field(4, b"Loop") + field(5, body)
            graph = field(1, node)
        path = tmp_path / "m.onnx"
        path.write_bytes(b"\x08\x08" + field(7, graph))
        if reason:
            assert reason in refused(path) or "nested" in refused(path)
        else:
            assert sum(1 for _ in load_graph(path).nodes()) == depth
