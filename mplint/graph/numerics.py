"""What float16 does to the numbers of a model: operations that overflow, constants that it can't hold, epsilons that vanish, long sums."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from mplint.graph.facts import GraphFacts, users
from mplint.graph.model import Node, OpKind, Tensor
from mplint.graph.operations import chunks, number, operation
from mplint.graph.ranges import Range
from mplint.limits import FLOAT16_MAX as MAX
from mplint.limits import FLOAT16_SMALLEST_NORMAL as SMALLEST_NORMAL
from mplint.limits import FLOAT16_ZERO as ZERO

EXP_LIMIT = math.log(MAX)
SCANNED = 64 << 20  # bytes of one constant that are looked at, and of all together
SUMS = frozenset(("reducesum", "reducemean", "sum", "mean", "reducel1", "cumsum", "var"))
LARGE = 2048  # elements from which a float16 sum drops what is added to it


class Unstable(NamedTuple):
    """A node whose operation needs more range than float16 has; `range` is what goes in, where that is known to be too much."""

    node: Node
    dtype: str
    range: Range | None = None


class Constant(NamedTuple):
    """A value beyond the range of float16, the node that reads it, and what happens there: "nan", "inf", "masked" or "raises"."""

    tensor: Tensor
    value: float
    node: Node
    effect: str
    rounded: bool


class Epsilon(NamedTuple):
    """A small constant, the node that adds it or takes the maximum with it, and the node that it guards."""

    tensor: Tensor
    value: float
    node: Node
    guarded: Node
    rounded: bool


def unstable(graph: GraphFacts) -> Iterator[Unstable]:
    """The nodes that compute softmax, exp, log, pow or a loss in half, unless their inputs are known to be small enough."""
    for node in graph.nodes:
        if node.compute_dtype in ("float16", "bfloat16") and _is_unstable(graph, node):
            yield Unstable(node, node.compute_dtype)


def overflowing(graph: GraphFacts) -> Iterator[Unstable]:
    """The nodes of a float32 model whose results are known to leave the range of float16, not those that read such results."""
    for node in graph.nodes if graph.is_float else ():
        if node.compute_dtype != "float32" or not node.outputs or node.kind in (OpKind.MOVE, OpKind.CAST):
            continue
        result = graph.range_of(node.outputs[0])
        given = [graph.range_of(t) for t in node.inputs if t is not None]
        others = [graph.range_of(t) for t in node.inputs if t is not None and (t.producer is not None or t.weights is not None)]
        if result.reached and result.largest > MAX and all(o.largest <= MAX for o in others):
            moving = next((g for t, g in zip(node.inputs, given, strict=False) if t is not None and t.weights is None), None)
            yield Unstable(node, "float32", moving or given[0])


def _is_unstable(graph: GraphFacts, node: Node) -> bool:
    source = graph.range_of(node.inputs[0]) if node.inputs else Range()
    match operation(node):
        case "exp" | "expm1":
            return source.high > EXP_LIMIT
        case "log" | "log2" | "log10":
            return source.low < SMALLEST_NORMAL
        case "pow":
            return _power_leaves(source, number(node.inputs[1]) if len(node.inputs) > 1 else None)
        case "square" | "reducesumsquare":
            return source.largest > math.sqrt(MAX)
        case "reducelogsumexp" | "cosh" | "sinh":
            return True
        case _:
            return node.kind in (OpKind.SOFTMAX, OpKind.LOSS)


def _power_leaves(base: Range, exponent: float | None) -> bool:
    if exponent is None:
        return True
    if 0 <= exponent <= 1:
        return False
    try:
        return exponent < 0 or base.largest**exponent > MAX
    except OverflowError:
        return True


def large_constants(graph: GraphFacts) -> Iterator[Constant]:
    """The constants that float16 turns, or has turned, into infinity, at each node that computes with them."""
    left = SCANNED
    variables = {id(tensor) for node in graph.nodes for tensor in node.weights.values()}  # layers keep theirs in float32
    for tensor in graph.model.constants():
        size = tensor.nbytes or 0
        if id(tensor) in variables or tensor.dtype not in ("float32", "float64", "float16") or not tensor.consumers or size > left:
            continue
        readers = [node for node in users(tensor, (OpKind.MOVE, OpKind.CAST)) if graph.concerns(node)]
        if not readers:
            continue
        left -= size if size > 4096 else 0
        value = _extreme(tensor)
        if value is None:
            continue
        for node in readers:
            effect = _effect(node, tensor)
            if effect is not None:
                yield Constant(tensor, value, node, effect, tensor.dtype == "float16")
    yield from _written_out(graph)


def _written_out(graph: GraphFacts) -> Iterator[Constant]:
    """The values that torch programs in float32 fill masks with, which are numbers and no tensors there."""
    for node in graph.nodes if graph.is_float else ():
        value = node.attributes.get("value")
        if operation(node) != "maskedfill" or not isinstance(value, int | float) or node.compute_dtype != "float32":
            continue
        if math.isfinite(value) and abs(value) > MAX:
            yield Constant(Tensor("value", "float32", ()), float(value), node, "raises", False)


def _extreme(tensor: Tensor) -> float | None:
    """The value of greatest magnitude that float16 can't hold: finite in float32, already infinite in float16."""
    worst = 0.0
    for chunk in chunks(tensor):
        if not chunk.size:
            continue
        for value in (float(chunk.min()), float(chunk.max())):  # NaN, which nothing exceeds, is not what this looks for
            if abs(value) > max(MAX, abs(worst)) and (math.isfinite(value) or tensor.dtype == "float16"):
                worst = value
    return worst or None


