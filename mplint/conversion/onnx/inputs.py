"""Inputs for a model without calibration data: made from what the graph shows of its inputs, at several sizes and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

Feed = dict[str, np.ndarray]
# Sizes to try for dimensions that the file leaves open: (the first dimension, all others).
OPEN_DIMS = ((2, 16), (1, 8), (2, 32), (1, 64), (1, 224), (1, 1), (2, 4), (4, 128), (1, 256))
INDEXING = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "OneHot": 0, "ScatterElements": 1, "ScatterND": 1}
PASSING = frozenset(("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Expand", "Transpose", "Slice", "Clip", "Concat"))


def required(model: ir.Model) -> list[ir.Value]:
    """The inputs that a caller must give."""
    return [value for value in model.graph.inputs if not value.is_initializer()]


def generated(model: ir.Model, ranges: Mapping[str, tuple[float, float]], dims: tuple[int, int], kinds: Sequence[str]) -> Iterator[Feed]:
    """One feed for each of `kinds` of floats: "normal", "uniform", "image", "small", "large"; open dimensions take the sizes of `dims`."""
    known: dict[str, int] = {}
    for number, kind in enumerate(kinds):
        rng = np.random.default_rng(number)
        yield {value.name or "": _array(value, ranges.get(value.name or ""), dims, known, kind, rng) for value in required(model)}


def _array(
    value: ir.Value, declared: tuple[float, float] | None, dims: tuple[int, int], known: dict[str, int], kind: str, rng: np.random.Generator
) -> np.ndarray:
    shape = []
    for position, dim in enumerate(value.shape or ()):
        if isinstance(dim, int):
            shape.append(dim)
        else:
            name = dim.value if dim.value is not None else f"{value.name}.{position}"
            shape.append(known.setdefault(name, dims[0] if position == 0 else dims[1]))
    dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
    if declared is not None:
        low, high = declared
        made = rng.uniform(low, high, shape)
        return np.asarray(np.round(made) if dtype.kind in "iu" else made).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.8)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(0, max(1, _limit(value)), shape)).astype(dtype)
    if dtype.kind in "OUS":
        return np.full(shape, "a", dtype=object)
    return np.asarray(_floats(kind, shape, rng)).astype(dtype)


def _floats(kind: str, shape: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    if kind == "uniform":
        return rng.uniform(0.0, 1.0, shape)
    if kind == "small":
        return rng.normal(0.0, 1e-3, shape)
    if kind == "large":
        return rng.normal(0.0, 300.0, shape)
    if kind == "rows":  # rows of very different size, as the tokens and channels of real data have
        made = rng.normal(0.0, 1.0, shape)
        return made * np.exp(rng.normal(0.0, 1.5, (*shape[:-1], 1))) if len(shape) > 1 else made
    return rng.normal(0.0, 1.0, shape)


def _limit(value: ir.Value) -> int:
    """One more than the largest integer that the graph can take at an input: the rows of a table that it indexes, else 2 (a mask)."""
    limits = []
    seen: set[ir.Value] = set()
    stack = [value]
    while stack and len(seen) < 2000:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        for use in current.uses():
            node = use.node
            if INDEXING.get(node.op_type) == use.idx and node.inputs[0] is not None:
                table = node.inputs[0].shape
                axis = node.attributes.get_int("axis", 0) or 0
                rows = table[axis] if table is not None and len(table) > axis else None
                if isinstance(rows, int):
                    limits.append(rows)
            elif (node.op_type in PASSING and use.idx == 0) or node.op_type == "Concat":
                stack += node.outputs
    return min(limits) if limits else 2
