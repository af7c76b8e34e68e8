"""Which tensors may be stored in half: measured on the model itself, not read off a list of operators.

One session in which every candidate tensor t becomes `Where(flag_t, rounded(t), t)`; group testing by bisection finds those that move
the outputs too far in about k·log n runs. It sees overflow, underflow, cancellation, indices above 2048 and vanished epsilons alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from mplint.conversion.distance import distance
from mplint.conversion.onnx.constants import damage, rounded, tensor_of
from mplint.conversion.onnx.probe import Probe
from mplint.conversion.onnx.program import Program, bodies, is_constant
from mplint.conversion.onnx.run import Feed, Outputs, Session
from mplint.conversion.onnx.types import tops
from mplint.conversion.planner import HEAVY_GAIN, MARGIN, inherit, unsafe_groups
from mplint.conversion.policy import Policy

FLAGS = "mplint_flags"
FIRST_WHERE = 9  # the first opset with Where; in older ones each test is a session of its own
LARGE = 1 << 16  # elements; larger constants are judged by reading them, and are not part of the session
# Operators whose results are values of their inputs: what goes in rounded comes out rounded.
EXACT = frozenset(
    (
        "Relu",
        "Transpose",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Slice",
        "Concat",
        "Gather",
        "GatherElements",
        "GatherND",
        "Max",
        "Min",
        "Identity",
    )
) | frozenset(
    ("Neg", "Abs", "Flatten", "Split", "Expand", "Tile", "MaxPool", "GlobalMaxPool", "Where", "DepthToSpace", "SpaceToDepth", "Compress")
)
# What commonly bounds the argument of an exp: the maximum taken off, a negative square, a limit.
BOUNDING = frozenset(("Sub", "Neg", "Clip", "Min", "Tanh", "Sigmoid", "LogSoftmax", "Softmax"))


class Measurement:
    """The instrumented session of a program on some feeds."""

    def __init__(self, program: Program, policy: Policy, feeds: Sequence[Feed], references: Sequence[Outputs]) -> None:
        self.program, self.policy, self.feeds, self.references = program, policy, feeds, references
        self.reasons: dict[ir.Value, str] = {}
        self.candidates: list[ir.Value] = []
        self.derived: dict[ir.Value, list[ir.Value]] = {}
        growing = unbounded(program.model, [value for value in program.producers if grows(value)], feeds, policy)
        for value in program.producers:
            if value in growing:
                self.reasons[value] = "an exp grows beyond any sample: data not seen may exceed the range"
            if not any(not program.operations[number].stays for number in program.around(value)):
                continue
            if is_constant(value):
                tensor = tensor_of(value)
                if tensor is None:
                    self.reasons[value] = "its value is not in the file"
                    continue
                if tensor.size > LARGE:
                    if why := damage(tensor, policy):
                        self.reasons[value] = why
                    continue
            if value in self.reasons:
                continue
            sources = self._sources(value)
            if sources:
                self.derived[value] = sources
            else:
                self.candidates.append(value)
        self.candidates.sort(key=self._weight)
        self.runs = 0
        self.session: Session | None = None

    def _sources(self, value: ir.Value) -> list[ir.Value]:
        """The tensors whose values `value` only hands on; [] where it is computed anew."""
        node = value.producer()
        if node is None or node.op_type not in EXACT or node.domain not in ("", "ai.onnx"):
            return []
        number = self.program.producers.get(value)
        if number is None or value not in node.outputs or node.outputs.index(value) not in self.program.operations[number].outputs:
            return []
        return [v for at, v in enumerate(node.inputs) if v is not None and at in self.program.operations[number].inputs]

    def _weight(self, value: ir.Value) -> int:
        """Tensors beside heavy operations are tried first: they have the first claim on the tolerance."""
        return 0 if any(self.program.operations[number].gain == HEAVY_GAIN for number in self.program.around(value)) else 1

    def passes(self, chosen: set[int], tolerance: float) -> bool:
        """Whether the outputs stay within `tolerance` when the chosen candidates are rounded."""
        if self.session is None:
            return self.all_pass(tolerance, chosen)
        flags = np.zeros(max(1, len(self.candidates)), dtype=bool)
        flags[list(chosen)] = True
        return self._holds(self.session, {FLAGS: flags}, tolerance)

    def all_pass(self, tolerance: float, chosen: set[int] | None = None) -> bool:
        """Whether the outputs stay within `tolerance` when every candidate (or each of `chosen`) is rounded; no flags needed."""
        session = Session(self._instrumented(chosen, flagged=False))
        try:
            return self._holds(session, {}, tolerance)
        finally:
            session.close()

    def _holds(self, session: Session, flags: Feed, tolerance: float) -> bool:
        for feed, reference in zip(self.feeds, self.references, strict=True):
            self.runs += 1
            try:
                outputs = session.run({**feed, **flags})
            except Exception:  # a rounded index outside its table, a rounded size that does not fit
                return False
            if not distance(reference, outputs).within(tolerance):
                return False
        return True

    def unsafe(self, tolerance: float, deadline: float, tell: Callable[[str], None] = lambda _: None) -> dict[ir.Value, str]:
        """The tensors that must stay float32, and why; `tell` hears how far the search is."""
        found = dict(self.reasons)
        moved = f"rounded to {self.policy.half}, it moves an output too far"
        self._search(found, range(len(self.candidates)), tolerance, deadline, moved, tell)
        return found

    def stress(self, found: dict[ir.Value, str], feeds: Sequence[Feed], references: Sequence[Outputs], deadline: float) -> None:
        """Add to `found` what does not bear other feeds, such as larger ones; what reaches a heavy operation is not asked."""
        self.feeds, self.references = feeds, references
        near = {value for value in self.program.producers if not self._weight(value)}
        for value, sources in reversed(self.derived.items()):
            if value in near:
                near.update(sources)
        light = [at for at, value in enumerate(self.candidates) if value not in near and value not in found]
        if feeds and light:
            why = f"rounded to {self.policy.half}, it moves an output too far on larger inputs"
            self._search(found, light, self.policy.tolerance, deadline, why)

    def _search(
        self,
        found: dict[ir.Value, str],
        items: Sequence[int],
        tolerance: float,
        deadline: float,
        why: str,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not self.all_pass(tolerance, set(items)):
            if self.session is None and self.program.model.opset_imports.get("", 1) >= FIRST_WHERE:
                self.session = Session(self._instrumented())
            bad = unsafe_groups(
                items,
                lambda chosen: self.passes(chosen, tolerance),
                deadline=deadline,
                progress=lambda done, of: tell(f"measuring tensors one group after the other: {done} of {of}"),
            )
            late = time.monotonic() > deadline
            found |= {self.candidates[number]: "not measured in the time allowed" if late else why for number in bad}
        inherit(found, self.derived)

    def close(self) -> None:
        """Free the session."""
        if self.session is not None:
            self.session.close()

    def _instrumented(self, only: set[int] | None = None, *, flagged: bool = True) -> ir.Model:
        """A copy of the model in which candidates are rounded: those that their flags choose, or those of `only`, or all."""
        twin = self.program.model.clone()
        twins = dict(_pairs(self.program.model, twin))
        flags = ir.Value(name=FLAGS, type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([max(1, len(self.candidates))]))
        inside: dict[ir.Function, ir.Value] = {}
        if flagged:
            twin.graph.inputs.append(flags)
            inside = _with_flags(twin, flags)
        functions = {body: function for function in inside for body in (function, *function.subgraphs())}
        ends: dict[ir.Value, list[tuple[ir.Graph | ir.Function, int]]] = {}
        for body, _ in bodies(twin):
            for at, output in enumerate(body.outputs):
                ends.setdefault(output, []).append((body, at))
        for number, candidate in enumerate(self.candidates):
            if only is not None and number not in only:
                continue
            value = twins[candidate]
            owner = _owner(value)
            assert owner is not None
            function = functions.get(owner)
            flag = None if not flagged else flags if function is None else inside[function]
            chosen = self._instrument(owner, value, number, flag, constant=is_constant(value))
            for body, at in ends.get(value, ()):
                body.outputs[at] = chosen
        return twin

    def _instrument(
        self, owner: ir.Graph | ir.Function, value: ir.Value, number: int, flags: ir.Value | None, *, constant: bool
    ) -> ir.Value:
        """Put a candidate's rounding, and its choice where there are flags, after it; the value that its users read now."""
        name = f"mplint_{number}"
        uses = [(use.node, use.idx) for use in value.uses()]
        nodes: list[ir.Node] = []
        if constant:
            tensor = tensor_of(value)
            assert tensor is not None
            nodes.append(_constant(rounded(tensor.numpy(), self.policy.half).astype(np.float32), f"{name}_rounded"))
        else:
            nodes += _rounding(value, self.policy.half, name)
        if flags is not None:
            index = _constant(np.array(number, dtype=np.int64), f"{name}_index")
            flag = ir.node("Gather", [flags, index.outputs[0]], {"axis": 0}, outputs=[ir.Value(name=f"{name}_flag")])
            nodes += [
                index,
                flag,
                ir.node("Where", [flag.outputs[0], nodes[-1].outputs[0], value], outputs=[ir.Value(name=f"{name}_chosen")]),
            ]
        chosen = nodes[-1]
        producer = value.producer()
        if producer is not None:
            owner.insert_after(producer, nodes)
        elif (first := next(iter(owner), None)) is not None:
            owner.insert_before(first, nodes)
        else:
            owner.extend(nodes)
        result = chosen.outputs[0]
        result.type, result.shape = value.type, value.shape
        for node, position in uses:
            node.replace_input_with(position, result)
        return result