def _effect(node: Node, tensor: Tensor) -> str | None:
    """What infinity does at a node: "nan" where it meets a zero, "masked" before a softmax, "inf" elsewhere; None where it is harmless."""
    match operation(node):
        case "mul":
            return "nan"
        case "where" | "maskedfill":
            return "masked" if feeds_softmax(node) else "inf"
        case "add" | "sub" | "sum":
            return "masked" if feeds_softmax(node) else "inf"
        case "div":
            return "inf" if node.inputs and _leads(tensor, node.inputs[0]) else None
        case "pow" | "sqrt" | "exp" | "abs" | "neg":
            return "inf"
        case _:
            return "inf" if node.kind in (OpKind.MATMUL, OpKind.CONV, OpKind.RECURRENT, OpKind.EMBEDDING, OpKind.NORM) else None


def _leads(tensor: Tensor, target: Tensor | None) -> bool:
    """Whether `target` is `tensor` or a moved or cast copy of it."""
    from mplint.graph.facts import source

    return target is not None and (target is tensor or source(target) is tensor)


def feeds_softmax(node: Node) -> bool:
    """Whether what a node computes is added or moved into a softmax or an attention node."""
    seen = {id(node)}
    stack = [node]
    while stack and len(seen) < 200:
        current = stack.pop()
        for output in current.outputs:
            for user in users(output, (OpKind.MOVE, OpKind.CAST)):
                if user.kind in (OpKind.SOFTMAX, OpKind.ATTENTION):
                    return True
                if id(user) not in seen and operation(user) in ("add", "sub", "where", "max", "mul", "div", "clip"):
                    seen.add(id(user))
                    stack.append(user)
    return False


def vanishing(graph: GraphFacts) -> Iterator[Epsilon]:
    """The epsilons that float16 rounds to 0, or that are too small to divide by, where they guard a division, a log or a root."""
    for node in graph.nodes:
        if operation(node) not in ("add", "max", "clip") or not graph.concerns(node):
            continue
        small = _small(node)
        guarded = _guarded(node) if small is not None else None
        if small is None or guarded is None:
            continue
        tensor, value, rounded = small
        if value == 0 and operation(node) != "add" and operation(guarded) == "sqrt":
            continue  # max(x, 0) before a root is meant
        if value <= ZERO or (value < 1 / MAX and operation(guarded) in ("div", "reciprocal")):
            yield Epsilon(tensor, value, node, guarded, rounded)


def _small(node: Node) -> tuple[Tensor, float, bool] | None:
    """The positive constant that a node adds, at most the smallest normal number; 0 counts where it stands in float16."""
    places = (1,) if operation(node) == "clip" else range(len(node.inputs))
    for place in places:
        tensor = node.inputs[place] if place < len(node.inputs) else None
        if tensor is None:
            continue
        from mplint.graph.facts import source

        origin = source(tensor)
        value = number(origin)
        if value is None or (origin.size or 0) != 1:
            continue
        rounded = origin.dtype == "float16"
        if 0 < value < SMALLEST_NORMAL or (value == 0 and rounded):
            return origin, value, rounded
    return None


def _guarded(node: Node) -> Node | None:
    """The division, log or root that reads what a node computes, also by way of a root."""
    if not node.outputs:
        return None
    result = node.outputs[0]
    for user in users(result, (OpKind.MOVE, OpKind.CAST)):
        match operation(user):
            case "log" | "reciprocal" | "rsqrt":
                return user
            case "div" if len(user.inputs) > 1 and user.inputs[1] is not None and _leads(result, user.inputs[1]):
                return user
            case "sqrt":
                return user
            case "pow":
                power = number(user.inputs[1]) if len(user.inputs) > 1 else None
                if power is not None and power < 0:
                    return user
    return None


def long_sums(graph: GraphFacts) -> Iterator[tuple[Node, int | None]]:
    """The sums in float16 over many elements, with their number (None where it is not known)."""
    for node in graph.nodes:
        if node.compute_dtype != "float16" or operation(node) not in SUMS:
            continue
        if node.kind is not OpKind.REDUCTION or not node.inputs or node.inputs[0] is None:
            continue
        before, after = node.inputs[0].size, node.outputs[0].size if node.outputs else None
        count = before // after if before is not None and after else None
        if count is None or count >= LARGE:
            yield node, count
