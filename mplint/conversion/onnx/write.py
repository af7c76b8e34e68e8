"""Writing a plan into an ONNX model.

The original names always hold the float32 version, half versions get names of their own, and a cast to float32 exists only where someone
needs it. Graph inputs and outputs, captured values, collisions of names and outputs that are inputs then need no rule of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from mplint.conversion.onnx.constants import in_half, tensor_of
from mplint.conversion.onnx.program import Program, bodies, is_constant
from mplint.conversion.onnx.schemas import ANY_INPUT, DTYPE_ATTRIBUTE
from mplint.conversion.onnx.types import Body, Declared
from mplint.conversion.policy import Policy


@dataclass(slots=True)
class Written:
    """What writing did: the casts that were added and taken away."""

    casts: int = 0
    removed: int = 0


def write(program: Program, halves: Sequence[bool], policy: Policy, declared: Declared) -> Written:
    """Turn the operations that `halves` marks to half, in place, and put the declared types of all other values back."""
    writer = _Writer(program, halves, policy, declared)
    for value in list(program.producers):
        writer.value(value)
    for number, operation in enumerate(program.operations):
        if operation.node is not None and halves[number]:
            writer.attributes(operation.node, operation.outputs)
    writer.restore()
    writer.drop_empty_casts()
    return writer.written


class _Writer:
    def __init__(self, program: Program, halves: Sequence[bool], policy: Policy, declared: Declared) -> None:
        self.program, self.halves, self.policy, self.declared = program, halves, policy, declared
        self.half = ir.DataType[policy.half.upper()]
        self.written = Written()
        self.turned: set[ir.Value] = set()
        self.names = Names(program.model)
        self.at_outputs: dict[ir.Value, list[tuple[Body, int]]] = {}
        for body, _ in bodies(program.model):
            for position, value in enumerate(body.outputs):
                self.at_outputs.setdefault(value, []).append((body, position))

    def value(self, value: ir.Value) -> None:
        """Give the takers of one float32 tensor the version that each needs."""
        producer = self.program.producers[value]
        is_half = producer is not None and self.halves[producer]
        half_uses, float_uses = self._uses(value, is_half)
        ends = self.at_outputs.get(value, [])
        half_ends = [end for end in ends if self.halves[self.program.outputs.get(end, 0)]]
        float_ends = [end for end in ends if end not in half_ends]
        if is_half:
            self._was_made_in_half(value, float_uses, float_ends, named=any(body is self.program.model.graph for body, _ in half_ends))
        elif half_uses or half_ends:
            taken = self._constant(value) if is_constant(value) else None
            other = taken or self._cast(value, self.half, self.names.fresh(f"{value.name}_{self.policy.half}"))
            for node, position in half_uses:
                node.replace_input_with(position, other)
            for body, position in half_ends:
                body.outputs[position] = other
            if taken is not None and not float_uses and not float_ends:
                self._drop(value)

    def attributes(self, node: ir.Node, outputs: tuple[int, ...]) -> None:
        """Retarget the attributes that name the dtype of a node's output."""
        name = DTYPE_ATTRIBUTE.get(node.op_type)
        if name is not None and 0 in outputs:
            node.attributes[name] = ir.AttrInt64(name, int(self.half))
        elif node.op_type == "ConstantOfShape" and 0 in outputs:
            import numpy as np

            given = node.attributes.get("value")
            tensor = given.as_tensor() if given is not None else ir.tensor(np.zeros(1, dtype=np.float32))
            node.attributes["value"] = ir.AttrTensor("value", in_half(tensor, self.policy, tensor.name or "value"))

    def restore(self) -> None:
        """Put back what the file declared, and the half dtype of what turned to half."""
        for value, (kind, shape) in self.declared.items():
            if value in self.turned:
                value.type = ir.TensorType(self.half) if kind is not None else None
            else:
                value.type = kind
            value.shape = shape

    def drop_empty_casts(self) -> None:
        """Remove casts of the model's own that now go from half to half."""
        for number, operation in enumerate(self.program.operations):
            node = operation.node
            if node is None or node.op_type != "Cast" or not self.halves[number] or node.graph is None:
                continue
            source, target = node.inputs[0], node.outputs[0]
            if source is not None and source in self.turned and self._is_half(node) and not target.is_graph_output():
                target.replace_all_uses_with(source)
                node.graph.remove(node, safe=True)
                self.written.removed += 1

    def _is_half(self, cast: ir.Node) -> bool:
        return cast.attributes.get_int("to", 0) == int(self.half)

    def _uses(self, value: ir.Value, is_half: bool) -> tuple[list[tuple[ir.Node, int]], list[tuple[ir.Node, int]]]:
        """The uses by nodes that want half, and by those that want float32; a cast takes what is there."""
        halves, floats = [], []
        for use in list(value.uses()):
            node, position = use.node, use.idx
            number = self.program.calls.get((node, position), self.program.numbers.get(node, 0))
            operation = self.program.operations[number]
            follows = operation.node is None or position in operation.inputs
            if (self.halves[number] and follows) or (is_half and node.op_type in ANY_INPUT and not follows):
                halves.append((node, position))
            else:
                floats.append((node, position))
        return halves, floats

    def _was_made_in_half(self, value: ir.Value, uses: list[tuple[ir.Node, int]], ends: list[tuple[Body, int]], *, named: bool) -> None:
        """Turn a value to half; its float32 version, where someone needs it, takes its name, unless the name is `named` in an interface."""
        name = value.name or ""
        shape = value.shape
        self.turned.add(value)
        value.type = ir.TensorType(self.half)
        if named or value.producer() is None:
            fresh = f"{name}_float32"
        else:
            fresh, value.name = name, self.names.fresh(f"{name}_{self.policy.half}")
        if not uses and not ends:
            return
        if fresh != name:
            fresh = self.names.fresh(fresh)
        back = self._cast(value, ir.DataType.FLOAT, fresh)
        back.shape = shape
        back.type = ir.TensorType(ir.DataType.FLOAT)
        _describe(back, value)
        self.declared[back] = self.declared.get(value, (back.type, shape)) if ends else (None, None)
        for node, position in uses:
            node.replace_input_with(position, back)
        for body, position in ends:
            body.outputs[position] = back
        if ends and not any(self.halves[self.program.outputs.get(end, 0)] for end in self.at_outputs.get(value, ())):
            self.declared[value] = (None, None)

    def _cast(self, value: ir.Value, dtype: ir.DataType, name: str) -> ir.Value:
        self.written.casts += 1
        return insert_cast(value, dtype, name, self.names)

    def _constant(self, value: ir.Value) -> ir.Value | None:
        """The half version of a constant, beside it."""
        tensor = tensor_of(value)
        if tensor is None:
            return None
        name = self.names.fresh(f"{value.name}_{self.policy.half}")
        half = in_half(tensor, self.policy, name)
        producer = value.producer()
        if producer is not None:
            node = ir.node("Constant", [], {"value": half}, outputs=[ir.Value(name=name)], name=self.names.fresh(f"Constant_{name}"))
            assert producer.graph is not None
            producer.graph.insert_after(producer, node)
            return node.outputs[0]
        owner = value.graph
        assert isinstance(owner, ir.Graph)
        other = ir.Value(name=name, shape=half.shape, type=ir.TensorType(self.half), const_value=half)
        _describe(other, value)
        owner.register_initializer(other)
        return other

    def _drop(self, value: ir.Value) -> None:
        """Take away the float32 version of a constant that nobody needs any more."""
        producer = value.producer()
        if producer is not None and producer.graph is not None:
            producer.graph.remove(producer, safe=True)
        elif isinstance(value.graph, ir.Graph):
            value.graph.initializers.pop(value.name or "", None)


