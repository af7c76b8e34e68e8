"""Interval analysis: which values a tensor can take, as far as constants, bounded functions and declared inputs tell.

Bounds are sound: no run leaves them. `reached` says that some input really brings the tensor near its bounds, so that a bound beyond
what a dtype can hold is an overflow and not merely a bound that is too wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mplint.graph.model import Graph, ModelGraph, Node, OpKind, Tensor
from mplint.graph.operations import chunks, operation

INFINITY = math.inf
SCANNED = 1 << 16  # elements of a constant that are looked at
INTEGERS = {"bool": (0.0, 1.0), "uint8": (0.0, 255.0), "int8": (-128.0, 127.0), "uint16": (0.0, 65535.0), "int16": (-32768.0, 32767.0)}


class Range(NamedTuple):
    """The lowest and the highest value, both inclusive, and whether they are really reached."""

    low: float = -INFINITY
    high: float = INFINITY
    reached: bool = False

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def bounded(self) -> bool:
        """Whether both bounds are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)


ANY = Range()
UNIT = Range(0.0, 1.0)
# What these make of anything.
FIXED: Mapping[str, Range] = {
    **dict.fromkeys(("sigmoid", "hardsigmoid", "softmax", "hardmax", "equal", "less", "greater", "not", "and", "or"), UNIT),
    **dict.fromkeys(("tanh", "erf", "sin", "cos", "softsign", "sign"), Range(-1.0, 1.0)),
    **dict.fromkeys(("logsoftmax", "logsigmoid"), Range(-INFINITY, 0.0)),
    **dict.fromkeys(("softplus", "reducesumsquare", "reducel1", "reducel2", "norm"), Range(0.0, INFINITY)),
    "atan": Range(-math.pi / 2, math.pi / 2),
}
KEEPING = ("reducemax", "reducemin", "reducemean", "mean", "maxpool", "averagepool", "globalaveragepool", "globalmaxpool", "topk")


def ranges(model: ModelGraph, inputs: Mapping[str, tuple[float, float]]) -> dict[int, Range]:
    """The range of each tensor of the graph, by the tensor's identity; a tensor that is not in it can be anything."""
    found: dict[int, Range] = {}
    for tensor in model.graph.inputs:
        if tensor.name in inputs:
            found[id(tensor)] = Range(*inputs[tensor.name], True)
        elif tensor.dtype in INTEGERS:
            found[id(tensor)] = Range(*INTEGERS[tensor.dtype], tensor.dtype == "uint8")
    _visit(model.graph, found)
    return found


def _visit(graph: Graph, found: dict[int, Range]) -> None:
    """Go through the nodes in order; what flows into bodies is known there, what comes out of them is not."""

    def get(tensor: Tensor | None) -> Range:
        if tensor is None:
            return ANY
        known = found.get(id(tensor))
        if known is None:
            known = found[id(tensor)] = _constant(tensor) if tensor.weights is not None else ANY
        return known

    for node in graph.walk():
        if not node.outputs or node.kind in (OpKind.CONTROL, OpKind.CALL, OpKind.OPAQUE):
            continue
        result = _result(node, get)
        if result.low != -INFINITY or result.high != INFINITY:
            for output in node.outputs if operation(node) in ("split", "unstack", "unbind", "chunk") else node.outputs[:1]:
                found[id(output)] = result


def _constant(tensor: Tensor) -> Range:
    if (tensor.size or SCANNED + 1) > SCANNED or tensor.weights is None or tensor.dtype in (None, "string", "complex64", "complex128"):
        return ANY
    low, high = INFINITY, -INFINITY
    for chunk in chunks(tensor):
        if chunk.size:
            values = chunk if chunk.dtype.kind in "biuf" else chunk.astype("float32")
            low, high = min(low, float(values.min())), max(high, float(values.max()))
    return ANY if math.isnan(low) or math.isnan(high) or low > high else Range(low, high, True)


