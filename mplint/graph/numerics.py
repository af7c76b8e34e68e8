"""What float16 does to the numbers of a model: operations that overflow, constants that it can't hold, epsilons that vanish, long sums."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from mplint.graph.facts import GraphFacts
from mplint.graph.flow import source, users
from mplint.graph.model import HALF, Dim, Node, OpKind, Tensor
from mplint.graph.operands import Operand
from mplint.graph.operations import computes, operation
from mplint.graph.ranges import ANY, Range
from mplint.limits import BFLOAT16_MAX, BFLOAT16_SMALLEST_NORMAL, FLOAT32_MAX
from mplint.limits import FLOAT16_MAX as MAX
from mplint.limits import FLOAT16_SMALLEST_NORMAL as SMALLEST_NORMAL
from mplint.limits import FLOAT16_ZERO as ZERO


class Limits(NamedTuple):
    """The largest and the smallest normal number of a dtype."""

    largest: float
    smallest: float


LIMITS = {"float16": Limits(MAX, SMALLEST_NORMAL), "bfloat16": Limits(BFLOAT16_MAX, BFLOAT16_SMALLEST_NORMAL)}
# Operations that read numbers, and those to which torch refuses a number that the tensor's dtype can't hold.
READING = frozenset(("mul", "where", "maskedfill", "add", "sub", "rsub", "sum", "div", "pow", "clip", "full", "pad", "constantpadnd"))
RAISING = frozenset(("maskedfill", "clip", "full", "pad", "constantpadnd"))
MULTIPLYING = (OpKind.MATMUL, OpKind.CONV, OpKind.RECURRENT, OpKind.EMBEDDING, OpKind.NORM)
SUMS = frozenset(("reducesum", "reducemean", "sum", "mean", "reducel1", "cumsum", "var"))
GUARDING = ("add", "max", "clip")
SUBNORMAL = 2.0**-24  # the smallest number of float16, and the step up to the smallest normal one
COARSE = 16  # steps: the next number is 6 % larger
LOGARITHMS = {"log": math.log, "log2": math.log2, "log10": math.log10}
LARGE = 2048  # elements from which a float16 sum drops what is added to it


class Unstable(NamedTuple):
    """A node whose operation needs more range than a half dtype has; where that is known, what goes in and the magnitude that comes out."""

    node: Node
    dtype: str
    given: Range = ANY
    reached: float = 0.0


class Constant(NamedTuple):
    """A constant that a half dtype can't hold, the number in question, the node that reads it, and what happens there (see `EFFECTS`).

    `dtype` is the half dtype, `rounded` whether the constant is kept in it already.
    """

    tensor: Tensor
    value: float
    node: Node
    effect: str
    dtype: str
    rounded: bool


class Epsilon(NamedTuple):
    """A small constant, the node that adds it or takes the maximum with it, the node that it guards, and what float16 makes of it:

    "zero", "infinite" where what it guards divides by it and 1 over it is beyond float16, or "subnormal", which devices may take for 0.
    """

    tensor: Tensor
    value: float
    node: Node
    guarded: Node
    rounded: bool
    fate: str

    @property
    def kept(self) -> float:
        """What float16 keeps of it: the nearest of its subnormal numbers."""
        return round(self.value / SUBNORMAL) * SUBNORMAL

    @property
    def lowest(self) -> float | None:
        """What a logarithm that it guards gives at the least; None where it guards something else."""
        logarithm = LOGARITHMS.get(operation(self.guarded))
        return logarithm(self.kept) if logarithm is not None and self.kept else None

    @property
    def shows(self) -> bool:
        """Whether results differ although float16 keeps it: a logarithm of numbers that are as far from each other as they are large."""
        return self.lowest is not None and self.value < COARSE * SUBNORMAL


def unstable(graph: GraphFacts) -> Iterator[Unstable]:
    """The nodes that compute softmax, exp, log, pow or a loss in half, unless their inputs are known to be small enough."""
    for node in graph.working:
        if node.compute_dtype in HALF and _is_unstable(graph, node, LIMITS[node.compute_dtype]) and not _is_constant(graph, node):
            yield Unstable(node, node.compute_dtype)


def overflowing(graph: GraphFacts) -> Iterator[Unstable]:
    """The nodes whose results are known to leave the range of the half dtype that matters for them, not those that read such results."""
    for node in graph.working:
        half = graph.half_of(node)
        if half is None or not node.outputs or (node.compute_dtype == half and _is_unstable(graph, node, LIMITS[half])):
            continue
        limit = LIMITS[half].largest
        result = graph.range_of(node.outputs[0])
        given = [graph.range_of(t) for t in node.inputs if t is not None]
        others = [graph.range_of(t) for t in node.inputs if t is not None and not _is_free(t)]
        ends = [abs(end) for end in (result.low, result.high) if limit < abs(end) <= FLOAT32_MAX]  # beyond that float32 overflows as well
        if result.reached and ends and all(o.largest <= limit for o in others) and not _is_constant(graph, node):
            moving = next((g for t, g in zip(node.inputs, given, strict=False) if t is not None and t.weights is None), None)
            yield Unstable(node, half, moving or given[0], max(ends))


def _is_free(tensor: Tensor) -> bool:
    """Whether a tensor is an input of the model, also within a body."""
    origin = source(tensor, (OpKind.CHECK,))
    return origin.producer is None and origin.weights is None


def _is_unstable(graph: GraphFacts, node: Node, limits: Limits) -> bool:
    given = graph.range_of(node.inputs[0]) if node.inputs else Range()
    match operation(node):
        case "exp" | "expm1":
            return given.high > math.log(limits.largest)
        case "log" | "log2" | "log10":
            return given.low < limits.smallest
        case "pow":
            power = graph.operand(node.inputs[1]) if len(node.inputs) > 1 else None
            return _power_leaves(given, power.value if power is not None else None, limits.largest)
        case "square" | "reducesumsquare":
            return given.largest > math.sqrt(limits.largest)
        case "reducelogsumexp" | "cosh" | "sinh":
            return True
        case _:
            return node.kind in (OpKind.SOFTMAX, OpKind.LOSS)


def _power_leaves(base: Range, exponent: float | None, largest: float) -> bool:
    if exponent is None:
        return True
    if 0 <= exponent <= 1:
        return False
    try:
        return exponent < 0 or base.largest**exponent > largest
    except OverflowError:
        return True


def lost_constants(graph: GraphFacts) -> Iterator[Constant]:
    """The constants that a half dtype turns, or has turned, into infinity or 0, at each node that computes with them."""
    for node in graph.nodes:
        half = graph.half_of(node)
        name = operation(node)
        if half is None or (name not in READING and (node.kind not in MULTIPLYING or not computes(node))):
            continue
        if name not in RAISING and _is_constant(graph, node):
            continue  # what reads it is looked at
        for place, tensor in enumerate(node.inputs):
            constant = graph.operand(tensor)
            found = _lost(node, name, place, constant, half) if constant is not None else None
            if found is not None:
                yield found


def _is_constant(graph: GraphFacts, node: Node) -> bool:
    """Whether a node computes with constants alone, so that its result is one as well."""
    return bool(node.inputs) and all(graph.operand(tensor) is not None for tensor in node.inputs if tensor is not None)


def _lost(node: Node, name: str, place: int, constant: Operand, half: str) -> Constant | None:
    rounded = constant.rounded(half)
    value = constant.infinity if rounded else constant.largest
    if (not rounded and math.isinf(value)) or (constant.exact and not any(t is constant.tensor for t in node.inputs)):
        return None  # infinity is meant; a fill with the number is told by itself
    effect = None
    if abs(value) > LIMITS[half].largest:
        effect = _effect(node, name, place, constant)
    elif half == "float16" and 0 < abs(value) <= ZERO and not constant.exact:
        effect = {("mul", 0): "zero", ("mul", 1): "zero", ("div", 1): "by zero"}.get((name, place))
    return Constant(constant.tensor, value, node, effect, half, rounded) if effect is not None else None


def _effect(node: Node, name: str, place: int, constant: Operand) -> str | None:
    """What a constant beyond the range does at a node; None where it is harmless."""
    if name in RAISING and constant.exact:
        return "raises"
    match name:
        case "mul":
            return "inf" if constant.exact else "nan"
        case "where" | "maskedfill" | "add" | "sub" | "rsub" | "sum":
            return "masked" if feeds_softmax(node) else "inf"
        case "div":
            return "inf" if place == 0 else None if constant.exact else "zero"
        case "pow":
            return "inf"
        case _:
            return "inf" if node.kind in MULTIPLYING else None


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
    """The epsilons that float16 rounds to 0, or that are too small to divide by, or subnormal, where they guard a division, log or root."""
    for node in graph.nodes:
        if operation(node) not in GUARDING or graph.half_of(node) != "float16":
            continue
        if _is_constant(graph, node):
            continue
        small = _small(graph, node)
        guarded = _guarded(graph, node) if small is not None else None
        if small is None or guarded is None:
            continue
        tensor, value, rounded = small
        if value == 0 and operation(node) != "add" and operation(guarded) == "sqrt":
            continue  # max(x, 0) before a root is meant
        divides = operation(guarded) in ("div", "reciprocal")
        fate = "zero" if value <= ZERO else "infinite" if divides and value < 1 / MAX else "subnormal"
        yield Epsilon(tensor, value, node, guarded, rounded, fate)


def guarded_tensors(graph: GraphFacts) -> Iterator[tuple[Tensor, Epsilon]]:
    """The tensors that an epsilon keeps from 0 and float16 would not, from the node that adds it to the one that it guards."""
    for found in vanishing(graph):
        stack = [(output, found.value) for output in found.node.outputs[:1]]
        seen = {id(tensor) for tensor, _ in stack}
        while stack:
            tensor, floor = stack.pop()
            yield tensor, found
            for user in tensor.consumers:
                root = operation(user) == "sqrt"
                lowest = math.sqrt(floor) if root else floor
                if not (root or user.kind in (OpKind.MOVE, OpKind.CAST)) or lowest > ZERO:
                    continue
                stack += [(output, lowest) for output in user.outputs if id(output) not in seen]
                seen.update(map(id, user.outputs))


def _small(graph: GraphFacts, node: Node) -> tuple[Tensor, float, bool] | None:
    """The positive constant that a node adds, at most the smallest normal number; 0 counts where it stands in float16."""
    for tensor in node.inputs[1:2] if operation(node) == "clip" else node.inputs:
        constant = graph.operand(tensor)
        value = constant.value if constant is not None else None
        if constant is None or value is None:
            continue
        rounded = constant.rounded("float16")
        if 0 < value < SMALLEST_NORMAL or (value == 0 and rounded and constant.tensor.size == 1):
            return constant.tensor, value, rounded
    return None


def _guarded(graph: GraphFacts, node: Node) -> Node | None:
    """The division, log or root that reads what a node computes, also by way of a root."""
    if not node.outputs:
        return None
    result = node.outputs[0]
    for user in users(result, (OpKind.MOVE, OpKind.CAST)):
        match operation(user):
            case "reciprocal" | "rsqrt":
                return user
            case name if name in LOGARITHMS:
                return user
            case "div" if len(user.inputs) > 1 and user.inputs[1] is not None and _leads(result, user.inputs[1]):
                return user
            case "sqrt":
                return user
            case "pow":
                power = graph.operand(user.inputs[1]) if len(user.inputs) > 1 else None
                if power is not None and power.high < 0:
                    return user
    return None


def _leads(tensor: Tensor, target: Tensor) -> bool:
    """Whether `target` is `tensor` or a moved or cast copy of it."""
    return target is tensor or source(target) is source(tensor)


def long_sums(graph: GraphFacts) -> Iterator[tuple[Node, int | None]]:
    """The sums in float16 over many elements, with their number (None where it is not known)."""
    for node in graph.nodes:
        if node.compute_dtype != "float16" or operation(node) not in SUMS:
            continue
        if node.kind is not OpKind.REDUCTION or not node.inputs or node.inputs[0] is None:
            continue
        count = summed(node.inputs[0].shape, node.outputs[0].shape if node.outputs else None)
        if count is None or count >= LARGE:
            yield node, count


def summed(before: tuple[Dim, ...] | None, after: tuple[Dim, ...] | None) -> int | None:
    """How many elements a reduction makes one of, by the shapes before and after; an unknown size is the same where it stays."""
    if before is None or after is None:
        return None
    left = list(before)
    for dim in after:
        if dim != 1 and dim in left:
            left.remove(dim)
    numbers = [dim for dim in left if isinstance(dim, int)]
    return math.prod(numbers) if len(numbers) == len(left) else None
