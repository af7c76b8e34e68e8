"""Which operations of a SavedModel go to half, and the model with them in half; TensorFlow decides, `kept` has the last word."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from mplint.conversion.tensorflow.functions import ADDED, FLOAT, HALVES, bare, emulated, graph_of, turned, with_body, with_nodes
from mplint.conversion.tensorflow.grappler import in_half

Place = tuple[str, str]  # function ("" for the graph itself), node
HEAVY = frozenset(
    (
        "MatMul",
        "BatchMatMul",
        "BatchMatMulV2",
        "BatchMatMulV3",
        "Conv2D",
        "Conv3D",
        "DepthwiseConv2dNative",
        "Conv2DBackpropInput",
        "Conv3DBackpropInputV2",
        "Einsum",
        "CudnnRNN",
        "CudnnRNNV2",
        "CudnnRNNV3",
        "GRUBlockCell",
        "LSTMBlockCell",
    )
)
MOVING = frozenset(
    ("Const", "Identity", "IdentityN", "ReadVariableOp", "Cast", "NoOp", "Placeholder", "_Arg", "StopGradient", "PreventGradient", "Shape")
)
# Their types must agree with those of other functions, or of lists that other functions fill.
BOUND = frozenset(("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase", "PartitionedCall", "StatefulPartitionedCall"))
LISTS = ("TensorList", "TensorArray")
INIT = "__saved_model_init_op"


@dataclass(slots=True)
class Plan:
    """A rewritten MetaGraphDef, the same with half emulated, and what became of each operation."""

    meta: Any
    emulation: Any
    half: dict[Place, str] = field(default_factory=dict)  # operation types of what computes in half
    float32: dict[Place, str] = field(default_factory=dict)  # and of what could be asked why it does not
    ends: set[Place] = field(default_factory=set)  # what makes an output of a graph without functions
    casts: int = 0


def make_plan(meta: Any, half: str, kept: Collection[Place]) -> Plan:
    """Rewrite each function that has matmuls or convolutions, and the graph itself where it has; what is counted is what signatures run."""
    import tensorflow as tf

    plan = Plan(_copy(meta), _copy(meta))
    served, nodes = reached(meta)
    library = meta.graph_def.library
    with tf.Graph().as_default():
        tf.graph_util.import_graph_def(tf.compat.v1.GraphDef(library=library, versions=meta.graph_def.versions), name="")
        for index, function in enumerate(library.function):
            name = function.signature.name
            counted = name in served
            if _convertible(name, function.node_def):
                graph, names, ends = graph_of(function)
                made = in_half(graph, ends, half, _pinned(graph, name, kept))
                plan.meta.graph_def.library.function[index].CopyFrom(with_body(function, made, names))
                plan.emulation.graph_def.library.function[index].CopyFrom(with_body(function, emulated(graph, made, half), names))
                if counted:
                    _count(plan, name, graph, made)
            elif counted:
                _count(plan, name, None, function)
        main = meta.graph_def
        if _convertible("", main.node):
            graph = bare(main)
            fetched = [tensor.name for _, signature in signatures(meta) for tensor in signature.outputs.values() if tensor.name]
            made = in_half(graph, fetched, half, _pinned(graph, "", kept))
            plan.meta.graph_def.CopyFrom(_with_library(with_nodes(main, made), plan.meta.graph_def))
            plan.emulation.graph_def.CopyFrom(_with_library(with_nodes(main, emulated(graph, made, half)), plan.emulation.graph_def))
            _count(plan, "", graph, made, nodes)
            plan.ends = {("", name.partition(":")[0]) for name in fetched}
    return plan


def signatures(meta: Any) -> Iterator[tuple[str, Any]]:
    """The signatures that compute something, by name."""
    for name, signature in sorted(meta.signature_def.items()):
        if name != INIT and signature.outputs:
            yield name, signature


def reached(meta: Any) -> tuple[set[str], set[str]]:
    """The functions that signatures run, and the nodes of the graph itself; all of them where there are no signatures."""
    bodies = {function.signature.name: function.node_def for function in meta.graph_def.library.function}
    nodes = {node.name: node for node in meta.graph_def.node}
    stack = [tensor.name.partition(":")[0] for _, signature in signatures(meta) for tensor in signature.outputs.values()]
    if not stack:
        return set(bodies), set(nodes)
    seen: set[str] = set()
    found: set[str] = set()
    while stack:
        name = stack.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        stack += [reference.lstrip("^").partition(":")[0] for reference in nodes[name].input]
        pending = _called(nodes[name])
        while pending:
            function = pending.pop()
            if function in bodies and function not in found:
                found.add(function)
                pending += [called for node in bodies[function] for called in _called(node)]
    return found, seen


def _pinned(graph: Any, owner: str, kept: Collection[Place]) -> set[str]:
    bound = {node.name for node in graph.node if node.op in BOUND or node.op.startswith(LISTS)}
    return bound | {node for function, node in kept if function == owner}


def _called(node: Any) -> list[str]:
    names = [node.op]
    for value in node.attr.values():
        names += [value.func.name] if value.WhichOneof("value") == "func" else [one.name for one in value.list.func]
    return names


def _convertible(name: str, nodes: Any) -> bool:
    """Whether half gains something here; the backward passes that a SavedModel may keep stay as they are."""
    return "__backward_" not in name and any(node.op in HEAVY for node in nodes)


def _count(plan: Plan, owner: str, before: Any, after: Any, counted: Collection[str] | None = None) -> None:
    """Count what became of the nodes of a body; only some of them, where some are `counted`."""
    nodes = after.node_def if before is None else after.node
    halves = set() if before is None else {node.name for node, _ in turned(before.node, after.node)}
    for node in nodes:
        if counted is not None and node.name not in counted:
            continue
        if node.name in halves:
            plan.half[owner, node.name] = node.op
        elif node.op not in MOVING and not node.name.startswith("mplint_end_"):
            types = {value.type for value in node.attr.values()}
            if FLOAT in types and not types & set(HALVES.values()):
                plan.float32[owner, node.name] = node.op
    plan.casts += sum(node.op == "Cast" and node.name.endswith(ADDED) for node in nodes) if before is not None else 0


def _copy(meta: Any) -> Any:
    made = type(meta)()
    made.CopyFrom(meta)
    return made


def _with_library(graph: Any, other: Any) -> Any:
    graph.library.CopyFrom(other.library)
    graph.versions.CopyFrom(other.versions)
    return graph
