"""In which order the nodes of a message stand: what is made of weights alone comes where it is first taken.

ONNX Runtime runs nodes in the order of the message as soon as they have what they take. Copies, casts and turned forms of weights, which
often stand in front, would all be made before anything else, and be held together.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def put_late(proto: onnx.ModelProto) -> None:
    """Move the nodes of the main graph that take only weights in front of the first node that takes what they make, in place."""
    graph = proto.graph
    fixed = {tensor.name for tensor in graph.initializer} - {value.name for value in graph.input}
    waiting: dict[str, int] = {}  # what such a node makes, and its place
    order: list[int] = []

    def take(name: str) -> None:
        stack = [name]
        while stack:
            at = waiting.get(stack[-1])
            before = [] if at is None else [taken for taken in graph.node[at].input if taken in waiting]
            stack += before
            if before:
                continue
            stack.pop()
            if at is not None:
                order.append(at)
                for made in graph.node[at].output:
                    waiting.pop(made, None)

    for at, node in enumerate(graph.node):
        if node.op_type == "Constant":
            fixed.update(node.output)
        elif node.input and all(name in fixed for name in node.input) and not any(_bodies(node)):
            fixed.update(node.output)
            waiting |= dict.fromkeys(node.output, at)
            continue
        for name in _taken(node):
            take(name)
        order.append(at)
    for name in list(waiting):
        take(name)
    if order != sorted(order):
        moved = onnx.GraphProto()
        moved.node.extend(graph.node[at] for at in order)
        del graph.node[:]
        graph.node.extend(moved.node)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in a node."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _taken(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node takes, and those in its bodies."""
    yield from node.input
    for body in _bodies(node):
        yield from (output.name for output in body.output)
        for inner in body.node:
            yield from _taken(inner)
