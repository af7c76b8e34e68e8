"""Inputs for a model without calibration data: arrays of what the graph and the names of its inputs say, at several sizes and seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.evidence import Evidence
from mplint.conversion.plausible import FULL, RATE, SEQUENCES, in_range, is_picture, picture, sequence, sound, time_axis

Feed = dict[str, np.ndarray]
NUMBERS = 1 << 16  # integers of unknown size go up to this
EXACT = 2048  # integers up to here are the same in half: of larger ranges the upper end is tried, too


class Dims(NamedTuple):
    """Sizes for dimensions that the file leaves open: the first one, the others, and the length of a signal."""

    first: int
    other: int
    length: int = RATE


OPEN = ((2, 16), (1, 8), (2, 32), (1, 64), (1, 224), (1, 1), (2, 4), (1, 48), (4, 128), (1, 256), (1, 320))
PICTURES = ((1, 64), (1, 224))
SEARCHED = (64, 256)  # what the first open dimension is where no usual sizes fit, and the largest that another is tried as
LARGE = 1 << 15  # elements of a sample of which a batch holds one: a second would only take its time
LENGTHS = (16000, 32000, 8000, 4096, 1536, 1024, 576, 512, 256)


class Kind(NamedTuple):
    """How the floats of a feed are made: their shape of distribution, whether names are believed, and how large unknown integers are."""

    shape: str = "normal"  # "uniform", "rows" (of very different size; pictures as photographs are), "positive", those of SEQUENCES
    named: bool = False
    integers: int = 2
    seed: int = 0


def required(model: ir.Model) -> list[ir.Value]:
    """The inputs that a caller must give."""
    return [value for value in model.graph.inputs if not value.is_initializer()]


def sizes_to_try(values: Sequence[ir.Value], known: Mapping[str, Evidence]) -> list[Dims]:
    """The sizes of open dimensions to try, the most telling first: a second of sound, a picture of some size, a small batch."""
    found = [Dims(*pair) for pair in OPEN]
    if max(map(_least, values), default=0) > LARGE:
        found = [dims._replace(first=1) for dims in found]
    if any(len(value.shape or ()) == 4 and sum(map(is_open, list(value.shape or ())[1:])) > 1 for value in values):
        found = [*(Dims(*pair) for pair in PICTURES), *found]
    long = [known[value.name or ""].length for value in values if any(map(is_open, value.shape or ()))]
    needed = max((length for length in long if length is not None), default=None)
    if needed is not None:
        lengths = [*([needed] if needed > RATE else []), *LENGTHS]
        found = [Dims(*pair, length) for length in lengths for pair in ((found[0].first, 16), (1, 1))] + found
    return list(dict.fromkeys(found))


def sizes_to_search(values: Sequence[ir.Value], known: Mapping[str, Evidence]) -> list[Dims]:
    """The sizes of open dimensions to try where none of the usual ones fits: a long first one, and with it the others, one by one."""
    unknown = {
        min(at, 1)
        for value in values
        for at, size in enumerate(value.shape or ())
        if is_open(size) and at not in known[value.name or ""].widths
    }
    first, most = SEARCHED
    longer = [Dims(first, 16)] if 0 in unknown else []
    return longer + ([Dims(first, other) for other in range(2, most + 1)] if 1 in unknown else [])


def _least(value: ir.Value) -> int:
    """The elements of one sample of an input, where what the file leaves open is 1."""
    sizes = list(value.shape or ())[1:]
    return math.prod(size for size in sizes if isinstance(size, int) and not is_open(size))


def is_open(dim: object) -> bool:
    """Whether a file leaves a size open; Paddle writes -1 for that."""
    return not isinstance(dim, int) or dim < 0


def signal_axis(value: ir.Value) -> int:
    """The axis of an input that would count the samples of a signal."""
    return time_axis([dim if isinstance(dim, int) and not is_open(dim) else None for dim in value.shape or ()])


def made(
    values: Sequence[ir.Value], known: Mapping[str, Evidence], ranges: Mapping[str, tuple[float, float]], dims: Dims, kind: Kind
) -> Feed:
    """One feed; open dimensions take the sizes of `dims`, equal where they have one name."""
    sizes: dict[str, int] = {}
    rng = np.random.default_rng(kind.seed)
    return {
        value.name or "": _array(value, known[value.name or ""], ranges.get(value.name or ""), dims, sizes, kind, rng) for value in values
    }


def _array(
    value: ir.Value,
    known: Evidence,
    declared: tuple[float, float] | None,
    dims: Dims,
    sizes: dict[str, int],
    kind: Kind,
    rng: np.random.Generator,
) -> np.ndarray:
    shape: list[int] = []
    axis = signal_axis(value)
    for position, dim in enumerate(value.shape or ()):
        if isinstance(dim, int) and not is_open(dim):
            shape.append(dim)
            continue
        name = getattr(dim, "value", None)
        key = f"{value.name}.{position}" if name in (None, "", "?") else str(name)
        is_length = known.length is not None and position == axis
        usual = dims.length if is_length else dims.first if position == 0 else dims.other
        shape.append(sizes.setdefault(key, known.widths.get(position, usual)))
    dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
    if declared is not None:
        low, high = declared
        drawn = rng.uniform(low, high, shape)
        return np.asarray(np.round(drawn) if dtype.kind in "iu" else drawn).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.8)
    if dtype.kind in "iu":
        if known.choices:
            return np.full(shape, known.choices[kind.seed % len(known.choices)], dtype=dtype)
        if known.counts:
            return np.full(shape, dims.length if known.of_signal else dims.other, dtype=dtype)
        high = kind.integers if known.limit is None else max(1, known.limit)
        low = high - max(1, high // 500) if kind.shape == "rows" and high > EXACT else -high if dtype == np.int8 and high == 128 else 0
        return np.asarray(rng.integers(low, high, shape)).astype(dtype)
    if dtype.kind in "OUS":
        return np.full(shape, "a", dtype=object)
    return _floats(shape, known, kind, rng).astype(dtype)


def _floats(shape: Sequence[int], known: Evidence, kind: Kind, rng: np.random.Generator) -> np.ndarray:
    if known.length is not None and not known.sure:
        loud = kind.named and bool(known.likely) and float(known.likely[kind.seed % len(known.likely)][1]) > 1
        return sound(shape, kind.shape, rng) * (FULL if loud else 1.0)
    walks = known.walked is not None and kind.shape in SEQUENCES
    drawn = sequence(shape, known.walked or 0, kind.shape, rng) if walks else _standard(shape, kind.shape, rng)
    if known.likely and (known.sure or kind.named):
        mean, spread = known.likely[kind.seed % len(known.likely)]
        if not (_spreads_over(mean, drawn) and _spreads_over(spread, drawn)):
            mean, spread = mean.mean(), spread.max()
        if not known.sure:
            return in_range(float(mean), float(spread), drawn, rng)
        return np.asarray(mean + spread * drawn)
    return drawn


def _spreads_over(part: np.ndarray, whole: np.ndarray) -> bool:
    """Whether an array says something of each element of another one."""
    pairs = zip(reversed(part.shape), reversed(whole.shape), strict=False)
    return part.ndim <= whole.ndim and all(one in (1, other) for one, other in pairs)


def sounding(like: np.ndarray, kind: Kind, rng: np.random.Generator) -> np.ndarray:
    """Sound of the shape and the peak of a signal."""
    return np.asarray(sound(like.shape, kind.shape, rng) * np.max(np.abs(like), initial=0.0)).astype(like.dtype)


def _standard(shape: Sequence[int], name: str, rng: np.random.Generator) -> np.ndarray:
    if name == "uniform":
        return rng.uniform(0.0, 1.0, shape)
    if name == "positive":
        return rng.uniform(0.0, 8.0, shape)
    if name == "rows" and is_picture(shape):
        return picture(shape, rng)
    if name == "rows":  # rows of very different size, as the tokens and channels of real data have
        drawn = rng.normal(0.0, 1.0, shape)
        return np.asarray(drawn * np.exp(rng.normal(0.0, 1.5, (*shape[:-1], 1)))) if len(shape) > 1 else drawn
    return rng.normal(0.0, 1.0, shape)
