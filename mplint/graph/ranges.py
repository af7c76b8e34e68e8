"""Interval analysis: which values a tensor can take, as far as constants, bounded functions and declared inputs tell.

Bounds are sound: no run leaves them. `reached` says that some input really brings the tensor near its bounds, so that a bound beyond
what a dtype can hold is an overflow and not merely a bound that is too wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from mplint.graph.model import LOOPS, Graph, ModelGraph, Node, OpKind, Tensor
from mplint.graph.operations import FILL, chunks, handed, operation

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
OUTSIDE = (OpKind.CONTROL, OpKind.CALL, OpKind.OPAQUE, OpKind.CHECK)
KEEPING = ("reducemax", "reducemin", "reducemean", "mean", "maxpool", "averagepool", "globalaveragepool", "globalmaxpool", "topk")


def ranges(model: ModelGraph, inputs: Mapping[str, tuple[float, float]]) -> dict[int, Range]:
    """The range of each tensor of the graph, by the tensor's identity; a tensor that is not in it can be anything.

    `inputs` bounds inputs by the names that the graph or its users have for them.
    """
    found: dict[int, Range] = {}
    for tensor in model.graph.inputs:
        name = tensor.name if tensor.name in inputs else model.graph.public.get(id(tensor), "")
        if name in inputs:
            found[id(tensor)] = Range(*inputs[name], True)
        elif tensor.dtype in INTEGERS:
            found[id(tensor)] = Range(*INTEGERS[tensor.dtype], tensor.dtype == "uint8")
    _visit(model, found)
    return found


def _visit(model: ModelGraph, found: dict[int, Range]) -> None:
    """Go through the nodes in order, those of a body before what comes after it; a body that several calls share may get anything."""

    def get(tensor: Tensor | None) -> Range:
        if tensor is None:
            return ANY
        known = found.get(id(tensor))
        if known is None:
            known = found[id(tensor)] = _constant(tensor) if tensor.weights is not None else ANY
        return known

    entered: set[int] = set()
    stack: list[tuple[Graph | None, Node | None, Iterator[Node]]] = [(model.graph, None, iter(model.graph.nodes))]
    while stack:
        node = next(stack[-1][2], None)
        if node is None:
            _, caller, _ = stack.pop()
            if caller is not None and caller.op_type not in LOOPS:
                whole = [o for o in caller.outputs if len(o.inside) == len(caller.graphs) + len(caller.callees)]
                for output in whole:
                    _note(output, _joined([get(inner) for inner in output.inside]), found)
            continue
        bodies = [body for body in (*node.graphs.values(), *node.callees) if id(body) not in entered]
        for body in reversed(bodies):
            entered.add(id(body))
            for parameter in body.inputs:
                if len(parameter.given) == 1:
                    _note(parameter, get(parameter.given[0]), found)
            stack.append((body, node, iter(body.nodes)))
        if not node.outputs or node.kind in OUTSIDE:
            continue
        result = _result(node, get)
        for output in node.outputs if operation(node) in ("split", "unstack", "unbind", "chunk", "unpack", "splitv") else node.outputs[:1]:
            _note(output, result, found)


def _note(tensor: Tensor, known: Range, found: dict[int, Range]) -> None:
    if known.low != -INFINITY or known.high != INFINITY:
        found[id(tensor)] = known


def _joined(parts: list[Range]) -> Range:
    """Where the value is one of several."""
    return Range(min(p.low for p in parts), max(p.high for p in parts), all(p.reached for p in parts)) if parts else ANY


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
    second = get(node.inputs[1]) if len(node.inputs) > 1 else ANY
    if node.kind is OpKind.RANDOM:
        return get(handed(node))
    if node.kind is OpKind.CAST and node.outputs[0].dtype == "bool":
        return UNIT
    if node.kind in (OpKind.MOVE, OpKind.CAST, OpKind.SHAPE) or name in KEEPING:
        return _moved(node, name, first, get)
    match name:
        case "add" | "sub" | "rsub" | "div" if node.attributes.get("alpha", 1) != 1 or "rounding_mode" in node.attributes:
            return ANY
        case "add":
            return _reached(Range(first.low + second.low, first.high + second.high), node, first, second)
        case "sub":
            if _is_shifted(node):
                return Range(-INFINITY, 0.0, False)
            return _reached(Range(first.low - second.high, first.high - second.low), node, first, second)
        case "rsub":
            return _reached(Range(second.low - first.high, second.high - first.low), node, first, second)
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
            return _joined([second, get(node.inputs[2]) if len(node.inputs) > 2 else ANY])
        case "maskedfill":
            return _joined([first, get(node.inputs[2]) if len(node.inputs) > 2 else ANY])
        case "reducesum" | "sum" | "cumsum" if node.kind is OpKind.REDUCTION:
            return _total(node, first)
        case "layernormalization" | "layernorm" | "skiplayernormalization" | "rmsnormalization":
            return _normalized(node, get)
    return ANY


def _moved(node: Node, name: str, first: Range, get: Callable[[Tensor | None], Range]) -> Range:
    """What nodes that only move values, or pick some, make of them."""
    if name in ("concat", "cat", "concatenate", "stack"):
        return _joined([get(tensor) for tensor in node.inputs])
    if name == FILL:
        return get(handed(node))
    if name in ("pad", "zeropadding2d", "constantpadnd"):
        place = 2 if node.op_type == "Pad" and node.domain != "aten" else 1
        value = node.inputs[place] if place < len(node.inputs) else None
        return _joined([first, get(value) if value is not None else Range(0.0, 0.0, True)])
    if node.kind is OpKind.SHAPE:
        return ANY
    if name not in KEEPING:
        first = get(handed(node))
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
    given = [node.inputs[place] if place < len(node.inputs) else None for place in (1, 2)]
    low = get(given[0]).low if given[0] is not None else -INFINITY
    high = get(given[1]).high if given[1] is not None else INFINITY
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
