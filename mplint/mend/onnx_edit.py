"""Carries out the changes of fixes on an ONNX model: casts go, nodes change their dtype, constants their numbers; all else stays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.constants import tensor_of
from mplint.conversion.onnx.program import bodies, is_constant
from mplint.conversion.onnx.schemas import precision_slots, schema_of
from mplint.conversion.onnx.types import Body, declared_types, infer_types
from mplint.conversion.onnx.write import Names, insert_cast
from mplint.findings import ComputeIn, Fix, NodePlace, RemoveCast, WriteNumber
from mplint.graph.onnx.loader import function_name
from mplint.mend.proof import MendError

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
NAMES = {ir.DataType.FLOAT: "float32", ir.DataType.FLOAT16: "float16", ir.DataType.BFLOAT16: "bfloat16"}
WORDS = {ir.DataType.FLOAT: "float", ir.DataType.FLOAT16: "float16", ir.DataType.BFLOAT16: "bfloat16"}
SMALL = 1024  # elements; larger constants are cast in the graph, and stay where they are
# What may stand between a constant and what reads it.
HANDING = frozenset(("Cast", "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Flatten", "Slice", "Tile"))
MANY_MOVES = 50  # from a constant to what reads it


def carry_out(model: ir.Model, fixes: Iterable[Fix]) -> None:
    """Carry out the changes of all fixes in place; raises MendError where one can't be."""
    editor = _Editor(model)
    for fix in fixes:
        for change in fix.model:
            match change:
                case RemoveCast(place):
                    editor.remove_cast(place)
                case ComputeIn(places, dtype):
                    editor.compute_in(places, ir.DataType.FLOAT if dtype == "float32" else ir.DataType[dtype.upper()])
                case WriteNumber():
                    editor.write_number(change)
    editor.finish()


