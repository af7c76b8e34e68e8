"""What no sample has driven: branches never taken, bodies never run, arms of a Where never chosen. Nothing is known of it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence

import onnx_ir as ir

from mplint.conversion.onnx.probe import Probe
from mplint.conversion.onnx.program import Program, bodies, is_constant
from mplint.conversion.onnx.run import Feed, Session

NUMBERED = re.compile(r'mplint_(\d+)_kernel_time"')  # behind the name of a call, in a function
UNSEEN = "no sample reaches it"


def unseen(program: Program, feeds: Sequence[Feed]) -> dict[ir.Value, str]:
    """The float32 tensors whose values no feed lets any output depend on, be it only in a branch; {} where all are."""
    if not feeds:
        return {}
    dead = never_run(program.model, feeds)
    arms = never_chosen(program.model, feeds)
    if not dead and not arms:
        return {}
    ends = {value for body, _ in bodies(program.model) for value in body.outputs}
    lost: set[ir.Value] = {value for node in dead for value in node.outputs}
    changed = True
    while changed:
        changed = False
        for value in program.producers:
            if value in lost or is_constant(value) or value.is_graph_input() or not any(True for _ in value.uses()):
                continue
            if value in ends and not _is_dead_end(value, lost, dead):
                continue
            if all((use.node, use.idx) in arms or use.node in dead or _is_lost(use.node, lost) for use in value.uses()):
                lost.add(value)
                changed = True
    return {value: UNSEEN for value in program.producers if value in lost and not is_constant(value)}


def _is_lost(node: ir.Node, lost: Collection[ir.Value]) -> bool:
    return bool(node.outputs) and all(value in lost for value in node.outputs)


def _is_dead_end(value: ir.Value, lost: Collection[ir.Value], dead: Collection[ir.Node]) -> bool:
    producer = value.producer()
    return value in lost or (producer is not None and producer in dead)


def never_run(model: ir.Model, feeds: Sequence[Feed]) -> set[ir.Node]:
    """The nodes in bodies of Ifs, Loops and Scans that no feed makes ONNX Runtime run."""
    inner = [node for body in _driven(model) for node in body if node.op_type != "Constant"]
    if not inner:
        return set()
    twin = model.clone()
    numbered: dict[str, ir.Node] = {}
    for (body, _), (copy, _) in zip(bodies(model), bodies(twin), strict=True):
        for node, other in zip(body, copy, strict=True):
            other.name = f"mplint_{len(numbered)}"
            numbered[other.name] = node
    ran: set[ir.Node] = set()
    for part in (feeds[:1], feeds[1:]):  # most models run all that they have on any feed
        if part and not ran.issuperset(inner):
            ran |= {numbered[f"mplint_{number}"] for number in _run_on(twin, part)}
    return {node for node in inner if node not in ran}


def _run_on(twin: ir.Model, feeds: Sequence[Feed]) -> set[str]:
    """The numbers of the nodes that ONNX Runtime runs on some feeds."""
    with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
        session = Session(twin, profile=os.path.join(folder, "run"))
        try:
            for feed in feeds:
                session.run(feed)
        finally:
            told = session.end_profile()
        with open(told, encoding="utf-8") as stream:
            found = set(NUMBERED.findall(stream.read()))  # it holds every step of a loop
        session.close()
    return found


def _driven(model: ir.Model) -> Iterator[ir.Graph]:
    """The bodies that run as often as values tell that are not constants."""
    for body, _ in bodies(model):
        for node in body:
            if node.op_type not in ("If", "Loop") or all(_is_fixed(value) for value in node.inputs[: 1 if node.op_type == "If" else 2]):
                continue
            for attribute in node.attributes.values():
                if not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPH:
                    yield attribute.as_graph()


def _is_fixed(value: ir.Value | None, depth: int = 20) -> bool:
    if value is None or is_constant(value):
        return True
    node = value.producer()
    return node is not None and depth > 0 and bool(node.inputs) and all(_is_fixed(operand, depth - 1) for operand in node.inputs)


def never_chosen(model: ir.Model, feeds: Sequence[Feed]) -> set[tuple[ir.Node, int]]:
    """The arms of Wheres in the main graph that no feed chooses an element of; constant arms are judged by reading them."""
    wheres = [
        node
        for node in model.graph
        if node.op_type == "Where" and node.inputs[0] is not None and any(v is not None and not is_constant(v) for v in node.inputs[1:])
    ]
    conditions = list(dict.fromkeys(node.inputs[0] for node in wheres if node.inputs[0] is not None and not is_constant(node.inputs[0])))
    if not conditions:
        return set()
    probe = Probe(model, conditions)
    chosen: dict[ir.Value, set[bool]] = {condition: set() for condition in conditions}
    for feed in feeds:
        for condition, extent in zip(conditions, probe.extents(feed), strict=True):
            chosen[condition] |= {bool(extent.low), bool(extent.high)}
        if all(len(sides) > 1 for sides in chosen.values()):
            break
    probe.close()
    return {
        (node, arm)
        for node in wheres
        for arm, side in ((1, True), (2, False))
        if node.inputs[0] in chosen and side not in chosen[node.inputs[0]]
    }