def unbounded(model: ir.Model, values: Sequence[ir.Value], feeds: Sequence[Feed], policy: Policy) -> set[ir.Value]:
    """Those of the `values`, which are exps or sums of exps, that would exceed the range on arguments a little beyond the samples'."""
    if not values or policy.largest > 1e38:  # the range of bfloat16 is that of float32
        return set()
    inside = [value for value in values if _owner(value) is model.graph]
    if len(inside) < len(values):
        return set(values)
    arguments = [_argument(value) for value in values]
    probe = Probe(model, [*values, *(argument for argument in arguments if argument is not None)])
    found: set[ir.Value] = set()
    for feed in feeds:
        extents = probe.extents(feed)
        for value, reached, spread in zip(values, extents[: len(values)], extents[len(values) :], strict=True):
            ahead = 1.0 + 0.5 * (spread.high - spread.low)
            if not (reached.high >= 0 and math.log(reached.high + 1e-30) + ahead <= math.log(policy.largest)):
                found.add(value)
    return found


def grows(value: ir.Value) -> bool:
    """Whether a tensor is an exp, or a sum of exps, whose argument nothing bounds from above."""
    argument = _argument(value)
    if argument is None:
        return False
    before = argument.producer()
    return before is None or before.op_type not in BOUNDING


def _argument(value: ir.Value) -> ir.Value | None:
    """The argument of the exp that a tensor is, or is a sum of."""
    node = value.producer()
    for _ in range(2):
        if node is None or node.op_type not in ("ReduceSum", "Identity", "Unsqueeze", "Squeeze"):
            break
        node = node.inputs[0].producer() if node.inputs[0] is not None else None
    return node.inputs[0] if node is not None and node.op_type == "Exp" else None


