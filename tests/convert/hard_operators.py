"""Hard models by operator: recurrent layers, resizing, scatters, spectra, attention of the new opsets, and odd constants."""

from __future__ import annotations

import numpy as np
from hard_case import Case, W, X, b, c, i, n, u

IMAGE = {"x": n(1, 4, 8, 8)}
K = {"K": n(2, 4, 1, 1)}
LSTM = {"P": n(1, 24, 4, std=0.3), "R": n(1, 24, 6, std=0.3)}

CASES: dict[str, Case] = {
    # --- recurrent layers
    "gru_both_directions": Case(
        "a GRU in both directions whose activations are named, and a linear transformation before the reset",
        """g (float[5,2,4] x) => (float[5,2,2,6] y, float[2,2,6] h) { y, h = GRU<hidden_size=6, direction="bidirectional",
           linear_before_reset=1,
           activations=["Sigmoid","Tanh","Sigmoid","Tanh"]>(x, P, R, B) }""",
        {"x": n(5, 2, 4)},
        {"P": n(2, 18, 4, std=0.3), "R": n(2, 18, 6, std=0.3), "B": n(2, 36, std=0.1)},
    ),
    "rnn_last_state_alone": Case(
        "an RNN of which only the last state is used",
        "g (float[5,2,4] x) => (float[2,3] y) { _0, h = RNN<hidden_size=6>(x, P, R) s = Squeeze(h, zero) y = MatMul(s, V) }",
        {"x": n(5, 2, 4)},
        {"P": n(1, 6, 4, std=0.3), "R": n(1, 6, 6, std=0.3), "zero": c([0], np.int64), "V": n(6, 3)},
        heavy=2,
    ),
    "lstm_with_all_inputs": Case(
        "an LSTM with peepholes, lengths, clipping and reversed direction",
        """g (float[5,2,4] x, float[1,2,6] h, float[1,2,6] k) => (float[5,1,2,6] y, float[1,2,6] hn, float[1,2,6] kn) { y, hn, kn =
           LSTM<hidden_size=6, direction="reverse", clip=3.0, input_forget=0>(x, P, R, B, l, h, k, O) }""",
        {"x": n(5, 2, 4), "h": n(1, 2, 6), "k": n(1, 2, 6)},
        LSTM | {"B": n(1, 48, std=0.1), "l": c([5, 3], np.int32), "O": n(1, 18, std=0.1)},
    ),
    "lstm_at_opset_7": Case(
        "two LSTMs one after the other at opset 7",
        """<ir_version: 3, opset_import: ["" : 7]> g (float[5,2,4] x, float[1,24,4] P, float[1,24,6] R, float[1,24,6] P2, float[1,24,6]
           R2)
           => (float[5,1,2,6] y) { a = LSTM<hidden_size=6>(x, P, R) s = Squeeze<axes=[1]>(a) y = LSTM<hidden_size=6>(s, P2, R2) }""",
        {"x": n(5, 2, 4), "P2": n(1, 24, 6, std=0.3), "R2": n(1, 24, 6, std=0.3)} | LSTM,
        heavy=2,
    ),
    # --- images
    "resize_cubic_to_sizes": Case(
        "a cubic Resize to sizes, antialiased",
        """g (float[1,4,8,8] x) => (float[1,2,5,5] y) { r = Resize<mode="cubic", antialias=1, cubic_coeff_a=-0.5>(x, , , sizes) y =
           Conv(r, K) }""",
        IMAGE,
        K | {"sizes": c([1, 4, 5, 5], np.int64)},
        opset=18,
    ),
    "resize_opset_10": Case(
        "the Resize of opset 10, whose second input is the scales",
        'g (float[1,4,8,8] x) => (float[1,2,16,16] y) { r = Resize<mode="nearest">(x, scales) y = Conv(r, K) }',
        IMAGE,
        K | {"scales": c([1, 1, 2, 2])},
        opset=10,
    ),
    "resize_with_computed_scales": Case(
        "scales that are computed from the sizes of another tensor",
        """g (float[1,4,8,8] x, float[1,1,H,V] t) => (float[1,2,O,P] y) { a = Shape(t) f = Cast<to=1>(a) b = Shape(x) d = Cast<to=1>(b)
           q = Div(f, d)
           h = Slice(q, two, four, zero) s = Concat<axis=0>(ones, h) r = Resize<mode="linear">(x, , s) y = Conv(r, K) }""",
        IMAGE | {"t": n(1, 1, 12, 20)},
        K | {"two": c([2], np.int64), "four": c([4], np.int64), "zero": c([0], np.int64), "ones": c([1, 1])},
        opset=13,
    ),
    "upsample_by_input": Case(
        "the Upsample of opset 9",
        'g (float[1,4,8,8] x) => (float[1,2,16,16] y) { r = Upsample<mode="linear">(x, scales) y = Conv(r, K) }',
        IMAGE,
        K | {"scales": c([1, 1, 2, 2])},
        opset=9,
    ),
    "transposed_convolutions": Case(
        "ConvTranspose with a bias, pooling with indices, MaxUnpool, LpPool and depth to space",
        """g (float[1,4,8,8] x) => (float[1,1,16,16] y) { a = Conv<pads=[1,1,1,1]>(x, C, B) p, k = MaxPool<kernel_shape=[2,2],
           strides=[2,2]>(a)
           m = MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(p, k) l = LpPool<kernel_shape=[3,3], pads=[1,1,1,1], p=2>(m)
           t = ConvTranspose<strides=[2,2], output_padding=[0,0]>(l, T, D) y = Slice(t, from, to, at) }""",
        IMAGE,
        {"C": n(4, 4, 3, 3, std=0.2), "B": n(4), "T": n(4, 1, 2, 2, std=0.2), "D": n(1)}
        | {"from": c([0, 0], np.int64), "to": c([16, 16], np.int64), "at": c([2, 3], np.int64)},
        heavy=2,
    ),
    "deformable_convolution": Case(
        "DeformConv with offsets and a mask",
        "g (float[1,4,8,8] x) => (float[1,2,6,6] y) { o = Conv(x, O) s = Sigmoid(o) y = DeformConv(x, C, o, b, m) }",
        IMAGE,
        {"O": n(18, 4, 3, 3, std=0.05), "C": n(2, 4, 3, 3, std=0.2), "b": n(2), "m": u(0.5, 1.0, 1, 9, 6, 6)},
        heavy=2,
        opset=19,
    ),
    "instance_norm_and_lrn": Case(
        "InstanceNormalization with an epsilon of 1e-9, LRN, and MeanVarianceNormalization",
        """g (float[1,4,8,8] x) => (float[1,2,8,8] y) { a = InstanceNormalization<epsilon=1e-9>(x, s, t) l = LRN<size=3, alpha=0.0001,
           beta=0.75>(a)
           m = MeanVarianceNormalization<axes=[0,2,3]>(l) y = Conv(m, K) }""",
        IMAGE,
        K | {"s": c(np.ones(4)), "t": c(np.zeros(4))},
    ),
    "batch_norm_in_training": Case(
        "BatchNormalization in training mode gives running statistics",
        """g (float[8,4,3,3] x) => (float[8,2,3,3] y, float[4] rm, float[4] rv) { a, rm, rv = BatchNormalization<training_mode=1>(x, s,
           t, m, v)
           y = Conv(a, K) }""",
        {"x": n(8, 4, 3, 3)},
        K | {"s": c(np.ones(4)), "t": c(np.zeros(4)), "m": c(np.zeros(4)), "v": c(np.ones(4))},
    ),
    "affine_grid": Case(
        "AffineGrid and a GridSample of its result",
        """g (float[1,4,8,8] x, float[1,2,3] t) => (float[1,2,6,6] y) { p = AffineGrid(t, size)
           s = GridSample<mode="cubic", padding_mode="reflection">(x, p) y = Conv(s, K) }""",
        IMAGE | {"t": u(-0.5, 0.5, 1, 2, 3)},
        K | {"size": c([1, 4, 6, 6], np.int64)},
        opset=20,
    ),
    "col2im_and_pad": Case(
        "Col2Im, CenterCropPad and Pad with a computed value",
        """g (float[1,16,16] x, float v) => (float[1,2,8,8] y) { a = Col2Im<strides=[2,2]>(x, image, block) p = Pad(a, pads, v) q =
           CenterCropPad<axes=[2,3]>(p, image)
           y = Conv(q, K) }""",
        {"x": n(1, 16, 16), "v": u(0, 1)},
        K | {"image": c([8, 8], np.int64), "block": c([2, 2], np.int64), "pads": c([0, 0, 2, 2, 0, 0, 2, 2], np.int64)},
        opset=18,
    ),
    # --- indices and choices
    "scatters_with_reductions": Case(
        "scatters that add, multiply and take the largest",
        """g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) s = ScatterND<reduction="add">(a, k, v) t = ScatterElements<axis=0,
           reduction="max">(s, e, f)
           r = ScatterND<reduction="mul">(t, k, v) y = MatMul(r, W) }""",
        X,
        W | {"k": c([[0], [2], [0]], np.int64), "v": n(3, 8), "e": c([[1] * 8], np.int64), "f": n(1, 8)},
        heavy=2,
        opset=18,
    ),
    "scatter_without_reduction": Case(
        "scatters that write",
        """g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) s = ScatterND(a, k, v) t = ScatterElements<axis=0>(s, e, f) y =
           MatMul(t, W) }""",
        X,
        W | {"k": c([[0], [2]], np.int64), "v": n(2, 8), "e": c([[1] * 8], np.int64), "f": n(1, 8)},
        heavy=2,
    ),
    "one_hot_unique_nonzero": Case(
        "OneHot, Unique, NonZero and GatherND around a matmul",
        """g (int64[6] k) => (float[6,8] y, int64[M] j) { h = OneHot(k, depth, values) a = MatMul(h, W) z = NonZero(h) t = Transpose(z)
           v = GatherND(h, t) u, f, v2, w = Unique(k) j = Identity(f) e = ReduceSum<keepdims=0>(v) y = Mul(a, e) }""",
        {"k": i(0, 8, 6)},
        W | {"depth": c(8, np.int64), "values": c([0.0, 1.0])},
    ),
    "top_k_of_scores": Case(
        "TopK and NonMaxSuppression of detections on boxes up to 600",
        """g (float[1,12,16] x, float[1,12,4] boxes) => (float[N,4] y) { l = MatMul(x, S) p = Sigmoid(l) t = Transpose<perm=[0,2,1]>(p)
           k = NonMaxSuppression(boxes, t, most, iou, low) q = Gather<axis=1>(k, two) f = Reshape(q, flat) v = Squeeze(boxes, zero) y =
           Gather(v, f) }""",
        {"x": n(1, 12, 16), "boxes": lambda r: np.array([[[50 * j, 40 * j, 50 * j + 30, 40 * j + 25] for j in range(12)]], np.float32)},
        {"S": n(16, 1), "most": c([12], np.int64), "iou": c([0.5]), "low": c([-1.0])}
        | {"two": c([2], np.int64), "flat": c([-1], np.int64), "zero": c([0], np.int64)},
    ),
    "where_with_infinity": Case(
        "a mask of -inf in a Where and an Add of it",
        """g (float[4,8] x, bool[4,8] m) => (float[4,8] y, bool[4,8] z) { a = MatMul(x, W) w = Where(m, zero, low) s = Add(a, w) p =
           Softmax<axis=-1>(s)
           z = IsInf(w) y = MatMul(p, W) }""",
        {"x": n(4, 8), "m": lambda r: (r.random((4, 8)) < 0.7) | (np.arange(8) == 0)},
        W | {"zero": c(0.0), "low": c(-np.inf)},
        heavy=2,
    ),
    "lowest_float_mask": Case(
        "a mask of the lowest float32, added twice, in front of a Softmax",
        """g (float[4,8] x, bool[4,8] m) => (float[4,8] y) { a = MatMul(x, W) f = Cast<to=1>(m) o = Sub(one, f) w = Mul(o, low) s =
           Add(a, w)
           p = Softmax<axis=-1>(s) y = MatMul(p, W) }""",
        {"x": n(4, 8), "m": lambda r: (r.random((4, 8)) < 0.7) | (np.arange(8) == 0)},
        W | {"one": c(1.0), "low": c(float(np.finfo(np.float32).min))},
        heavy=2,
    ),
    # --- constants
    "nan_constant": Case(
        "NaN marks what is missing and is replaced",
        "g (float[4,8] x, bool[4,8] m) => (float[4,8] y) { a = Where(m, x, nan) k = IsNaN(a) f = Where(k, zero, a) y = MatMul(f, W) }",
        X | {"m": b(4, 8)},
        W | {"nan": c(np.nan), "zero": c(0.0)},
    ),
    "denormal_weights": Case(
        "weights of 1e-6 … 1e-9 that a factor of 1e7 brings back",
        "g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, V) y = Mul(a, big) }",
        X,
        {"V": n(8, 8, std=1e-8), "big": c(1e7)},
        half=0,
    ),
    "huge_weights": Case(
        "weights of 1e6 and a factor of 1e-6",
        "g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, V) s = Mul(a, small) y = MatMul(s, W) }",
        X,
        W | {"V": n(8, 8, std=1e6), "small": c(1e-6)},
        heavy=2,
        half=1,
    ),
    "scale_beyond_the_range": Case(
        "a scale of 1e5 beside one of 1e-5",
        "g (float[4,8] x) => (float[4,8] y) { a = Mul(x, big) d = Mul(a, small) y = MatMul(d, W) }",
        X,
        W | {"big": c(1e5), "small": c(1e-5)},
    ),
    "power_of_large_number": Case(
        "Pow with a large exponent and another by an integer",
        """g (float[4,8] x) => (float[4,8] y) { a = Abs(x) p = Pow(a, eight) k = Pow(x, two) s = Add(p, k) q = Pow(s, eighth) y =
           MatMul(q, W) }""",
        X,
        W | {"eight": c(8.0), "two": c(2, np.int64), "eighth": c(0.125)},
    ),
    # --- dtype as an attribute
    "random_of_all_kinds": Case(
        "random numbers with a dtype of their own, times zero",
        """g (float[4,8] x) => (float[4,8] y) { a = RandomNormal<shape=[4,8], seed=1.0>() d = RandomUniformLike<dtype=1, seed=1.0>(x)
           e = RandomNormalLike<seed=1.0>(x) f = Add(a, d) h = Add(f, e) p = Sigmoid(x) l = Bernoulli<seed=1.0>(p) r = Add(h, l) z =
           Mul(r, zero)
           s = Add(x, z) y = MatMul(s, W) }""",
        X,
        W | {"zero": c(0.0)},
    ),
    "like_operators": Case(
        "CastLike, EyeLike without a dtype, and a chain of casts through integers and double",
        """g (float[8,8] x, float[1] t) => (float[8,8] y) { a = EyeLike(x) k = Cast<to=7>(x) d = Cast<to=11>(k) f = CastLike(d, t) e =
           Add(a, f)
           y = MatMul(e, W) }""",
        {"x": n(8, 8, std=3), "t": n(1)},
        W,
        opset=19,
    ),
    "windows_and_spectra": Case(
        "a HannWindow, an STFT and a mel filter bank in front of a matmul",
        """g (float[1,128,1] x) => (float[1,7,8] y) { w = HannWindow<output_datatype=1>(size) s = STFT<onesided=1>(x, step, w, size)
           q = Mul(s, s) p = ReduceSum<keepdims=0>(q, last) m = MelWeightMatrix(bins, size, rate, low, high) e = MatMul(p, m)
           f = Add(e, eps) l = Log(f) y = MatMul(l, W) }""",
        {"x": n(1, 128, 1)},
        W
        | {"size": c(32, np.int64), "step": c(16, np.int64), "last": c([3], np.int64), "bins": c(8, np.int64), "rate": c(16000, np.int64)}
        | {"low": c(0.0), "high": c(8000.0), "eps": c(1e-3)},
        heavy=2,
    ),
    "fourier_transform": Case(
        "a DFT forth and back with a filter between",
        """g (float[1,32,1] x) => (float[1,32,8] y) { f = DFT<axis=1>(x) m = Mul(f, half) d = DFT<axis=1, inverse=1>(m) r = Slice(d,
           zero, one, two)
           y = MatMul(r, V) }""",
        {"x": n(1, 32, 1)},
        {"half": c(0.5), "zero": c([0], np.int64), "one": c([1], np.int64), "two": c([2], np.int64), "V": n(1, 8)},
    ),
    # --- new operators
    "attention_23_with_cache": Case(
        "the Attention of opset 23 with past keys and values, a mask, and present ones as outputs",
        """g (float[1,2,3,8] q, float[1,2,3,8] k, float[1,2,3,8] v, float[1,2,4,8] pk, float[1,2,4,8] pv, bool[3,7] m)
           => (float[1,2,3,8] y, float[1,2,7,8] nk, float[1,2,7,8] nv) { a, nk, nv = Attention<softcap=30.0>(q, k, v, m, pk, pv) y =
           MatMul(a, W) }""",
        {"q": n(1, 2, 3, 8), "k": n(1, 2, 3, 8), "v": n(1, 2, 3, 8), "pk": n(1, 2, 4, 8), "pv": n(1, 2, 4, 8)}
        | {"m": lambda r: (r.random((3, 7)) < 0.7) | (np.arange(7) == 0)},
        W,
        heavy=2,
        opset=23,
    ),
    "attention_23_float_mask": Case(
        "a float mask of -1e30 and a scale of its own",
        """g (float[1,2,3,8] q, bool[3,3] m) => (float[1,2,3,8] y) { f = Where(m, zero, low) a = Attention<scale=0.25>(q, q, q, f) y =
           MatMul(a, W) }""",
        {"q": n(1, 2, 3, 8), "m": lambda r: (r.random((3, 3)) < 0.7) | (np.arange(3) == 0)},
        W | {"zero": c(0.0), "low": c(-1e30)},
        heavy=2,
        opset=23,
    ),
    "rotary_embedding": Case(
        "RotaryEmbedding with caches and position ids",
        """g (float[1,2,6,8] x, int64[1,6] p) => (float[1,2,6,8] y) { r = RotaryEmbedding(x, C, S, p) y = MatMul(r, W) }""",
        {"x": n(1, 2, 6, 8), "p": lambda r: np.arange(6).reshape(1, 6)},
        W | {"C": u(-1, 1, 16, 4), "S": u(-1, 1, 16, 4)},
        opset=23,
    ),
    "rms_normalization": Case(
        "RMSNormalization of rows of very different size with an epsilon of 1e-12",
        "g (float[4,8] x) => (float[4,8] y) { a = RMSNormalization<epsilon=1e-12>(x, s) y = MatMul(a, W) }",
        {"x": lambda r: (r.normal(0, 1, (4, 8)) * np.array([[1], [1e-4], [30], [1e-3]])).astype(np.float32)},
        W | {"s": c(np.ones(8))},
        opset=23,
    ),
    "activations_of_all_kinds": Case(
        "Celu, Selu, Elu, ThresholdedRelu, Shrink, Mish, HardSwish, Hardmax, Softsign and PRelu",
        """g (float[4,8] x) => (float[4,8] y) { a = Celu<alpha=0.5>(x) d = Selu(a) e = Elu(d) f = ThresholdedRelu<alpha=0.1>(e) h =
           Shrink<lambd=0.1>(f)
           m = Mish(h) o = HardSwish(m) p = Softsign(o) q = PRelu(p, s) r = HardSigmoid(q) t = Softplus(r) y = MatMul(t, W) }""",
        X,
        W | {"s": c(0.2)},
        opset=18,
    ),
    "reductions_of_all_kinds": Case(
        "ReduceLogSumExp, ReduceL2, ReduceProd, ReduceSumSquare, LpNormalization and Det",
        """g (float[4,8] x) => (float[4,8] y) { a = ReduceLogSumExp<keepdims=1>(x, last) d = ReduceL2<keepdims=1>(x, last)
           e = ReduceSumSquare<keepdims=1>(x, last) p = LpNormalization<p=2, axis=-1>(x) f = Add(a, d) h = Add(f, e) m = Mul(p, h) y =
           MatMul(m, W) }""",
        X,
        W | {"last": c([-1], np.int64)},
        opset=18,
    ),
    "matmul_of_shapes": Case(
        "a scale computed from a shape: the square root of the last size, in float32",
        """g (float[1,4,8] x) => (float[1,4,4] y) { s = Shape(x) d = Gather(s, two) f = Cast<to=1>(d) r = Sqrt(f) k =
           Transpose<perm=[0,2,1]>(x)
           a = MatMul(x, k) q = Div(a, r) y = Softmax<axis=-1>(q) }""",
        {"x": n(1, 4, 8)},
        {"two": c(2, np.int64)},
    ),
    "number_of_pixels": Case(
        "a mean whose divisor is computed from the sizes of the input",
        """g (float[1,3,H,V] x) => (float[1,2] y) { s = Shape(x) h = Gather(s, two) v = Gather(s, three) m = Mul(h, v) f = Cast<to=1>(m)
           a = ReduceSum<keepdims=0>(x, space) d = Div(a, f) y = MatMul(d, V) }""",
        {"x": u(0, 1, 1, 3, 400, 300)},
        {"two": c(2, np.int64), "three": c(3, np.int64), "space": c([2, 3], np.int64), "V": n(3, 2)},
        opset=13,
    ),
    "blackman_window_in_half": Case(
        "window functions by their dtype attribute, and a range of integers cast to float32",
        """g (float[16] x) => (float[16] y) { w = BlackmanWindow(size) h = HammingWindow<periodic=0>(size) a = Mul(x, w) d = Mul(a, h)
           e = Unsqueeze(d, zero) f = MatMul(e, V) y = Squeeze(f, zero) }""",
        {"x": n(16)},
        {"size": c(16, np.int64), "zero": c([0], np.int64), "V": n(16, 16, std=0.2)},
    ),
    "einsum_of_three": Case(
        "an Einsum of three operands and one without an arrow",
        'g (float[2,4,8] x) => (float[2,4,8] y) { a = Einsum<equation="bij,jk,kl->bil">(x, W, W) y = Einsum<equation="...ij,jk">(a, W) }',
        {"x": n(2, 4, 8)},
        W,
        heavy=2,
    ),
    "gemm_in_all_forms": Case(
        "Gemm transposed, scaled, without a bias and with one that is broadcast",
        """g (float[4,8] x) => (float[4,8] y) { a = Gemm<transB=1, alpha=0.5>(x, W) d = Gemm<beta=2.0>(a, W, s) e = Transpose(d)
           f = Gemm<transA=1>(e, W, B) y = Identity(f) }""",
        X,
        W | {"s": c(0.1), "B": n(1, 8)},
        heavy=3,
    ),
    "time_first": Case(
        "a Transpose of the first two axes in front of a weight: ONNX Runtime crashes where both are half",
        "g (float[2,10,8] x) => (float[10,2,8] y) { a = Concat<axis=2>(x) t = Transpose<perm=[1,0,2]>(a) y = MatMul(t, W) }",
        {"x": n(2, 10, 8)},
        W,
    ),
}