class Names:
    """The names of a model's values and nodes."""

    def __init__(self, model: ir.Model) -> None:
        self.taken: set[str] = set()
        for body, _ in bodies(model):
            self.taken |= {v.name or "" for v in body.inputs} | {n.name or "" for n in body}
            self.taken |= {v.name or "" for n in body for v in n.outputs}
            if isinstance(body, ir.Graph):
                self.taken |= set(body.initializers)

    def fresh(self, name: str) -> str:
        """A name that nothing has yet, as close to `name` as can be."""
        candidate, number = name, 1
        while candidate in self.taken:
            number += 1
            candidate = f"{name}_{number}"
        self.taken.add(candidate)
        return candidate


def insert_cast(value: ir.Value, dtype: ir.DataType, name: str, names: Names) -> ir.Value:
    """A cast of `value` right after the node, or at the top of the body, that it comes from."""
    cast = ir.node("Cast", [value], {"to": int(dtype)}, outputs=[ir.Value(name=name)], name=names.fresh(f"Cast_{name}"))
    producer = value.producer()
    owner = producer.graph if producer is not None else value.graph
    assert owner is not None
    if producer is not None:
        owner.insert_after(producer, cast)
    elif (first := next(iter(owner), None)) is not None:
        owner.insert_before(first, cast)
    else:
        owner.append(cast)
    return cast.outputs[0]


def _describe(value: ir.Value, source: ir.Value) -> None:
    value.doc_string = source.doc_string
    value.metadata_props.update(source.metadata_props)
