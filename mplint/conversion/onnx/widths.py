"""What operators say of the axes of an input: the sizes that weights have, and which axis is walked step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir

from mplint.conversion.onnx.constants import tensor_of
from mplint.conversion.onnx.program import is_constant
from mplint.conversion.plausible import STEPS

SAME = frozenset(("Identity", "Cast", "Clip", "Relu", "LeakyRelu", "Elu", "Sigmoid", "Tanh", "Abs", "Neg", "Sqrt", "Exp", "Log", "Dropout"))
BROADCASTING = frozenset(("Add", "Sub", "Mul", "Div", "PRelu", "Pow"))
NORMS = frozenset(("BatchNormalization", "InstanceNormalization"))
RECURRENT = frozenset(("LSTM", "GRU", "RNN"))
STATES = (5, 6)  # the inputs of recurrent operators that hold what was before
MOST = 200  # values that are looked at
FARTHEST = 2000  # values behind an input among which an operator that goes step by step is looked for

Axes = tuple[int | None, ...]  # which axis of the input each axis of a value is, if any


class Told(NamedTuple):
    """An axis of an operator's input, and the size that it must have."""

    axis: int
    size: object


def widths(value: ir.Value) -> dict[int, int]:
    """The size of each axis of an input of which an operator behind it says the size."""
    found: dict[int, int] = {}
    stack: list[tuple[ir.Value, Axes]] = [(value, tuple(range(len(value.shape or ()))))]
    seen: set[ir.Value] = set()
    while stack and len(seen) < MOST:
        current, axes = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        for use in current.uses():
            for axis, size in _told(use.node, use.idx, len(axes)):
                origin = axes[axis] if -len(axes) <= axis < len(axes) else None
                if origin is not None and isinstance(size, int) and size > 0:
                    found.setdefault(origin, size)
            behind = _behind(use.node, use.idx, axes)
            if behind is not None:
                stack += [(output, behind) for output in use.node.outputs[:1]]
    return found


def walked(value: ir.Value) -> int | None:
    """The axis of an input along which a recurrent operator, a scan or a loop behind it goes step by step; None where none does."""
    stack: list[tuple[ir.Value, Axes]] = [(value, tuple(range(len(value.shape or ()))))]
    seen: set[ir.Value] = set()
    while stack and len(seen) < FARTHEST:
        current, axes = stack.pop()
        if current in seen or all(axis is None for axis in axes):
            continue
        seen.add(current)
        for use in current.uses():
            axis = _steps_along(use.node, use.idx, current)
            if axis is not None and -len(axes) <= axis < len(axes) and axes[axis] is not None:
                return axes[axis]
            follows = _follows(use.node, use.idx, axes)
            if follows is not None:
                stack += [(output, follows) for output in use.node.outputs[:1]]
    return None


def _steps_along(node: ir.Node, position: int, value: ir.Value) -> int | None:
    """The axis of its input that an operator takes step by step."""
    if node.op_type in RECURRENT and position == 0:
        return 1 if node.attributes.get_int("layout", 0) else 0
    if node.op_type == "Scan":
        count = node.attributes.get_int("num_scan_inputs", 0) or 0
        first = len(node.inputs) - count
        given = node.attributes.get_ints("scan_input_axes") or [0] * count
        return given[position - first] if first <= position < first + len(given) else None
    is_in_body = node.graph is not value.graph  # taken from outside by a loop
    chosen = node.inputs[1] if node.op_type == "Gather" and position == 0 else None
    if is_in_body and chosen is not None and not is_constant(chosen) and len(chosen.shape or ()) <= 1:
        return node.attributes.get_int("axis", 0) or 0
    return None


def _follows(node: ir.Node, position: int, axes: Axes) -> Axes | None:
    """Which axes of the input those of an operator's first result go along with, though their sizes may differ; None where none does."""
    behind = _behind(node, position, axes)
    if behind is not None:
        return behind
    result = node.outputs[0].shape
    rank = len(result) if result is not None else len(axes)
    match node.op_type:
        case "MatMul" | "Gemm" if position == 0 and _is_weight(node, 1) and rank == len(axes):
            return (*axes[:-1], None)
        case "Conv" | "MaxPool" | "AveragePool" | "ConvTranspose" if position == 0 and len(axes) > 2:
            return (axes[0], None, *axes[2:])
        case "Slice" | "Pad" if position == 0:
            return axes
        case "Concat" | "Mul" | "Add" | "Sub" | "Div" | "Max" | "Min" | "Where" | "Gelu" | "Softplus" | "LogSoftmax" if rank == len(axes):
            return axes
        case "Reshape" if position == 0 and node.inputs[0] is not None and result is not None:
            return _kept(list(node.inputs[0].shape or ()), list(result), axes)
        case name if name in RECURRENT and position == 0 and rank == len(axes) + 1:  # steps, directions, batch, features
            return (axes[0], None, axes[1], None) if not node.attributes.get_int("layout", 0) else (axes[0], axes[1], None, None)
    return None


