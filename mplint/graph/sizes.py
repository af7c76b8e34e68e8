"""The widths of a model that matrix units see: hidden channels, and the rows of vocabularies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mplint.graph.facts import GraphFacts
from mplint.graph.flow import source
from mplint.graph.model import HALF, HEAVY, Node, OpKind, Tensor
from mplint.graph.stored import Stored
from mplint.graph.work import kernel_of, work

STEP = 8
VOCABULARY = 1000
REACH = 400  # nodes that are followed from one product to the next


class Width(NamedTuple):
    """An unaligned size: what makes it, in order, and the first that reads it: nodes, or the tensors of a file without operations.

    `share` is the part of the model's work that products of this size do, in a file of weights the part of the products' parameters;
    None where nothing is known of the work.
    """

    number: int
    makers: tuple[Node | Tensor, ...]
    reader: Node | Tensor | None
    share: float | None = None

    @property
    def stored(self) -> bool:
        """Whether the file holds weights alone, so that the dtype of the work is that of storage only by the loader's grace."""
        return isinstance(self.makers[0], Tensor)


def title(item: Node | Tensor) -> str:
    """A node, or a stored weight, as a message names it."""
    return item.described if isinstance(item, Node) else f"{item.name} ({item.described})"


def result(item: Node | Tensor) -> str:
    """What a node makes, as a message shows it after the node; nothing for a weight, whose title says it."""
    return f" ({item.outputs[0].described})" if isinstance(item, Node) and item.outputs else ""


def hidden_widths(graph: GraphFacts) -> Iterator[Width]:
    """The channels that half products and convolutions make for other ones and that are no multiple of 8, each number once."""
    if graph.stored is not None:
        yield from _stored_widths(graph.stored)
        return
    found: dict[int, list[tuple[Node, Node]]] = {}
    for node in graph.heavy:
        width = _made(node) if node.compute_dtype in HALF else None
        if width is None or width <= STEP or width % STEP == 0:
            continue
        reader = next_heavy(node)
        if reader is not None:
            found.setdefault(width, []).append((node, reader))
    for number, pairs in found.items():
        yield Width(number, tuple(node for node, _ in pairs), pairs[0][1], share_of(graph, number))


def _stored_widths(stored: Stored) -> Iterator[Width]:
    for found in stored.widths(STEP):
        makers = tuple(m.tensor for m in found.makers if m.tensor.dtype in HALF and m.kind is not OpKind.EMBEDDING)
        if makers and found.reader.tensor.dtype in HALF:
            yield Width(found.number, makers, found.reader.tensor, found.share)


def share_of(graph: GraphFacts, number: int) -> float | None:
    """The part of the work of a model that products do with a side of this size."""
    sizes = [size for node in graph.heavy if (size := work(node)) is not None]
    total = sum(size.flops for size in sizes)
    return sum(size.flops for size in sizes if number in (size.inner, size.outer)) / total if total else None


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
    if graph.stored is not None:
        for known in graph.stored.vocabularies(VOCABULARY, STEP):
            held = tuple(tensor for tensor in (known.table, known.head) if tensor is not None)
            if any(tensor.dtype in HALF for tensor in held):
                yield Width(known.number, held, known.head)
        return
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
