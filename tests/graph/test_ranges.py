"""Interval analysis: no value that ONNX's own evaluator computes leaves the bounds, and what is said to be reached is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mplint.graph.facts import GraphFacts
from mplint.graph.load import load_graph
from mplint.graph.model import Attribute, Graph, ModelGraph, Node, OpKind, Tensor
from mplint.graph.numerics import lost_constants, overflowing
from mplint.graph.ranges import ANY, Range, ranges
from mplint.graph.torch.operands import placed
from mplint.targets import Targets

UNARY = (
    *("Relu", "Neg", "Abs", "Exp", "Sqrt", "Log", "Tanh", "Sigmoid", "Erf", "Softplus", "Identity", "Softmax"),
    *("LogSoftmax", "Elu"),
)
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")
REDUCING = ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2")
SHAPE = (3, 8)

steps = st.lists(
    st.tuples(st.sampled_from((*UNARY, *BINARY, *REDUCING, "Clip", "Concat")), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=8,
)
values = st.floats(-50, 50, width=32)


def build(wanted: list[tuple[str, int, int]], constant: float) -> onnx.ModelProto:
    """A model in which each step reads what earlier ones made, all of one shape."""
    nodes, names = [], ["x", "z", "c"]
    for number, (operation, first, second) in enumerate(wanted):
        left, right = names[first % len(names)], names[second % len(names)]
        made = f"v{number}"
        if operation in UNARY:
            nodes.append(helper.make_node(operation, [left], [made]))
        elif operation in BINARY:
            nodes.append(helper.make_node(operation, [left, "two" if operation == "Pow" else right], [made]))
        elif operation == "Clip":
            nodes.append(helper.make_node("Clip", [left, "low", "high"], [made]))
        elif operation == "Concat":
            both = [
                helper.make_node("Concat", [left, right], [f"{made}w"], axis=0),
                helper.make_node("Slice", [f"{made}w", "zero", "rows"], [made]),
            ]
            nodes += both
        else:
            axes = {"axes": [1]} if operation != "ReduceSum" else {}
            inputs = [left, "axis"] if operation == "ReduceSum" else [left]
            nodes.append(helper.make_node(operation, inputs, [f"{made}r"], keepdims=1, **axes))
            nodes.append(helper.make_node("Expand", [f"{made}r", "shape"], [made]))
        names.append(made)
    constants = {"c": np.full(SHAPE, constant, np.float32), "two": np.float32(2), "low": np.float32(-3), "high": np.float32(5)}
    sizes = {"zero": np.array([0]), "rows": np.array([SHAPE[0]]), "axis": np.array([1]), "shape": np.array(SHAPE)}
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in {**constants, **sizes}.items()]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "z")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names[3:]]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, weights), opset_imports=[helper.make_opsetid("", 17)])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps, values, values, values, st.integers(0, 2**32 - 1))
def test_no_value_leaves_its_bounds(
    tmp_path: Path, wanted: list[tuple[str, int, int]], a: float, b: float, constant: float, seed: int
) -> None:
    model = build(wanted, constant)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    graph = load_graph(path)
    low, high = min(a, b), max(a, b)
    bounds = ranges(graph, {"x": (low, high), "z": (-1.0, 2.0)})
    random = np.random.default_rng(seed)
    given_values = {"x": random.uniform(low, high, SHAPE), "z": random.uniform(-1.0, 2.0, SHAPE)}
    given_values["x"][0, :2] = low, high
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(model).run(None, {k: v.astype(np.float32) for k, v in given_values.items()})
    for tensor, result in zip(graph.graph.outputs, results, strict=True):
        bound = bounds.get(id(tensor), Range())
        found = result[np.isfinite(result)]
        slack = 1e-3 * max(1.0, *(abs(v) for v in (bound.low, bound.high) if np.isfinite(v)), 1.0)
        assert (found >= bound.low - slack).all(), (tensor.name, bound, found.min())
        assert (found <= bound.high + slack).all(), (tensor.name, bound, found.max())


def bounds_of(text: str, folder: Path, **inputs: tuple[float, float]) -> dict[str, Range]:
    path = folder / "m.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'), path)
    graph = load_graph(path)
    found = ranges(graph, inputs)
    return {t.name: found[id(t)] for node in graph.nodes() for t in node.outputs if id(t) in found}


def test_declared_inputs_and_bytes_reach_their_bounds(tmp_path: Path) -> None:
    text = "m (uint8[4] p, float[4] x) => (float[4] y) { a = Cast<to=1>(p) b = Mul(a, a) c = Add(x, b) y = Exp(x) }"
    found = bounds_of(text, tmp_path, x=(-2.0, 3.0))
    assert found["b"] == Range(0.0, 65025.0, True)
    assert found["c"].high == 65028.0
    assert found["y"].reached
    assert 20 < found["y"].high < 20.1


def test_softmax_written_out_is_bounded_by_its_maximum(tmp_path: Path) -> None:
    text = "m (float[2, 8] x) => (float[2, 8] y) { m = ReduceMax<axes=[-1], keepdims=1>(x) s = Sub(x, m) y = Exp(s) }"
    assert bounds_of(text, tmp_path)["y"] == Range(0.0, 1.0, False)


def test_difference_of_a_tensor_with_itself_is_not_said_to_be_reached(tmp_path: Path) -> None:
    found = bounds_of("m (float[4] x) => (float[4] y) { a = Relu(x) y = Sub(a, a) }", tmp_path, x=(0.0, 1e5))
    assert not found["y"].reached


def test_layer_normalization_bounds_by_its_width(tmp_path: Path) -> None:
    text = "m (float[2, 64] x) => (float[2, 64] y) <float[64] g = {" + ",".join(["2.0"] * 64) + "}> { y = LayerNormalization(x, g) }"
    assert bounds_of(text, tmp_path)["y"] == Range(-16.0, 16.0, False)


def torch_node(operation: str, low: float, high: float, alpha: int | None = None, **numbers: float) -> Range:
    """The range of one operation of a torch program on an input between `low` and `high` and a number."""
    x, y = Tensor("x", "float32", (4,)), Tensor("y", "float32", (4,))
    inputs = tuple(placed(operation, {"self": x}, numbers, "float32")) if numbers else (x,)
    attributes: dict[str, Attribute] = {"alpha": alpha} if alpha is not None else {}
    node = Node("n", OpKind.ELEMENTWISE, f"aten.{operation}.Tensor", inputs=inputs, outputs=(y,), attributes=attributes)
    graph = ModelGraph("m.pt2", "torch-export", Graph(nodes=[node], inputs=[x], outputs=[y]))
    return ranges(graph, {"x": (low, high)}).get(id(y), ANY)


def test_numbers_in_torch_operations_bound_their_results() -> None:
    assert torch_node("mul", -2.0, 3.0, other=255.0) == Range(-510.0, 765.0, True)
    assert torch_node("mul", -2.0, 3.0, other=-1.0) == Range(-3.0, 2.0, True)
    assert torch_node("add", 0.0, 1.0, other=3) == Range(3.0, 4.0, True)
    assert torch_node("rsub", 0.0, 1.0, other=3) == Range(2.0, 3.0, True)
    assert torch_node("clamp", -5.0, 1.0, max=0.5) == Range(-5.0, 0.5, True)
    assert torch_node("clamp_min", -5.0, 1.0, min=0.5) == Range(0.5, 1.0, True)
    assert torch_node("add", 0.0, 1.0, alpha=2, other=3) == ANY
    assert torch_node("pow", 0.0, 300.0, exponent=2) == Range(0.0, 90000.0, True)
    assert torch_node("mul", -2.0, 3.0) == ANY


def test_an_input_beyond_float16_is_reported_where_it_is_read(tmp_path: Path) -> None:
    text = "m (float[4] x) => (float[4] y) { a = Relu(x) y = Neg(a) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'), tmp_path / "m.onnx")
    targets = Targets(input_ranges={"x": (0.0, 1e6)})
    assert [found.node.op_type for found in overflowing(GraphFacts(load_graph(tmp_path / "m.onnx"), targets))] == ["Relu"]


def test_a_mask_of_a_torch_program_that_float16_cannot_hold_would_raise() -> None:
    x, mask, y = Tensor("x", "float32", (4,)), Tensor("m", "bool", (4,)), Tensor("y", "float32", (4,))

    def effects(value: float) -> list[str]:
        inputs = tuple(placed("masked_fill", {"self": x, "mask": mask}, {"value": value}, None))
        node = Node("n", OpKind.ELEMENTWISE, "aten.masked_fill.Scalar", "", inputs, (y,), compute_dtype="float32")
        graph = ModelGraph("m.pt2", "torch-export", Graph(nodes=[node], inputs=[x, mask], outputs=[y]))
        return [found.effect for found in lost_constants(GraphFacts(graph, Targets()))]

    assert effects(-1e9) == ["raises"]
    assert effects(-1e4) == effects(float("-inf")) == []
