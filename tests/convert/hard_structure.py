"""Hard models by structure: functions, names, order, versions, and everything in a file that is not computation."""

from __future__ import annotations

import numpy as np
import onnx
from hard_case import Case, W, X, c, i, n
from onnx import TensorProto, helper, numpy_helper


def taken_names(model: onnx.ModelProto) -> None:
    """Names that a converter would make up."""
    del model.graph.value_info[:]
    for node, name in zip(model.graph.node, ("Cast_0", "Cast_a_float16", "graph_input_cast_0", ""), strict=False):
        node.name = name


def described(model: onnx.ModelProto) -> None:
    """Everything that describes and does not compute."""
    helper.set_model_props(model, {"author": "me", "labels": "a,b"})
    model.doc_string, model.graph.doc_string, model.domain, model.model_version = "doc", "graph doc", "org.example", 7
    model.producer_name, model.producer_version = "maker", "3.1"
    for entry in (*model.graph.node, *model.graph.input, *model.graph.output, *model.graph.initializer):
        entry.doc_string = f"doc of {entry.name}"
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["rows", 8]))
    note = model.graph.quantization_annotation.add(tensor_name="a")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.1).reshape(()), "scale"))


def trained(model: onnx.ModelProto) -> None:
    """Information for training."""
    info = model.training_info.add()
    info.algorithm.CopyFrom(
        helper.make_graph(
            [helper.make_node("Add", ["W", "W"], ["W_new"])],
            "step",
            [],
            [helper.make_tensor_value_info("W_new", TensorProto.FLOAT, [8, 8])],
        )
    )
    info.update_binding.add(key="W", value="W_new")


def typed_data(model: onnx.ModelProto) -> None:
    """A weight as a list of numbers instead of raw bytes."""
    values = numpy_helper.to_array(model.graph.initializer[0])
    model.graph.initializer[0].CopyFrom(helper.make_tensor("W", TensorProto.FLOAT, values.shape, values.ravel().tolist()))


