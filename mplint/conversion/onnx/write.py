"""Writing a plan into an ONNX model.

The original names always hold the float32 version, half versions get names of their own, and a cast to float32 exists only where someone
needs it. Graph inputs and outputs, captured values, collisions of names and outputs that are inputs then need no rule of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from mplint.conversion.onnx.constants import in_half, tensor_of
from mplint.conversion.onnx.program import Program, bodies, is_constant
from mplint.conversion.onnx.schemas import ANY_INPUT, DTYPE_ATTRIBUTE
from mplint.conversion.onnx.types import Body, Declared


@dataclass(slots=True)
class Written:
    """What writing did: the casts that were added and taken away."""

    casts: int = 0
    removed: int = 0


def write(program: Program, halves: Sequence[bool], declared: Declared) -> Written:
    """Turn the operations that `halves` marks to half, in place, and put the declared types of all other values back."""
    writer = _Writer(program, halves, declared)
    for value in list(program.producers):
        writer.value(value)
    for number, operation in enumerate(program.operations):
        if operation.node is not None and halves[number]:
            writer.attributes(operation.node, operation.outputs, writer.dtype(number))
    writer.restore()
    writer.drop_empty_casts()
    return writer.written


class _Writer:
    def __init__(self, program: Program, halves: Sequence[bool], declared: Declared) -> None:
        self.program, self.halves, self.declared = program, halves, declared
        self.written = Written()
        self.turned: dict[ir.Value, ir.DataType] = {}
        self.names = Names(program.model)
        self.at_outputs: dict[ir.Value, list[tuple[Body, int]]] = {}
        for body, _ in bodies(program.model):
            for position, value in enumerate(body.outputs):
                self.at_outputs.setdefault(value, []).append((body, position))

    def dtype(self, number: int | None) -> ir.DataType:
        """What an operation computes in."""
        if number is None or not self.halves[number]:
            return ir.DataType.FLOAT
        return ir.DataType[(self.program.operations[number].half or self.program.half).upper()]

    def value(self, value: ir.Value) -> None:
        """Give the takers of one float32 tensor the version that each needs."""
        made = self.dtype(self.program.producers[value])
        uses = self._uses(value, made)
        ends: dict[ir.DataType, list[tuple[Body, int]]] = {}
        for end in self.at_outputs.get(value, []):
            ends.setdefault(self.dtype(self.program.outputs.get(end, 0)), []).append(end)
        plain, name = ir.DataType.FLOAT, value.name
        if made is not plain:
            named = any(body is self.program.model.graph for body, _ in ends.get(made, ()))
            self._was_made_in_half(value, made, uses.get(plain, []), ends.get(plain, []), named=named)
        for half in sorted((uses.keys() | ends.keys()) - {made, plain}):
            taken = self._constant(value, half) if is_constant(value) else None
            other = taken or self._cast(value, half, self.names.fresh(f"{name}_{half.name.lower()}"))
            for node, position in uses.get(half, ()):
                node.replace_input_with(position, other)
            for body, position in ends.get(half, ()):
                body.outputs[position] = other
        if made is plain and is_constant(value) and self._is_spare(value, uses, ends):
            self._drop(value)

    def _is_spare(self, value: ir.Value, *takers: Mapping[ir.DataType, object]) -> bool:
        """Whether a constant was taken, in float32 by nobody."""
        halves = {half for taken in takers for half in taken}
        return bool(halves) and ir.DataType.FLOAT not in halves and tensor_of(value) is not None

    def attributes(self, node: ir.Node, outputs: tuple[int, ...], half: ir.DataType) -> None:
        """Retarget the attributes that name the dtype of a node's output."""
        name = DTYPE_ATTRIBUTE.get(node.op_type)
        if name is not None and 0 in outputs:
            node.attributes[name] = ir.AttrInt64(name, int(half))
        elif node.op_type == "ConstantOfShape" and 0 in outputs:
            import numpy as np

            given = node.attributes.get("value")
            tensor = given.as_tensor() if given is not None else ir.tensor(np.zeros(1, dtype=np.float32))
            node.attributes["value"] = ir.AttrTensor("value", in_half(tensor, half, tensor.name or "value"))

    def restore(self) -> None:
        """Put back what the file declared, and the half dtype of what turned to half."""
        for value, (kind, shape) in self.declared.items():
            if value in self.turned:
                value.type = ir.TensorType(self.turned[value]) if kind is not None else None
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
            given = self.turned.get(source) if source is not None else None
            if source is not None and given is not None and self._goes_to(node, given) and not target.is_graph_output():
                target.replace_all_uses_with(source)
                node.graph.remove(node, safe=True)
                self.written.removed += 1

    def _goes_to(self, cast: ir.Node, dtype: ir.DataType) -> bool:
        return cast.attributes.get_int("to", 0) == int(dtype)

    def _uses(self, value: ir.Value, made: ir.DataType) -> dict[ir.DataType, list[tuple[ir.Node, int]]]:
        """The uses by nodes, by the dtype that each wants; a cast takes what is there, which is `made`."""
        found: dict[ir.DataType, list[tuple[ir.Node, int]]] = {}
        for use in list(value.uses()):
            node, position = use.node, use.idx
            number = self.program.calls.get((node, position), self.program.numbers.get(node, 0))
            operation = self.program.operations[number]
            if operation.node is None or position in operation.inputs:
                wanted = self.dtype(number)
            else:
                wanted = ir.DataType.FLOAT
            if node.op_type in ANY_INPUT and (wanted is not ir.DataType.FLOAT or position not in operation.inputs):
                wanted = made if made is not ir.DataType.FLOAT else wanted
            found.setdefault(wanted, []).append((node, position))
        return found

    def _was_made_in_half(
        self, value: ir.Value, half: ir.DataType, uses: list[tuple[ir.Node, int]], ends: list[tuple[Body, int]], *, named: bool
    ) -> None:
        """Turn a value to half; its float32 version, where someone needs it, takes its name, unless the name is `named` in an interface."""
        name = value.name or ""
        shape = value.shape
        self.turned[value] = half
        value.type = ir.TensorType(half)
        if named or value.producer() is None:
            fresh = f"{name}_float32"
        else:
            fresh, value.name = name, self.names.fresh(f"{name}_{half.name.lower()}")
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

    def _constant(self, value: ir.Value, dtype: ir.DataType) -> ir.Value | None:
        """The half version of a constant, beside it."""
        tensor = tensor_of(value)
        if tensor is None:
            return None
        name = self.names.fresh(f"{value.name}_{dtype.name.lower()}")
        half = in_half(tensor, dtype, name)
        producer = value.producer()
        if producer is not None:
            node = ir.node("Constant", [], {"value": half}, outputs=[ir.Value(name=name)], name=self.names.fresh(f"Constant_{name}"))
            assert producer.graph is not None
            producer.graph.insert_after(producer, node)
            return node.outputs[0]
        owner = value.graph
        assert isinstance(owner, ir.Graph)
        other = ir.Value(name=name, shape=half.shape, type=ir.TensorType(dtype), const_value=half)
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
