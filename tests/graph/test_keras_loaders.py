"""What the loaders say of Keras files is what Keras says: policies, dtypes and shapes layer by layer, and the values of every variable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.framework
keras = pytest.importorskip("keras")

from keras_models import APPLICATIONS, OWN, POLICIES, quantized  # noqa: E402

from mplint.graph.load import load_graph  # noqa: E402
from mplint.graph.model import Graph, ModelGraph, Node, OpKind, Tensor  # noqa: E402

LARGE = [
    ("MobileNetV2", "float32"), ("MobileNetV2", "mixed_float16"), ("MobileNetV3Small", "mixed_bfloat16"), ("ResNet50V2", "mixed_float16"),
    ("DenseNet121", "mixed_bfloat16"), ("EfficientNetB0", "mixed_float16"), ("ConvNeXtTiny", "mixed_bfloat16"),
    ("NASNetMobile", "mixed_float16"), ("Xception", "float32"),
]  # fmt: skip
ARCHIVES = [(name, policy, "keras") for name, policy in [*((name, policy) for name in OWN for policy in POLICIES), *LARGE]]
OLDER = [(name, "mixed_float16", "h5") for name in (*OWN, "MobileNetV2", "EfficientNetB0")]


@pytest.fixture(autouse=True)
def _float32_again():
    yield
    keras.config.set_dtype_policy("float32")
    keras.utils.clear_session()


def built(name: str, policy: str) -> keras.Model:
    keras.config.set_dtype_policy(policy)
    return (OWN | APPLICATIONS)[name]()


@pytest.mark.parametrize(("name", "policy", "suffix"), ARCHIVES + OLDER)
def test_every_layer_is_as_keras_has_it(name: str, policy: str, suffix: str, tmp_path: Path) -> None:
    model = built(name, policy)
    path = tmp_path / f"model.{suffix}"
    model.save(path)
    found = load_graph(path)
    assert found.notes == []
    compare(model, found.graph)
    compare_variables(model, found, suffix)


def test_int8_layers_keep_the_policy_that_they_were_quantized_from(tmp_path: Path) -> None:
    model = quantized()
    model.save(tmp_path / "model.keras")
    found = load_graph(tmp_path / "model.keras")
    compare(model, found.graph)
    assert [node.weights["kernel"].dtype for node in found.graph.nodes] == ["int8", "int8"]


def test_a_live_model_is_described_as_its_file_is(tmp_path: Path) -> None:
    model = built("everything", "mixed_float16")
    compare(model, load_graph(model).graph)
    compare_variables(model, load_graph(model), "live")


def test_a_policy_that_was_changed_later_counts_for_a_live_model() -> None:
    model = built("encoder", "float32")
    for layer in model.layers:
        layer.dtype_policy = "mixed_bfloat16"
    kinds = {node.compute_dtype for node in load_graph(model).graph.nodes if node.kind is OpKind.MATMUL}
    assert kinds == {"bfloat16"}


def test_a_subclassed_model_is_one_node_that_nothing_is_known_of(tmp_path: Path) -> None:
    @keras.saving.register_keras_serializable()
    class Mine(keras.Model):
        def __init__(self, **kwargs: object) -> None:
            super().__init__(**kwargs)
            self.inside = keras.layers.Dense(3, dtype="mixed_float16")

        def call(self, x: object) -> object:
            return self.inside(x)

    model = Mine()
    model(np.zeros((1, 5), "float32"))
    model.save(tmp_path / "mine.keras")
    found = load_graph(tmp_path / "mine.keras")
    (node,) = found.graph.nodes
    assert node.kind is OpKind.OPAQUE
    assert sorted(tensor.shape for tensor in node.weights.values()) == [(3,), (5, 3)]
    assert "Python code" in found.notes[0]
    live = load_graph(model)
    assert [(n.op_type, n.compute_dtype, n.variable_dtype) for n in live.graph.nodes] == [("Dense", "float16", "float32")]


def test_a_lambda_and_a_custom_layer_are_opaque_and_never_run(tmp_path: Path) -> None:
    @keras.saving.register_keras_serializable(package="Own")
    class Dense(keras.layers.Layer):
        def call(self, x: object) -> object:
            return x * 2

    keras.config.set_dtype_policy("mixed_float16")
    given = keras.Input((3,))
    cast = keras.layers.Lambda(lambda x: keras.ops.cast(x, "float32"), name="cast")(Dense(name="own")(given))
    model = keras.Model(given, keras.layers.Lambda(lambda x: x + 1, name="last")(keras.layers.ReLU(name="relu")(cast)))
    model.save(tmp_path / "model.keras")
    nodes = {node.name: node for node in load_graph(tmp_path / "model.keras").graph.nodes}
    assert {name for name, node in nodes.items() if node.kind is OpKind.OPAQUE} == {"own", "cast", "last"}
    dtypes = {name: node.outputs[0].dtype for name, node in nodes.items()}
    assert dtypes == {"own": None, "cast": None, "relu": "float16", "last": None}  # Keras itself takes "cast" for float16


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_the_optimizer_and_its_loss_scaling_are_read_from_the_file(suffix: str, tmp_path: Path) -> None:
    for policy, scaled in (("mixed_float16", True), ("float32", False)):
        keras.config.set_dtype_policy(policy)
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
        model.compile("adam", "mse")
        model.fit(np.zeros((2, 4)), np.zeros((2, 2)), verbose=0)
        model.save(tmp_path / f"model.{suffix}")
        found = load_graph(tmp_path / f"model.{suffix}")
        assert found.policy == policy
        assert found.optimizer is not None
        assert (found.optimizer.name, found.optimizer.loss_scaling) == ("Adam", scaled)
        assert {tensor.dtype for tensor in found.optimizer.tensors} == {"float32", "int64"}


def compare(model: keras.Model, graph: Graph) -> None:
    """Policies, and dtypes and shapes of all inputs and outputs, of every layer of a model and of the models in it."""
    functional = getattr(model, "_functional", model)
    nodes: dict[str, list[Node]] = {}
    for node in graph.nodes:
        nodes.setdefault(node.name.partition(" (call")[0], []).append(node)
    theirs = {id(call) for calls in functional._nodes_by_depth.values() for call in calls}
    seen = 0
    for operation in functional._operations:
        if isinstance(operation, keras.layers.InputLayer):
            continue
        calls = [call for call in operation._inbound_nodes if id(call) in theirs]
        assert len(nodes[operation.name]) == len(calls), operation.name
        for call, node in zip(calls, nodes[operation.name], strict=True):
            seen += 1
            where = (model.name, operation.name)
            assert node.op_type == type(operation).__name__, where
            if isinstance(operation, keras.layers.Layer) and not isinstance(operation, keras.Model):
                assert (node.compute_dtype, node.variable_dtype) == (operation.compute_dtype, operation.variable_dtype), where
            same(node.inputs, call.input_tensors, where)
            same(node.outputs, call.output_tensors, where)
        if isinstance(operation, keras.Model):
            compare(operation, nodes[operation.name][0].graphs["body"])
    assert seen == len(graph.nodes)
    same(graph.inputs, functional.inputs, (model.name, "inputs"))
    same(graph.outputs, functional.outputs, (model.name, "outputs"))


def same(found: object, expected: object, where: object) -> None:
    """The tensors that come out of a layer or go in, those that nobody reads left aside where the file does not know of them."""
    tensors = [tensor for tensor in found if tensor is not None and tensor.weights is None]  # numbers are operands, too
    theirs = list(expected)
    assert tensors or not theirs, where
    for tensor, other in zip(tensors, theirs, strict=False):
        assert (tensor.dtype, tensor.shape) == (other.dtype, tuple(other.shape)), (where, tensor.described, other)
    assert len(tensors) <= len(theirs), where


def compare_variables(model: keras.Model, found: ModelGraph, suffix: str) -> None:
    """Every variable of every layer, with its values."""
    by_layer: dict[str, list[Tensor]] = {}
    for node in found.nodes():
        by_layer.setdefault(f"{node.layer}/{node.name}".lstrip("/"), list(node.weights.values()))
    pending: list[tuple[str, object]] = [("", layer) for layer in model.layers]
    compared = 0
    while pending:
        scope, layer = pending.pop()
        if isinstance(layer, keras.Model):
            pending += [(f"{scope}{layer.name}/", inner) for inner in layer.layers]
            continue
        variables = [v for v in layer.weights if "seed" not in v.path]
        if not variables:
            continue
        tensors = by_layer[f"{scope}{layer.name}"]
        assert sorted((str(v.dtype), tuple(v.shape)) for v in variables) == sorted((t.dtype, t.shape) for t in tensors), layer.name
        stored = [values(tensor) for tensor in tensors]
        for variable in variables:
            expected = np.asarray(variable.numpy()).reshape(-1)
            assert any(part.dtype == expected.dtype and np.array_equal(part, expected) for part in stored), variable.path
            compared += 1
    assert compared == len(list(found.constants()))  # each once, although wrappers and their parts both have them


def values(tensor: Tensor) -> np.ndarray:
    """All values of a tensor, read in pieces."""
    assert tensor.weights is not None
    return np.concatenate(list(tensor.weights.chunks(4096)))
