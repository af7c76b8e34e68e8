"""Inputs for a model without calibration data: arrays of what the graph and the names of its inputs say, at several sizes and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.evidence import Evidence

Feed = dict[str, np.ndarray]
# Sizes to try for dimensions that the file leaves open: (the first dimension, all others).
OPEN_DIMS = ((2, 16), (1, 8), (2, 32), (1, 64), (1, 224), (1, 1), (2, 4), (4, 128), (1, 256))
NUMBERS = 1 << 16  # integers of unknown size go up to this


class Kind(NamedTuple):
    """How the floats of a feed are made: their shape of distribution, whether names are believed, and how large unknown integers are."""

    shape: str = "normal"  # "uniform", "rows" (of very different size), "positive"
    named: bool = False
    integers: int = 2
    seed: int = 0


def required(model: ir.Model) -> list[ir.Value]:
    """The inputs that a caller must give."""
    return [value for value in model.graph.inputs if not value.is_initializer()]


def made(
    values: Sequence[ir.Value], known: Mapping[str, Evidence], ranges: Mapping[str, tuple[float, float]], dims: tuple[int, int], kind: Kind
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
    dims: tuple[int, int],
    sizes: dict[str, int],
    kind: Kind,
    rng: np.random.Generator,
) -> np.ndarray:
    shape = []
    for position, dim in enumerate(value.shape or ()):
        if isinstance(dim, int):
            shape.append(dim)
        else:
            name = dim.value if dim.value is not None else f"{value.name}.{position}"
            shape.append(sizes.setdefault(name, dims[0] if position == 0 else dims[1]))
    dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
    if declared is not None:
        low, high = declared
        drawn = rng.uniform(low, high, shape)
        return np.asarray(np.round(drawn) if dtype.kind in "iu" else drawn).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.8)
    if dtype.kind in "iu":
        high = kind.integers if known.limit is None else max(1, known.limit)
        return np.asarray(rng.integers(-high if dtype == np.int8 and high == 128 else 0, high, shape)).astype(dtype)
    if dtype.kind in "OUS":
        return np.full(shape, "a", dtype=object)
    return _floats(shape, known, kind, rng).astype(dtype)


def _floats(shape: Sequence[int], known: Evidence, kind: Kind, rng: np.random.Generator) -> np.ndarray:
    drawn = _standard(shape, kind.shape, rng)
    if known.likely and (known.sure or kind.named):
        mean, spread = known.likely[kind.seed % len(known.likely)]
        if np.broadcast_shapes(mean.shape, spread.shape, drawn.shape) != drawn.shape:
            mean, spread = mean.mean(), spread.max()
        if not known.sure:  # what names say is a range
            return np.asarray(mean + spread * rng.uniform(-1.7, 1.7, shape)) if float(mean) else np.asarray(spread * drawn)
        return np.asarray(mean + spread * drawn)
    return drawn


def _standard(shape: Sequence[int], name: str, rng: np.random.Generator) -> np.ndarray:
    if name == "uniform":
        return rng.uniform(0.0, 1.0, shape)
    if name == "positive":
        return rng.uniform(0.0, 8.0, shape)
    if name == "rows":  # rows of very different size, as the tokens and channels of real data have
        drawn = rng.normal(0.0, 1.0, shape)
        return np.asarray(drawn * np.exp(rng.normal(0.0, 1.5, (*shape[:-1], 1)))) if len(shape) > 1 else drawn
    return rng.normal(0.0, 1.0, shape)
