"""What the loader says of a SavedModel is what TensorFlow says: the dtype and shape of every output of every operation, every variable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.framework
tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from keras_models import APPLICATIONS, OWN  # noqa: E402

from mplint.graph.load import load_graph  # noqa: E402
from mplint.graph.model import Graph, ModelGraph, OpKind  # noqa: E402


@pytest.fixture(autouse=True)
def _float32_again():
    yield
    keras.config.set_dtype_policy("float32")
    keras.utils.clear_session()


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("everything", "mixed_float16"),
        ("images", "mixed_bfloat16"),
        ("encoder", "float32"),
        ("nested", "mixed_float16"),
        ("MobileNetV2", "mixed_float16"),
    ],
)
def test_every_operation_is_as_tensorflow_has_it(name: str, policy: str, tmp_path: Path) -> None:
    keras.config.set_dtype_policy(policy)
    model = (OWN | APPLICATIONS)[name]()
    model.export(tmp_path / "saved", verbose=False)
    found = load_graph(tmp_path / "saved")
    assert [tensor.dtype for tensor in found.graph.outputs] == [tensor.dtype for tensor in model.outputs]
    compare(tmp_path / "saved", found)
    compare_variables(model, found)


def test_a_module_of_tensorflow_is_read(tmp_path: Path) -> None:
    class Scale(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = tf.Variable(tf.fill([3], tf.constant(2.0, tf.bfloat16)), name="factor")

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.bfloat16)])
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return tf.cond(tf.reduce_sum(x) > 0, lambda: x * self.factor, lambda: tf.exp(x) * 1e30)

    module = Scale()
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=module.__call__)
    found = load_graph(tmp_path / "saved")
    compare(tmp_path / "saved", found)
    assert [tensor.described for tensor in found.constants() if tensor.name == "factor"] == ["bfloat16[3]"]
    controls = [node for node in found.nodes() if node.kind is OpKind.CONTROL]
    assert [str(node.attributes["then_branch"]) in found.functions for node in controls] == [True]


def compare(path: Path, found: ModelGraph) -> None:
    """Every operation of the functions that serve, by name; TensorFlow infers the dtypes and shapes anew."""
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((path / "saved_model.pb").read_bytes())
    library = {f.signature.name: f for f in saved.meta_graphs[0].graph_def.library.function}
    # functions that call others need them in the graph that they are read in
    with tf.Graph().as_default():
        tf.graph_util.import_graph_def(tf.compat.v1.GraphDef(library=saved.meta_graphs[0].graph_def.library), name="")
        graphs = {name: function_def_to_graph(library[name]) for name in found.functions}
    compared = 0
    for name, body in found.functions.items():
        compared += compare_body(body, graphs[name])
    assert compared > 3


def compare_body(body: Graph, theirs: tf.Graph) -> int:
    nodes = {node.name: node for node in body.nodes}
    constants = set(body.constants)
    for operation in theirs.get_operations():
        if operation.type in ("Placeholder", "NoOp", "_Arg") or operation.name in constants:
            continue
        node = nodes.pop(operation.name)
        assert node.op_type == operation.type
        for mine, other in zip(node.outputs, operation.outputs, strict=False):
            if ":" in mine.name:
                other = operation.outputs[int(mine.name.rpartition(":")[2])]
            assert mine.dtype == other.dtype.base_dtype.name.replace("half", "float16"), node.described
            if mine.shape is not None and other.shape.rank is not None:
                assert list(mine.shape) == other.shape.as_list(), node.described
    assert not nodes
    return len(theirs.get_operations())


def compare_variables(model: keras.Model, found: ModelGraph) -> None:
    stored = [np.concatenate(list(t.weights.chunks())) for t in found.graph.constants.values() if t.weights is not None]
    for variable in model.weights:
        if "seed" not in variable.path:
            expected = np.asarray(variable.numpy()).reshape(-1)
            assert any(np.array_equal(part, expected) for part in stored), variable.path
