"""Exps, whose results grow beyond any sample."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from mplint.conversion.onnx.instrument import owner_of
from mplint.conversion.onnx.probe import Probe
from mplint.conversion.onnx.program import Program
from mplint.conversion.onnx.run import Feed
from mplint.limits import FLOAT16_MAX

# What commonly bounds the argument of an exp: the maximum taken off, a negative square, a limit.
BOUNDING = frozenset(("Sub", "Neg", "Clip", "Min", "Tanh", "Sigmoid", "LogSoftmax", "Softmax"))


def unbounded(program: Program, values: Sequence[ir.Value], feeds: Sequence[Feed]) -> set[ir.Value]:
    """Those of the `values`, which are exps or sums of exps, that would exceed the range on arguments a little beyond the samples'."""
    model = program.model
    values = [value for value in values if "float16" in program.halves_of(value)]  # the range of bfloat16 is that of float32
    if not values:
        return set()
    inside = [value for value in values if owner_of(value) is model.graph]
    if len(inside) < len(values):
        return set(values)
    arguments = [_argument(value) for value in values]
    probe = Probe(model, [*values, *(argument for argument in arguments if argument is not None)])
    found: set[ir.Value] = set()
    for feed in feeds:
        extents = probe.extents(feed)
        for value, reached, spread in zip(values, extents[: len(values)], extents[len(values) :], strict=True):
            ahead = 1.0 + 0.5 * (spread.high - spread.low)
            if not (reached.high >= 0 and math.log(reached.high + 1e-30) + ahead <= math.log(FLOAT16_MAX)):
                found.add(value)
    probe.close()
    return found


def grows(value: ir.Value) -> bool:
    """Whether a tensor is an exp, or a sum of exps, whose argument nothing bounds from above."""
    argument = _argument(value)
    if argument is None:
        return False
    before = argument.producer()
    return before is None or before.op_type not in BOUNDING


def _argument(value: ir.Value) -> ir.Value | None:
    """The argument of the exp that a tensor is, or is a sum of."""
    node = value.producer()
    for _ in range(2):
        if node is None or node.op_type not in ("ReduceSum", "Identity", "Unsqueeze", "Squeeze"):
            break
        node = node.inputs[0].producer() if node.inputs[0] is not None else None
    return node.inputs[0] if node is not None and node.op_type == "Exp" else None
