"""Functions that are called more than once: each call is planned by itself, and copies that came out equal become one again."""

from __future__ import annotations

from itertools import count

import onnx_ir as ir
from onnx_ir import serde

from mplint.conversion.onnx.types import Body, tops

ORIGIN = "mplint.origin"
MOST = 20_000  # nodes; beyond, calls share what they call


def separate(model: ir.Model) -> None:
    """Give every call of a function a copy of its own, in place."""
    taken = {identifier[1] for identifier in model.functions}
    called: set[ir.OperatorIdentifier] = set()
    size = sum(1 for body in tops(model) for _ in body.all_nodes())
    waiting: list[Body] = [model.graph]
    while waiting:
        for node in list(waiting.pop(0).all_nodes()):
            function = model.functions.get(node.op_identifier())
            if function is None:
                continue
            if node.op_identifier() in called:
                size += sum(1 for _ in function.all_nodes())
                if size > MOST:
                    continue
                copy = function.clone()
                copy.name = next(name for number in count(2) if (name := f"{function.name}_{number}") not in taken)
                taken.add(copy.name)
                copy.meta[ORIGIN] = function.meta.get(ORIGIN, function.identifier())
                model.functions[copy.identifier()] = function = copy
                node.op_type = copy.name
            called.add(node.op_identifier())
            waiting.append(function)


def unite(model: ir.Model) -> None:
    """Make one of the copies that are equal, in place."""
    united = True
    while united:
        united = False
        known: dict[object, ir.Function] = {}
        for function in list(model.functions.values()):
            form = (function.meta.get(ORIGIN, function.identifier()), _form(function, {}))
            first = known.setdefault(form, function)
            if first is not function and ORIGIN in function.meta:
                _redirect(model, function, first)
                del model.functions[function.identifier()]
                united = True


def _redirect(model: ir.Model, old: ir.Function, new: ir.Function) -> None:
    for body in tops(model):
        for node in body.all_nodes():
            if node.op_identifier() == old.identifier():
                node.op_type = new.name


def _form(body: Body, numbers: dict[ir.Value, int]) -> tuple[object, ...]:
    """What a body computes, whatever its values are called."""

    def number(value: ir.Value | None) -> int:
        return -1 if value is None else numbers.setdefault(value, len(numbers))

    parts: list[object] = [tuple(number(value) for value in body.inputs)]
    if isinstance(body, ir.Graph):
        parts += [(number(value), *_tensor(value.const_value)) for value in body.initializers.values() if value.const_value is not None]
    for node in body:
        attributes = tuple(_attribute(attribute, numbers) for attribute in node.attributes.values())
        parts.append((node.op_identifier(), attributes, tuple(map(number, node.inputs)), tuple(map(number, node.outputs))))
    parts.append(tuple(number(value) for value in body.outputs))
    return tuple(parts)


def _attribute(attribute: ir.Attr, numbers: dict[ir.Value, int]) -> tuple[object, ...]:
    if not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPH:
        return attribute.name, _form(attribute.as_graph(), numbers)
    if not attribute.is_ref() and attribute.type == ir.AttributeType.TENSOR:
        return attribute.name, *_tensor(attribute.as_tensor())
    return attribute.name, serde.serialize_attribute(attribute).SerializeToString() if not attribute.is_ref() else attribute.ref_attr_name


def _tensor(tensor: ir.TensorProtocol) -> tuple[object, ...]:
    return tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()
