"""The models that benchmarks/graphs.py checks."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper

LAYERS, WIDTH, INNER, VOCABULARY = 32, 4096, 11008, 32000


class Builder:
    """A float16 model whose weights lie one after the other in a sparse file."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.size = 0
        self.parameters = 0

    def weight(self, name: str, *shape: int) -> str:
        """A weight of zeros in the data file."""
        count = 1
        for dim in shape:
            count *= dim
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT16, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "7b.data"), ("offset", str(self.size)), ("length", str(2 * count))):
            tensor.external_data.add(key=key, value=value)
        self.weights.append(tensor)
        self.size += 2 * count
        self.parameters += count
        return name

    def node(self, operation: str, *inputs: str, **attributes: object) -> str:
        """A node with one output, named after it."""
        name = f"/{operation}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, inputs, [f"{name}_output"], name=name, **attributes))
        return f"{name}_output"

    def layer(self, number: int, x: str) -> str:
        """Attention and a gated feed-forward block."""
        at = f"layers.{number}"
        h = self.node("LayerNormalization", x, self.weight(f"{at}.norm1", WIDTH))
        q, k, v = (self.node("MatMul", h, self.weight(f"{at}.{part}", WIDTH, WIDTH)) for part in "qkv")
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 2, 1]))
        probabilities = self.node("Softmax", scores, axis=-1)
        x = self.node("Add", x, self.node("MatMul", self.node("MatMul", probabilities, v), self.weight(f"{at}.o", WIDTH, WIDTH)))
        h = self.node("LayerNormalization", x, self.weight(f"{at}.norm2", WIDTH))
        gate, up = (self.node("MatMul", h, self.weight(f"{at}.{part}", WIDTH, INNER)) for part in ("gate", "up"))
        inner = self.node("Mul", self.node("Mul", gate, self.node("Sigmoid", gate)), up)
        return self.node("Add", x, self.node("MatMul", inner, self.weight(f"{at}.down", INNER, WIDTH)))


def language_model(folder: Path) -> Path:
    """The 7-billion-parameter model."""
    build = Builder()
    x = build.node("Gather", build.weight("tokens", VOCABULARY, WIDTH), "ids")
    for number in range(LAYERS):
        x = build.layer(number, x)
    logits = build.node("MatMul", x, build.weight("head", WIDTH, VOCABULARY))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])
    result = helper.make_tensor_value_info(logits, TensorProto.FLOAT16, ["batch", "length", VOCABULARY])
    graph = helper.make_graph(build.nodes, "model", [ids], [result], build.weights)
    path = folder / "7b.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    with open(folder / "7b.data", "wb") as stream:
        stream.truncate(build.size)
    print(f"7b.onnx: {build.parameters / 1e9:.2f} billion parameters, {build.size / 1e9:.1f} GB of external data")
    return path


def long_chain(folder: Path) -> Path:
    """6,000 nodes with weights of 16 KB each, within the file."""
    nodes, weights, x = [], [], "x"
    for number in range(2000):
        weights.append(helper.make_tensor(f"w{number}", TensorProto.FLOAT, [64, 64], bytes(4 * 64 * 64), raw=True))
        nodes.append(helper.make_node("MatMul", [x, f"w{number}"], [f"a{number}"]))
        nodes.append(helper.make_node("Add", [f"a{number}", "x"], [f"b{number}"]))
        nodes.append(helper.make_node("Relu", [f"b{number}"], [f"c{number}"]))
        x = f"c{number}"
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in ("x", x))
    graph = helper.make_graph(nodes, "chain", [given], [made], weights)
    path = folder / "6000.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path