def _result(node: Node, get: Callable[[Tensor | None], Range]) -> Range:
    name = operation(node)
    if name in FIXED:
        return FIXED[name]
    first = get(node.inputs[0]) if node.inputs else ANY
    second = get(node.inputs[1]) if len(node.inputs) > 1 else _scalar(node)
    if node.kind in (OpKind.MOVE, OpKind.CAST, OpKind.SHAPE) or name in KEEPING:
        return _moved(node, name, first, get)
    match name:
        case "add":
            return _reached(Range(first.low + second.low, first.high + second.high), node, first, second)
        case "sub":
            if _is_shifted(node):
                return Range(-INFINITY, 0.0, False)
            return _reached(Range(first.low - second.high, first.high - second.low), node, first, second)
        case "mul" | "square":
            return _product(node, first, first if name == "square" else second)
        case "div":
            return _quotient(node, first, second)
        case "pow":
            return _power(first, second)
        case "neg":
            return Range(-first.high, -first.low, first.reached)
        case "abs":
            low = 0.0 if first.low <= 0 <= first.high else min(abs(first.low), abs(first.high))
            return Range(low, first.largest, first.reached)
        case "exp":
            return Range(_exp(first.low), _exp(first.high), first.reached)
        case "sqrt":
            return Range(math.sqrt(max(first.low, 0.0)), math.sqrt(max(first.high, 0.0)), first.reached)
        case "log":
            return Range(_log(first.low), _log(first.high), first.reached)
        case "relu":
            return Range(max(first.low, 0.0), max(first.high, 0.0), first.reached)
        case "gelu" | "swish" | "elu" | "selu" | "leakyrelu" | "mish" | "hardswish":
            return Range(max(min(first.low, 0.0) * 2, -INFINITY), max(first.high, 0.0) * 1.06, False)
        case "max":
            return Range(max(first.low, second.low), max(first.high, second.high), first.reached and second.reached)
        case "min":
            return Range(min(first.low, second.low), min(first.high, second.high), first.reached and second.reached)
        case "clip":
            return _clipped(node, first, get)
        case "where":
            third = get(node.inputs[2]) if len(node.inputs) > 2 else ANY
            return Range(min(second.low, third.low), max(second.high, third.high), second.reached and third.reached)
        case "reducesum" | "sum" | "cumsum" if node.kind is OpKind.REDUCTION:
            return _total(node, first)
        case "layernormalization" | "layernorm" | "skiplayernormalization" | "rmsnormalization":
            return _normalized(node, get)
    return ANY


def _moved(node: Node, name: str, first: Range, get: Callable[[Tensor | None], Range]) -> Range:
    """What nodes that only move values, or pick some, make of them."""
    if name in ("concat", "cat", "concatenate", "stack"):
        parts = [get(tensor) for tensor in node.inputs]
        return Range(min(p.low for p in parts), max(p.high for p in parts), all(p.reached for p in parts)) if parts else ANY
    if name in ("pad", "zeropadding2d", "constantpadnd"):
        return Range(min(first.low, 0.0), max(first.high, 0.0), first.reached) if len(node.inputs) < 3 else ANY
    if node.kind is OpKind.SHAPE or name in ("constantofshape", "eyelike", "range", "onehot", "scatterelements", "scatternd", "scatter"):
        return ANY
    if name == "resize" and node.attributes.get("mode") == "cubic":
        return ANY
    if name in KEEPING and name not in ("reducemax", "maxpool", "globalmaxpool"):
        return first._replace(reached=first.reached and name != "topk")
    return first


def _reached(result: Range, node: Node, first: Range, second: Range) -> Range:
    """`result`, reached where both operands are, independently of each other, or one of them is a single value."""
    low = result.low if not math.isnan(result.low) else -INFINITY
    high = result.high if not math.isnan(result.high) else INFINITY
    independent = first.low == first.high or second.low == second.high or _sources(node)
    return Range(low, high, first.reached and second.reached and independent)


def _sources(node: Node) -> bool:
    """Whether the operands of a node are inputs of the model or constants, which don't depend on each other, and not the same one."""
    operands = [t for t in node.inputs if t is not None]
    return len(operands) == 2 and operands[0] is not operands[1] and all(t.producer is None for t in operands)


