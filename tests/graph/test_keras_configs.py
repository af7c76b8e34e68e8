"""The forms in which Keras writes policies and calls, Keras 2 among them, without Keras."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

h5py = pytest.importorskip("h5py")

from model_files import keras_archive, keras_config, layer  # noqa: E402

from mplint.graph.keras.policy import Policy, policy_of  # noqa: E402
from mplint.graph.load import load_graph  # noqa: E402
from mplint.graph.model import ModelGraph, OpKind  # noqa: E402

MIXED = {"class_name": "Policy", "config": {"name": "mixed_float16"}}


@pytest.mark.parametrize(
    ("written", "policy"),
    [
        ("float16", Policy("float16", "float16", "float16")),
        ("mixed_bfloat16", Policy("mixed_bfloat16", "bfloat16", "float32")),
        (MIXED, Policy("mixed_float16", "float16", "float32")),
        ({"class_name": "DTypePolicy", "config": {"name": "bfloat16"}}, Policy("bfloat16", "bfloat16", "bfloat16")),
        ("int8_from_mixed_bfloat16", Policy("int8_from_mixed_bfloat16", "bfloat16", "float32")),
        (
            {"class_name": "QuantizedDTypePolicy", "config": {"mode": "int8", "source_name": "float32"}},
            Policy("int8_from_float32", "float32", "float32"),
        ),
        ({"class_name": "DTypePolicy", "config": {"name": None}}, None),
        (None, None),
        (3, None),
    ],
)
def test_policies_are_read_in_every_form(written: object, policy: Policy | None) -> None:
    assert policy_of(written) == policy


def test_a_policy_map_is_asked_by_path() -> None:
    policies = {"encoder/.*": "mixed_float16", "encoder/head": {"class_name": "DTypePolicy", "config": {"name": "float32"}}}
    written = {"class_name": "DTypePolicyMap", "config": {"default_policy": "bfloat16", "policy_map": policies}}
    found = {path: policy_of(written, path) for path in ("encoder/body", "encoder/head", "decoder")}
    assert {path: policy.compute for path, policy in found.items() if policy} == {
        "encoder/body": "float16",
        "encoder/head": "float32",
        "decoder": "bfloat16",
    }


def keras2(layers: list[dict[str, object]], outputs: list[object], folder: Path, kind: str = "Functional") -> ModelGraph:
    """The graph of a model that Keras 2 wrote without weights."""
    config = {"name": "model", "layers": layers, "input_layers": [["given", 0, 0]], "output_layers": outputs}
    if kind == "Sequential":
        config = {"name": "model", "layers": layers}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["keras_version"] = "2.15.0"
        file.attrs["model_config"] = json.dumps({"class_name": kind, "config": config})
    (folder / "model.h5").write_bytes(buffer.getvalue())
    return load_graph(folder / "model.h5")


def old(kind: str, name: str, calls: list[object], **config: object) -> dict[str, object]:
    """A layer as Keras 2 writes it."""
    return {"class_name": kind, "name": name, "config": {"name": name, "trainable": True, "dtype": MIXED, **config}, "inbound_nodes": calls}


def given(*shape: int) -> dict[str, object]:
    return old("InputLayer", "given", [], dtype="float32", batch_input_shape=[None, *shape])


def test_functions_of_tensorflow_take_their_dtype_and_shape_from_their_arguments(tmp_path: Path) -> None:
    calls = [
        given(8, 6),
        old("Dense", "dense", [[["given", 0, 0, {}]]], units=4),
        old("TFOpLambda", "mean", [["dense", 0, 0, {"axis": 1}]], function="math.reduce_mean", dtype="float32"),
        old("TFOpLambda", "scaled", [["mean", 0, 0, {"y": 70000.0}]], function="math.multiply", dtype="float32"),
        old("TFOpLambda", "cast", [["scaled", 0, 0, {"dtype": "float32"}]], function="cast", dtype="float32"),
        old("TFOpLambda", "mystery", [["cast", 0, 0, {}]], function="raw_ops.Mystery", dtype="float32"),
    ]
    nodes = {node.name: node for node in keras2(calls, [["mystery", 0, 0]], tmp_path).graph.nodes}
    described = {name: (node.kind, node.outputs[0].described) for name, node in nodes.items()}
    assert described["mean"] == (OpKind.REDUCTION, "float16[?, 4]")
    assert described["scaled"] == (OpKind.ELEMENTWISE, "float16[?, 4]")
    assert described["cast"] == (OpKind.CAST, "float32[?, 4]")
    assert described["mystery"] == (OpKind.OPAQUE, "float32[?]")
    assert nodes["scaled"].attributes["y"] == 70000.0


def test_bilinear_upsampling_of_keras_2_gives_float32(tmp_path: Path) -> None:
    layers = [given(4, 4, 3), old("UpSampling2D", "up", [[["given", 0, 0, {}]]], size=[2, 2], interpolation="bilinear")]
    (node,) = keras2(layers, [["up", 0, 0]], tmp_path).graph.nodes
    assert (node.compute_dtype, node.outputs[0].described) == ("float16", "float32[?, 8, 8, 3]")


def test_calls_of_nested_models_are_numbered_from_the_one_that_built_them(tmp_path: Path) -> None:
    inner = {
        "class_name": "Sequential",
        "config": {"name": "inner", "layers": [old("Dense", "dense", [], units=4, batch_input_shape=[None, 6])]},
    }
    layers = [given(6), {**inner, "name": "inner", "inbound_nodes": [[["given", 0, 0, {}]]]}, old("ReLU", "last", [[["inner", 1, 0, {}]]])]
    model = keras2(layers, [["last", 0, 0]], tmp_path)
    assert [node.described for node in model.nodes()] == ["inner (Sequential)", "dense (Dense) in inner", "last (ReLU)"]
    assert model.graph.outputs[0].described == "float16[?, 4]"


def test_a_sequential_model_of_the_oldest_form_is_a_list_of_layers(tmp_path: Path) -> None:
    layers = [old("Dense", "one", [], units=4, batch_input_shape=[None, 6]), old("Dense", "two", [], units=2)]
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": layers})
    (tmp_path / "model.h5").write_bytes(buffer.getvalue())
    found = load_graph(tmp_path / "model.h5")
    assert [tensor.described for tensor in (found.graph.inputs[0], found.graph.outputs[0])] == ["float32[?, 6]", "float16[?, 2]"]


def test_a_policy_that_is_newer_than_the_noted_dtypes_counts(tmp_path: Path) -> None:
    noted = layer("Dense", "second", "dense", units=2)  # the file notes that "dense" gave float32
    (tmp_path / "model.keras").write_bytes(keras_archive(keras_config(noted)))
    first, second = load_graph(tmp_path / "model.keras").graph.nodes
    assert first.outputs[0].dtype == "float16"
    assert second.inputs == first.outputs


def test_weights_alone_are_read_without_a_configuration(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        file["layers/dense/vars/0"] = [[1.0, 2.0]]
    found = load_graph(tmp_path / "model.weights.h5")
    assert [tensor.described for tensor in found.constants()] == ["float64[1, 2]"]
    assert found.notes == []