CASES: dict[str, Case] = {
    # --- functions
    "function_in_two_precisions": Case(
        "a function whose one call could be half and whose other must not",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[4,8] x, float[4,8] z) => (float[4,8] y, float[4,8] w) { y = f.layer(x, W) w = f.layer(z, W) }
           <domain: "f", opset_import: ["" : 17]> layer (p, w) => (q) { m = MatMul(p, w) q = Relu(m) }""",
        {"x": n(4, 8), "z": n(4, 8, std=2e5)},
        W,
        heavy=2,
        half=1,
        tolerance=0.003,
    ),
    "function_with_optional_input": Case(
        "a function whose last input is left out",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[4,8] x) => (float[4,8] y) { a = f.layer(x, low) y = MatMul(a, W) }
           <domain: "f", opset_import: ["" : 17]> layer (p, l, h) => (q) { q = Clip(p, l, h) }""",
        X,
        W | {"low": c(-0.5)},
    ),
    "function_named_as_an_operator": Case(
        "a function Relu of another domain beside the operator Relu",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[4,8] x) => (float[4,8] y) { a = f.Relu(x) b = Relu(a) y = MatMul(b, W) }
           <domain: "f", opset_import: ["" : 17]> Relu (p) => (q) { z = Constant<value_float=-0.5>() q = Max(p, z) }""",
        X,
        W,
    ),
    "function_with_control_flow": Case(
        "a function that holds an If whose branches read its inputs",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[4,8] x, bool c) => (float[4,8] y) { y = f.choose(x, W, c) }
           <domain: "f", opset_import: ["" : 17]> choose (p, w, s) => (q) { m = MatMul(p, w)
             q = If(s) <then_branch = t () => (u) { u = Relu(m) }, else_branch = e () => (v) { v = MatMul(m, w) }> }""",
        X | {"c": c(False, np.bool_)},
        W,
        heavy=2,
    ),
    "function_overloads": Case(
        "two functions of one name that differ in their overload",
        """<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
           g (float[4,8] x) => (float[4,8] y) { a = f.act:one(x) b = f.act:two(a) y = MatMul(b, W) }
           <domain: "f", overload: "one", opset_import: ["" : 21]> act (p) => (q) { q = Relu(p) }
           <domain: "f", overload: "two", opset_import: ["" : 21]> act (p) => (q) { q = Tanh(p) }""",
        X,
        W,
    ),
    "function_with_constants_of_its_caller": Case(
        "a function whose constants are attributes that two callers give differently, one beyond the range",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[4,8] x) => (float[4,8] y) { a = f.scale<by = 0.5>(x) b = f.scale<by = 100000.0>(a) d = f.scale<by = 0.00001>(b) y =
           MatMul(d, W) }
           <domain: "f", opset_import: ["" : 17]> scale <by> (p) => (q) { k = Constant<value_float: float = @by>() q = Mul(p, k) }""",
        X,
        W,
    ),
    "function_called_in_a_loop": Case(
        "a function that only the body of a Loop calls",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[4,8] x) => (float[4,8] y) { k = Constant<value_int=3>()
             y = Loop(k, , x) <body = b (int64 n, bool c, float[4,8] h) => (bool d, float[4,8] o) { d = Identity(c) o = f.layer(h, W) }> }
           <domain: "f", opset_import: ["" : 17]> layer (p, w) => (q) { m = MatMul(p, w) q = Tanh(m) }""",
        X,
        W,
    ),
    "function_casts_like": Case(
        "a function in the style of exporters: constants are cast to the type of an input",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[4,8] x) => (float[4,8] y) { a = f.gelu(x) y = MatMul(a, W) }
           <domain: "f", opset_import: ["" : 17]> gelu (p) => (q) { k = Constant<value_float=1.702>() l = CastLike(k, p)
             s = Mul(p, l) g = Sigmoid(s) q = Mul(p, g) }""",
        X,
        W,
    ),
    "function_for_integers_and_floats": Case(
        "a function that is called with integers and with floats",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[4,8] x, int64[4,8] k) => (float[4,8] y, int64[4,8] j) { a = f.double(x) j = f.double(k) y = MatMul(a, W) }
           <domain: "f", opset_import: ["" : 17]> double (p) => (q) { q = Add(p, p) }""",
        X | {"k": i(0, 9, 4, 8)},
        W,
    ),
    "function_with_reference_in_heavy_operator": Case(
        "a convolution in a function whose strides come from the caller",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[1,4,9,9] x) => (float[1,4,4,4] y) { y = f.conv<s = [2, 2]>(x, K) }
           <domain: "f", opset_import: ["" : 17]> conv <s> (p, w) => (q) { m = Conv<strides: ints = @s>(p, w) q = Relu(m) }""",
        {"x": n(1, 4, 9, 9)},
        {"K": n(4, 4, 3, 3, std=0.2)},
    ),
    # --- names and order
    "names_are_taken": Case(
        "tensors and nodes that bear the names which converters make up",
        """g (float[4,8] x) => (float[4,8] y, float[4,8] a_float16, float[4,8] x_float16, float[4,8] y_float32)
           { x_float16 = Neg(x) a = MatMul(x_float16, W) a_float16 = Relu(a) a_cast_to_float = Add(a_float16, W_float16)
             y_float32 = Identity(a_cast_to_float) y = MatMul(a_cast_to_float, W) }""",
        X,
        W | {"W_float16": n(8)},
        heavy=2,
        change=taken_names,
    ),
    "names_with_odd_characters": Case(
        "names with slashes, dots, colons and letters beyond ASCII",
        'g (float[4,8] "x:0") => (float[4,8] "/a.b/Größe;0") { "t/1 2" = MatMul("x:0", "W") "/a.b/Größe;0" = Relu("t/1 2") }',
        {"x:0": n(4, 8)},
        W,
    ),
    "dead_nodes": Case(
        "nodes whose results nobody reads, and weights that nobody uses",
        "g (float[4,8] x) => (float[4,8] y) { dead = MatMul(x, U) deader = Exp(dead) y = MatMul(x, W) }",
        X,
        W | {"U": n(8, 8), "unused": n(100)},
        heavy=2,
    ),
    # --- inputs and outputs
    "one_weight_is_output_and_input_of_all": Case(
        "a weight that is an output under its own name and shared by three matmuls",
        "g (float[8,8] x) => (float[8,8] y, float[8,8] W) { a = MatMul(x, W) b = MatMul(W, a) y = MatMul(b, W) }",
        {"x": n(8, 8)},
        W,
        heavy=3,
    ),
    "outputs_along_the_way": Case(
        "every tensor of a chain is an output too",
        """g (float[4,8] x) => (float[4,8] a, float[4,8] b, float[4,8] d, float[4,8] y)
           { a = MatMul(x, W) b = Relu(a) d = MatMul(b, W) y = Tanh(d) }""",
        X,
        W,
        heavy=2,
    ),
    "unused_input": Case(
        "inputs that nobody reads: a float, a text and an integer",
        "g (float[4,8] x, float[3] u, string[2] s, int64 k) => (float[4,8] y) { y = MatMul(x, W) }",
        X | {"u": n(3), "s": lambda rng: np.array(["a", "b"]), "k": c(3, np.int64)},
        W,
    ),
    "all_sizes_open": Case(
        "open sizes with and without names, computed shapes and a Reshape to them",
        """g (float[B,T,8] x) => (float[B,T,8] y) { s = Shape(x) b = Gather(s, zero) t = Gather(s, one) n = Mul(b, t) m = Unsqueeze(n, at)
           r = Concat<axis=0>(m, last) f = Reshape(x, r) a = MatMul(f, W) y = Reshape(a, s) }""",
        {"x": n(2, 3, 8)},
        W | {"zero": c(0, np.int64), "one": c(1, np.int64), "at": c([0], np.int64), "last": c([8], np.int64)},
    ),
    "size_zero": Case(
        "an input without elements runs through a matmul and a concatenation",
        "g (float[N,8] past, float[4,8] x) => (float[M,8] all, float[M,8] y) { all = Concat<axis=0>(past, x) y = MatMul(all, W) }",
        {"past": n(0, 8), "x": n(4, 8)},
        W,
    ),
    # --- versions and descriptions
    "opset_1_initializers": Case(
        "ir version 3 with all initializers as inputs and axes as attributes",
        """<ir_version: 3, opset_import: ["" : 9]> g (float[1,4,6,6] x, float[4,4,3,3] K, float[4] B) => (float[1,4] y)
           { a = Conv<pads=[1,1,1,1]>(x, K, B) m = ReduceMean<axes=[2,3], keepdims=0>(a) u = Unsqueeze<axes=[2]>(m) y =
           Squeeze<axes=[2]>(u) }""",
        {"x": n(1, 4, 6, 6)},
        {},
        change=lambda model: model.graph.initializer.extend(
            numpy_helper.from_array(np.random.default_rng(3).normal(0, 0.2, s).astype(np.float32), k)
            for k, s in (("K", (4, 4, 3, 3)), ("B", (4,)))
        ),
    ),
    "opset_7_batch_norm_and_upsample": Case(
        "opset 7: BatchNormalization with its spatial attribute, Upsample, Dropout and broadcasting",
        """<ir_version: 3, opset_import: ["" : 7]> g (float[1,4,6,6] x, float[4] s, float[4] b, float[4] m, float[4] v, float[2,4,1,1]
           K) => (float[1,2,12,12] y)
           { a = BatchNormalization<epsilon=0.001>(x, s, b, m, v) d = Dropout<ratio=0.5>(a) u = Upsample<mode="nearest",
           scales=[1.0,1.0,2.0,2.0]>(d)
             y = Conv(u, K) }""",
        {"x": n(1, 4, 6, 6), "s": c(np.ones(4)), "b": n(4), "m": n(4), "v": c(np.full(4, 0.5)), "K": n(2, 4, 1, 1)},
    ),
    "opset_6": Case(
        "opset 6, in which ONNX Runtime can't multiply",
        """<ir_version: 3, opset_import: ["" : 6]> g (float[4,8] x, float[8,8] W) => (float[4,8] y)
           { a = MatMul(x, W) b = Tanh(a) y = MatMul(b, W) }""",
        X | W,
        {},
        heavy=2,
    ),
    "opset_25": Case(
        "the newest opset",
        "g (float[B,4,8] x) => (float[B,4,8] y) { a = RMSNormalization<axis=-1>(x, s) b = Sigmoid(a) y = MatMul(b, W) }",
        {"x": n(2, 4, 8)},
        W | {"s": c(np.ones(8))},
        opset=25,
    ),
    "everything_described": Case(
        "metadata, doc strings, versions, value types and quantization notes",
        "g (float[rows,8] x) => (float[rows,8] y) { a = MatMul(x, W) y = Relu(a) }",
        X,
        W,
        change=described,
    ),
    "numbers_as_text_fields": Case(
        "weights stored as lists of numbers",
        "g (float[4,8] x) => (float[4,8] y) { y = MatMul(x, W) }",
        X,
        W,
        change=typed_data,
    ),
    "training_information": Case(
        "a graph for training beside the model",
        "g (float[4,8] x) => (float[4,8] y) { y = MatMul(x, W) }",
        X,
        W,
        change=trained,
    ),
    "sparse_constant": Case(
        "a Constant node with a sparse value",
        "g (float[4,8] x) => (float[4,8] y) { V = Constant() a = MatMul(x, V) y = MatMul(a, W) }",
        X,
        W,
        heavy=2,
        change=lambda model: model.graph.node[0].attribute.append(
            helper.make_attribute(
                "sparse_value",
                helper.make_sparse_tensor(
                    helper.make_tensor("v", TensorProto.FLOAT, [2], [1.5, -2.0]),
                    helper.make_tensor("k", TensorProto.INT64, [2], [3, 20]),
                    [8, 8],
                ),
            )
        ),
    ),
    "no_floats": Case(
        "a model of integers alone",
        "g (int64[4,8] k) => (int64[4,8] j) { s = Add(k, one) j = Mul(s, s) }",
        {"k": i(0, 9, 4, 8)},
        {"one": c(1, np.int64)},
        heavy=0,
    ),
    "no_nodes": Case(
        "a model without nodes",
        "g (float[4,8] x) => (float[4,8] x, float[8,8] W) { }",
        X,
        W,
        heavy=0,
    ),
    "half_all_over": Case(
        "a model that is float16 already, inputs and outputs too",
        "g (float16[4,8] x) => (float16[4,8] y) { a = MatMul(x, V) y = Relu(a) }",
        {"x": lambda rng: rng.normal(0, 1, (4, 8)).astype(np.float16)},
        {"V": lambda rng: rng.normal(0, 0.3, (8, 8)).astype(np.float16)},
        heavy=0,
    ),
    "half_in_parts": Case(
        "float16 weights that are cast up before each use",
        "g (float[4,8] x) => (float[4,8] y) { w = Cast<to=1>(V) a = MatMul(x, w) b = Relu(a) v = Cast<to=1>(U) y = MatMul(b, v) }",
        X,
        {k: lambda rng: rng.normal(0, 0.3, (8, 8)).astype(np.float16) for k in "VU"},
        heavy=2,
    ),
    "bfloat16_in_parts": Case(
        "bfloat16 weights that are cast up",
        "g (float[4,8] x) => (float[4,8] y) { v = Cast<to=16>(W) w = Cast<to=1>(v) y = MatMul(x, w) }",
        X,
        W,
    ),
    "double_all_over": Case(
        "a model in float64 with one float32 part",
        "g (double[4,8] x) => (double[4,8] y) { a = MatMul(x, V) f = Cast<to=1>(a) b = MatMul(f, W) y = Cast<to=11>(b) }",
        {"x": lambda rng: rng.normal(0, 1, (4, 8))},
        W | {"V": lambda rng: rng.normal(0, 0.3, (8, 8))},
    ),
    "texts": Case(
        "texts beside numbers: a label is chosen by the result",
        "g (float[4,8] x) => (float[4,8] y, int64[4] k) { y = MatMul(x, W) z = Gather(labels, first) e = Equal(z, z) k = Cast<to=7>(e) }",
        X,
        W | {"labels": lambda rng: np.array(["a", "b"], dtype=object), "first": c([0, 1, 0, 1], np.int64)},
        opset=19,
    ),
}