def _kept(before: Sequence[object], after: Sequence[object], axes: Axes) -> Axes | None:
    """The axes that a reshape leaves at the front and at the back, by their sizes."""
    if len(before) != len(axes):
        return None
    front = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), min(len(before), len(after)))
    most = min(len(before), len(after)) - front
    back = next((at for at, pair in enumerate(zip(reversed(before), reversed(after), strict=False)) if pair[0] != pair[1]), most)
    back = min(back, most)
    middle = [None] * (len(after) - front - back)
    return (*axes[:front], *middle, *(axes[len(axes) - back :] if back else ()))


def _told(node: ir.Node, position: int, rank: int) -> list[Told]:
    """What an operator says of the input at a position, which has a rank."""
    first = position == 0
    if node.op_type in RECURRENT:
        weights, back = _shape(node, 1), _shape(node, 2)
        if first and len(weights) == 3:
            return [Told(2, weights[2]), Told(1 if node.attributes.get_int("layout", 0) else 0, STEPS)]
        return [Told(0, back[0]), Told(2, back[2])] if position in STATES and len(back) == 3 else []
    if node.op_type == "MatMul":
        other = _shape(node, 1 - position)
        if len(other) < 2 or not _is_weight(node, 1 - position):
            return []
        return [Told(-1, other[-2])] if first else [Told(-2, other[-1])] if rank > 1 else []
    if node.op_type == "Gemm" and first and len(_shape(node, 1)) == 2:
        size = _shape(node, 1)[1 if node.attributes.get_int("transB", 0) else 0]
        return [Told(0 if node.attributes.get_int("transA", 0) else 1, size)]
    if node.op_type in ("Conv", "ConvTranspose") and first and len(_shape(node, 1)) > 2:
        inner = _shape(node, 1)[1 if node.op_type == "Conv" else 0]
        groups = node.attributes.get_int("group", 1) or 1 if node.op_type == "Conv" else 1
        return [Told(1, inner * groups if isinstance(inner, int) else None)]
    if node.op_type in NORMS and first and len(_shape(node, 1)) == 1:
        return [Told(1, _shape(node, 1)[0])]
    if node.op_type == "LayerNormalization" and first and len(_shape(node, 1)) == 1:
        return [Told(-1, _shape(node, 1)[0])]
    if node.op_type in BROADCASTING and len(node.inputs) == 2 and _is_weight(node, 1 - position):
        other = _shape(node, 1 - position)
        return [Told(at - len(other), size) for at, size in enumerate(other) if size != 1]
    return []


def _shape(node: ir.Node, position: int) -> Sequence[object]:
    value = node.inputs[position] if position < len(node.inputs) else None
    if value is None:
        return ()
    tensor = tensor_of(value) if is_constant(value) else None
    return list(tensor.shape) if tensor is not None else list(value.shape or ())


def _is_weight(node: ir.Node, position: int) -> bool:
    value = node.inputs[position]
    return value is not None and is_constant(value)


def _behind(node: ir.Node, position: int, axes: Axes) -> Axes | None:
    """Which axes of the input an operator's first result has; None where that isn't known."""
    if node.op_type in SAME or (node.op_type in NORMS | {"LayerNormalization", "Softmax"} and position == 0):
        return axes
    if node.op_type in BROADCASTING and _is_weight(node, 1 - position) and len(_shape(node, 1 - position)) <= len(axes):
        return axes
    if position != 0:
        return None
    rank = len(axes)
    match node.op_type:
        case "Transpose":
            order = node.attributes.get_ints("perm", tuple(reversed(range(rank))))
            return tuple(axes[at] for at in order) if order is not None and sorted(order) == list(range(rank)) else None
        case "Unsqueeze":
            new = _numbers(node, "axes", 1)
            if new is None:
                return None
            left = iter(axes)
            places = {at % (rank + len(new)) for at in new}
            return tuple(None if at in places else next(left, None) for at in range(rank + len(new)))
        case "Squeeze":
            gone = _numbers(node, "axes", 1)
            return None if gone is None else tuple(axis for at, axis in enumerate(axes) if at not in {one % rank for one in gone})
        case "Slice":
            cut, steps = _numbers(node, "axes", 3), _numbers(node, "steps", 4)
            if cut is None:
                return None
            turned = steps is not None and all(step == -1 for step in steps)  # from the end to the beginning, as long as before
            return axes if turned else tuple(None if at in {one % rank for one in cut} else axis for at, axis in enumerate(axes))
        case "Pad":
            pads = _numbers(node, "pads", 1)
            if pads is None or len(pads) != 2 * rank:
                return None
            return tuple(None if pads[at] or pads[at + rank] else axis for at, axis in enumerate(axes))
    return None


def _numbers(node: ir.Node, attribute: str, position: int) -> list[int] | None:
    """The integers of an attribute, or of the constant that stands for it in later opsets."""
    given = node.attributes.get_ints(attribute)
    if given is not None:
        return list(given)
    value = node.inputs[position] if position < len(node.inputs) else None
    tensor = tensor_of(value) if value is not None and is_constant(value) else None
    return [int(one) for one in tensor.numpy().reshape(-1)] if tensor is not None else None
