"""Recurrent operators that store their state in half at each step, as they do in half: the state is what the next step takes.

ONNX Runtime's CPU computes a whole sequence in float32. Here such an operator becomes a Scan of one step, whose state is rounded; where
little of a state is forgotten, what rounding takes from it adds up over hundreds of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mplint.conversion.onnx.schemas import only_widened
from mplint.conversion.onnx.widths import RECURRENT

MARK = "mplint.state"  # the key of a node's property that says the dtype of its state
LEAST = 9  # the opset from which on a Scan is as it is
WITHOUT_BROADCAST = 7  # the opset from which on operators are much as they are
ALIKE = ("BatchNormalization", "MaxPool")  # what is the same from there on, where only its first output is taken
SPATIAL = ("BatchNormalization", "spatial")  # an attribute that is no more
UNSQUEEZED = 13  # the opset from which on axes are an input
LENGTHS, HIDDEN, CELL = 4, 5, 6  # inputs
PER_DIRECTION = (1, 2, 3, 5, 6, 7)  # the inputs whose first axis (of states, too) counts the directions


def mark(node: onnx.NodeProto, half: int) -> None:
    """Let a node keep its state in a half dtype when it is run."""
    if node.op_type in RECURRENT and not any(entry.key == MARK for entry in node.metadata_props):
        node.metadata_props.add(key=MARK, value=str(half))


def step_by_step(proto: onnx.ModelProto) -> None:
    """Make Scans of the marked operators, in place; those with batches first, which ONNX Runtime's CPU does not run, stay as they are."""
    own = next((entry for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), None)
    if own is None or MARK.encode() not in proto.SerializeToString():
        return
    nodes = list(_own(proto.graph))
    if own.version < LEAST and all(_is_alike(node, own.version) for node in nodes):
        own.version = LEAST  # in which its operators are what they are here
        for node in nodes:
            for attribute in [one for one in node.attribute if (node.op_type, one.name) == SPATIAL]:
                node.attribute.remove(attribute)
    if own.version >= LEAST:
        _rewrite(proto.graph, own.version)


def _is_alike(node: onnx.NodeProto, old: int) -> bool:
    """Whether a node is the same in the opset from which on there are Scans, but for an attribute that says what is so by itself there."""
    if node.op_type in ALIKE and old >= WITHOUT_BROADCAST and not any(node.output[1:]):
        return all(one.i for one in node.attribute if (node.op_type, one.name) == SPATIAL)
    return only_widened(node.op_type, old, LEAST)


def _own(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of ONNX's own operators in a graph and the bodies in it."""
    for node in graph.node:
        if node.domain in ("", "ai.onnx"):
            yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []), *attribute.graphs):
                yield from _own(inner)


def _rewrite(graph: onnx.GraphProto, opset: int) -> None:
    nodes: list[onnx.NodeProto] = []
    changed = False
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []), *attribute.graphs):
                _rewrite(inner, opset)
        half = next((int(entry.value) for entry in node.metadata_props if entry.key == MARK), 0)
        made = list(_steps(node, half, opset)) if half else []
        changed |= bool(made)
        nodes += made or [node]
    if changed:
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(kept)


