"""Norms, logarithms, long sums and rounding on inputs that are no normal numbers around 0, which made-up inputs do not stand for.

`half` is how many heavy operations can be half on the real inputs.
"""

from __future__ import annotations

import numpy as np
from hard_case import Case, Make, b, c, i, n, u
from hard_inputs import LAST, W, wave


def rows(scales: list[float], width: int) -> Make:
    """Rows of very different size."""
    return lambda rng: (rng.normal(0, 1, (len(scales), width)) * np.array(scales)[:, None]).astype(np.float32)


NUMERICS: dict[str, Case] = {
    # --- normalizations and their epsilons
    "norm_of_vectors": Case(
        "an L2 norm of activations of several hundred: squares reach 1e6",
        "g (float[4,8] x) => (float[4,8] y) { r = ReduceL2<axes=[1], keepdims=1>(x) m = Max(r, eps) d = Div(x, m) y = MatMul(d, W) }",
        {"x": n(4, 8, std=600)},
        W | {"eps": c(1e-12)},
    ),
    "norm_by_lp": Case(
        "LpNormalization of large rows",
        "g (float[4,8] x) => (float[4,8] y) { d = LpNormalization<axis=1>(x) y = MatMul(d, W) }",
        {"x": n(4, 8, std=600)},
        W,
    ),
    "instance_norm_by_hand": Case(
        "instance normalization written out, on tiny and on large maps",
        """g (float[2,3,16,16] x) => (float[2,4,14,14] y) { m = ReduceMean<axes=[2,3]>(x) d = Sub(x, m) q = Mul(d, d)
           v = ReduceMean<axes=[2,3]>(q)
           e = Add(v, eps) s = Sqrt(e) z = Div(d, s) y = Conv(z, K) }""",
        {"x": lambda rng: (rng.normal(0, 1, (2, 3, 16, 16)) * np.array([1e-3, 1, 900]).reshape(1, 3, 1, 1)).astype(np.float32)},
        {"eps": c(1e-8), "K": n(4, 3, 3, 3, std=0.2)},
    ),
    "standard_scores_of_a_row": Case(
        "mean and deviation over a row of raw values of 1e5",
        """g (float[4,8] x) => (float[4,8] y) { m = ReduceMean<axes=[1]>(x) d = Sub(x, m) q = Pow(d, two)
           v = ReduceMean<axes=[1]>(q) s = Sqrt(v)
           e = Add(s, eps) z = Div(d, e) y = MatMul(z, W) }""",
        {"x": n(4, 8, mean=3e5, std=5e4)},
        W | {"two": c(2.0), "eps": c(1e-5)},
    ),
    "layer_norm_of_large": Case(
        "a LayerNormalization of values of 1e5",
        "g (float[4,8] x) => (float[4,8] y) { z = LayerNormalization<axis=-1, epsilon=1e-12>(x, s, t) y = MatMul(z, W) }",
        {"x": n(4, 8, mean=1e5, std=3e4)},
        W | {"s": c(np.ones(8)), "t": c(np.zeros(8))},
    ),
    "rms_with_reciprocal": Case(
        "an RMS norm by Pow(-0.5) with an epsilon of 1e-6 on rows from 1e-3 to 3000",
        """g (float[4,8] x) => (float[4,8] y) { q = Pow(x, two) v = ReduceMean<axes=[1]>(q) e = Add(v, eps) r = Pow(e, minus) z = Mul(x, r)
           a = Mul(z, s) y = MatMul(a, W) }""",
        {"x": rows([1e-2, 1.0, 50.0, 3000.0], 8)},
        W | {"two": c(2.0), "minus": c(-0.5), "eps": c(1e-6), "s": c(np.ones(8))},
    ),
    "cosine_of_two": Case(
        "cosine similarity with an epsilon of 1e-8 under the product of the norms",
        """g (float[4,8] a, float[4,8] b) => (float[4,8] y) { p = Mul(a, b) n = ReduceSum<keepdims=1>(p, last) u = Mul(a, a)
           s = ReduceSum<keepdims=1>(u, last) v = Mul(b, b) t = ReduceSum<keepdims=1>(v, last) m = Mul(s, t) r = Sqrt(m) e = Max(r, eps)
           o = Div(n, e) z = Mul(a, o) k = Div(z, size) y = MatMul(k, W) }""",
        {"a": n(4, 8, std=80), "b": n(4, 8, std=80)},
        W | LAST | {"eps": c(1e-8), "size": c(80.0)},
    ),
    "whitening": Case(
        "a covariance of large activations, inverted on its diagonal",
        """g (float[64,8] x) => (float[64,8] y) { t = Transpose<perm=[1,0]>(x) m = MatMul(t, x) s = Mul(m, part) d = Mul(s, eye)
           v = ReduceSum<keepdims=1>(d, last) r = Sqrt(v) i = Reciprocal(r) k = Transpose<perm=[1,0]>(i) z = Mul(x, k)
           y = MatMul(z, W) }""",
        {"x": n(64, 8, std=200)},
        W | LAST | {"part": c(1 / 64), "eye": c(np.eye(8))},
        heavy=2,
        half=1,
    ),
    # --- probabilities, logarithms, exponentials
    "entropy": Case(
        "p·log p of probabilities that go to 1e-12",
        """g (float[4,8] probabilities) => (float[4,1] y) { c = Max(probabilities, eps) l = Log(c) p = Mul(probabilities, l)
           s = ReduceSum<keepdims=1>(p, last) y = Neg(s) }""",
        {"probabilities": lambda rng: rng.dirichlet(np.full(8, 0.05), 4).astype(np.float32)},
        LAST | {"eps": c(1e-12)},
        heavy=0,
    ),
    "log_odds": Case(
        "log(p / (1 - p)) of probabilities near 0 and 1",
        """g (float[4,8] p) => (float[4,8] y) { c = Clip(p, low, high) r = Sub(one, c) q = Div(c, r) l = Log(q) y = MatMul(l, W) }""",
        {"p": lambda rng: (1 / (1 + np.exp(-rng.normal(0, 5, (4, 8))))).astype(np.float32)},
        W | {"low": c(1e-6), "high": c(1 - 1e-6), "one": c(1.0)},
    ),
    "exp_of_scores": Case(
        "exp of scores to 30, divided by their sum",
        """g (float[4,8] x) => (float[4,8] y) { l = MatMul(x, W) m = Mul(l, eight) e = Exp(m)
           s = ReduceSum<keepdims=1>(e, last) p = Div(e, s)
           y = MatMul(p, W) }""",
        {"x": n(4, 8)},
        W | LAST | {"eight": c(8.0)},
        heavy=2,
    ),
    "log_sum_exp_of_large": Case(
        "ReduceLogSumExp of energies of thousands",
        "g (float[4,8] energy) => (float[4,1] y) { y = ReduceLogSumExp<axes=[1], keepdims=1>(energy) }",
        {"energy": u(-80, 900, 4, 8)},
        {},
        heavy=0,
    ),
    "softmax_of_distances": Case(
        "negative squared distances of hundreds under a softmax with a temperature",
        """g (float[4,8] x) => (float[4,8] y) { l = MatMul(x, W) d = Sub(l, point) q = Mul(d, d) m = Mul(q, cold) p = Softmax<axis=-1>(m)
           y = MatMul(p, W) }""",
        {"x": n(4, 8, std=20)},
        W | {"point": n(8, std=10), "cold": c(-0.01)},
        heavy=2,
    ),
    "power_law": Case(
        "a gamma of 2.2 over light that spans 5 decades",
        "g (float[1,3,8,8] radiance) => (float[1,4,6,6] y) { m = Max(radiance, eps) p = Pow(m, gamma) y = Conv(p, K) }",
        {"radiance": lambda rng: (10 ** rng.uniform(-5, 0, (1, 3, 8, 8))).astype(np.float32)},
        {"eps": c(1e-7), "gamma": c(1 / 2.2), "K": n(4, 3, 3, 3, std=0.2)},
    ),
    "tone_mapping": Case(
        "x / (1 + x) of light to 1e5",
        "g (float[1,3,8,8] hdr) => (float[1,4,6,6] y) { o = Add(hdr, one) p = Div(hdr, o) y = Conv(p, K) }",
        {"hdr": lambda rng: (10 ** rng.uniform(-3, 5.3, (1, 3, 8, 8))).astype(np.float32)},
        {"one": c(1.0), "K": n(4, 3, 3, 3, std=0.2)},
    ),
    "cumulative_product": Case(
        "a product over steps as the exp of a sum of logarithms",
        """g (float[2,64] survival) => (float[2,8] y) { l = Log(survival) s = CumSum(l, one) e = Exp(s) t = Slice(e, from, to, one1)
           y = MatMul(t, W) }""",
        {"survival": u(0.85, 1.0, 2, 64)},
        W | {"one": c(1, np.int64), "from": c([56], np.int64), "to": c([64], np.int64), "one1": c([1], np.int64)},
    ),
    "kernel_of_forces": Case(
        "1/r⁶ and 1/r¹² of distances of a few tenths",
        """g (float[4,8] distances) => (float[4,8] y) { i = Reciprocal(distances) p = Pow(i, six) q = Mul(p, p)
           d = Sub(q, p) k = Mul(d, tiny)
           y = MatMul(k, W) }""",
        {"distances": u(0.25, 1.5, 4, 8)},
        W | {"six": c(6.0), "tiny": c(1e-6)},
    ),
    # --- long sums, large products
    "long_mean_by_matmul": Case(
        "a mean over 20,000 steps as a product with ones and a division",
        "g (float[1,20000] x) => (float[1,8] y) { s = MatMul(x, ones) m = Div(s, count) y = MatMul(m, V) }",
        {"x": u(3.0, 7.0, 1, 20000)},
        {"ones": c(np.ones((20000, 8))), "count": c(20000.0), "V": n(8, 8, std=0.3)},
        heavy=2,
    ),
    "energy_of_a_signal": Case(
        "the sum of squares over 16,000 steps under a logarithm",
        """g (float[2,16000] signal) => (float[2,4] y) { q = Mul(signal, signal) s = ReduceSum<keepdims=1>(q, last)
           e = Add(s, eps) l = Log(e)
           y = MatMul(l, V) }""",
        {"signal": wave(2, 16000, scale=1e4)},
        LAST | {"eps": c(1e-9), "V": n(1, 4)},
    ),
    "autocorrelation": Case(
        "products of a signal with its own shifts, divided by its energy",
        """g (float[1,1,64] x) => (float[1,8] y) { p = Slice(x, zero, end, two) r = Transpose<perm=[0,2,1]>(x)
           m = MatMul(x, r) s = Slice(x, eight, full, two)
           q = Mul(p, s) a = ReduceSum<keepdims=1>(q, two) d = Div(a, m) f = Flatten(d) y = MatMul(f, V) }""",
        {"x": wave(1, 1, 64, scale=2e4)},
        {
            "zero": c([0], np.int64),
            "end": c([56], np.int64),
            "eight": c([8], np.int64),
            "full": c([64], np.int64),
            "two": c([2], np.int64),
            "V": n(1, 8),
        },
        heavy=2,
        half=1,
    ),
    "linear_attention": Case(
        "keys and values are summed over 512 steps before they are divided",
        """g (float[1,512,8] x) => (float[1,512,8] y) { q = MatMul(x, Q) k = MatMul(x, K) v = MatMul(x, W) a = Elu(q)
           b = Add(a, one) c = Elu(k)
           d = Add(c, one) t = Transpose<perm=[0,2,1]>(d) m = MatMul(t, v) n = MatMul(b, m) s = ReduceSum<keepdims=1>(d, axis)
           r = Transpose<perm=[0,2,1]>(s) z = MatMul(b, r) y = Div(n, z) }""",
        {"x": n(1, 512, 8)},
        W | {"Q": n(8, 8, std=0.35), "K": n(8, 8, std=0.35), "one": c(1.0), "axis": c([1], np.int64)},
        heavy=6,
    ),
    "gram_matrix": Case(
        "the Gram matrix of feature maps, divided by their size at the end",
        """g (float[1,3,64,64] images) => (float[1,8,8] y) { f = Conv(images, K) r = Relu(f) v = Reshape(r, shape)
           t = Transpose<perm=[0,2,1]>(v) m = MatMul(v, t) d = Div(m, count) y = MatMul(d, W) }""",
        {"images": u(0, 255, 1, 3, 64, 64)},
        W | {"K": n(8, 3, 1, 1, std=0.3), "shape": c([1, 8, 4096], np.int64), "count": c(4096.0)},
        heavy=3,
    ),
    # --- discrete results
    "threshold": Case(
        "a comparison of a large input with a constant",
        "g (float[4,8] x) => (float[4,8] y) { k = Greater(x, limit) f = Cast<to=1>(k) y = MatMul(f, W) }",
        {"x": lambda rng: (rng.integers(0, 6000, (4, 8)) + 0.0).astype(np.float32)},
        W | {"limit": c(3001.5)},
    ),
    "bins": Case(
        "floor of a quotient indexes a table of 4000 rows",
        """g (float[4] x) => (float[4,8] y) { d = Div(x, width) f = Floor(d) k = Cast<to=7>(f) r = Clip(k, zero, top) e = Gather(table, r)
           y = MatMul(e, W) }""",
        {"x": u(0, 400, 4)},
        W | {"width": c(0.1), "zero": c(0, np.int64), "top": c(3999, np.int64), "table": n(4000, 8)},
    ),
    "identifiers_as_floats": Case(
        "ids up to 30,000 come as float32",
        "g (float[2,8] ids) => (float[2,8,8] y) { k = Cast<to=7>(ids) e = Gather(table, k) y = MatMul(e, W) }",
        {"ids": lambda rng: rng.integers(0, 30000, (2, 8)).astype(np.float32)},
        W | {"table": n(30000, 8)},
    ),
    "hash": Case(
        "integers multiplied and taken modulo in float32",
        """g (int64[4] k) => (float[4,8] y) { f = Cast<to=1>(k) m = Mul(f, prime) r = Mod<fmod=1>(m, rows) q = Cast<to=7>(r)
           e = Gather(table, q) y = MatMul(e, W) }""",
        {"k": i(0, 3000, 4)},
        W | {"prime": c(31.0), "rows": c(512.0), "table": n(512, 8)},
    ),
    "truncation": Case(
        "a cast to integers between two casts of half values cuts off what is behind the point",
        "g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, eye) k = Cast<to=6>(a) f = Cast<to=1>(k) y = MatMul(f, W) }",
        {"x": lambda rng: (rng.integers(-9, 9, (4, 8)) + 0.5).astype(np.float32)},
        W | {"eye": c(np.eye(8))},
        heavy=2,
    ),
    "normalization_of_an_input": Case(
        "a LayerNorm written out right behind an input: ONNX Runtime fuses it with the cast before it",
        """g (float[4,8] x) => (float[4,8] y) { m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean<axes=[-1]>(q)
           e = Add(v, eps) r = Sqrt(e) z = Div(d, r) s = Mul(z, scale) t = Add(s, shift) a = MatMul(t, W) b = Relu(a) y = MatMul(b, W) }""",
        {"x": n(4, 8)},
        W | {"two": c(2.0), "eps": c(1e-5), "scale": c(np.ones(8)), "shift": c(np.zeros(8))},
        heavy=2,
    ),
    # --- ordinary models, which must not lose anything
    "plain_perceptron": Case(
        "nothing is hard here",
        "g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) r = Relu(a) s = MatMul(r, W) t = Relu(s) y = MatMul(t, W) }",
        {"x": n(4, 8)},
        W,
        heavy=3,
    ),
    "plain_convolutions": Case(
        "three convolutions, a mean and a classifier",
        """g (float[1,3,16,16] x) => (float[1,4] y) { a = Conv<pads=[1,1,1,1]>(x, K) r = Relu(a) s = Conv<pads=[1,1,1,1]>(r, L) t = Relu(s)
           u = Conv<pads=[1,1,1,1]>(t, L) m = GlobalAveragePool(u) f = Flatten(m) l = MatMul(f, V) y = Softmax(l) }""",
        {"x": n(1, 3, 16, 16)},
        {"K": n(8, 3, 3, 3, std=0.3), "L": n(8, 8, 3, 3, std=0.2), "V": n(8, 4)},
        heavy=4,
    ),
    "plain_attention": Case(
        "attention without any norm, on an input with no name that says anything",
        """g (float[2,16,8] x) => (float[2,16,8] y) { q = MatMul(x, Q) k = MatMul(x, K) v = MatMul(x, W) t = Transpose<perm=[0,2,1]>(k)
           s = MatMul(q, t) d = Mul(s, scale) p = Softmax<axis=-1>(d) a = MatMul(p, v) o = Add(x, a) y = MatMul(o, W) }""",
        {"x": n(2, 16, 8)},
        W | {"Q": n(8, 8, std=0.35), "K": n(8, 8, std=0.35), "scale": c(0.35)},
        heavy=6,
    ),
    "plain_gates": Case(
        "products of linear maps, as in gated layers",
        """g (float[4,8] x) => (float[4,8] y) { a = MatMul(x, W) b = MatMul(x, V) s = Sigmoid(a) h = Mul(a, s)
           g = Mul(h, b) y = MatMul(g, W) }""",
        {"x": n(4, 8)},
        W | {"V": n(8, 8, std=0.35)},
        heavy=3,
    ),
    "plain_mask": Case(
        "a mask of booleans",
        "g (float[4,8] x, bool[4,8] mask) => (float[4,8] y) { o = Where(mask, x, low) p = Softmax<axis=-1>(o) y = MatMul(p, W) }",
        {"x": n(4, 8), "mask": b(4, 8)},
        W | {"low": c(-1e9)},
    ),
}
