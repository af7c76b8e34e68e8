"""Products that half can't hold before they are scaled down: the scale moves before the product, where its result is the same."""

from __future__ import annotations

from collections.abc import Collection, Container

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.constants import tensor_of
from mplint.conversion.onnx.program import Program, bodies, is_constant
from mplint.conversion.onnx.types import Declared
from mplint.conversion.planner import HEAVY_GAIN

PRODUCTS = frozenset(("MatMul", "Conv"))


def too_large(program: Program, unsafe: Container[ir.Value]) -> tuple[str, ...]:
    """The names of products that stay float32 for their result, which the model then makes smaller by a constant."""
    found = []
    for operation in program.operations:
        node = operation.node
        if node is None or operation.gain != HEAVY_GAIN or operation.stays:
            continue
        value = node.outputs[0]
        if value in unsafe and value.name and _scale(node) is not None:
            found.append(value.name)
    return tuple(found)


def scaled_before(model: ir.Model, names: Collection[str], declared: Declared) -> int:
    """Scale an operand of the products that are called `names` instead of their results, in place; how many."""
    count = 0
    for body, _ in bodies(model):
        if not isinstance(body, ir.Graph):
            continue
        for node in list(body):
            if node.op_type in PRODUCTS and node.outputs[0].name in names and (found := _scale(node)) is not None:
                _move(body, node, *found, declared)
                count += 1
    return count


def _scale(node: ir.Node) -> tuple[ir.Node, float] | None:
    """The multiplication or division by one number that alone takes a product, and the factor below 1 that it means."""
    if node.op_type not in PRODUCTS or node.domain not in ("", "ai.onnx") or len(node.inputs) != 2:
        return None
    uses = list(node.outputs[0].uses())
    if len(uses) != 1 or node.outputs[0].is_graph_output() or uses[0].node.graph is not node.graph:
        return None
    user, position = uses[0].node, uses[0].idx
    if user.op_type not in ("Mul", "Div") or (user.op_type == "Div" and position != 0) or len(user.inputs) != 2:
        return None
    other = user.inputs[1 - position]
    tensor = tensor_of(other) if other is not None and is_constant(other) else None
    if tensor is None or tensor.size != 1 or len(tensor.shape) > 1:
        return None
    number = float(tensor.numpy().reshape(-1)[0])
    factor = number if user.op_type == "Mul" else 1 / number if number else 0.0
    return (user, factor) if 0 < abs(factor) < 1 else None


def _move(body: ir.Graph, node: ir.Node, user: ir.Node, factor: float, declared: Declared) -> None:
    position = 1 if node.op_type == "MatMul" and node.inputs[0] is not None and is_constant(node.inputs[0]) else 0
    operand, old, result = node.inputs[position], node.outputs[0], user.outputs[0]
    assert operand is not None
    number = ir.Value(name=f"{old.name}_scale")
    tensor = ir.Tensor(np.array(factor, dtype=np.float32), name=number.name)
    smaller = ir.Value(name=f"{old.name}_scaled_before", type=operand.type, shape=operand.shape)
    value = ir.Value(name=result.name, type=result.type, shape=result.shape)
    number.type, number.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
    constant = ir.node("Constant", [], {"value": tensor}, outputs=[number], name=f"{user.name}_constant" if user.name else None)
    scale = ir.node("Mul", [operand, number], outputs=[smaller], name=user.name)
    inputs = list(node.inputs)
    inputs[position] = smaller
    product = ir.Node("", node.op_type, inputs, list(node.attributes.values()), outputs=[value], name=node.name)
    body.insert_after(user, [constant, scale, product])
    for use in list(result.uses()):
        use.node.replace_input_with(use.idx, value)
    for at, output in enumerate(body.outputs):
        if output is result:
            body.outputs[at] = value
    if result in declared:
        declared[value] = declared.pop(result)
    declared[number] = declared[smaller] = (None, None)
    body.remove([user, node], safe=True)