def _product(node: Node, first: Range, second: Range) -> Range:
    squared = operation(node) == "square" or (len(node.inputs) > 1 and node.inputs[0] is node.inputs[1])
    if not first.bounded or not second.bounded:
        return Range(0.0, INFINITY) if squared else ANY
    if squared:
        low = 0.0 if first.low <= 0 <= first.high else min(first.low**2, first.high**2)
        return Range(low, first.largest**2, first.reached)
    ends = [a * b for a in (first.low, first.high) for b in (second.low, second.high)]
    return _reached(Range(min(ends), max(ends)), node, first, second)


def _scalar(node: Node) -> Range:
    """The second operand where it is a number written into a torch operation, as in `x * 255`."""
    value = node.attributes.get("exponent", node.attributes.get("other"))
    if not isinstance(value, int | float) or "alpha" in node.attributes or "rounding_mode" in node.attributes or not math.isfinite(value):
        return ANY
    return Range(float(value), float(value), True)


def _quotient(node: Node, first: Range, second: Range) -> Range:
    if not first.bounded or second.low <= 0 <= second.high:
        return ANY
    ends = [a / b for a in (first.low, first.high) for b in (second.low, second.high)]
    return _reached(Range(min(ends), max(ends)), node, first, second)


def _power(base: Range, exponent: Range) -> Range:
    if exponent.low != exponent.high:
        return ANY
    power = exponent.low
    try:
        if power == int(power) and int(power) % 2 == 0 and power > 0:
            low = 0.0 if base.low <= 0 <= base.high else min(base.low**power, base.high**power)
            return Range(low, base.largest**power, base.reached)
        if base.low >= 0 and power > 0:
            return Range(base.low**power, base.high**power, base.reached)
    except (OverflowError, ValueError, ZeroDivisionError):
        return Range(0.0, INFINITY, False)
    return ANY


def _clipped(node: Node, first: Range, get: Callable[[Tensor | None], Range]) -> Range:
    bounds = [node.attributes.get("min"), node.attributes.get("max")]
    for place in (1, 2):
        if place < len(node.inputs) and node.inputs[place] is not None:
            limit = get(node.inputs[place])
            bounds[place - 1] = limit.low if place == 1 else limit.high
    low, high = (float(b) if isinstance(b, int | float) else None for b in bounds)
    low = -INFINITY if low is None else low
    high = INFINITY if high is None else high
    return Range(min(max(first.low, low), high), max(min(first.high, high), low), first.reached)


def _total(node: Node, first: Range) -> Range:
    """A sum over an axis: as many times the bounds as elements are summed."""
    before = node.inputs[0].size if node.inputs and node.inputs[0] is not None else None
    after = node.outputs[0].size
    if before is None or not after:
        return Range(0.0 if first.low >= 0 else -INFINITY, 0.0 if first.high <= 0 else INFINITY)
    count = before if operation(node) == "cumsum" else before // after
    return Range(min(first.low * count, first.low), max(first.high * count, first.high), first.reached)


def _normalized(node: Node, get: Callable[[Tensor | None], Range]) -> Range:
    """n normalized values are at most sqrt(n) in magnitude; then they are scaled and shifted."""
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    width = shape[-1] if shape else None
    axis = node.attributes.get("axis", -1)
    if not isinstance(width, int) or axis not in (-1, len(shape or ()) - 1) or node.op_type.startswith("Skip"):
        return ANY
    scale = get(node.inputs[1]).largest if len(node.inputs) > 1 and node.inputs[1] is not None else 1.0
    shift = get(node.inputs[2]).largest if len(node.inputs) > 2 and node.inputs[2] is not None else 0.0
    bound = math.sqrt(width) * scale + shift
    return Range(-bound, bound) if math.isfinite(bound) else ANY


def _is_shifted(node: Node) -> bool:
    """Whether a node subtracts from a tensor its own maximum, as a softmax written out does."""
    first, second = (*node.inputs, None, None)[:2]
    maker = second.producer if second is not None else None
    return maker is not None and operation(maker) == "reducemax" and bool(maker.inputs) and maker.inputs[0] is first


def _exp(value: float) -> float:
    return math.exp(value) if value < 709 else INFINITY


def _log(value: float) -> float:
    return -INFINITY if value <= 0 else INFINITY if value == INFINITY else math.log(value)