def _steps(node: onnx.NodeProto, half: int, opset: int) -> Iterator[onnx.NodeProto]:
    """The nodes that do what a recurrent operator does, step by step; none for one that is left alone."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    inputs = [*node.input, *[""] * (8 - len(node.input))]
    outputs = [*node.output, *[""] * (3 - len(node.output))]
    size = given.get("hidden_size")
    if given.get("layout", 0) or not size:
        return
    direction = given.pop("direction", b"forward").decode()
    turned = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[direction]
    prefix = f"{next(filter(None, node.output))}__steps"
    activations = given.pop("activations", [])
    each = len(activations) // len(turned)
    results: list[list[str]] = []
    if inputs[LENGTHS]:
        yield from _counted(inputs[0], inputs[LENGTHS], prefix)
    for at, reverse in enumerate(turned):
        name = f"{prefix}_{at}"
        own = list(inputs)
        if len(turned) > 1:
            yield _constant(np.array([at], np.int64), f"{name}_at")
            for position in PER_DIRECTION:
                if inputs[position]:
                    own[position] = f"{name}_input_{position}"
                    yield helper.make_node("Gather", [inputs[position], f"{name}_at"], [own[position]], axis=0)
        names = [HIDDEN, CELL] if node.op_type == "LSTM" else [HIDDEN]
        if not all(own[position] for position in names):
            yield from _zeros(own[0], size, f"{name}_zeros")
        starts = [own[position] or f"{name}_zeros" for position in names]
        settings = {**given, **({"activations": activations[at * each : (at + 1) * each]} if activations else {})}
        body = _body(node.op_type, own, names, half, opset, settings, name, prefix if inputs[LENGTHS] else "")
        walked = [own[0], *([f"{prefix}_places"] if inputs[LENGTHS] else [])]
        ends = [f"{name}_end_{position}" for position in names]
        yield helper.make_node(
            "Scan",
            [*starts, *walked],
            [*ends, f"{name}_all"],
            body=body,
            num_scan_inputs=len(walked),
            scan_input_directions=[reverse] * len(walked),
            scan_output_directions=[reverse],
        )
        results.append([f"{name}_all", *ends])
    for position, output in enumerate(outputs):  # the whole sequence first, then states
        if output:
            parts = [result[position] for result in results]
            yield helper.make_node("Concat", parts, [output], axis=1 if position == 0 else 0)


def _counted(sequence: str, lengths: str, prefix: str) -> Iterator[onnx.NodeProto]:
    """The places of a sequence, and the lengths of those of a batch, as numbers that compare."""
    ones = numpy_helper.from_array(np.array([1], np.int64))
    yield _constant(np.array([0], np.int64), f"{prefix}_first")
    yield _constant(np.array([-1], np.int64), f"{prefix}_line")
    yield _constant(np.array([1, -1, 1], np.int64), f"{prefix}_batches")
    yield helper.make_node("Shape", [sequence], [f"{prefix}_sizes"])
    yield helper.make_node("Gather", [f"{prefix}_sizes", f"{prefix}_first"], [f"{prefix}_count"], axis=0)
    yield helper.make_node("ConstantOfShape", [f"{prefix}_count"], [f"{prefix}_ones"], value=ones)
    yield helper.make_node("NonZero", [f"{prefix}_ones"], [f"{prefix}_found"])
    yield helper.make_node("Reshape", [f"{prefix}_found", f"{prefix}_line"], [f"{prefix}_places"])
    yield helper.make_node("Cast", [lengths], [f"{prefix}_ends"], to=TensorProto.INT64)


def _going(kept: dict[str, str], out: str, prefix: str, counted: str) -> Iterator[onnx.NodeProto]:
    """Nodes that leave the state of a sequence that has ended, or in reverse not begun, as it was, and give zeros for it."""
    yield helper.make_node("Less", [f"{prefix}_place", f"{counted}_ends"], [f"{prefix}_within"])
    yield helper.make_node("Reshape", [f"{prefix}_within", f"{counted}_batches"], [f"{prefix}_going"])
    for made, old in kept.items():
        yield helper.make_node("Where", [f"{prefix}_going", made, old], [f"{made}_kept"])
    yield _constant(np.zeros(1, np.float32), f"{prefix}_nothing")
    yield helper.make_node("Where", [f"{prefix}_going", out, f"{prefix}_nothing"], [f"{prefix}_out"])


def _body(
    kind: str, inputs: list[str], names: list[int], half: int, opset: int, settings: dict[str, Any], prefix: str, counted: str
) -> onnx.GraphProto:
    """One step: what it takes of the sequence and the states, and the states that it stores; `counted` where sequences have lengths."""
    own = {position: f"{prefix}_state_{position}" for position in names}
    taken = [f"{prefix}_rows", *inputs[1:LENGTHS], "", *(own.get(position, "") for position in (HIDDEN, CELL)), inputs[7]]
    made = {position: f"{prefix}_made_{position}" for position in names}
    nodes = [_unsqueeze(f"{prefix}_step", f"{prefix}_rows", opset)]
    nodes.append(helper.make_node(kind, _without_end(taken), ["", *made.values()], **settings))
    for name in made.values():
        nodes.append(helper.make_node("Cast", [name], [f"{name}_half"], to=half))
        nodes.append(helper.make_node("Cast", [f"{name}_half"], [f"{name}_stored"], to=TensorProto.FLOAT))
    ends = [f"{one}_stored" for one in made.values()]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (*own.values(), f"{prefix}_step")]
    if counted:
        given.append(helper.make_tensor_value_info(f"{prefix}_place", TensorProto.INT64, None))
        nodes += _going(dict(zip(ends, own.values(), strict=True)), f"{made[HIDDEN]}_stored", prefix, counted)
        ends = [f"{end}_kept" for end in ends]
    else:
        nodes.append(helper.make_node("Identity", [f"{made[HIDDEN]}_stored"], [f"{prefix}_out"]))
    shown = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (*ends, f"{prefix}_out")]
    return helper.make_graph([*_constants(nodes), *nodes], f"{prefix}_body", given, shown)


def _constants(nodes: list[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The axes that nodes take as inputs."""
    for node in nodes:
        if node.op_type == "Unsqueeze" and len(node.input) > 1:
            yield _constant(np.array([0], np.int64), node.input[1])


def _unsqueeze(source: str, target: str, opset: int) -> onnx.NodeProto:
    if opset < UNSQUEEZED:
        return helper.make_node("Unsqueeze", [source], [target], axes=[0])
    return helper.make_node("Unsqueeze", [source, f"{target}_axes"], [target])


def _zeros(sequence: str, size: int, name: str) -> Iterator[onnx.NodeProto]:
    """A state of zeros, for each sequence of a batch."""
    yield _constant(np.array([1], np.int64), f"{name}_one")
    yield _constant(np.array([size], np.int64), f"{name}_size")
    yield helper.make_node("Shape", [sequence], [f"{name}_sizes"])
    yield helper.make_node("Gather", [f"{name}_sizes", f"{name}_one"], [f"{name}_batch"], axis=0)
    yield helper.make_node("Concat", [f"{name}_one", f"{name}_batch", f"{name}_size"], [f"{name}_shape"], axis=0)
    yield helper.make_node("ConstantOfShape", [f"{name}_shape"], [name])


def _without_end(names: list[str]) -> list[str]:
    """Names without the empty ones at the end."""
    while names and not names[-1]:
        names.pop()
    return names


def _constant(array: np.ndarray, name: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
