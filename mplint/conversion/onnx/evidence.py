"""What an ONNX model's graph and names say of the values that its inputs take."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.constants import tensor_of
from mplint.conversion.onnx.program import is_constant
from mplint.conversion.onnx.widths import walked, widths
from mplint.conversion.plausible import RATE, SOUND, is_sound, likely_by

INDEXING = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "OneHot": 0, "ScatterElements": 1, "ScatterND": 1}
PASSING = frozenset(("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Expand", "Transpose", "Slice", "Clip", "Concat"))
MOVING = frozenset(("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Slice"))
COMPARING = frozenset(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
NUMBERS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64, ir.DataType.INT32)
COUNT = r"(^|[_.])(len|lens|lengths?)($|[_.\d])"
RATES = (16000, 8000)
SOUNDING = frozenset(
    ("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Transpose", "Slice", "Pad", "Concat", "Mul", "Div", "Add", "Sub", "Where")
)
FILTER = 10  # the width from which on a filter over one channel is one of a signal
LONGEST = 32000  # samples
FOLDED = 1 << 20  # elements of constants that are computed with


@dataclass(slots=True)
class Evidence:
    """What is known of an input: `likely` are (mean, deviation) of its values, the first from its first operators (numbers or arrays).

    `limit` is one more than the largest integer that it may hold, None where nothing says. `sure` says that the operators are the witness.
    `length` is how many samples of a signal it should hold, None for what is no signal. `choices` are the integers that the graph compares
    it with, and others; `counts` says that it is the length of another input, `of_signal` that of a signal. `widths` are the sizes that
    weights say its axes have, `walked` is the axis that a recurrent operator goes along.
    """

    likely: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    sure: bool = False
    limit: int | None = None
    length: int | None = None
    choices: tuple[int, ...] = ()
    counts: bool = False
    of_signal: bool = False
    widths: dict[int, int] = field(default_factory=dict)
    walked: int | None = None


def evidence(value: ir.Value) -> Evidence:
    """What the model says of one of its inputs."""
    found = Evidence(widths=widths(value))
    kind = value.dtype.numpy().kind if value.dtype is not None else "f"
    if kind in "iu":
        found.choices = _choices(value)
        found.limit = _limit(value)
        found.counts = len(value.shape or ()) <= 1 and re.search(COUNT, (value.name or "").lower()) is not None
        graph = value.graph
        found.of_signal = found.counts and graph is not None and any(_length(other) is not None for other in graph.inputs)
        return found
    if kind != "f":
        return found
    found.length, found.walked = _length(value), walked(value)
    scaled = _normalized_by(value)
    if scaled is not None:
        found.likely, found.sure = [scaled], True
    else:
        likely = SOUND if found.length is not None else (*likely_by(value.name or ""), *((bound, bound) for bound in _bounds(value)))
        found.likely = [(np.array(mean), np.array(spread)) for mean, spread in likely]
    return found


def _bounds(value: ir.Value) -> list[float]:
    """The largest magnitudes of the constants that a value, moved or cast, is compared with."""
    found = []
    stack = [value]
    seen: set[ir.Value] = set()
    while stack and len(seen) < 50:
        current = stack.pop()
        seen.add(current)
        for use in current.uses():
            if use.node.op_type in COMPARING and len(use.node.inputs) == 2:
                other = use.node.inputs[1 - use.idx]
                tensor = tensor_of(other) if other is not None and is_constant(other) else None
                if tensor is not None and 0 < tensor.size <= FOLDED and tensor.dtype in NUMBERS:
                    found.append(float(np.max(np.abs(tensor.numpy().astype(np.float64)))))
            elif use.node.op_type in PASSING and use.idx == 0:
                stack += [output for output in use.node.outputs if output not in seen]
    return [bound for bound in found if 1 < bound < 1e9]


def _length(value: ir.Value) -> int | None:
    """How many samples of a signal an input should hold: a second, or what its frames and filters take; None for what is no signal."""
    if value.dtype is None or not value.dtype.is_floating_point() or not 1 <= len(value.shape or ()) <= 3:
        return None
    frame = 0
    seen: set[ir.Value] = set()
    stack = [value]
    while stack and len(seen) < 100:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        for use in current.uses():
            node = use.node
            if node.op_type in ("STFT", "DFT") and use.idx == 0:
                frame = max(frame, *(_width(operand) for operand in node.inputs[1:]), 400)
            elif node.op_type == "Conv" and use.idx == 0:
                frame = max(frame, _filter(node.inputs[1]))
            elif node.op_type in SOUNDING and use.idx in (0, 1):
                stack += node.outputs
    if not frame and not (is_sound(value.name or "") and len(value.shape or ()) <= 2):
        return None
    return min(LONGEST, max(RATE, 20 * frame))


def _filter(weight: ir.Value | None) -> int:
    """The width of a filter over one channel; 0 where it is narrow, or one over pictures."""
    shape = list(weight.shape) if weight is not None and weight.shape is not None else []
    if len(shape) < 3 or shape[1] != 1 or any(size != 1 for size in shape[2:-1]):
        return 0
    return shape[-1] if isinstance(shape[-1], int) and shape[-1] >= FILTER else 0


def _width(value: ir.Value | None) -> int:
    """The number of elements of a window, or the number that says it."""
    if value is None:
        return 0
    number = _integer(value)
    if number is not None:
        return number
    return value.shape[0] if value.shape is not None and len(value.shape) == 1 and isinstance(value.shape[0], int) else 0


def _integer(value: ir.Value | None) -> int | None:
    """The integer that a constant of one element is."""
    tensor = tensor_of(value) if value is not None and is_constant(value) else None
    whole = tensor is not None and tensor.size == 1 and (tensor.dtype.is_integer() or tensor.dtype.is_floating_point())
    return int(tensor.numpy().reshape(-1)[0]) if tensor is not None and whole else None


def _choices(value: ir.Value) -> tuple[int, ...]:
    """What a single integer is compared with, and another number; what its name says."""
    if any(dim != 1 for dim in value.shape or ()):
        return ()
    found = [int(bound) for bound in _bounds(value)]
    if re.search(r"(^|[_.])(sr|rate|sample_?rate|sampling_?rate)$", (value.name or "").lower()):
        found += RATES
    elif found:
        found += [number + 1 for number in found[:2]]
    return tuple(dict.fromkeys(found))


def _normalized_by(value: ir.Value) -> tuple[np.ndarray, np.ndarray] | None:
    """The mean and deviation that the model itself takes off an input before anything else; None where it does not."""
    for use in value.uses():
        mean, spread, moved, current, position, node = np.array(0.0), np.array(1.0), False, value, use.idx, use.node
        for _ in range(8):
            if node.op_type == "BatchNormalization" and position == 0:
                parts = [_constant(operand) for operand in node.inputs[3:5]]
                if any(part is None for part in parts):
                    break
                shape = (-1, *(1,) * max(0, len(current.shape or ()) - 2))
                center, variance = (np.asarray(part).reshape(shape) for part in parts)
                mean, spread = mean + spread * _flat(center, moved), spread * np.sqrt(_flat(np.abs(variance), moved) + 1e-12)
                break
            if node.op_type in ("Sub", "Add", "Mul", "Div"):
                other = (
                    _constant(node.inputs[1 - position])
                    if len(node.inputs) == 2 and (position == 0 or node.op_type in ("Add", "Mul"))
                    else None
                )
                if other is None or other.size == 0 or not np.isfinite(other).all():
                    break
                other = _flat(other, moved)
                if node.op_type in ("Sub", "Add"):
                    mean = mean + spread * (other if node.op_type == "Sub" else -other)
                elif (other == 0).any():
                    break
                else:
                    spread = spread * np.abs(other if node.op_type == "Div" else 1 / other)
            elif node.op_type in MOVING and position == 0:
                moved = True
            elif node.op_type not in ("Cast", "Identity"):
                break
            current = node.outputs[0]
            following = list(current.uses())
            if len(following) != 1:
                break
            node, position = following[0].node, following[0].idx
        if float(np.max(spread)) > 4.0 or float(np.max(np.abs(mean))) > 4.0:
            return mean, np.maximum(spread, np.abs(mean) / 8 if np.all(spread == 1.0) else 0.0)
    return None


def _flat(array: np.ndarray, moved: bool) -> np.ndarray:
    """An operand as it stands beside the input itself; after a change of shape only its size is known."""
    return np.asarray(np.max(np.abs(array)) * np.sign(np.mean(array) or 1.0) if moved else array, dtype=np.float64)


def _constant(value: ir.Value | None, depth: int = 4) -> np.ndarray | None:
    """The value of a constant, or of simple arithmetic on constants."""
    if value is None:
        return None
    if is_constant(value):
        tensor = tensor_of(value)
        return (
            tensor.numpy().astype(np.float64) if tensor is not None and tensor.size <= FOLDED and tensor.dtype.is_floating_point() else None
        )
    node = value.producer()
    if node is None or not depth or node.domain not in ("", "ai.onnx"):
        return None
    parts = [_constant(operand, depth - 1) for operand in node.inputs]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts) or not known:
        return None
    with np.errstate(all="ignore"):
        match node.op_type, len(known):
            case "Add", 2:
                return np.asarray(known[0] + known[1])
            case "Sub", 2:
                return np.asarray(known[0] - known[1])
            case "Mul", 2:
                return np.asarray(known[0] * known[1])
            case "Div", 2:
                return np.asarray(known[0] / known[1])
            case "Sqrt", 1:
                return np.asarray(np.sqrt(known[0]))
            case "Reciprocal", 1:
                return np.asarray(1 / known[0])
            case "Identity", 1:
                return known[0]
    return None


def _limit(value: ir.Value) -> int | None:
    """One more than the largest integer that the graph can take at an input: the rows of a table that it indexes, the range of its dtype,
    2 for a mask; None for a number of unknown size."""
    limits = []
    unknown = small = False
    seen: set[ir.Value] = set()
    counted: set[ir.Value] = set()  # computed from the input, so that an index is no longer the input itself
    stack = [value]
    while stack and len(seen) < 2000:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        for use in current.uses():
            node = use.node
            if INDEXING.get(node.op_type) == use.idx and node.inputs[0] is not None:
                rows = _rows(node)
                if current in counted:
                    small = True
                elif isinstance(rows, int):
                    limits.append(rows)
                elif node.op_type in ("Gather", "GatherElements", "GatherND", "OneHot"):
                    limits.append(2)
            elif (node.op_type in PASSING and use.idx == 0) or node.op_type == "Concat":
                if current in counted:
                    counted.update(node.outputs)
                stack += node.outputs
            elif _masks(node, use.idx):
                limits.append(2)
            elif current.dtype is not None and current.dtype.is_floating_point() and node.op_type not in PASSING:
                unknown = True
            elif node.op_type in ("Mul", "Add", "Sub", "Mod"):
                counted.update(node.outputs)
                stack += node.outputs
            elif node.op_type not in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
                small = True  # a size, a shape, a condition
            else:
                unknown = True
    if limits:
        return min(limits)
    if bounds := _bounds(value):
        return int(max(bounds)) + 2
    if value.dtype is not None and value.dtype.numpy().itemsize == 1:
        return 256 if value.dtype.numpy().kind == "u" else 128
    return None if unknown and not small and "mask" not in (value.name or "").lower() else 2


def _rows(node: ir.Node) -> object:
    """How many indices an operator takes: the size of the table that they index, or the depth of a OneHot."""
    if node.op_type == "OneHot":
        return _integer(node.inputs[1])
    table = node.inputs[0].shape if node.inputs[0] is not None else None
    axis = node.attributes.get_int("axis", 0) or 0
    return table[axis] if table is not None and -len(table) <= axis < len(table) else None


def _masks(node: ir.Node, position: int) -> bool:
    """Whether an operator takes 0 and 1: it is taken from one, tells true from false, or stands against a 0 or 1."""
    if node.op_type in ("And", "Or", "Not", "Where") and position == 0:
        return True
    if node.op_type == "Cast":
        return bool(node.attributes.get_int("to", 0) == int(ir.DataType.BOOL))
    if node.op_type not in ("Sub", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
        return False
    other = node.inputs[1 - position] if len(node.inputs) == 2 else None
    if other is None or not is_constant(other) or (node.op_type == "Sub" and position == 0):
        return False
    tensor = tensor_of(other)
    return tensor is not None and tensor.size == 1 and float(tensor.numpy().reshape(-1)[0]) in (0.0, 1.0)
