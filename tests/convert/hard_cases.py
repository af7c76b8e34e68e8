"""Models that converters to half break, by structure or by numbers, in ONNX's own text. Each is valid and runs in float32."""

from __future__ import annotations

import hard_control
import hard_operators
import hard_quantized
import hard_structure
import numpy as np
from hard_case import Case, W, X, c, i, n, u

__all__ = ["CASES", "Case"]

CASES: dict[str, Case] = {
    # --- dtypes written as attributes
    "cast_to_attribute": Case(
        "casts of integers to float32 must be retargeted",
        "g (int64[4,8] k) => (float[4,8] y) { f = Cast<to=1>(k) y = MatMul(f, W) }",
        {"k": i(0, 9, 4, 8)},
        W,
    ),
    "constant_of_shape": Case(
        "the value of a ConstantOfShape is a float32 attribute",
        """g (float[4,8] x) => (float[4,8] y) { s = Shape(x) z = ConstantOfShape<value = float[1] {0.5}>(s) a = Add(x, z) y = MatMul(a,
           W) }""",
        X,
        W,
    ),
    "eye_like": Case(
        "the dtype of EyeLike is an attribute",
        "g (float[4,8] x) => (float[4,8] y) { e = EyeLike<dtype=1>(x) a = Add(x, e) y = MatMul(a, W) }",
        X,
        W,
    ),
    "range_has_no_half": Case(
        "Range exists in float32 and not in float16",
        "g (float[4,8] x) => (float[4,8] y) { r = Range(zero, eight, one) a = Mul(x, r) y = MatMul(a, W) }",
        X,
        W | {"zero": c(0.0), "eight": c(8.0), "one": c(1.0)},
    ),
    "one_hot_values": Case(
        "the values of a OneHot are typed apart from its indices",
        "g (int64[4] k) => (float[4,8] y) { h = OneHot<axis=-1>(k, depth, values) y = MatMul(h, W) }",
        {"k": i(0, 8, 4)},
        W | {"depth": c(8, np.int64), "values": c([0.0, 1.0])},
    ),
    "double_island": Case(
        "a part in float64 between casts",
        "g (float[4,8] x) => (float[4,8] y) { d = Cast<to=11>(x) e = Mul(d, d) f = Cast<to=1>(e) y = MatMul(f, W) }",
        X,
        W,
    ),
    "half_already": Case(
        "a part in float16 already",
        "g (float[4,8] x) => (float[4,8] y) { h = Cast<to=10>(x) r = Relu(h) f = Cast<to=1>(r) y = MatMul(f, W) }",
        X,
        W,
    ),
    # --- integers and discrete results
    "argmax_output": Case(
        "an integer output must not change",
        "g (float[4,8] x) => (int64[4,1] k) { l = MatMul(x, W) s = Add(l, spread) k = ArgMax<axis=1>(s) }",
        X,
        W | {"spread": c(np.arange(8) * 50.0)},
    ),
    "top_k": Case(
        "values and indices of a TopK",
        "g (float[4,8] x) => (float[4,2] v, int64[4,2] k) { l = MatMul(x, W) s = Add(l, spread) v, k = TopK(s, two) }",
        X,
        W | {"spread": c(np.arange(8) * 50.0), "two": c([2], np.int64)},
    ),
    "positions_above_2048": Case(
        "positions computed in float32 index a table: float16 holds integers up to 2048",
        """g (float[1,8] x, int64[1,1] k) => (float[1,8] y) { f = Cast<to=1>(k) p = Add(f, one) q = Cast<to=7>(p) e = Gather(table, q)
           d = Squeeze(e, first) a = Add(x, d) y = MatMul(a, W) }""",
        {"x": n(1, 8), "k": i(2049, 3999, 1, 1)},
        W | {"one": c(1.0), "table": n(4001, 8), "first": c([1], np.int64)},
    ),
    "non_zero": Case(
        "the number of rows depends on the values",
        """g (float[4,8] x) => (float[N,8] y) { p = Greater(x, zero) f = Cast<to=1>(p) r = ReduceMax<axes=[1], keepdims=0>(f)
           q = Greater(r, zero) z = Compress<axis=0>(x, q) y = MatMul(z, W) }""",
        X,
        W | {"zero": c(0.0)},
    ),
    "floor_and_mod": Case(
        "Mod and Floor jump where rounding moves their input",
        "g (float[4,8] x) => (float[4,8] y) { a = Mul(x, big) m = Mod<fmod=1>(a, seven) f = Floor(m) y = MatMul(f, W) }",
        {"x": u(0, 1, 4, 8)},
        W | {"big": c(3000.3), "seven": c(7.0)},
    ),
    # --- optional, unused and repeated values
    "clip_without_minimum": Case(
        "an optional input that is left out",
        "g (float[4,8] x) => (float[4,8] y) { a = Clip(x, , top) y = MatMul(a, W) }",
        X,
        W | {"top": c(0.5)},
    ),
    "clip_at_1e9": Case(
        "bounds beyond the range of float16 mean no bound",
        "g (float[4,8] x) => (float[4,8] y) { a = Clip(x, low, top) y = MatMul(a, W) }",
        X,
        W | {"low": c(-1e9), "top": c(1e9)},
    ),
    "dropout": Case(
        "Dropout has a ratio of its own type and a mask",
        "g (float[4,8] x) => (float[4,8] y) { a, m = Dropout(x, ratio, train) y = MatMul(a, W) }",
        X,
        W | {"ratio": c(0.5), "train": c(False, np.bool_)},
    ),
    "one_value_twice": Case(
        "one tensor is two outputs of a node's users and an output itself",
        "g (float[4,8] x) => (float[4,8] a, float[4,8] y) { a = MatMul(x, W) y = MatMul(a, W) }",
        X,
        W,
        heavy=2,
    ),
    "weight_as_input": Case(
        "an initializer that a caller may override is an input",
        """<ir_version: 8, opset_import: ["" : 17]>
           g (float[4,8] x, float[8,8] W) => (float[4,8] y) <float[8,8] V> { a = MatMul(x, W) y = MatMul(a, V) }""",
        X,
        {"W": n(8, 8, std=0.35), "V": n(8, 8, std=0.35)},
        heavy=2,
    ),
    "constant_output": Case(
        "an output that is computed from constants",
        "g (float[4,8] x) => (float[4,8] y, float[8,8] z) { z = Mul(W, W) y = MatMul(x, z) }",
        X,
        W,
    ),
    "scalars": Case(
        "tensors of no dimension",
        "g (float[4,8] x, float s) => (float[4,8] y) { t = Mul(s, two) a = Mul(x, t) y = MatMul(a, W) }",
        X | {"s": n()},
        W | {"two": c(2.0)},
    ),
    "empty_tensor": Case(
        "a constant with no element",
        "g (float[4,8] x) => (float[4,8] y) { a = Concat<axis=0>(x, none) y = MatMul(a, W) }",
        X,
        W | {"none": c(np.zeros((0, 8)))},
    ),
    # --- sequences
    "sequences": Case(
        "a sequence of tensors keeps its type",
        """g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) s = SequenceConstruct(a, x) f = SequenceAt(s, zero) y = MatMul(f, W)
           }""",
        X,
        W | {"zero": c(0, np.int64)},
        heavy=2,
    ),
    "split_and_concat_sequence": Case(
        "a tensor is split into a sequence and joined again",
        """g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) s = SplitToSequence<axis=0>(a, two) f = ConcatFromSequence<axis=0>(s)
           y = MatMul(f, W) }""",
        X,
        W | {"two": c(2, np.int64)},
        heavy=2,
    ),
    # --- control flow
    "scan": Case(
        "a Scan over time with a state",
        """g (float[5,8] x, float[8] h) => (float[8] y, float[5,8] s) { y, s = Scan<num_scan_inputs = 1, body = b (float[8] p, float[8] t)
           => (float[8] q, float[8] o) { m = MatMul(p, W) a = Add(m, t) q = Tanh(a) o = Identity(q) }>(h, x) }""",
        {"x": n(5, 8), "h": n(8)},
        W,
    ),
    "if_in_loop": Case(
        "an If in the body of a Loop, with the same inner names in both branches",
        """g (float[4,8] x) => (float[4,8] y) { k = Constant<value_int=3>() t = Constant<value = bool {1}>() a = MatMul(x, W)
           r = Loop(k, t, a) <body = b (int64 n, bool c, float[4,8] h) => (bool d, float[4,8] o)
           { d = Identity(c) one = Constant<value_int=1>() e = Equal(n, one)
             o = If(e) <then_branch = p () => (float[4,8] u) { u = MatMul(h, W) }, else_branch = q () => (float[4,8] v) { v = Relu(h)
             }> }>
           y = MatMul(r, W) }""",
        X,
        W,
        heavy=3,
    ),
    "growing_state": Case(
        "the state of a Loop grows beyond 65504, all else is small",
        """g (float[4,8] x) => (float[4,8] y) { k = Constant<value_int=12>() t = Constant<value = bool {1}>()
           r = Loop(k, t, start) <body = b (int64 n, bool c, float[1] h) => (bool d, float[1] o) { d = Identity(c) o = Mul(h, three) }>
           s = Div(r, r) a = Mul(x, s) y = MatMul(a, W) }""",
        X,
        W | {"start": c([1.0]), "three": c([3.0])},
    ),
    "captured_weight": Case(
        "a branch reads a weight of the graph around it, and so does the graph",
        """g (float[4,8] x, bool c) => (float[4,8] y) { a = MatMul(x, W)
           y = If(c) <then_branch = t () => (float[4,8] u) { u = MatMul(a, W) },
                      else_branch = e () => (float[4,8] v) { v = Mul(a, half) }> }""",
        X | {"c": c(True, np.bool_)},
        W | {"half": c(0.5)},
        heavy=2,
    ),
    # --- functions
    "function_twice": Case(
        "a local function that is called twice with different weights",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[4,8] x) => (float[4,8] y) { a = f.layer(x, W) y = f.layer(a, V) }
           <domain: "f", opset_import: ["" : 17]> layer (p, w) => (q) { m = MatMul(p, w) q = Relu(m) }""",
        X,
        W | {"V": n(8, 8, std=0.35)},
        heavy=2,
    ),
    "function_in_function": Case(
        "functions that call functions, with a constant inside",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[4,8] x) => (float[4,8] y) { y = f.outer(x, W) }
           <domain: "f", opset_import: ["" : 17, "f" : 1]> outer (p, w) => (q) { a = f.inner(p) q = MatMul(a, w) }
           <domain: "f", opset_import: ["" : 17]> inner (p) => (q) { k = Constant<value_float=0.5>() q = Mul(p, k) }""",
        X,
        W,
    ),
    "function_with_attribute": Case(
        "a function whose attribute reaches a node inside",
        """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
           g (float[4,8] x) => (float[4,8] y) { a = f.act<alpha = 0.1>(x) y = MatMul(a, W) }
           <domain: "f", opset_import: ["" : 17]> act <alpha> (p) => (q) { q = LeakyRelu<alpha: float = @alpha>(p) }""",
        X,
        W,
    ),
    # --- operators with mixed types
    "layer_norm_mean": Case(
        "the mean of a LayerNormalization stays float32 and is used",
        "g (float[4,8] x) => (float[4,8] y, float[4,1] m) { a, m, d = LayerNormalization<axis=-1>(x, scale) y = MatMul(a, W) }",
        X,
        W | {"scale": c(np.ones(8))},
    ),
    "group_norm": Case(
        "GroupNormalization of opset 21",
        """<ir_version: 10, opset_import: ["" : 21]>
           g (float[2,8,4] x) => (float[2,8,8] y) { a = GroupNormalization<num_groups=2>(x, s, t) y = MatMul(a, V) }""",
        {"x": n(2, 8, 4)},
        {"s": c(np.ones(8)), "t": c(np.zeros(8)), "V": n(4, 8)},
    ),
    "lstm_states": Case(
        "an LSTM with lengths, states and a hole among its inputs",
        """g (float[5,2,4] x, float[1,2,6] h) => (float[5,1,2,6] y, float[1,2,6] z)
           { y, z = LSTM<hidden_size=6>(x, K, R, , lengths, h) }""",
        {"x": n(5, 2, 4), "h": n(1, 2, 6)},
        {"K": n(1, 24, 4, std=0.3), "R": n(1, 24, 6, std=0.3), "lengths": c([5, 5], np.int32)},
    ),
    "quantized_weights": Case(
        "DequantizeLinear before opset 19 gives float32 alone",
        "g (float[4,8] x) => (float[4,8] y) { w = DequantizeLinear(Q, s, z) y = MatMul(x, w) }",
        X,
        {"Q": lambda rng: rng.integers(-100, 100, (8, 8)).astype(np.int8), "s": c(0.01), "z": c(0, np.int8)},
    ),
    "dynamic_quantization": Case(
        "DynamicQuantizeLinear takes float32 alone",
        """g (float[4,8] x) => (float[4,8] y) { q, s, z = DynamicQuantizeLinear(x) m = MatMulInteger(q, Q, z) f = Cast<to=1>(m)
           a = Mul(f, s) b = Mul(a, t) y = MatMul(b, W) }""",
        X,
        W | {"Q": lambda rng: rng.integers(0, 100, (8, 8)).astype(np.uint8), "t": c(0.01)},
    ),
    "scatter_add": Case(
        "a scatter with a reduction has no half kernel",
        'g (float[4,8] x) => (float[4,8] y) { s = ScatterElements<axis=0, reduction="add">(x, k, v) y = MatMul(s, W) }',
        X,
        W | {"k": c([[0] * 8], np.int64), "v": n(1, 8)},
    ),
    "resize_without_roi": Case(
        "Resize with an empty roi and float32 scales",
        'g (float[1,4,4,4] x) => (float[1,2,8,8] y) { r = Resize<mode="linear">(x, , scales) y = Conv(r, K) }',
        {"x": n(1, 4, 4, 4)},
        {"scales": c([1, 1, 2, 2]), "K": n(2, 4, 1, 1)},
    ),
    "grid_sample": Case(
        "the grid of a GridSample is typed apart from the image",
        "g (float[1,4,4,4] x, float[1,3,3,2] p) => (float[1,2,3,3] y) { s = GridSample(x, p) y = Conv(s, K) }",
        {"x": n(1, 4, 4, 4), "p": u(-1, 1, 1, 3, 3, 2)},
        {"K": n(2, 4, 1, 1)},
    ),
    "roi_align": Case(
        "the boxes of a RoiAlign are coordinates up to 1000",
        """g (float[1,4,64,64] x, float[2,4] r) => (float[2,2,2,2] y)
           { a = RoiAlign<output_height=2, output_width=2, spatial_scale=0.0625>(x, r, k) y = Conv(a, K) }""",
        {"x": n(1, 4, 64, 64), "r": lambda rng: np.sort(rng.uniform(0, 1000, (2, 4)).astype(np.float32), axis=1)},
        {"k": c([0, 0], np.int64), "K": n(2, 4, 1, 1)},
    ),
    "einsum": Case("an equation", 'g (float[4,8] x) => (float[4,8] y) { y = Einsum<equation="ij,jk->ik">(x, W) }', X, W),
    "old_opset": Case(
        "opset 7, in which Where does not exist",
        '<ir_version: 3, opset_import: ["" : 7]> g (float[4,8] x, float[8,8] W) => (float[4,8] y) { a = MatMul(x, W) y = Sigmoid(a) }',
        X | {"W": n(8, 8)},
        {},
    ),
    "old_opset_overflow": Case(
        "opset 7, and one tensor of two overflows",
        """<ir_version: 3, opset_import: ["" : 7]> g (float[4,8] x, float[8,8] W) => (float[4,8] y)
           { a = MatMul(x, W) k = Constant<value = float {300.0}>() m = Mul(a, k) s = Mul(m, m) r = Sqrt(s) d = Div(r, k)
             y = MatMul(d, W) }""",
        X | {"W": n(8, 8)},
        {},
        heavy=2,
    ),
    "contributed_operators": Case(
        "operators of ONNX Runtime's own domain",
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
           g (float[2,4,8] x) => (float[2,4,8] y) { a = com.microsoft.BiasGelu(x, B) y = com.microsoft.FusedMatMul<alpha=0.5>(a, W) }""",
        {"x": n(2, 4, 8)},
        W | {"B": n(8)},
    ),
    "scaler_of_another_domain": Case(
        "ai.onnx.ml has float32 alone",
        """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
           g (float[4,8] x) => (float[4,8] y) { a = ai.onnx.ml.Scaler<offset=[1.0], scale=[0.5]>(x) y = MatMul(a, W) }""",
        X,
        W,
    ),
    # --- numbers
    "variance_by_squares": Case(
        "E[x²] - E[x]² cancels",
        """g (float[4,64] x) => (float[4,8] y) { q = Mul(x, x) m = ReduceMean<axes=[1]>(q) e = ReduceMean<axes=[1]>(x)
           f = Mul(e, e) v = Sub(m, f)
           s = Sqrt(v) d = Sub(x, e) z = Div(d, s) y = MatMul(z, V) }""",
        {"x": n(4, 64, mean=100.0)},
        {"V": n(64, 8, std=0.1)},
    ),
    "difference_of_times": Case(
        "two large inputs whose difference is small",
        "g (float[4,8] a, float[4,8] b) => (float[4,8] y) { d = Sub(a, b) y = MatMul(d, W) }",
        {"a": n(4, 8, mean=3e4), "b": n(4, 8, mean=3e4)},
        W,
        tolerance=0.05,
    ),
    "softmax_by_hand": Case(
        "exp without the maximum taken off first",
        """g (float[4,8] x) => (float[4,8] y) { l = MatMul(x, W) m = Mul(l, six) e = Exp(m) s = ReduceSum<keepdims=1>(e, last) p =
           Div(e, s)
           y = MatMul(p, W) }""",
        X,
        W | {"six": c(6.0), "last": c([1], np.int64)},
        heavy=2,
    ),
    "log_sum_exp": Case(
        "log of a sum of exps of large numbers",
        """g (float[4,8] x) => (float[4,1] y) { l = MatMul(x, W) m = Mul(l, four) e = Exp(m) s = ReduceSum<keepdims=1>(e, last) y =
           Log(s) }""",
        X,
        W | {"four": c(4.0), "last": c([1], np.int64)},
    ),
    "reciprocal_of_small": Case(
        "1/x of numbers around 1e-6",
        """g (float[4,8] x) => (float[4,8] y) { s = Abs(x) t = Mul(s, tiny) u = Add(t, tiny) r = Reciprocal(u) q = Mul(r, tiny)
           y = MatMul(q, W) }""",
        X,
        W | {"tiny": c(1e-6)},
    ),
    "cosine_similarity": Case(
        "an L2 norm with an epsilon that float16 rounds to 0, and a row of zeros",
        """g (float[4,8] x) => (float[4,8] y) { q = Mul(x, x) s = ReduceSum<keepdims=1>(q, last) r = Sqrt(s) m = Max(r, eps) d = Div(x, m)
           y = MatMul(d, W) }""",
        {"x": lambda rng: rng.normal(0, 1, (4, 8)).astype(np.float32) * np.array([[1], [0], [1e-4], [30]], np.float32)},
        W | {"last": c([1], np.int64), "eps": c(1e-8)},
    ),
    "running_sum": Case(
        "a sum over 4000 steps",
        "g (float[1,4000] x) => (float[1,8] y) { s = CumSum(x, one) l = Slice(s, from, to, one1) y = MatMul(l, W) }",
        {"x": u(0.9, 1.1, 1, 4000)},
        W | {"one": c(1, np.int64), "from": c([3992], np.int64), "to": c([4000], np.int64), "one1": c([1], np.int64)},
    ),
    "large_mean": Case(
        "a mean over 200,000 numbers around 2",
        "g (float[1,4,224,224] x) => (float[1,2] y) { s = ReduceSum<keepdims=0>(x, space) m = Div(s, count) y = MatMul(m, V) }",
        {"x": u(1.5, 2.5, 1, 4, 224, 224)},
        {"space": c([2, 3], np.int64), "count": c(50176.0), "V": n(4, 2)},
    ),
}
CASES |= hard_control.CASES | hard_operators.CASES | hard_quantized.CASES | hard_structure.CASES
