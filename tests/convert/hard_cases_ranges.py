"""Models whose inputs are not normal numbers around 0: made-up inputs hide what overflows, vanishes or cancels on the real ones.

`half` is how many heavy operations can be half on the real inputs.
"""

from __future__ import annotations

import numpy as np
from hard_case import Case, Make, b, c, i, n, u

W = {"W": n(8, 8, std=0.35)}
LAST = {"last": c([1], np.int64)}


def wave(*shape: int, scale: float = 3000.0) -> Make:
    """Sound: a few tones with silence between them."""

    def make(rng: np.random.Generator) -> np.ndarray:
        time = np.arange(shape[-1])
        tones = sum(np.sin(time * rng.uniform(0.01, 1.0) + rng.uniform(0, 6)) * rng.uniform(0.2, 1.0) for _ in range(4))
        return np.asarray((tones * rng.uniform(0.1, 1.0, (*shape[:-1], 1)) + rng.normal(0, 0.01, shape)) * scale / 2).astype(np.float32)

    return make


def basis(rows: int, columns: int, function: np.ufunc) -> Make:
    """The matrix of a Fourier transform."""
    return lambda _: function(2 * np.pi * np.arange(rows)[:, None] * np.arange(columns)[None] / rows).astype(np.float32)


def rows(scales: list[float], width: int) -> Make:
    """Rows of very different size."""
    return lambda rng: (rng.normal(0, 1, (len(scales), width)) * np.array(scales)[:, None]).astype(np.float32)


SPECTRUM = {"cos": basis(64, 33, np.cos), "sin": basis(64, 33, np.sin), "mel": u(0.0, 0.2, 33, 8)}

