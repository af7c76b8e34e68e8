"""Sounds, pictures, tables, times and places as inputs: made-up inputs hide what overflows, vanishes or cancels on the real ones.

`half` is how many heavy operations can be half on the real inputs.
"""

from __future__ import annotations

import numpy as np
from hard_case import Case, Make, c, i, n, u

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


SPECTRUM = {"cos": basis(64, 33, np.cos), "sin": basis(64, 33, np.sin), "mel": u(0.0, 0.2, 33, 8)}

INPUTS: dict[str, Case] = {
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
}
