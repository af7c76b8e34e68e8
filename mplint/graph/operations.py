"""One name for the same operation in every format: "exp" for ONNX's Exp, `aten.exp.default`, Keras' Exp and TensorFlow's Exp."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from mplint.graph.model import Node, Tensor

if TYPE_CHECKING:
    import numpy as np

_SYNONYMS = {
    "multiply": "mul",
    "subtract": "sub",
    "subtraction": "sub",
    "divide": "div",
    "truediv": "div",
    "truedivide": "div",
    "realdiv": "div",
    "power": "pow",
    "square": "square",
    "addv2": "add",
    "addn": "sum",
    "negative": "neg",
    "negate": "neg",
    "absolute": "abs",
    "maximum": "max",
    "minimum": "min",
    "rectifier": "relu",
    "where": "where",
    "select": "where",
    "selectv2": "where",
    "reducesum": "reducesum",
    "sum": "sum",
    "amax": "reducemax",
    "amin": "reducemin",
    "reducemean": "reducemean",
    "mean": "mean",
    "clamp": "clip",
    "clipbyvalue": "clip",
    "hardtanh": "clip",
    "silu": "swish",
    "pow2": "square",
    "maskedfill": "maskedfill",
    "logsumexp": "reducelogsumexp",
    "norm": "norm",
    "linalgvectornorm": "norm",
    "reducel2": "reducel2",
    "logsoftmax": "logsoftmax",
}
_PREFIX = re.compile(r"^(?:torch\.ops\.)?(?:aten|prims)(?:\.|::)")


def operation(node: Node) -> str:
    """The lower-case name of a node's operation without namespace, overload and underscores."""
    return _plain(node.op_type)


@cache
def _plain(name: str) -> str:
    text = _PREFIX.sub("", name).partition(".")[0].replace("_", "").lower()
    return _SYNONYMS.get(text, text)


def chunks(tensor: Tensor) -> Iterator[np.ndarray]:
    """The elements of a constant in flat arrays, none for anything else."""
    if tensor.weights is not None:
        yield from tensor.weights.chunks()


def constant(tensor: Tensor | None, limit: int = 1) -> tuple[float, ...] | None:
    """The values of a constant of at most `limit` elements; None for a larger one, and for what is no constant of numbers."""
    if tensor is None or tensor.weights is None or tensor.dtype in (None, "string", "complex64", "complex128"):
        return None
    size = tensor.size
    if size is None or not 0 < size <= limit:
        return None
    return tuple(float(value) for chunk in chunks(tensor) for value in chunk.tolist())


def number(tensor: Tensor | None) -> float | None:
    """The value of a scalar constant, None for anything else."""
    values = constant(tensor)
    return values[0] if values else None
