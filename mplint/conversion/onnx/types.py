"""The dtype and shape of every value of an ONNX model, also inside functions and after operators that ONNX does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import onnx
import onnx.shape_inference
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from mplint.conversion.onnx.lean import Lean, with_weights
from mplint.conversion.onnx.schemas import DTYPE_ATTRIBUTE, schema_of

Body = ir.Graph | ir.Function
Declared = dict[ir.Value, tuple[ir.TypeProtocol | None, ir.Shape | None]]


def tops(model: ir.Model) -> list[Body]:
    """The main graph and the functions."""
    return [model.graph, *model.functions.values()]


def declared_types(model: ir.Model) -> Declared:
    """What the file itself says of each value, so that it can be put back after inference."""
    return {value: (value.type, None if value.shape is None else value.shape.copy()) for value in _values(model)}


def declared_in(copy: ir.Model, model: ir.Model, declared: Declared) -> Declared:
    """What the file says of the values of a copy of a model."""
    found: Declared = {}
    for value, other in zip(_values(model), _values(copy), strict=True):
        kind, shape = declared[value]
        found[other] = (kind, None if shape is None else shape.copy())
    return found


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value that a body names, in the order of the file; some come twice."""
    for body in tops(model):
        for graph in (body, *body.subgraphs()):
            yield from graph.inputs
            for node in graph:
                yield from node.outputs
            if isinstance(graph, ir.Graph):
                yield from graph.initializers.values()


def infer_types(model: ir.Model) -> None:
    """Fill in the types of all values, in place; what can't be known stays None."""
    with suppress(Exception):  # an operator that inference trips over: the propagation below goes on without shapes
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
    _complete(model)


def inferred(thin: Lean) -> ir.Model:
    """The model of a message, with the types of all values."""
    message = thin.proto
    with suppress(Exception):
        message = onnx.shape_inference.infer_shapes(message, data_prop=True)
    model = with_weights(thin._replace(proto=message))
    _complete(model)
    return model


def _complete(model: ir.Model) -> None:
    """Fill in the types that ONNX's own inference leaves out."""
    _propagate(model.graph, dict(model.opset_imports), model.functions)
    for _ in range(len(model.functions)):  # functions that call functions: once more for each level
        if not _enter_functions(model):
            break


def _enter_functions(model: ir.Model) -> bool:
    """Give the formal inputs of functions the types that their calls agree on; whether anything was learned."""
    learned = False
    for body in tops(model):
        for node in list(body.all_nodes()):
            function = model.functions.get(node.op_identifier())
            if function is None:
                continue
            for formal, actual in zip(function.inputs, node.inputs, strict=False):
                if formal.type is None and actual is not None and actual.type is not None:
                    formal.type, learned = actual.type, True
                elif actual is not None and actual.type is not None and formal.type != actual.type and not formal.meta.get("mixed"):
                    formal.meta["mixed"], learned = True, True
    for function in model.functions.values():
        _propagate(function, dict(function.opset_imports), model.functions)
    for body in tops(model):
        for node in body.all_nodes():
            function = model.functions.get(node.op_identifier())
            for formal, actual in zip(function.outputs if function is not None else (), node.outputs, strict=False):
                if actual.type is None and formal.type is not None:
                    actual.type, learned = formal.type, True
        _propagate(body, dict(body.opset_imports), model.functions)
    for function in model.functions.values():
        for formal in function.inputs:
            if formal.meta.pop("mixed", False):
                formal.type = None
    return learned


def _propagate(body: ir.Graph | ir.Function, opsets: Mapping[str, int], functions: Mapping[tuple[str, str, str], ir.Function]) -> None:
    for node in body:
        for attribute in node.attributes.values():
            if not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPH:
                _propagate(attribute.as_graph(), opsets, functions)
        if node.op_identifier() in functions:
            continue
        for position, value in enumerate(node.outputs):
            kinds = _kinds(node, position, opsets)
            if any(not kind.startswith("tensor(") for kind in kinds):  # inference calls what is no tensor a tensor
                value.type = _compound(node, position, kinds, opsets)
            elif value.type is None and (dtype := _output_dtype(node, position, opsets)) is not None:
                value.type = ir.TensorType(dtype)