def _rounding(value: ir.Value, half: str, name: str) -> list[ir.Node]:
    """Nodes that store `value` in half and read it back; for float16 at `MARGIN` times its size, so that the range is used up earlier."""
    dtype = int(ir.DataType[half.upper()])
    nodes: list[ir.Node] = []
    source = value
    if half == "float16":
        factor = _constant(np.array(MARGIN, dtype=np.float32), f"{name}_margin")
        nodes += [factor, ir.node("Mul", [source, factor.outputs[0]], outputs=[ir.Value(name=f"{name}_grown")])]
        source = nodes[-1].outputs[0]
    nodes.append(ir.node("Cast", [source], {"to": dtype}, outputs=[ir.Value(name=f"{name}_half")]))
    nodes.append(ir.node("Cast", [nodes[-1].outputs[0]], {"to": int(ir.DataType.FLOAT)}, outputs=[ir.Value(name=f"{name}_back")]))
    if half == "float16":
        nodes.append(ir.node("Div", [nodes[-1].outputs[0], nodes[0].outputs[0]], outputs=[ir.Value(name=f"{name}_shrunk")]))
    return nodes


def _constant(array: np.ndarray, name: str) -> ir.Node:
    return ir.node("Constant", [], {"value": ir.tensor(array)}, outputs=[ir.Value(name=name)])


def _owner(value: ir.Value) -> ir.Graph | ir.Function | None:
    producer = value.producer()
    return producer.graph if producer is not None else value.graph


def _with_flags(model: ir.Model, flags: ir.Value) -> dict[ir.Function, ir.Value]:
    """Give every function one more input, the flags, and hand them on at every call."""
    inside = {}
    counts = {function: len(function.inputs) for function in model.functions.values()}
    for function in model.functions.values():
        inside[function] = ir.Value(name=FLAGS)
        function.inputs.append(inside[function])
    for body in tops(model):
        for node in body.all_nodes():
            called = model.functions.get(node.op_identifier())
            if called is not None:
                node.resize_inputs(counts[called] + 1)
                node.replace_input_with(counts[called], inside[body] if isinstance(body, ir.Function) else flags)
    return inside


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
