"""The widths of a model that matrix units see: hidden channels, and the rows of vocabularies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mplint.graph.facts import GraphFacts
from mplint.graph.flow import source
from mplint.graph.model import HALF, HEAVY, Node, OpKind, Tensor
from mplint.graph.work import kernel_of, work

STEP = 8
VOCABULARY = 1000
REACH = 400  # nodes that are followed from one product to the next


class Width(NamedTuple):
    """An unaligned size, the nodes that make it, in order, and the first node that reads it."""

    number: int
    nodes: tuple[Node, ...]
    reader: Node | None


def hidden_widths(graph: GraphFacts) -> Iterator[Width]:
    """The channels that half products and convolutions make for other ones and that are no multiple of 8, each number once."""
    found: dict[int, list[tuple[Node, Node]]] = {}
    for node in graph.heavy:
        width = _made(node) if node.compute_dtype in HALF else None
        if width is None or width <= STEP or width % STEP == 0:
            continue
        reader = next_heavy(node)
        if reader is not None:
            found.setdefault(width, []).append((node, reader))
    for number, pairs in found.items():
        yield Width(number, tuple(node for node, _ in pairs), pairs[0][1])


def _made(node: Node) -> int | None:
    """The number of channels or units that a node's weights make; None where the data decides, or groups do."""
    if node.kind is OpKind.RECURRENT:
        hidden = node.attributes.get("hidden_size")
        inner = node.weights.get("recurrent_kernel")
        if inner is not None and inner.shape:
            hidden = inner.shape[0]
        return hidden if isinstance(hidden, int) else None
    size, kernel = work(node), kernel_of(node)
    if size is None or size.groups != 1 or kernel is None or node.kind not in (OpKind.MATMUL, OpKind.CONV):
        return None
    from_data = source(kernel).weights is None and not node.weights
    return size.outer if isinstance(size.outer, int) and not from_data else None


def vocabularies(graph: GraphFacts) -> Iterator[Width]:
    """The rows of embeddings, and the heads that are as wide, where they are many, run in half and are no multiple of 8."""
    tables: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.kind is OpKind.EMBEDDING:
            rows = _rows(node)
            if rows is not None and rows >= VOCABULARY and rows % STEP:
                tables.setdefault(rows, []).append(node)
    for rows, nodes in tables.items():
        heads = [n for n in graph.heavy if (size := work(n)) is not None and size.outer == rows and next_heavy(n) is None]
        if any(node.compute_dtype in HALF for node in (*nodes, *heads)):
            yield Width(rows, (*nodes, *heads), heads[0] if heads else None)


def _rows(node: Node) -> int | None:
    tables: tuple[Tensor | None, ...] = (*node.weights.values(), *node.inputs[:2])
    for table in tables:
        shape = source(table).shape if table is not None else None
        if shape is not None and len(shape) == 2 and isinstance(shape[0], int) and (table is None or source(table).weights is not None):
            return shape[0]
    return None


def next_heavy(node: Node) -> Node | None:
    """A product or convolution that reads, with lighter nodes in between, what `node` computes."""
    seen = {id(node)}
    stack = [node]
    while stack and len(seen) < REACH:
        current = stack.pop(0)
        for output in current.outputs:
            for user in output.consumers:
                if user.kind in HEAVY:
                    return user
                if id(user) not in seen:
                    seen.add(id(user))
                    stack.append(user)
    return None