def _kinds(node: ir.Node, position: int, opsets: Mapping[str, int]) -> frozenset[str]:
    """The types that an operator's output may have, in ONNX's words."""
    schema = schema_of(node.domain, node.op_type, opsets.get(node.domain, opsets.get("", 1)))
    slot = schema.output(position) if schema is not None else None
    return frozenset() if schema is None or slot is None else schema.allowed.get(slot.type, frozenset((slot.type,)))


def _compound(node: ir.Node, position: int, kinds: frozenset[str], opsets: Mapping[str, int]) -> ir.TypeProtocol | None:
    """The type of an output that may be a sequence or an optional value; None where it is neither and no tensor."""
    known = node.outputs[position].type
    if node.op_type in ("If", "Loop", "Scan"):
        name = "then_branch" if node.op_type == "If" else "body"
        first = 1 if node.op_type == "Loop" else 0
        made = node.attributes[name].as_graph().outputs[first + position].type
        return made if isinstance(made, (ir.SequenceType, ir.OptionalType)) or known is None else known
    given = next((value.type for value in node.inputs if value is not None and value.type is not None), None)
    if all(kind.startswith("seq(tensor(") for kind in kinds):
        if isinstance(given, ir.SequenceType):
            return given
        if node.op_type == "SequenceEmpty":
            return ir.SequenceType(ir.TensorType(ir.DataType(node.attributes.get_int("dtype", 1))))
        return None if given is None else ir.SequenceType(ir.TensorType(given.dtype))
    if all(kind.startswith("optional(") for kind in kinds):
        return given if given is None or isinstance(given, ir.OptionalType) else ir.OptionalType(given)
    if node.op_type == "OptionalGetElement":
        return given.elem_type if isinstance(given, ir.OptionalType) else given
    if node.op_type == "Identity":
        return given
    return known if any(kind.startswith("tensor(") for kind in kinds) else None


def _output_dtype(node: ir.Node, position: int, opsets: Mapping[str, int]) -> ir.DataType | None:
    if node.op_type == "Constant":
        return _constant_dtype(node)
    name = DTYPE_ATTRIBUTE.get(node.op_type)
    if name is not None and name in node.attributes and not node.attributes[name].is_ref():
        return ir.DataType(node.attributes[name].as_int())
    if node.op_type == "ConstantOfShape":
        return node.attributes["value"].as_tensor().dtype if "value" in node.attributes else ir.DataType.FLOAT
    schema = schema_of(node.domain, node.op_type, opsets.get(node.domain, opsets.get("", 1)))
    slot = schema.output(position) if schema is not None else None
    if schema is None or slot is None:
        return next((v.dtype for v in node.inputs if v is not None and v.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)), None)
    if slot.type.startswith("tensor("):
        return ir.DataType[slot.type[7:-1].upper()]
    for number, value in enumerate(node.inputs):
        source = schema.input(number)
        if value is not None and source is not None and source.type == slot.type and isinstance(value.type, ir.TensorType):
            return value.dtype
    only = schema.allowed.get(slot.type, frozenset())
    return ir.DataType[next(iter(only))[7:-1].upper()] if len(only) == 1 and next(iter(only)).startswith("tensor(") else None


def _constant_dtype(node: ir.Node) -> ir.DataType | None:
    for name, dtype in (("value_float", "FLOAT"), ("value_floats", "FLOAT"), ("value_int", "INT64"), ("value_ints", "INT64")):
        if name in node.attributes:
            return ir.DataType[dtype]
    return node.attributes["value"].as_tensor().dtype if "value" in node.attributes and not node.attributes["value"].is_ref() else None
