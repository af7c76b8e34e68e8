"""Hard models with sequences, optional values, quantization and operators of other domains."""

from __future__ import annotations

import numpy as np
from hard_case import Case, Make, W, X, c, n, u


def q(low: int, high: int, dtype: type, *shape: int) -> Make:
    """Quantized numbers."""
    return lambda rng: rng.integers(low, high, shape).astype(dtype)


Q = {"Q": q(-100, 100, np.int8, 8, 8), "ws": c(0.01), "wz": c(0, np.int8)}
S = {"s": c(0.03), "z": c(0, np.int8)}
MS = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'

CASES: dict[str, Case] = {
    # --- sequences and optional values
    "sequence_insert_and_erase": Case(
        "a sequence that grows, shrinks and is asked for its length",
        """g (float[4,8] x) => (float[4,8] y, int64 l) { e = SequenceEmpty<dtype=1>() a = MatMul(x, W) s = SequenceInsert(e, a) t =
           SequenceInsert(s, x)
           r = SequenceInsert(t, x, zero) o = SequenceErase(r, zero) l = SequenceLength(o) f = SequenceAt(o, zero) y = MatMul(f, W) }""",
        X,
        W | {"zero": c(0, np.int64)},
        heavy=2,
    ),
    "sequence_as_output": Case(
        "a sequence leaves the model",
        "g (float[4,8] x) => (seq(float[4,8]) y) { a = MatMul(x, W) b = Relu(a) y = SequenceConstruct(a, b) }",
        X,
        W,
    ),
    "sequence_state_of_a_loop": Case(
        "a Loop that gathers its results in a sequence",
        """g (float[4,8] x) => (float[12,8] y) { k = Constant<value_int=3>() e = SequenceEmpty<dtype=1>()
           h, s = Loop(k, , x, e) <body = b (int64 n, bool c, float[4,8] p, seq(float[4,8]) q) => (bool d, float[4,8] r,
           seq(float[4,8]) t)
             { d = Identity(c) m = MatMul(p, W) r = Tanh(m) t = SequenceInsert(q, r) }> y = ConcatFromSequence<axis=0>(s) }""",
        X,
        W,
    ),
    "sequence_map": Case(
        "a SequenceMap with a body",
        """g (float[4,8] x) => (float[4,8] y) { s = SplitToSequence<axis=0>(x, two)
           r = SequenceMap(s) <body = b (float[2,8] p) => (float[2,8] o) { m = MatMul(p, W) o = Tanh(m) }> y =
           ConcatFromSequence<axis=0>(r) }""",
        X,
        W | {"two": c(2, np.int64)},
    ),
    "optional_value": Case(
        "a tensor wrapped as an optional value and taken out again",
        """g (float[4,8] x) => (float[4,8] y) { o = Optional(x) h = OptionalHasElement(o) e = OptionalGetElement(o) f = Cast<to=1>(h)
           a = MatMul(e, W) y = Mul(a, f) }""",
        X,
        W,
    ),
    "split_with_uneven_parts": Case(
        "a Split into uneven parts, of which one is unused",
        "g (float[4,8] x) => (float[4,4] y) { a, b, d = Split<axis=1>(x, sizes) e = Concat<axis=1>(b, a) y = MatMul(e, V) }",
        X,
        {"sizes": c([2, 3, 3], np.int64), "V": n(5, 4)},
    ),
    # --- quantization
    "qdq_everywhere_opset_17": Case(
        "weights, biases and activations quantized, with a scale for each channel",
        """g (float[1,4,8,8] x) => (float[1,4,6,6] y) { a = QuantizeLinear(x, s, z) b = DequantizeLinear(a, s, z)
           w = DequantizeLinear<axis=0>(K, ks, kz) v = DequantizeLinear<axis=0>(B, bs, bz) d = Conv(b, w, v) e = Relu(d)
           f = QuantizeLinear(e, s2, z2) y = DequantizeLinear(f, s2, z2) }""",
        {"x": n(1, 4, 8, 8)},
        S
        | {"K": q(-100, 100, np.int8, 4, 4, 3, 3), "ks": u(0.001, 0.003, 4), "kz": c([0] * 4, np.int8)}
        | {"B": q(-900, 900, np.int32, 4), "bs": u(0.0001, 0.0003, 4), "bz": c([0] * 4, np.int32), "s2": c(0.02), "z2": c(0, np.uint8)},
        tolerance=0.05,
        heavy=0,  # it is int8
    ),
    "qdq_opset_21_blocks": Case(
        "int4 weights in blocks, with a scale for each",
        """g (float[4,8] x) => (float[4,8] y) { w = DequantizeLinear<axis=0, block_size=4>(Q, ws, wz) y = MatMul(x, w) }""",
        X,
        {"Q": q(-100, 100, np.int8, 8, 8), "ws": u(0.005, 0.02, 2, 8), "wz": c(np.zeros((2, 8)), np.int8)},
        opset=21,
    ),
    "qdq_opset_19_tiny_scale": Case(
        "scales of 1e-8, which float16 rounds to 0",
        "g (float[4,8] x) => (float[4,8] y) { w = DequantizeLinear(Q, ws, wz) a = Mul(w, big) y = MatMul(x, a) }",
        X,
        {"Q": q(-100, 100, np.int8, 8, 8), "ws": c(1e-9), "wz": c(0, np.int8), "big": c(1e7)},
        opset=19,
    ),
    "float8_weights": Case(
        "weights in float8",
        "g (float[4,8] x) => (float[4,8] y) { f = Cast<to=17>(W) s = Cast<to=1>(f) y = MatMul(x, s) }",
        X,
        W,
        opset=19,
    ),
    "qlinear_operators": Case(
        "QLinearMatMul and QLinearConv between quantization and dequantization",
        """g (float[4,8] x) => (float[4,8] y) { a = QuantizeLinear(x, s, z) m = QLinearMatMul(a, s, z, Q, ws, wz, s2, z)
           d = DequantizeLinear(m, s2, z) y = MatMul(d, W) }""",
        X,
        W | S | Q | {"s2": c(0.1)},
        tolerance=0.05,
    ),
    "matmul_integer": Case(
        "MatMulInteger and ConvInteger with scales beside them",
        """g (float[4,8] x) => (float[4,8] y) { a, s, z = DynamicQuantizeLinear(x) m = MatMulInteger(a, Q, z) f = Cast<to=1>(m) t =
           Mul(s, ws)
           d = Mul(f, t) e = Add(d, b) y = MatMul(e, W) }""",
        X,
        W | {"Q": q(-100, 100, np.int8, 8, 8), "ws": c(0.002), "b": n(8)},
        tolerance=0.03,
    ),
    "large_integer_products": Case(
        "integer products up to 1e6 are cast to float32 and scaled down",
        """g (uint8[4,64] x) => (float[4,8] y) { m = MatMulInteger(x, Q) f = Cast<to=1>(m) d = Mul(f, ws) y = MatMul(d, W) }""",
        {"x": q(0, 255, np.uint8, 4, 64)},
        W | {"Q": q(50, 127, np.int8, 64, 8), "ws": c(1e-6)},
    ),
    # --- com.microsoft
    "ms_skip_layer_norm": Case(
        "SkipLayerNormalization and EmbedLayerNormalization",
        f"""{MS} g (int32[2,4] k) => (float[2,4,8] y) {{ a, m = com.microsoft.EmbedLayerNormalization<epsilon=1e-12>(k, , E, P, , G, B)
           b = com.microsoft.SkipLayerNormalization<epsilon=1e-12>(a, a, G, B, V) y = MatMul(b, W) }}""",
        {"k": lambda rng: rng.integers(0, 16, (2, 4)).astype(np.int32)},
        W | {"E": n(16, 8), "P": n(4, 8), "G": c(np.ones(8)), "B": c(np.zeros(8)), "V": n(8)},
    ),
    "ms_attention": Case(
        "Attention of ONNX Runtime with a mask",
        f"""{MS} g (float[2,4,8] x, int32[2] l) => (float[2,4,8] y) {{ a = com.microsoft.Attention<num_heads=2>(x, K, B, l) y =
           MatMul(a, W) }}""",
        {"x": n(2, 4, 8), "l": c([4, 3], np.int32)},
        W | {"K": n(8, 24, std=0.3), "B": n(24, std=0.1)},
        heavy=2,
    ),
    "ms_multi_head_attention": Case(
        "MultiHeadAttention with a bias and holes among its inputs",
        f"""{MS} g (float[2,4,8] x) => (float[2,4,8] y) {{ a = MatMul(x, W) m = com.microsoft.MultiHeadAttention<num_heads=2>(a, x, x, B)
           y = MatMul(m, W) }}""",
        {"x": n(2, 4, 8)},
        W | {"B": n(24, std=0.1)},
        heavy=3,
    ),
    "ms_fused_operators": Case(
        "FusedConv, FusedGemm, Gelu, QuickGelu and FastGelu",
        f"""{MS} g (float[1,4,6,6] x) => (float[1,8] y) {{ a = com.microsoft.FusedConv<activation="Relu", pads=[1,1,1,1]>(x, K, B) r =
           Flatten(a)
           d = com.microsoft.FusedGemm<activation="Relu">(r, V, C) e = com.microsoft.Gelu(d) f = com.microsoft.QuickGelu<alpha=1.702>(e)
           h = com.microsoft.FastGelu(f) y = MatMul(h, W) }}""",
        {"x": n(1, 4, 6, 6)},
        W | {"K": n(4, 4, 3, 3, std=0.2), "B": n(4), "V": n(144, 8, std=0.1), "C": n(8)},
        heavy=3,
    ),
    "ms_group_query_attention": Case(
        "GroupQueryAttention with past keys and values",
        f"""{MS} g (float[1,1,32] x, float[1,2,8,8] pk, float[1,2,8,8] pv, int32[1] l, int32 t) => (float[1,1,32] y, float[1,2,8,8] nk,
           float[1,2,8,8] nv)
           {{ q = MatMul(x, A) k = MatMul(x, K) v = MatMul(x, V)
             a, nk, nv = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>(q, k, v, pk, pv, l, t) y = MatMul(a, A) }}""",
        {"x": n(1, 1, 32), "pk": n(1, 2, 8, 8), "pv": n(1, 2, 8, 8), "l": c([5], np.int32), "t": c(6, np.int32)},
        {"A": n(32, 32, std=0.2), "K": n(32, 16, std=0.2), "V": n(32, 16, std=0.2)},
        heavy=5,
    ),
    "ms_matmul_nbits": Case(
        "MatMulNBits with packed 4-bit weights",
        f"""{MS} g (float[4,32] x) => (float[4,8] y) {{ a = com.microsoft.MatMulNBits<K=32, N=8, bits=4, block_size=32>(x, P, S4) y =
           MatMul(a, W) }}""",
        {"x": n(4, 32)},
        W | {"P": q(0, 255, np.uint8, 8, 1, 16), "S4": u(0.01, 0.03, 8)},
    ),
    "ms_dynamic_quantize_matmul": Case(
        "DynamicQuantizeMatMul and MatMulIntegerToFloat",
        f"""{MS} g (float[4,8] x) => (float[4,8] y) {{ a = com.microsoft.DynamicQuantizeMatMul(x, Q, ws, wz) y = MatMul(a, W) }}""",
        X,
        W | Q,
        tolerance=0.03,
    ),
    # --- ai.onnx.ml
    "ml_trees": Case(
        "a tree ensemble after a matmul: a threshold must not be crossed",
        """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
           g (float[4,8] x) => (float[4,1] y) { a = MatMul(x, W) r = Mul(a, zero) s = Add(r, x)
             y = ai.onnx.ml.TreeEnsembleRegressor<n_targets=1, nodes_treeids=[0,0,0], nodes_nodeids=[0,1,2], nodes_featureids=[2,0,0],
               nodes_modes=["BRANCH_LEQ","LEAF","LEAF"], nodes_values=[0.0,0.0,0.0], nodes_truenodeids=[1,0,0], nodes_falsenodeids=[2,0,0],
               target_treeids=[0,0], target_nodeids=[1,2], target_ids=[0,0], target_weights=[1.0,-1.0]>(s) }""",
        X,
        W | {"zero": c(0.0)},
    ),
    "ml_normalizer_and_labels": Case(
        "ai.onnx.ml Normalizer, ArrayFeatureExtractor, Binarizer and LabelEncoder around a matmul",
        """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
           g (float[4,8] x) => (float[4,8] y, int64[4] k) { a = ai.onnx.ml.Normalizer<norm="L2">(x) y = MatMul(a, W)
             b = ai.onnx.ml.ArrayFeatureExtractor(x, at) e = ai.onnx.ml.Binarizer<threshold=0.5>(b) f = Cast<to=7>(e) r = Reshape(f, flat)
             k = ai.onnx.ml.LabelEncoder<keys_int64s=[0,1], values_int64s=[7,9]>(r) }""",
        X,
        W | {"at": c([3], np.int64), "flat": c([-1], np.int64)},
    ),
    "ml_zip_map": Case(
        "a ZipMap, whose output is a sequence of maps",
        """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
           g (float[4,8] x) => (int64[4] k, float[4,8] p) { l = MatMul(x, W) p = Softmax<axis=1>(l) s = Add(l, spread)
             k = ArgMax<axis=1, keepdims=0>(s) z = ai.onnx.ml.ZipMap<classlabels_int64s=[0,1,2,3,4,5,6,7]>(p) }""",
        X,
        W | {"spread": c(np.arange(8) * 50.0)},
    ),
    "ml_linear_classifier": Case(
        "a LinearClassifier and an SVM beside a matmul",
        """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
           g (float[4,8] x) => (float[4,8] y, float[4,1] r) { y = MatMul(x, W)
             r = ai.onnx.ml.LinearRegressor<coefficients=[0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8], intercepts=[0.5], targets=1>(y) }""",
        X,
        W,
    ),
    "unknown_indices": Case(
        "an index computed in float and rounded, then used to gather",
        "g (float[4] x) => (float[4,8] y) { a = Mul(x, big) r = Round(a) k = Cast<to=7>(r) e = Gather(T, k) y = MatMul(e, W) }",
        {"x": u(0, 1, 4)},
        W | {"big": c(2999.0), "T": n(3000, 8)},
    ),
}
