"""Groups of operations that belong together: a normalization that is written out keeps one precision, or runtimes refuse to fuse it."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from mplint.conversion.onnx.program import HEAVY, Program, is_constant
from mplint.conversion.onnx.types import tops
from mplint.conversion.planner import HEAVY_GAIN

INTEGER = frozenset(("MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul", "QGemm", "QAttention", "DynamicQuantizeMatMul"))
ROOTS = frozenset(("Sqrt", "Rsqrt"))
# What stands between the mean and the root, and between the root and the result.
BEFORE = frozenset(("Add", "Max", "Clip", "ReduceMean", "Pow", "Mul", "Sub", "ReduceSum", "Div", "Cast"))
AFTER = frozenset(("Div", "Mul", "Reciprocal", "Cast"))


def keep_whole(program: Program) -> None:
    """Give each normalization one precision, half only where its input is made in half: a runtime that fuses it looks behind a cast."""
    for group in normalizations(program.model):
        numbers = sorted(
            program.numbers[node] for node in group if node in program.numbers and program.operations[program.numbers[node]].outputs
        )
        if not numbers:
            continue
        program.ties += [(numbers[0], other) for other in numbers[1:]]
        inside = {value for node in group for value in node.outputs}
        for node in group:
            for value in node.inputs:
                maker = program.producers.get(value) if value is not None and value not in inside else None
                if maker is not None:
                    program.needs.append((numbers[0], maker))


def keep_whole_numbers(program: Program) -> None:
    """Leave alone what runtimes compute in int8: matmuls and convolutions between what takes integers apart and what rounds to them."""
    for number, operation in enumerate(program.operations):
        node = operation.node
        if node is not None and operation.gain == HEAVY_GAIN and not operation.stays and is_whole(node):
            program.operations[number].stays = "it is int8: the runtime computes it between the roundings around it"


def integers(model: ir.Model) -> int:
    """How many operations of a model multiply integers by their own definition."""
    return sum(node.op_type in INTEGER for body in tops(model) for node in body.all_nodes())


def is_whole(node: ir.Node) -> bool:
    """Whether a node is heavy, both factors were integers, and the result becomes one, be it after an activation."""
    if node.op_type not in HEAVY:
        return False
    makers = [value.producer() if value is not None else None for value in node.inputs[:2]]
    if len(makers) < 2 or any(maker is None or maker.op_type != "DequantizeLinear" for maker in makers):
        return False
    following = [use.node for use in node.outputs[0].uses()]
    for _ in range(2):
        if len(following) != 1:
            return False
        if following[0].op_type == "QuantizeLinear":
            return True
        if following[0].op_type not in ("Relu", "Clip", "LeakyRelu", "Sigmoid", "Add"):
            return False
        following = [use.node for use in following[0].outputs[0].uses()]
    return bool(following) and following[0].op_type == "QuantizeLinear"


def normalizations(model: ir.Model) -> Iterator[list[ir.Node]]:
    """The nodes of each LayerNorm or RMSNorm that the exporter has written out: from the mean to the division by the root."""
    for body in tops(model):
        for node in body.all_nodes():
            if node.op_type in ROOTS and (group := _group(node)):
                yield group


def _group(root: ir.Node) -> list[ir.Node]:
    """The nodes around a root of a mean of squares, [] where it is something else."""
    before = [root]
    means = []
    current = root
    for _ in range(4):
        value = current.inputs[0]
        makers = [(v, v.producer()) for v in current.inputs if v is not None]
        others = [v for v, maker in makers if maker is not None and maker.op_type in BEFORE]
        value = others[0] if others else value
        producer = value.producer() if value is not None else None
        if producer is None or producer.op_type not in BEFORE:
            break
        before.append(producer)
        if producer.op_type == "ReduceMean":
            means.append(producer)
            break
        current = producer
    if not means:
        return []
    squared = means[0].inputs[0].producer() if means[0].inputs[0] is not None else None
    if squared is None or not (squared.op_type == "Pow" or (squared.op_type == "Mul" and squared.inputs[0] is squared.inputs[1])):
        return []
    before.append(squared)
    centered = squared.inputs[0].producer() if squared.inputs[0] is not None else None
    if centered is not None and centered.op_type == "Sub":
        before.append(centered)
        mean = centered.inputs[1].producer() if centered.inputs[1] is not None else None
        if mean is not None and mean.op_type == "ReduceMean":
            before.append(mean)
    return before + _after(root)


def _after(root: ir.Node) -> list[ir.Node]:
    """The division by the root, and the scale and shift that follow it."""
    found = []
    users = [use.node for use in root.outputs[0].uses() if use.node.op_type in AFTER]
    if len(users) != 1:
        return []
    found.append(users[0])
    if users[0].op_type == "Reciprocal":
        users = [use.node for use in users[0].outputs[0].uses()]
        if len(users) != 1 or users[0].op_type != "Mul":
            return found
        found.append(users[0])
    for op_type in ("Mul", "Add"):
        following = [use.node for use in found[-1].outputs[0].uses()]
        if len(following) != 1 or following[0].op_type != op_type:
            break
        other = [v for v in following[0].inputs if v is not found[-1].outputs[0]]
        if not other or other[0] is None or not is_constant(other[0]):
            break
        found.append(following[0])
    return found
