"""One name for the same operation in every format: "exp" for ONNX's Exp, `aten.exp.default`, Keras' Exp and TensorFlow's Exp."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from mplint.graph.model import Node, OpKind, Tensor

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
    "clampmin": "clip",
    "clampmax": "clip",
    "clipbyvalue": "clip",
    "hardtanh": "clip",
    "silu": "swish",
    "pow2": "square",
    "maskedfill": "maskedfill",
    "constantofshape": "full",
    "fill": "full",
    "fulllike": "full",
    "newfull": "full",
    "scalartensor": "full",
    "biasadd": "add",
    "biasaddv1": "add",
    "dropoutv2": "dropout",
    "nativedropout": "dropout",
    "spatialdropout1d": "dropout",
    "spatialdropout2d": "dropout",
    "spatialdropout3d": "dropout",
    "featuredropout": "dropout",
    "alphadropout": "dropout",
    "gaussiandropout": "dropout",
    "gaussiannoise": "dropout",
    "logsumexp": "reducelogsumexp",
    "norm": "norm",
    "linalgvectornorm": "norm",
    "reducel2": "reducel2",
    "logsoftmax": "logsoftmax",
}
IDLE = frozenset((OpKind.MOVE, OpKind.CAST, OpKind.SHAPE, OpKind.CHECK, OpKind.CALL, OpKind.CONTROL))
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


# Nodes that make a tensor of one number: their last input is that number, where it is known.
FILL = "full"
# Nodes that move values, but not those of their first input alone.
MIXING = frozenset((
    *("concat", "concatv2", "concatenate", "cat", "stack", "hstack", "vstack", "dstack", "pack", "append", "block_diag"),
    *("zeros", "ones", "zeroslike", "oneslike", "newzeros", "newones", "empty", "emptylike", "newempty", "eyelike", "eye", "onehot"),
    *("range", "arange", "linspace", "meshgrid", "trilindices", "triuindices", "multihot", "categoryencoding", "shape", "size"),
    *("scatter", "scatterelements", "scatternd", "scatteradd", "scatterreduce", "scatterupdate", "indexput", "indexputimpl", "indexfill"),
    *("indexcopy", "indexadd", "slicescatter", "selectscatter", "diagonalscatter", "maskedscatter", "dynamicstitch", "tensorscatterupdate"),
    *("tensorscatteradd", "sequenceconstruct", "sequenceinsert", "concatfromsequence", "emptystrided", "fillzero", "zero"),
))  # fmt: skip


def handed(node: Node) -> Tensor | None:
    """The tensor whose values a node hands on, as they are or cast: what a move moves, a fill repeats, a dropout lets pass."""
    name = operation(node)
    if name == FILL:
        return node.inputs[-1] if node.inputs and node.inputs[-1] is not None and node.inputs[-1].shape == () else None
    if node.kind in (OpKind.MOVE, OpKind.CAST) or name == "dropout":
        place = 1 if node.op_type == "Split" and node.domain == "tensorflow" else 0
        return node.inputs[place] if place < len(node.inputs) and name not in MIXING else None
    return None


def interpolates(node: Node) -> bool:
    """Whether a node that enlarges or shrinks pictures makes new values between those that it gets."""
    name = operation(node)
    if not name.lstrip("_").startswith(("resize", "resizing", "upsampl", "interpolate", "gridsample")) or "nearest" in name:
        return False
    modes = [node.attributes.get(key) for key in ("mode", "interpolation")]
    return "nearest" not in modes and (any(isinstance(mode, str) for mode in modes) or name not in ("resize", "upsample"))


def computes(node: Node) -> bool:
    """Whether a node does arithmetic on data: no move, cast, check, no bookkeeping of sizes, no call of other nodes, no dropout."""
    return node.kind not in IDLE and operation(node) != "dropout"
