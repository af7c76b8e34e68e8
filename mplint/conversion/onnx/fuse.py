"""LayerNorms that an exporter has written out, as the one operator that computes their middle in float32 whatever its input is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.constants import tensor_of
from mplint.conversion.onnx.program import bodies, is_constant
from mplint.conversion.onnx.types import Declared

FIRST = 17  # the opset with LayerNormalization


class Norm(NamedTuple):
    """A LayerNorm over the last axis: what it takes, its nodes in order, and its constants."""

    value: ir.Value
    nodes: list[ir.Node]
    scale: ir.Value | None
    shift: ir.Value | None
    epsilon: float


def fused(model: ir.Model, declared: Declared) -> int:
    """Turn LayerNorms that are written out into LayerNormalization operators, in place; how many.

    The values carry their types; `declared` learns which values took the place of which.
    """
    count = 0
    for body, opsets in bodies(model):
        if opsets.get("", opsets.get("ai.onnx", 0)) < FIRST or not isinstance(body, ir.Graph):
            continue
        for node in list(body):
            norm = _norm(node) if node.op_type == "Sqrt" and node.graph is body else None
            if norm is not None and all(one.graph is body for one in norm.nodes):
                count += _replace(body, norm, declared)
    return count


def _norm(root: ir.Node) -> Norm | None:
    """The LayerNorm around a square root."""
    added = _made(root.inputs[0], "Add")
    if added is None:
        return None
    variance, epsilon = _with_constant(added)
    mean = _made(variance, "ReduceMean")
    if mean is None or epsilon is None or not _over_last(mean):
        return None
    squared = _made(mean.inputs[0], "Pow") or _made(mean.inputs[0], "Mul")
    centered = squared.inputs[0] if squared is not None else None
    if squared is None or centered is None or not _squares(squared):
        return None
    taken = _made(centered, "Sub")
    if taken is None or taken.inputs[0] is None:
        return None
    center = _made(taken.inputs[1], "ReduceMean")
    if center is None or center.inputs[0] is not taken.inputs[0] or not _over_last(center):
        return None
    nodes = [center, taken, squared, mean, added, root]
    last = _only_user(root.outputs[0])
    if last is not None and last.op_type == "Reciprocal":
        nodes.append(last)
        last = _only_user(last.outputs[0])
        divides = last is not None and last.op_type == "Mul" and centered in last.inputs
    else:
        divides = last is not None and last.op_type == "Div" and last.inputs[0] is centered
    uses = {use.node for use in centered.uses()}
    if not divides or last is None or uses != {squared, last}:
        return None
    nodes.append(last)
    scale, shift = None, None
    after = _only_user(last.outputs[0])
    if after is not None and after.op_type == "Mul" and (scale := _vector(after, last.outputs[0])) is not None:
        nodes.append(after)
        further = _only_user(after.outputs[0])
        if further is not None and further.op_type == "Add" and (shift := _vector(further, after.outputs[0])) is not None:
            nodes.append(further)
    if any(value.is_graph_output() for node in nodes[:-1] for value in node.outputs):
        return None
    if any(_only_user(value) is None for node in nodes[:-1] for value in node.outputs if value is not centered):
        return None
    return Norm(taken.inputs[0], nodes, scale, shift, epsilon)


def _replace(body: ir.Graph, norm: Norm, declared: Declared) -> bool:
    """Put the operator in the place of the nodes; whether that was possible."""
    last = norm.nodes[-1]
    old = last.outputs[0]
    scale = norm.scale
    if scale is None:
        width = norm.value.shape[-1] if norm.value.shape else None
        if not isinstance(width, int) or norm.value.dtype != ir.DataType.FLOAT:
            return False
        name = f"{old.name}_scale"
        if name in body.initializers:
            return False
        made = ir.Tensor(np.ones(width, dtype=np.float32), name=name)
        scale = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([width]), const_value=made)
        body.register_initializer(scale)
        declared[scale] = (scale.type, scale.shape)
    inputs = [norm.value, scale, *([norm.shift] if norm.shift is not None else [])]
    value = ir.Value(name=old.name, type=old.type, shape=old.shape)
    made_of = ir.node("LayerNormalization", inputs, {"axis": -1, "epsilon": norm.epsilon}, outputs=[value], name=last.name)
    body.insert_after(last, made_of)
    if old in declared:
        declared[value] = declared.pop(old)
    for use in list(old.uses()):
        use.node.replace_input_with(use.idx, value)
    for position, output in enumerate(body.outputs):
        if output is old:
            body.outputs[position] = value
    body.remove(norm.nodes, safe=True)
    return True


def _made(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == op_type and node.domain in ("", "ai.onnx") else None


def _only_user(value: ir.Value) -> ir.Node | None:
    """The node that alone uses a value, be it twice."""
    users = {use.node for use in value.uses()}
    return next(iter(users)) if len(users) == 1 else None


def _number(value: ir.Value | None) -> float | None:
    tensor = tensor_of(value) if value is not None and is_constant(value) else None
    return float(tensor.numpy().reshape(-1)[0]) if tensor is not None and tensor.size == 1 else None


def _with_constant(node: ir.Node) -> tuple[ir.Value | None, float | None]:
    """The operand of a sum that is no number, and the number."""
    for at in (0, 1):
        number = _number(node.inputs[at])
        if number is not None:
            return node.inputs[1 - at], number
    return None, None


def _squares(node: ir.Node) -> bool:
    return _number(node.inputs[1]) == 2.0 if node.op_type == "Pow" else node.inputs[0] is node.inputs[1]


def _over_last(node: ir.Node) -> bool:
    """Whether a mean is taken over the last axis, which stays."""
    if node.attributes.get_int("keepdims", 1) != 1:
        return False
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        tensor = tensor_of(node.inputs[1]) if is_constant(node.inputs[1]) else None
        axes = [int(axis) for axis in tensor.numpy().reshape(-1)] if tensor is not None else []
    else:
        axes = [int(axis) for axis in node.attributes.get_ints("axes", ()) or ()]
    rank = len(node.inputs[0].shape) if node.inputs[0] is not None and node.inputs[0].shape is not None else None
    return axes == [-1] or (rank is not None and axes == [rank - 1])


def _vector(node: ir.Node, other: ir.Value) -> ir.Value | None:
    """The constant of one dimension that a node joins with `other`."""
    found = next((value for value in node.inputs if value is not other), None)
    tensor = tensor_of(found) if found is not None and is_constant(found) else None
    return found if tensor is not None and len(tensor.shape) == 1 and tensor.size > 1 and tensor.dtype == ir.DataType.FLOAT else None
