"""A copy of an ONNX model in which tensors are rounded to half and read back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.constants import rounded, tensor_of
from mplint.conversion.onnx.program import bodies, is_constant
from mplint.conversion.planner import MARGIN

FACTOR = "mplint_margin"
FIRST_BROADCAST = 7  # the first opset whose Mul ONNX Runtime has; in older ones nothing is grown


def instrumented(model: ir.Model, values: Sequence[ir.Value], half: str, chosen: Collection[int]) -> ir.Model:
    """A copy of the model in which those of the `values` are rounded whose numbers are `chosen`."""
    twin = model.clone()
    twins = dict(_pairs(model, twin))
    main = {twin.graph, *twin.graph.subgraphs()}
    factor = None
    grown = half == "float16" and model.opset_imports.get("", 1) >= FIRST_BROADCAST
    if grown:
        made = ir.Tensor(np.array(MARGIN, dtype=np.float32), name=FACTOR)
        factor = ir.Value(name=FACTOR, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([]), const_value=made)
        twin.graph.register_initializer(factor)
    ends: dict[ir.Value, list[tuple[ir.Graph | ir.Function, int]]] = {}
    for body, _ in bodies(twin):
        for at, output in enumerate(body.outputs):
            ends.setdefault(output, []).append((body, at))
    for number in sorted(set(chosen)):
        value = twins[values[number]]
        if is_constant(value):
            _in_place(value, half)
            continue
        owner = owner_of(value)
        assert owner is not None
        rounded_value = _instrument(owner, value, number, half, factor if owner in main else None, grown=grown)
        for body, at in ends.get(value, ()):
            body.outputs[at] = rounded_value
    return twin


def _in_place(value: ir.Value, half: str) -> None:
    """Round a constant where it stands."""
    tensor = tensor_of(value)
    assert tensor is not None
    made = ir.Tensor(rounded(tensor.numpy(), half).astype(np.float32), name=tensor.name)
    node = value.producer()
    if node is None:
        value.const_value = made
        return
    node.attributes.clear()
    node.attributes["value"] = ir.AttrTensor("value", made)


def _instrument(
    owner: ir.Graph | ir.Function, value: ir.Value, number: int, half: str, factor: ir.Value | None, *, grown: bool
) -> ir.Value:
    """Put a tensor's rounding after it; the value that its users read now."""
    name = f"mplint_{number}"
    uses = [(use.node, use.idx) for use in value.uses()]
    nodes = _rounding(value, half, name, factor, grown=grown)
    producer = value.producer()
    if producer is not None:
        owner.insert_after(producer, nodes)
    elif (first := next(iter(owner), None)) is not None:
        owner.insert_before(first, nodes)
    else:
        owner.extend(nodes)
    result = nodes[-1].outputs[0]
    result.type, result.shape = value.type, value.shape
    for node, position in uses:
        node.replace_input_with(position, result)
    return result


def _rounding(value: ir.Value, half: str, name: str, factor: ir.Value | None, *, grown: bool) -> list[ir.Node]:
    """Nodes that store `value` in half and read it back, `grown` at `MARGIN` times its size, so that the range is used up earlier."""
    dtype = int(ir.DataType[half.upper()])
    nodes: list[ir.Node] = []
    source = value
    if grown:
        if factor is None:
            nodes.append(_constant(np.array(MARGIN, dtype=np.float32), f"{name}_margin"))
            factor = nodes[0].outputs[0]
        nodes.append(ir.node("Mul", [source, factor], outputs=[ir.Value(name=f"{name}_grown")]))
        source = nodes[-1].outputs[0]
    nodes.append(ir.node("Cast", [source], {"to": dtype}, outputs=[ir.Value(name=f"{name}_half")]))
    nodes.append(ir.node("Cast", [nodes[-1].outputs[0]], {"to": int(ir.DataType.FLOAT)}, outputs=[ir.Value(name=f"{name}_back")]))
    if factor is not None:
        nodes.append(ir.node("Div", [nodes[-1].outputs[0], factor], outputs=[ir.Value(name=f"{name}_shrunk")]))
    return nodes


def _constant(array: np.ndarray, name: str) -> ir.Node:
    return ir.node("Constant", [], {"value": ir.Tensor(array)}, outputs=[ir.Value(name=name)])


def owner_of(value: ir.Value) -> ir.Graph | ir.Function | None:
    """The body that a value belongs to."""
    producer = value.producer()
    return producer.graph if producer is not None else value.graph


def _pairs(one: ir.Model, other: ir.Model) -> list[tuple[ir.Value, ir.Value]]:
    """The values of a model with those of its clone."""
    found: list[tuple[ir.Value, ir.Value]] = []
    for (body, _), (twin, _) in zip(bodies(one), bodies(other), strict=True):
        found += zip(body.inputs, twin.inputs, strict=True)
        if isinstance(body, ir.Graph) and isinstance(twin, ir.Graph):
            found += ((value, twin.initializers[name]) for name, value in body.initializers.items())
        for node, copy in zip(body, twin, strict=True):
            found += zip(node.outputs, copy.outputs, strict=True)
    return found
