"""True half semantics on a CPU: the same model in float32, in which every half result is rounded where it is made.

ONNX Runtime's CPU provider computes most half operators in float32 and drops the casts in between, so that overflow and underflow of a half
result stay unseen. An explicit pair of casts after each of them is kept: every operator computes in float32 and stores in half, as tensor
cores do. Works for bfloat16 too, and for operators with no half kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import onnx_ir as ir

from mplint.conversion.onnx.constants import shape_of
from mplint.conversion.onnx.instrument import holders_of, outermost
from mplint.conversion.onnx.lean import KEPT, release
from mplint.conversion.onnx.program import bodies
from mplint.conversion.onnx.schemas import DTYPE_ATTRIBUTE
from mplint.conversion.onnx.stepwise import MARK
from mplint.conversion.onnx.widths import RECURRENT

HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def to_strict(model: ir.Model, *, rounded: bool = True, thin: bool = False) -> None:
    """Rewrite a half or mixed model whose values carry their types into its float32 emulation, in place.

    Not `rounded`, it is the float32 model that it stands for: nothing is stored in half but constants. A `thin` one holds its large weights
    in half, each of which is float32 from where it is taken first: they do not stand in memory in float32 all at once.
    """
    held: dict[ir.Value, ir.TensorProtocol] = {}
    for body, _ in bodies(model):
        for value in body.inputs:
            _widen(value)
        if isinstance(body, ir.Graph):
            for value in body.initializers.values():
                if value.const_value is not None and value.const_value.dtype in HALVES:
                    if thin and body is model.graph and value.const_value.nbytes > KEPT and not value.is_graph_input():
                        held[value] = value.const_value
                    value.const_value = _float32(value.const_value)
                _widen(value)
        for node in list(body):
            _node(body, node, rounded=rounded)
        for value in body.outputs:  # of what else than nodes
            _widen(value)
    if held:
        _hold(model, held)


def _hold(model: ir.Model, held: Mapping[ir.Value, ir.TensorProtocol]) -> None:
    """Let a model hold weights in half, with a cast of each in front of the first node that takes it."""
    graph = model.graph
    places = {node: at for at, node in enumerate(graph)}
    holders = holders_of(model)
    for value, tensor in held.items():
        uses = [(use.node, use.idx) for use in value.uses()]
        takers = [top for node, _ in uses if (top := outermost(node, holders)) in places]
        if len(takers) < len(uses) or not uses or value.is_graph_output():
            continue
        name = value.name or ""
        stored = ir.Value(name=f"{name}__held", type=ir.TensorType(tensor.dtype), shape=value.shape, const_value=tensor)
        cast = ir.node("Cast", [stored], {"to": int(ir.DataType.FLOAT)}, outputs=[ir.Value(name=name, type=value.type, shape=value.shape)])
        for node, position in uses:
            node.replace_input_with(position, cast.outputs[0])
        del graph.initializers[name]
        graph.register_initializer(stored)
        graph.insert_before(min(takers, key=places.__getitem__), cast)


def _node(body: ir.Graph | ir.Function, node: ir.Node, *, rounded: bool) -> None:
    kinds = [value.dtype for value in node.outputs]
    stored = next((kind for kind in kinds if kind in HALVES), None)
    if rounded and stored is not None and node.op_type in RECURRENT:
        node.metadata_props[MARK] = str(int(stored))
    for name, attribute in list(node.attributes.items()):
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in HALVES:
            node.attributes[name] = ir.AttrTensor(name, _float32(attribute.as_tensor()))
        elif attribute.type == ir.AttributeType.INT and name in DTYPE_ATTRIBUTE.values() and attribute.as_int() in tuple(map(int, HALVES)):
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT))
    if node.op_type == "Constant" or any(
        not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values()
    ):
        for value in node.outputs:
            _widen(value)
        return
    for value, kind in zip(node.outputs, kinds, strict=True):
        if not rounded or kind not in HALVES or not isinstance(value.type, ir.TensorType) or value.name == "":
            _widen(value)
            continue
        _widen(value)
        down = ir.node("Cast", [value], {"to": int(kind)}, outputs=[ir.Value(name=f"{value.name}__stored")])
        up = ir.node("Cast", [down.outputs[0]], {"to": int(ir.DataType.FLOAT)}, outputs=[ir.Value(name=f"{value.name}__rounded")])
        uses = [(use.node, use.idx) for use in value.uses() if use.node is not down]
        body.insert_after(node, [down, up])
        for user, position in uses:
            user.replace_input_with(position, up.outputs[0])
        for position, output in enumerate(body.outputs):
            if output is value:
                up.outputs[0].name, value.name = value.name, f"{value.name}__raw"
                up.outputs[0].type, up.outputs[0].shape = value.type, value.shape
                body.outputs[position] = up.outputs[0]


def _widen(value: ir.Value) -> None:
    if isinstance(value.type, ir.TensorType) and value.dtype in HALVES:
        value.type = ir.TensorType(ir.DataType.FLOAT)
    elif isinstance(value.type, (ir.SequenceType, ir.OptionalType)) and value.dtype in HALVES:
        value.dtype = ir.DataType.FLOAT


def _float32(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A half constant in float32, made when it is asked for."""
    return ir.LazyTensor(partial(_widened, tensor), dtype=ir.DataType.FLOAT, shape=shape_of(tensor), name=tensor.name)


def _widened(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    import numpy as np

    made = ir.tensor(tensor.numpy().astype(np.float32))
    release(tensor)
    return made
