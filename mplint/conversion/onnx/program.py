"""An ONNX model as the planner sees it: which operations can turn to half, and which tensors flow between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from mplint.conversion import planner
from mplint.conversion.onnx.schemas import ANY_INPUT, DECISIVE, SCATTERS, casts_to, precision_slots, schema_of
from mplint.conversion.onnx.types import Body, tops
from mplint.conversion.planner import FLOAT, HEAVY_GAIN, LIGHT_GAIN
from mplint.conversion.policy import Options

HEAVY = frozenset(
    ("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "LSTM", "GRU", "RNN", "Attention", "FusedMatMul", "FusedGemm", "FusedConv")
) | frozenset(("MultiHeadAttention", "GroupQueryAttention", "DeformConv", "ConvInteger", "QAttention"))
GATE_GAIN = 1000.0  # an input or output that is to be half, where its values allow it
UNBATCHED_SCAN = 9  # the opset from which on a Scan has no batch and no lengths


@dataclass(slots=True)
class Operation(planner.Operation[ir.Node]):
    """A node of the model, or an interface of a body."""

    @property
    def name(self) -> str:
        """What reports call it."""
        return "interface" if self.node is None else f"{self.node.name or self.node.outputs[0].name} ({self.node.op_type})"


@dataclass(slots=True)
class Program(planner.Planned[Operation, ir.Value]):
    """What the planner reads, and which operations the parts of bodies and calls belong to."""

    model: ir.Model = field(kw_only=True)
    half: str = "float16"
    numbers: dict[ir.Node, int] = field(default_factory=dict)
    outputs: dict[tuple[Body, int], int] = field(default_factory=dict)  # which operation a body's output belongs to
    calls: dict[tuple[ir.Node, int], int] = field(default_factory=dict)  # which operation takes the operand of a call or a control node

    def halves_of(self, value: ir.Value) -> tuple[str, ...]:
        """The half dtypes that a tensor would have: that of what makes it, and those of what takes it."""
        producer = self.producers.get(value)
        around = [*(() if producer is None else (producer,)), *self.takers.get(value, ())]
        found = [self.operations[at] for at in around if at != FLOAT]
        return tuple(dict.fromkeys(one.half or self.half for one in found if not one.stays)) or (self.half,)


def bodies(model: ir.Model) -> Iterator[tuple[Body, dict[str, int]]]:
    """The main graph, every function, and the bodies within them, each with the opset versions in force there."""
    for top in tops(model):
        opsets = dict(model.opset_imports if isinstance(top, ir.Graph) else top.opset_imports)
        yield top, opsets
        for body in top.subgraphs():
            yield body, opsets


def is_float(value: ir.Value | None) -> bool:
    """Whether a value is a float32 tensor; an output that is left out has a type and no name."""
    return value is not None and value.name != "" and isinstance(value.type, ir.TensorType) and value.dtype == ir.DataType.FLOAT


def is_constant(value: ir.Value) -> bool:
    """Whether a value is an initializer that no caller can override, or the output of a Constant node that says its value."""
    producer = value.producer()
    if producer is not None:
        named = producer.op_type == "Constant" and producer.domain in ("", "ai.onnx")
        return named and not any(attribute.is_ref() for attribute in producer.attributes.values())
    return value.is_initializer() and not value.is_graph_input()


def analyze(model: ir.Model, half: str, options: Options) -> Program:
    """The program of a model whose values carry their types; `half` is the dtype of what the options give no other."""
    program = Program([Operation(None, stays="the model's own interface")], model=model, half=half)
    for value in model.graph.inputs:
        if is_float(value):
            program.producers[value] = FLOAT if value.is_initializer() else _gate(program, options)
    for position, value in enumerate(model.graph.outputs):
        gate = _gate(program, options)
        _take(program, value, gate)
        program.outputs[model.graph, position] = gate
    formal = {key: _function_interface(program, function) for key, function in model.functions.items()}
    for body, opsets in bodies(model):
        if isinstance(body, ir.Graph):
            for value in body.initializers.values():
                if is_float(value) and is_constant(value):
                    program.producers[value] = None
        for node in body:
            key = node.op_identifier()
            if key in formal:
                _call(program, node, *formal[key])
            elif node.op_type in ("If", "Loop", "Scan") and node.domain in ("", "ai.onnx"):
                _control(program, node, opsets)
            else:
                _node(program, node, opsets, half, options)
    for operation in program.operations:
        if not casts_to(operation.half or half, model.opset_imports.get("", 1)):
            operation.stays = operation.stays or f"this opset has no cast to {operation.half or half}"
    return program


def names_of(node: ir.Node) -> tuple[str, ...]:
    """What a user may call a node: its name, what it does, and what it makes."""
    return (node.name or "", node.op_type, *(value.name or "" for value in node.outputs))


def _add(program: Program, operation: Operation) -> int:
    program.operations.append(operation)
    return len(program.operations) - 1


def _gate(program: Program, options: Options) -> int:
    """Where one value enters or leaves the model: float32 unless asked otherwise."""
    return _add(program, Operation(None, gain=GATE_GAIN)) if options.half_io else FLOAT


def _take(program: Program, value: ir.Value | None, operation: int) -> None:
    if value is not None and is_float(value):
        program.takers.setdefault(value, []).append(operation)


def _node(program: Program, node: ir.Node, opsets: dict[str, int], half: str, options: Options) -> None:
    if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
        if is_float(node.outputs[0]):
            program.producers[node.outputs[0]] = None if is_constant(node.outputs[0]) else FLOAT
        return
    for body in _graphs(node):  # a control node that nobody here knows: its bodies keep their types
        for value in body.inputs:
            if is_float(value):
                program.producers[value] = FLOAT
        for position, value in enumerate(body.outputs):
            _take(program, value, FLOAT)
            program.outputs[body, position] = FLOAT
    half = options.half_of(names_of(node), half)
    slots, stays = _slots(node, opsets, half)
    stays = stays or options.stays(names_of(node))
    number = FLOAT
    if slots is not None:
        gain = HEAVY_GAIN if node.op_type in HEAVY else LIGHT_GAIN if is_float(node.outputs[0]) else 0.0
        number = _add(program, Operation(node, *slots, gain=gain, stays=stays, half=half))
        program.numbers[node] = number
    elif any(is_float(value) for value in (*node.inputs, *node.outputs)):
        program.numbers[node] = _add(program, Operation(node, stays=stays))
    inputs, outputs = slots or ((), ())
    for position, operand in enumerate(node.inputs):
        if position in inputs:
            _take(program, operand, number)
        elif not (node.op_type in ANY_INPUT and node.domain in ("", "ai.onnx")):
            _take(program, operand, FLOAT)
    for position, value in enumerate(node.outputs):
        if is_float(value):
            program.producers[value] = number if position in outputs else FLOAT


def _slots(node: ir.Node, opsets: dict[str, int], half: str) -> tuple[tuple[tuple[int, ...], tuple[int, ...]] | None, str]:
    """The positions that follow the node's precision, or None and why there are none."""
    if _graphs(node):
        return None, "it holds a body of a kind that is not taken apart"
    if any(
        value is not None and not isinstance(value.type, ir.TensorType) for value in (*node.inputs, *node.outputs) if value and value.type
    ):
        return None, "it handles sequences or optional values"
    if any(attribute.is_ref() for name, attribute in node.attributes.items() if name in DECISIVE):
        return None, "its dtype comes from the caller of the function"
    if node.op_type in SCATTERS and node.attributes.get_string("reduction", "none") != "none":
        return None, "a scatter with a reduction has no half kernel"
    schema = schema_of(node.domain, node.op_type, opsets.get(node.domain, opsets.get("", 1)))
    if schema is None:
        return None, "nobody knows this operator"
    slots = precision_slots(node.domain, node.op_type, schema, [_word(v) for v in node.inputs], [_word(v) for v in node.outputs], half)
    return slots, "" if slots else f"{node.op_type} has no {half} form in this opset"