RANGES: dict[str, Case] = {
    # --- sound
    "log_spectrum_of_integers": Case(
        "the power spectrum of sound in 16-bit steps reaches 1e10, its logarithm is small",
        """g (float[1,20,64] x) => (float[1,20,8] y) { re = MatMul(x, cos) im = MatMul(x, sin) p = Mul(re, re) q = Mul(im, im)
           s = Add(p, q) m = MatMul(s, mel) f = Max(m, floor) l = Log(f) k = Sub(l, mean) y = MatMul(k, W) }""",
        {"x": wave(1, 20, 64, scale=2e4)},
        SPECTRUM | W | {"floor": c(1e-10), "mean": c(14.0)},
        heavy=4,
        half=1,
    ),
    "log_spectrum_of_fractions": Case(
        "the same for sound in ±1: quiet bins are far below what float16 holds",
        """g (float[1,20,64] samples) => (float[1,20,8] y) { re = MatMul(samples, cos) im = MatMul(samples, sin) p = Mul(re, re)
           q = Mul(im, im) s = Add(p, q) m = MatMul(s, mel) f = Max(m, floor) l = Log(f) k = Sub(l, mean) y = MatMul(k, W) }""",
        {"samples": wave(1, 20, 64, scale=1.0)},
        SPECTRUM | W | {"floor": c(1e-10), "mean": c(-2.0)},
        heavy=4,
    ),
    "spectrum_by_convolution": Case(
        "a Fourier transform written as a strided convolution over sound",
        """g (float[1,1,640] waveform) => (float[1,8,20] y) { f = Conv<strides=[32]>(waveform, K) q = Mul(f, f) m = Conv(q, M)
           e = Add(m, eps) l = Log(e) y = Conv(l, V) }""",
        {"waveform": wave(1, 1, 640, scale=2e4)},
        {
            "K": lambda _: np.stack([np.cos(2 * np.pi * k * np.arange(32) / 32) for k in range(16)])[:, None].astype(np.float32),
            "M": u(0.0, 0.3, 8, 16, 1),
            "V": n(8, 8, 1, std=0.3),
            "eps": c(1e-6),
        },
        heavy=3,
        half=1,
    ),
    "sound_divided_by_32768": Case(
        "16-bit sound brought to ±1 first",
        "g (float[1,1,320] x) => (float[1,8,31] y) { a = Div(x, full) h = Conv<strides=[10]>(a, K) y = Relu(h) }",
        {"x": wave(1, 1, 320, scale=3e4)},
        {"full": c(32768.0), "K": n(8, 1, 20, std=0.3)},
    ),
    "decibels": Case(
        "10·log10 of a power, with a floor of 1e-10",
        """g (float[4,8] p) => (float[4,8] y) { f = Clip(p, floor, ) l = Log(f) d = Mul(l, k) e = Add(d, up) z = Div(e, spread)
           y = MatMul(z, W) }""",
        {"p": lambda rng: (10 ** rng.uniform(-9, 6, (4, 8))).astype(np.float32)},
        W | {"floor": c(1e-10), "k": c(4.342945), "up": c(20.0), "spread": c(40.0)},
    ),
    # --- pictures
    "picture_of_255": Case(
        "pixels from 0 to 255 go into a convolution as they are, and a sum over all of them is a mean only later",
        """g (float[1,3,64,64] image) => (float[1,4] y) { h = Conv(image, K) r = Relu(h) s = ReduceSum<keepdims=0>(r, space)
           m = Mul(s, part) y = MatMul(m, V) }""",
        {"image": u(0, 255, 1, 3, 64, 64)},
        {"K": u(0.0, 0.3, 8, 3, 3, 3), "space": c([2, 3], np.int64), "part": c(1 / 3844), "V": n(8, 4, std=0.1)},
        heavy=2,
    ),
    "picture_with_mean_and_deviation": Case(
        "the mean and the deviation that are taken off say that pixels go to 255",
        "g (float[1,3,16,16] x) => (float[1,4,14,14] y) { a = Sub(x, mean) z = Div(a, dev) y = Conv(z, K) }",
        {"x": u(0, 255, 1, 3, 16, 16)},
        {
            "mean": c(np.array([123.7, 116.3, 103.5]).reshape(1, 3, 1, 1)),
            "dev": c(np.array([58.4, 57.1, 57.4]).reshape(1, 3, 1, 1)),
            "K": n(4, 3, 3, 3, std=0.2),
        },
    ),
    "bytes": Case(
        "pixels as bytes",
        "g (uint8[1,8,8,3] x) => (float[1,4,6,6] y) { f = Cast<to=1>(x) t = Transpose<perm=[0,3,1,2]>(f) q = Mul(t, t) y = Conv(q, K) }",
        {"x": lambda rng: rng.integers(0, 256, (1, 8, 8, 3)).astype(np.uint8)},
        {"K": u(0.0, 0.5, 4, 3, 3, 3)},
        half=0,
    ),
    "contrast_of_patches": Case(
        "the variance of pixels around 200 by squares",
        """g (float[1,1,32,32] image) => (float[1,4,5,5] y) { q = Mul(image, image) m = AveragePool<kernel_shape=[4,4], strides=[4,4]>(q)
           e = AveragePool<kernel_shape=[4,4], strides=[4,4]>(image) f = Mul(e, e) v = Sub(m, f) a = Abs(v) s = Sqrt(a) o = Add(s, one)
           l = Log(o) y = Conv(l, K) }""",
        {"image": lambda rng: np.clip(rng.normal(200, 10, (1, 1, 32, 32)), 0, 255).astype(np.float32)},
        {"one": c(1.0), "K": n(4, 1, 4, 4, std=0.3)},
    ),
    # --- tables
    "money": Case(
        "amounts of a million, brought to 0 and 1 by constants",
        "g (float[4,8] x) => (float[4,8] y) { a = Sub(x, mean) z = Mul(a, inverse) y = MatMul(z, W) }",
        {"x": n(4, 8, mean=1e6, std=2e5)},
        W | {"mean": c(np.full(8, 1e6)), "inverse": c(np.full(8, 5e-6))},
    ),
    "money_by_batch_normalization": Case(
        "amounts of a million, brought to 0 and 1 by a BatchNormalization",
        "g (float[4,8] x) => (float[4,8] y) { z = BatchNormalization(x, one, zero, mean, var) y = MatMul(z, W) }",
        {"x": n(4, 8, mean=1e6, std=2e5)},
        W | {"one": c(np.ones(8)), "zero": c(np.zeros(8)), "mean": c(np.full(8, 1e6)), "var": c(np.full(8, 4e10))},
    ),
    "logarithm_of_money": Case(
        "log(1 + amount)",
        "g (float[4,8] amount) => (float[4,8] y) { p = Add(amount, one) l = Log(p) y = MatMul(l, W) }",
        {"amount": lambda rng: np.exp(rng.normal(11, 2, (4, 8))).astype(np.float32)},
        W | {"one": c(1.0)},
    ),
    "columns_of_many_scales": Case(
        "raw columns from 1e-4 to 1e6, each with its own mean and deviation",
        "g (float[4,8] x) => (float[4,8] y) { a = Sub(x, mean) z = Div(a, dev) y = MatMul(z, W) }",
        {"x": lambda rng: (rng.normal(0, 1, (4, 8)) * 10.0 ** np.arange(-3, 5) + 3 * 10.0 ** np.arange(-3, 5)).astype(np.float32)},
        W | {"mean": c(3 * 10.0 ** np.arange(-3, 5)), "dev": c(10.0 ** np.arange(-3, 5))},
    ),
    "minimum_and_maximum": Case(
        "scaled to 0..1 by the least and the largest value of the data",
        "g (float[4,8] x) => (float[4,8] y) { a = Sub(x, low) r = Sub(high, low) z = Div(a, r) y = MatMul(z, W) }",
        {"x": u(1e5, 9e5, 4, 8)},
        W | {"low": c(np.full(8, 1e5)), "high": c(np.full(8, 9e5))},
    ),
    "share_of_the_total": Case(
        "amounts divided by their sum",
        "g (float[4,8] x) => (float[4,8] y) { s = ReduceSum<keepdims=1>(x, last) z = Div(x, s) y = MatMul(z, W) }",
        {"x": u(1e5, 9e5, 4, 8)},
        W | LAST,
    ),
    "seconds_since_1970": Case(
        "times of 1.7e9 whose differences to a reference matter",
        "g (float[4,8] timestamps) => (float[4,8] y) { d = Sub(timestamps, t0) z = Div(d, day) t = Tanh(z) y = MatMul(t, W) }",
        {"timestamps": u(1.7e9, 1.7e9 + 86400 * 3, 4, 8)},
        W | {"t0": c(1.7e9), "day": c(86400.0)},
    ),
    "hour_of_day": Case(
        "integer seconds, of which sine and cosine are taken",
        """g (int64[4,1] seconds) => (float[4,8] y) { f = Cast<to=1>(seconds) a = Mul(f, omega) s = Sin(a) t = Cos(a)
           z = Concat<axis=1>(s, t) y = MatMul(z, V) }""",
        {"seconds": i(0, 86400, 4, 1)},
        {"omega": c(np.array([[7.27e-5, 1.45e-4, 2.9e-4, 5.8e-4]])), "V": n(8, 8, std=0.35)},
    ),
    "counts": Case(
        "integer counts up to 100,000 under a logarithm",
        "g (int64[4,8] counts) => (float[4,8] y) { f = Cast<to=1>(counts) p = Add(f, one) l = Log(p) y = MatMul(l, W) }",
        {"counts": i(0, 100000, 4, 8)},
        W | {"one": c(1.0)},
    ),
    "latitude_and_longitude": Case(
        "distances of a few meters between coordinates in degrees",
        """g (float[4,8] here, float[4,8] there) => (float[4,8] y) { d = Sub(here, there) m = Mul(d, meters) z = Div(m, scale)
           y = MatMul(z, W) }""",
        {"here": lambda rng: (47.3 + rng.normal(0, 1e-3, (4, 8))).astype(np.float32), "there": c(np.full((4, 8), 47.3))},
        W | {"meters": c(111320.0), "scale": c(100.0)},
    ),
    # --- positions, times, lengths
    "sinusoidal_positions": Case(
        "positions to 5000 times frequencies from 1 to 1e-4, under sine and cosine",
        """g (int64[1,16] positions) => (float[1,16,8] y) { f = Cast<to=1>(positions) e = Unsqueeze(f, two) a = Mul(e, omega) s = Sin(a)
           t = Cos(a) z = Concat<axis=-1>(s, t) y = MatMul(z, W) }""",
        {"positions": lambda rng: rng.integers(0, 4980) + np.arange(16)[None]},
        W | {"two": c([2], np.int64), "omega": c(10000.0 ** -np.linspace(0, 1, 4))},
    ),
    "diffusion_timestep": Case(
        "a timestep of up to 1000 as a float",
        """g (float[2] timestep, float[2,8] x) => (float[2,8] y) { e = Unsqueeze(timestep, one) a = Mul(e, omega) s = Sin(a) t = Cos(a)
           z = Concat<axis=-1>(s, t) h = MatMul(z, W) k = Add(h, x) y = MatMul(k, W) }""",
        {"timestep": u(0, 1000, 2), "x": n(2, 8)},
        W | {"one": c([1], np.int64), "omega": c(10000.0 ** -np.linspace(0, 1, 4))},
        heavy=2,
    ),
    "rotary_angles": Case(
        "angles of rotary embeddings for positions to 8000",
        """g (float[1,4,8] x, int64[1,4] position_ids) => (float[1,4,8] y) { f = Cast<to=1>(position_ids) e = Unsqueeze(f, two)
           a = MatMul(e, omega) d = Concat<axis=-1>(a, a) s = Sin(d) t = Cos(d) p, q = Split<axis=-1>(x) m = Neg(q)
           r = Concat<axis=-1>(m, p) v = Mul(x, t) w = Mul(r, s) o = Add(v, w) y = MatMul(o, W) }""",
        {"x": n(1, 4, 8), "position_ids": lambda rng: rng.integers(2049, 8000) + np.arange(4)[None]},
        W | {"two": c([2], np.int64), "omega": c(10000.0 ** -np.linspace(0, 1, 4).reshape(1, 4))},
        heavy=2,
        half=1,
    ),
    "mean_over_lengths": Case(
        "a sum over steps divided by a length that is given",
        """g (float[2,500,8] x, int64[2] lengths) => (float[2,8] y) { s = ReduceSum<keepdims=0>(x, one) f = Cast<to=1>(lengths)
           e = Unsqueeze(f, one) m = Div(s, e) y = MatMul(m, W) }""",
        {"x": n(2, 500, 8, mean=200.0), "lengths": c([500, 400], np.int64)},
        W | {"one": c([1], np.int64)},
    ),
    "mask_from_lengths": Case(
        "positions compared with lengths",
        """g (float[2,3000] x, int64[2,1] lengths) => (float[2,8] y) { f = Cast<to=1>(lengths) k = Less(steps, f) o = Where(k, x, zero)
           l = Slice(o, from, to, one) y = MatMul(l, W) }""",
        {"x": n(2, 3000), "lengths": c([[2999], [2996]], np.int64)},
        W
        | {
            "steps": c(np.arange(3000)[None]),
            "zero": c(0.0),
            "from": c([2992], np.int64),
            "to": c([3000], np.int64),
            "one": c([1], np.int64),
        },
    ),
    "padding_mask": Case(
        "an attention mask of 0 and 1 as integers, and scores of a hundred",
        """g (float[2,8,8] x, int64[2,8] attention_mask) => (float[2,8,8] y) { q = MatMul(x, Q) k = MatMul(x, K) v = MatMul(x, W)
           t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) d = Mul(s, scale) f = Cast<to=1>(attention_mask) r = Sub(one, f)
           n = Mul(r, low) e = Unsqueeze(n, ax) a = Add(d, e) p = Softmax<axis=-1>(a) y = MatMul(p, v) }""",
        {"x": n(2, 8, 8), "attention_mask": c([[1] * 8, [1, 1, 1, 1, 1, 0, 0, 0]], np.int64)},
        W | {"Q": n(8, 8, std=3.0), "K": n(8, 8, std=3.0), "scale": c(0.35), "one": c(1.0), "low": c(-3.4e38), "ax": c([1], np.int64)},
        heavy=5,
        tolerance=0.05,
    ),
    "age_in_days": Case(
        "a Gaussian of differences between days",
        """g (float[4,8] days, float[4,8] x) => (float[4,8] y) { d = Sub(days, middle) q = Mul(d, d) s = Mul(q, k) w = Exp(s) a = Mul(x, w)
           y = MatMul(a, W) }""",
        {"days": u(17000, 20000, 4, 8), "x": n(4, 8)},
        W | {"middle": c(18500.0), "k": c(-1e-6)},
    ),
    # --- geometry
    "boxes_in_pixels": Case(
        "areas of boxes in pixels reach a million, their quotients are below 1",
        """g (float[8,4] boxes, float[8,8] x) => (float[8,8] y) { l, t, r, b = Split<axis=1, num_outputs=4>(boxes) w = Sub(r, l)
           h = Sub(b, t) a = Mul(w, h) m = Transpose<perm=[1,0]>(a) s = Add(a, m) i = Min(a, m) u = Sub(s, i) o = Div(i, u)
           z = Mul(x, o) y = MatMul(z, W) }""",
        {"boxes": lambda rng: np.sort(rng.uniform(0, 1300, (8, 2, 2)), axis=1).reshape(8, 4).astype(np.float32), "x": n(8, 8)},
        W,
        opset=18,
    ),
    "anchors_decoded": Case(
        "boxes from anchors: exp of offsets times sizes of hundreds of pixels",
        """g (float[8,8] x) => (float[8,4] y) { o = MatMul(x, V) c, s = Split<axis=1, num_outputs=2>(o) k = Clip(s, , top) e = Exp(k)
           w = Mul(e, size) m = Mul(c, size) p = Add(m, center) y = Concat<axis=1>(p, w) }""",
        {"x": n(8, 8)},
        {"V": n(8, 4, std=0.2), "top": c(4.135), "size": u(30, 600, 8, 2), "center": u(0, 1300, 8, 2)},
        opset=18,
    ),
    "distances_by_products": Case(
        "|a|² - 2ab + |b|² of points far from the origin cancels",
        """g (float[6,3] points, float[6,8] x) => (float[6,8] y) { q = Mul(points, points) s = ReduceSum<keepdims=1>(q, last)
           t = Transpose<perm=[1,0]>(s) p = Transpose<perm=[1,0]>(points) m = MatMul(points, p) e = Mul(m, two) a = Add(s, t) d = Sub(a, e)
           r = Max(d, zero) k = Mul(r, scale) w = Exp(k) v = MatMul(w, x) y = MatMul(v, W) }""",
        {"points": n(6, 3, mean=100.0), "x": n(6, 8)},
        W | LAST | {"two": c(2.0), "zero": c(0.0), "scale": c(-0.5)},
        heavy=3,
        half=2,
    ),
    "nearest_code": Case(
        "the nearest of a codebook by squared distances",
        """g (float[6,8] x) => (int64[6] y) { q = Mul(x, x) s = ReduceSum<keepdims=1>(q, last) m = MatMul(x, C)
           e = Mul(m, two) d = Sub(s, e)
           f = Add(d, norms) y = ArgMin<axis=1, keepdims=0>(f) }""",
        {"x": n(6, 8)},
        LAST
        | {
            "C": lambda _: np.random.default_rng(3).normal(0, 1, (8, 16)).astype(np.float32),
            "norms": lambda _: (np.random.default_rng(3).normal(0, 1, (8, 16)).astype(np.float32) ** 2).sum(0),
            "two": c(2.0),
        },
        half=None,
    ),
    "projection_of_points": Case(
        "points in space projected to pixels: a division by a depth",
        """g (float[8,3] points) => (float[8,8] y) { p = MatMul(points, camera) a, z = Split<axis=1>(p, parts)
           e = Max(z, near) q = Div(a, e)
           m = Sub(q, middle) k = Div(m, scale) y = MatMul(k, V) }""",
        {"points": lambda rng: np.concatenate([rng.normal(0, 2, (8, 2)), rng.uniform(2, 30, (8, 1))], 1).astype(np.float32)},
        {
            "camera": c([[1200.0, 0, 0], [0, 1200.0, 0], [960, 540, 1]]),
            "parts": c([2, 1], np.int64),
            "near": c(0.1),
            "middle": c([[960.0, 540.0]]),
            "scale": c([[960.0, 540.0]]),
            "V": n(2, 8),
        },
        heavy=2,
        half=2,
    ),
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
