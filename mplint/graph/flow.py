"""What stands for what in a graph: behind moves and casts, inside of calls, regions, branches and wrappers, and out of them again."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.graph.model import FLOATS, Node, OpKind, Tensor
from mplint.graph.operations import handed, operation

PASSING = (OpKind.MOVE, OpKind.CAST)


def source(tensor: Tensor, through: tuple[OpKind, ...] = PASSING) -> Tensor:
    """The tensor that `tensor` is a moved or cast copy of, on the way back through bodies of calls and out of them."""
    for _ in range(1000):
        if len(tensor.inside) == 1:
            tensor = tensor.inside[0]
            continue
        node = tensor.producer
        if node is None:
            if len(tensor.given) != 1:
                break
            tensor = tensor.given[0]
            continue
        before = handed(node)
        if before is None or (node.kind in PASSING and node.kind not in through):
            break
        tensor = before
    return tensor


def makers(tensor: Tensor) -> list[Node]:
    """The operations that compute a tensor, behind casts, moves and concatenations, inside of calls, regions, branches and wrappers."""
    found: list[Node] = []
    stack, seen = [tensor], set[int]()
    while stack and len(seen) < 1000:
        origin = source(stack.pop())
        if id(origin) in seen:
            continue
        seen.add(id(origin))
        node = origin.producer
        if origin.inside:
            stack += reversed(origin.inside)
        elif node is None:
            stack += reversed(origin.given)
        elif node.kind is OpKind.MOVE:
            stack += [t for t in reversed(node.inputs) if t is not None and t.dtype in FLOATS]
        elif node not in found:
            found.append(node)
    return found


def users(tensor: Tensor, through: tuple[OpKind, ...] = (OpKind.MOVE,)) -> Iterator[Node]:
    """The operations that read `tensor`, also by way of nodes that only move it, in the bodies of calls and behind them."""
    seen = {id(tensor)}
    stack = [tensor]
    while stack:
        current = stack.pop()
        following = [*current.passed, *current.shown]
        for node in current.consumers:
            if node.kind is OpKind.CHECK or _is_entered(current, node):
                continue
            if node.kind not in through and not (handed(node) is current and node.kind not in PASSING):
                yield node
                continue
            following += node.outputs
        for output in following:
            if id(output) not in seen:
                seen.add(id(output))
                stack.append(output)


def _is_entered(tensor: Tensor, node: Node) -> bool:
    """Whether a node reads a tensor only to hand it to its bodies, whose own nodes read it there."""
    bodies = (*node.graphs.values(), *node.callees)
    return bool(bodies) and (bool(tensor.passed) or any(tensor is inner for body in bodies for inner in body.inputs))


def is_bias(node: Node) -> bool:
    """Whether a node adds a constant."""
    return operation(node) == "add" and any(tensor is not None and source(tensor).weights is not None for tensor in node.inputs)