def _word(value: ir.Value | None) -> str | None:
    return None if value is None or value.dtype is None else value.dtype.name.lower()


def _graphs(node: ir.Node) -> list[ir.Graph]:
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            found.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            found.extend(attribute.as_graphs())
    return found


def _link(program: Program, number: int, operand: ir.Value | None, node: ir.Node, position: int) -> None:
    """The operation `number` takes an operand of a control node or a call."""
    if is_float(operand):
        _take(program, operand, number)
        program.calls[node, position] = number


def _enters(program: Program, number: int, value: ir.Value) -> None:
    if is_float(value):
        program.producers[value] = number


def _leaves(program: Program, number: int, body: Body, position: int) -> None:
    value = body.outputs[position]
    if is_float(value):
        _take(program, value, number)
        program.outputs[body, position] = number


def _control(program: Program, node: ir.Node, opsets: dict[str, int]) -> None:
    """What flows through an If, a Loop or a Scan: each carried, scanned or chosen value is one interface."""
    if node.op_type == "If":
        branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
        for position, value in enumerate(node.outputs):
            number = _interface(program, (value, *(branch.outputs[position] for branch in branches)))
            for branch in branches:
                _leaves(program, number, branch, position)
            _enters(program, number, value)
        return
    body = node.attributes["body"].as_graph()
    if node.op_type == "Loop":
        first_in, first_out, states = 2, 1, len(node.inputs) - 2
        scanned: list[int] = []
    else:
        scans = node.attributes.get_int("num_scan_inputs", 0)
        first_in = 1 if opsets.get(node.domain, opsets.get("", 1)) < UNBATCHED_SCAN else 0  # the lengths of the sequences
        first_out, states = 0, len(node.inputs) - first_in - scans
        scanned = list(range(states, states + scans))
    formal = 2 if node.op_type == "Loop" else 0
    for state in range(states):
        values = (node.inputs[first_in + state], body.inputs[formal + state], body.outputs[first_out + state], node.outputs[state])
        number = _interface(program, values)
        _link(program, number, values[0], node, first_in + state)
        _enters(program, number, body.inputs[formal + state])
        _leaves(program, number, body, first_out + state)
        _enters(program, number, node.outputs[state])
    for position in scanned:
        operand = node.inputs[first_in + position]
        number = _interface(program, (operand, body.inputs[position]))
        _link(program, number, operand, node, first_in + position)
        _enters(program, number, body.inputs[position])
    for position in range(states, len(node.outputs)):
        number = _interface(program, (node.outputs[position], body.outputs[first_out + position]))
        _leaves(program, number, body, first_out + position)
        _enters(program, number, node.outputs[position])


def _interface(program: Program, values: tuple[ir.Value | None, ...]) -> int:
    """A new interface where all the values are float32 tensors, else `FLOAT`."""
    return _add(program, Operation(None)) if all(is_float(value) for value in values) else FLOAT


def _function_interface(program: Program, function: ir.Function) -> tuple[list[int], list[int]]:
    """The interfaces of a function's inputs and outputs, which all its calls share."""
    inputs = [_interface(program, (value,)) for value in function.inputs]
    outputs = [_interface(program, (value,)) for value in function.outputs]
    for number, value in zip(inputs, function.inputs, strict=True):
        _enters(program, number, value)
    for position, number in enumerate(outputs):
        _leaves(program, number, function, position)
    return inputs, outputs


def _call(program: Program, node: ir.Node, inputs: list[int], outputs: list[int]) -> None:
    for position, value in enumerate(node.inputs):
        _link(program, inputs[position] if position < len(inputs) else FLOAT, value, node, position)
    for position, value in enumerate(node.outputs):
        _enters(program, outputs[position], value)
