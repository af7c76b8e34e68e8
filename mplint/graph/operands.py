"""Constant operands: what is known of the tensors that no input of a model changes, whatever way a format has of writing them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from mplint.graph.flow import source
from mplint.graph.model import FLOATS, Literal, OpKind, Tensor
from mplint.graph.operations import chunks
from mplint.graph.ranges import Range

SCANNED = 64 << 20  # bytes of one constant that are looked at, and of all together
FREE = 4096  # bytes of a constant that don't count
FOLDED = (OpKind.ELEMENTWISE, OpKind.ACTIVATION)
DEPTH = 40
INTEGERS = frozenset(("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"))


class Operand(NamedTuple):
    """A constant that a node reads: where its values lie, and the lowest and the highest of them.

    Infinite elements count only where there are no others; `infinity` is one of them, 0 where all are finite. `exact`: the operation
    computes with the number itself, however narrow the tensor beside it.
    """

    tensor: Tensor
    low: float
    high: float
    infinity: float = 0.0
    exact: bool = False

    @property
    def value(self) -> float | None:
        """The number that all elements are; None where they differ."""
        return self.low if self.low == self.high and not self.infinity else None

    @property
    def largest(self) -> float:
        """The element of the largest magnitude, with its sign."""
        return self.low if abs(self.low) > abs(self.high) else self.high

    def rounded(self, dtype: str) -> bool:
        """Whether the values are kept in `dtype`, so that what it can't hold is lost already."""
        return self.tensor.dtype == dtype and not isinstance(self.tensor.weights, Literal)


class Operands:
    """The constant operands of one model, each looked at once; `torch`: a constant without shape is as exact as a number."""

    def __init__(self, range_of: Callable[[Tensor], Range], *, torch: bool) -> None:
        self.range_of = range_of
        self.torch = torch
        self.left = SCANNED
        self.found: dict[int, Operand | None] = {}

    def of(self, tensor: Tensor, depth: int = 0) -> Operand | None:
        """The operand that a tensor is; None for data, and for weights beyond the bounds of what is looked at."""
        origin = source(tensor)
        key = id(origin)
        if key not in self.found:
            self.found[key] = None  # while its own operands are looked at
            self.found[key] = self._stored(origin) if origin.weights is not None else self._folded(origin, depth)
        return self.found[key]

    def _stored(self, tensor: Tensor) -> Operand | None:
        if isinstance(tensor.weights, Literal):
            value = tensor.weights.value
            return None if math.isnan(value) else Operand(tensor, value, value, value if math.isinf(value) else 0.0, tensor.weights.exact)
        size = tensor.nbytes
        if not size or size > self.left or (tensor.dtype not in FLOATS and (size > FREE or tensor.dtype not in INTEGERS)):
            return None
        self.left -= size if size > FREE else 0
        found = _scanned(tensor)
        return found._replace(exact=True) if found is not None and self.torch and tensor.shape == () else found

    def _folded(self, tensor: Tensor, depth: int) -> Operand | None:
        """A constant expression of constants."""
        node = tensor.producer
        if node is None or node.kind not in FOLDED or depth > DEPTH or tensor.dtype not in FLOATS or not node.inputs:
            return None
        if not all(t is not None and self.of(t, depth + 1) is not None for t in node.inputs):
            return None
        known = self.range_of(tensor)
        return Operand(tensor, known.low, known.high) if known.bounded else None


def _scanned(tensor: Tensor) -> Operand | None:
    import numpy as np

    low, high, infinity = math.inf, -math.inf, 0.0
    for chunk in chunks(tensor):
        if not chunk.size:
            continue
        first, last = float(chunk.min()), float(chunk.max())
        if not (math.isfinite(first) and math.isfinite(last)):
            wide = chunk.astype(np.float32) if chunk.dtype.kind != "f" else chunk
            infinite = wide[np.isinf(wide)]
            infinity = float(infinite[0]) if infinite.size else infinity
            wide = wide[np.isfinite(wide)]
            if not wide.size:
                continue
            first, last = float(wide.min()), float(wide.max())
        low, high = min(low, first), max(high, last)
    if low > high:
        return Operand(tensor, infinity, infinity, infinity) if infinity else None
    return Operand(tensor, low, high, infinity)