class _Editor:
    """A model, its nodes by their places, and what was done so far."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.declared = declared_types(model)
        infer_types(model)
        self.names = Names(model)
        self.opsets = {id(body): opsets for body, opsets in bodies(model)}
        self.nodes: dict[NodePlace, ir.Node] = {}
        self._collect(model.graph, ())
        for function in model.functions.values():
            self._collect(function, (function_name(function.domain, function.name, function.overload),))
        self.turned: dict[ir.Value, ir.DataType] = {}
        self.before: dict[ir.Value, ir.DataType] = {}
        self.versions: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self.written: set[ir.Value] = set()
        self.left: list[ir.Value] = []  # what may have lost its last reader

    def _collect(self, body: Body, scope: tuple[str, ...]) -> None:
        for node in body:
            name = next((value.name for value in node.outputs if value.name), node.name or "")
            self.nodes[NodePlace(scope, name)] = node
            for key, attribute in node.attributes.items():
                if attribute.is_ref():
                    continue
                if attribute.type == ir.AttributeType.GRAPH:
                    self._collect(attribute.as_graph(), (*scope, f"{name}/{key}"))
                elif attribute.type == ir.AttributeType.GRAPHS:
                    for number, graph in enumerate(attribute.as_graphs()):
                        self._collect(graph, (*scope, f"{name}/{key}[{number}]"))

    def node(self, place: NodePlace) -> ir.Node:
        """The node at a place."""
        found = self.nodes.get(place)
        if found is None:
            raise MendError(f"the node {place.name} is not where it was read")
        return found

    def remove_cast(self, place: NodePlace) -> None:
        """Take out a cast; where it makes a result of its body, what it reads takes the name of that result."""
        node = self.node(place)
        owner, value, result = node.graph, node.inputs[0], node.outputs[0]
        if owner is None:
            return  # it went with another change
        if node.op_type != "Cast" or value is None:
            raise MendError(f"the node {place.name} is no cast")
        for use in list(result.uses()):
            use.node.replace_input_with(use.idx, value)
        positions = [at for at, output in enumerate(owner.outputs) if output is result]
        maker = value.producer()
        if positions and (maker is None or maker.graph is not owner or any(output is value for output in owner.outputs)):
            node.op_type, node.domain = "Identity", ""
            node.attributes.clear()
            self.turn(result, value.dtype)
            return
        name, kept = result.name, self.declared.get(result)
        for at in positions:
            owner.outputs[at] = value
        owner.remove(node, safe=True)
        if positions:
            value.name = name
            self.declared[value] = kept or (result.type, result.shape)
            self.turn(value, value.dtype)
        self.left.append(value)

    def compute_in(self, places: Sequence[NodePlace], dtype: ir.DataType) -> None:
        """Let nodes compute in another dtype."""
        nodes = [self.node(place) for place in places]
        inside = set(nodes)
        slots = {node: self._following(node, dtype) for node in nodes}
        for node in nodes:
            inputs, outputs = slots[node]
            for position in inputs:
                value = node.inputs[position]
                if value is not None and value.dtype != dtype and value.producer() not in inside:
                    node.replace_input_with(position, self.version(value, dtype))
            for position in outputs:
                self.turn(node.outputs[position], dtype)
        for node in nodes:
            for position in slots[node][1]:
                self._hand_out(node.outputs[position], dtype, inside)

    def _following(self, node: ir.Node, dtype: ir.DataType) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The positions of the inputs and outputs of a node whose dtype is the one that it computes in."""
        owner = node.graph
        opsets = self.opsets.get(id(owner), {})
        schema = schema_of(node.domain, node.op_type, opsets.get(node.domain, opsets.get("", 1)))
        if schema is None or owner is None:
            raise MendError(f"nobody knows the operator {node.op_type}")
        # Asked with float32 for what is half, the schema answers for both ways.
        words = [None if v is None or v.dtype is None else "float" if v.dtype in FLOATS else v.dtype.name.lower() for v in node.inputs]
        given = ["float" if value.dtype in FLOATS else None for value in node.outputs]
        half = WORDS[dtype] if dtype is not ir.DataType.FLOAT else WORDS[next(v.dtype for v in node.outputs if v.dtype in FLOATS)]
        found = precision_slots(node.domain, node.op_type, schema, words, given, half)
        if found is None:
            raise MendError(f"{node.op_type} does not follow the dtype of its input in this opset")
        return found

    def version(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A value in another dtype: before the cast that it comes from, written anew where it is a small constant, or cast."""
        producer = value.producer()
        before = producer.inputs[0] if producer is not None and producer.op_type == "Cast" else None
        if before is not None and before.dtype == dtype:
            self.left.append(value)
            return before
        known = self.versions.get((value, dtype))
        if known is not None:
            return known
        tensor = tensor_of(value) if is_constant(value) else None
        if tensor is not None and tensor.size <= SMALL:
            self.left.append(value)
            with np.errstate(over="ignore"):
                made = tensor.numpy().astype(dtype.numpy())
            constant = self._constant(value, ir.tensor(made, dtype=dtype), self.names.fresh(f"{value.name}_{NAMES[dtype]}"))
            return self.versions.setdefault((value, dtype), constant)
        cast = insert_cast(value, dtype, self.names.fresh(f"{value.name}_{NAMES[dtype]}"), self.names)
        cast.type, cast.shape = ir.TensorType(dtype), value.shape
        self.declared[cast] = (None, None)
        return self.versions.setdefault((value, dtype), cast)

    def _constant(self, value: ir.Value, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        """A constant beside another."""
        producer = value.producer()
        if producer is not None:
            made = ir.node("Constant", [], {"value": tensor}, outputs=[ir.Value(name=name)], name=self.names.fresh(f"Constant_{name}"))
            assert producer.graph is not None
            producer.graph.insert_after(producer, made)
            made.outputs[0].type = ir.TensorType(tensor.dtype)
            self.declared[made.outputs[0]] = (None, None)
            return made.outputs[0]
        assert isinstance(value.graph, ir.Graph)
        other = ir.Value(name=name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype), const_value=tensor)
        value.graph.register_initializer(other)
        self.declared[other] = (other.type, other.shape)
        return other

    def _hand_out(self, value: ir.Value, dtype: ir.DataType, inside: set[ir.Node]) -> None:
        """Give those who read a value, which was of another dtype, what they need."""
        for body, _ in bodies(self.model):
            if body is not self.model.graph and any(output is value for output in body.outputs):
                raise MendError(f"{value.name} is the result of a body, which others read")
        old = self.before.get(value)
        needy = []
        for use in list(value.uses()):
            if use.node in inside:
                continue
            if use.node.op_type == "Cast" and use.node.domain in ("", "ai.onnx"):
                if use.node.outputs[0].dtype == dtype:
                    self.remove_cast(self.place(use.node))
                continue
            needy.append(use)
        if needy and old is not None:
            back = insert_cast(value, old, self.names.fresh(f"{value.name}_{NAMES[old]}"), self.names)
            self.declared[back] = (None, None)
            for use in needy:
                use.node.replace_input_with(use.idx, back)

    def place(self, node: ir.Node) -> NodePlace:
        """The place of a node."""
        return next(place for place, other in self.nodes.items() if other is node)

    def write_number(self, change: WriteNumber) -> None:
        """Write a number into the constants that some nodes read; others that read them keep what they read."""
        reads = {(self.node(place), position) for place, position in change.operands}
        for node, position in sorted(reads, key=lambda read: (read[0].name or read[0].outputs[0].name or "", read[1])):
            if position >= len(node.inputs):
                self._write_attribute(node, position, change)
                continue
            value = node.inputs[position]
            links: list[ir.Node] = []
            while value is not None and not is_constant(value):
                maker = value.producer()
                if maker is None or not maker.inputs or maker.op_type not in HANDING or len(links) > MANY_MOVES:
                    raise MendError(f"{value.name} is computed, or given by a caller")
                links.append(maker)
                value = maker.inputs[0]
            tensor = tensor_of(value) if value is not None else None
            if value is None or tensor is None:
                raise MendError("the constant is not in the file")
            if value in self.written:
                pass
            elif self._alone(value, links, reads):
                self._overwrite(value, _with_number(tensor, change))
            else:
                self._write_beside(value, links, node, position, _with_number(tensor, change))

    def _write_attribute(self, node: ir.Node, position: int, change: WriteNumber) -> None:
        """Write a number that an operator has as an attribute: what fills a shape, the bounds of older Clips."""
        if node.op_type == "ConstantOfShape" and "value" in node.attributes:
            tensor = _with_number(node.attributes["value"].as_tensor(), change)
            node.attributes["value"] = ir.AttrTensor("value", tensor)
        elif node.op_type == "Clip" and change.beyond is None:
            name = ("min", "max")[position - 1]
            node.attributes[name] = ir.AttrFloat32(name, change.number)
        else:
            raise MendError(f"the number of {node.op_type} is not in the file")

    def _alone(self, value: ir.Value, links: Sequence[ir.Node], reads: set[tuple[ir.Node, int]]) -> bool:
        """Whether nobody but those who shall read another number reads a constant."""
        chain = set(links)
        outputs = {output for body, _ in bodies(self.model) for output in body.outputs}
        seen = [value, *(link.outputs[0] for link in links)]
        if any(one in outputs for one in seen):
            return False
        return all(use.node in chain or (use.node, use.idx) in reads for one in seen for use in one.uses())

    def _overwrite(self, value: ir.Value, tensor: ir.TensorProtocol) -> None:
        producer = value.producer()
        self.written.add(value)
        if producer is None:
            value.const_value = tensor
            return
        producer.attributes.clear()
        producer.attributes["value"] = ir.AttrTensor("value", tensor)

    def _write_beside(self, value: ir.Value, links: Sequence[ir.Node], node: ir.Node, position: int, tensor: ir.TensorProtocol) -> None:
        made = self._constant(value, tensor, self.names.fresh(f"{value.name}_fitting"))
        for link in reversed(links):
            name = self.names.fresh(f"{link.outputs[0].name}_fitting")
            copy = ir.node(
                link.op_type,
                [made, *link.inputs[1:]],
                domain=link.domain,
                outputs=[ir.Value(name=name, type=link.outputs[0].type, shape=link.outputs[0].shape)],
                name=self.names.fresh(f"{link.name or link.op_type}_fitting"),
            )
            copy.attributes.update(link.attributes)
            assert link.graph is not None
            link.graph.insert_after(link, copy)
            made = copy.outputs[0]
            self.declared[made] = (None, None)
        node.replace_input_with(position, made)

    def turn(self, value: ir.Value, dtype: ir.DataType | None) -> None:
        """Note that a value has another dtype now."""
        if dtype is None:
            raise MendError(f"the dtype of {value.name} is not known")
        if value.dtype is not None:
            self.before.setdefault(value, value.dtype)
        self.turned[value] = dtype
        value.type = ir.TensorType(dtype)

    def finish(self) -> None:
        """Take away what nobody reads any more, and put back what the file said of all values that did not change."""
        while self.left:
            self._drop(self.left.pop())
        for value, (kind, shape) in self.declared.items():
            dtype = self.turned.get(value)
            value.type = kind if dtype is None or kind is None else ir.TensorType(dtype)
            value.shape = shape

    def _drop(self, value: ir.Value) -> None:
        producer = value.producer()
        results = producer.outputs if producer is not None else (value,)
        read = any(one.uses() for one in results) or any(output in results for body, _ in bodies(self.model) for output in body.outputs)
        if read:
            return
        if producer is None:
            if is_constant(value) and isinstance(value.graph, ir.Graph):
                value.graph.initializers.pop(value.name or "", None)
            return
        if producer.graph is None or not (producer.op_type == "Cast" or is_constant(value)):
            return
        self.left += [given for given in producer.inputs if given is not None]
        producer.graph.remove(producer, safe=True)


def _with_number(tensor: ir.TensorProtocol, change: WriteNumber) -> ir.TensorProtocol:
    """A constant with another number in it."""
    array = tensor.numpy()
    wide = array.astype(np.float64)
    if change.beyond is None:
        made = np.full_like(wide, change.number)
    else:
        made = np.where(np.abs(wide) > change.beyond, np.copysign(change.number, wide), wide)
    return ir.tensor(made.astype(array.dtype), dtype=tensor.dtype, name=tensor.name)
