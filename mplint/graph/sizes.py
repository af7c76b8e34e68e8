"""The widths of a model that matrix units see: hidden channels, and the rows of vocabularies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from mplint.graph.facts import GraphFacts
from mplint.graph.flow import PASSING, source, users
from mplint.graph.model import HEAVY, Node, OpKind, Tensor
from mplint.graph.operations import operation
from mplint.graph.stored import Stored, is_called_head
from mplint.graph.transforms import is_transform
from mplint.graph.work import BIAS_FIRST, is_free, kernel_of, work

STEP = 8
SCORING = (OpKind.ELEMENTWISE, OpKind.ACTIVATION, OpKind.SOFTMAX)  # what may follow the product of a head
LOOKED_AT = 8  # weights of one width whose values are looked at
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
        yield from _stored_widths(graph, graph.stored)
        return
    found: dict[int, list[tuple[Node, Node]]] = {}
    for node in graph.heavy:
        width = _made(node) if graph.is_half_work(node.compute_dtype) else None
        if width is None or width <= STEP or width % STEP == 0 or is_transform(kernel_of(node)):
            continue
        reader = next_heavy(node) or (node if node.kind in (OpKind.RECURRENT, OpKind.ATTENTION) else None)
        if reader is not None and _may_take(reader, width):
            found.setdefault(width, []).append((node, reader))
    given, weights = (_positions(graph), _weights(graph)) if found else (frozenset(), {})
    for number, pairs in found.items():
        if number not in given:
            first, reader = max(pairs, key=lambda pair: weights.get(id(pair[0]), 0.0))
            others = tuple(node for node, _ in pairs if node is not first)
            yield Width(number, (first, *others), reader, share_of(graph, number))


def _may_take(reader: Node, width: int) -> bool:
    """Whether a node can read channels of this width: all of them, with others beside them, or parts of one size, as gates are."""
    size = work(reader)
    return size is None or not isinstance(size.inner, int) or size.inner >= width or math.gcd(size.inner, width) > STEP


def _positions(graph: GraphFacts) -> frozenset[int]:
    """How many positions the maps of a model have that it goes on with in one row: the picture's size and the patch's fix them."""
    found = set()
    for node in graph.nodes:
        before = node.inputs[0].shape if node.kind is OpKind.MOVE and node.inputs and node.inputs[0] is not None else None
        after = node.outputs[0].shape if node.outputs else None
        if before is None or after is None or not len(before) >= 4 or len(after) >= len(before):
            continue
        for pair in (before[-2:], before[1:3]):
            match pair:
                case (int(height), int(width)) if height > 1 and width > 1 and height * width in after:
                    found.add(height * width)
    return frozenset(found)


def _stored_widths(graph: GraphFacts, stored: Stored) -> Iterator[Width]:
    for found in stored.widths(STEP):
        makers = tuple(m.tensor for m in found.makers if graph.is_half_work(m.tensor.dtype) and m.kind is not OpKind.EMBEDDING)
        makers = tuple(tensor for place, tensor in enumerate(makers) if place >= LOOKED_AT or not is_transform(tensor))
        if makers and graph.is_half_work(found.reader.tensor.dtype):
            yield Width(found.number, makers, found.reader.tensor, found.share)


def share_of(graph: GraphFacts, number: int) -> float | None:
    """The part of the work of a model that products do with a side of this size.

    Where some grow with the input (a picture of free height, a text of free length), strides tell how many positions one has beside the
    others, and what works once an input counts as none. Where some activations have no shape, so it is for all of them, and the weights
    stand for the work of one position.
    """
    weights = _weights(graph)
    total = sum(weights.values())
    sizes = ((node, work(node)) for node in graph.heavy if id(node) in weights)
    own = sum(weights[id(node)] for node, size in sizes if size is not None and number in (size.inner, size.outer))
    return own / total if total else None


def _weights(graph: GraphFacts) -> dict[int, float]:
    """The work of the heavy nodes that count beside each other, by their identity."""
    sizes = [(node, size) for node in graph.heavy if (size := work(node)) is not None]
    told = all(tensor.shape is not None for node, _ in sizes for tensor in node.outputs[:1])
    grows = any(is_free(node) for node, _ in sizes)
    return {
        id(node): (size.flops if told else _parameters(node)) * (_density(graph, node, told=told) if grows else 1)
        for node, size in sizes
        if not grows or is_free(node)
    }


def _density(graph: GraphFacts, node: Node, *, told: bool) -> float:
    found = graph.density_of(node)
    return found.free if told else found.whole


def _parameters(node: Node) -> int:
    weights = {id(origin): origin for t in (*node.inputs, *node.weights.values()) if t is not None and (origin := source(t)).weights}
    return sum(tensor.size or 0 for tensor in weights.values())


def _made(node: Node) -> int | None:
    """The number of channels or units that a node's weights make; None where the data decides, or groups do."""
    size, kernel = work(node), kernel_of(node)
    if size is None or size.groups != 1 or (node.kind is OpKind.ATTENTION and not node.weights):
        return None
    constant = node.weights or any(t is not None and source(t).weights is not None for t in (*node.inputs, kernel))
    return size.outer if isinstance(size.outer, int) and constant else None


def vocabularies(graph: GraphFacts, least: int) -> Iterator[Width]:
    """The heads that score many rows (`least`), that run in half and whose rows are no multiple of 8, with the tables that have as many.

    Rows that are only looked up are multiplied by nothing.
    """
    if graph.stored is not None:
        for known in graph.stored.vocabularies(least, STEP):
            held = tuple(tensor for tensor in (known.table, known.head) if tensor is not None)
            if any(graph.is_half_work(tensor.dtype) for tensor in held):
                yield Width(known.number, held, known.head)
        return
    tables: dict[int, list[Node]] = {}
    for node in graph.nodes:
        rows = _rows(node) if node.kind is OpKind.EMBEDDING else None
        if rows is not None:
            tables.setdefault(rows, []).append(node)
    heads: dict[int, list[Node]] = {}
    for node in graph.heavy:
        rows = _made(node) if node.kind is OpKind.MATMUL else None
        if rows is None or rows < least or rows % STEP == 0 or next_heavy(node) is not None:
            continue
        if rows in tables or is_head(graph, node, rows):
            heads.setdefault(rows, []).append(node)
    for rows, nodes in heads.items():
        if any(graph.is_half_work(node.compute_dtype) for node in nodes):
            yield Width(rows, (*tables.get(rows, ()), *nodes), nodes[0], share_of(graph, rows))


def is_head(graph: GraphFacts, node: Node, rows: int) -> bool:
    """Whether a product without a table scores the words of a vocabulary: it says so, or it does at every position of a sequence.

    So does one that gives a spectrum, whose bins are one more than a power of two, or as many as the model takes.
    """
    kernel = kernel_of(node)
    if is_called_head(node.layer) or (kernel is not None and is_called_head(source(kernel).name.rpartition(".")[0])):
        return True
    data = node.inputs[1 if operation(node) in BIAS_FIRST else 0] if node.inputs else None
    ranks = [rank for tensor in (*([data] if data is not None else []), *_scored(node)) for rank in _ranks(tensor)]
    given = {dim for tensor in graph.model.graph.inputs for dim in tensor.shape or ()}
    return max(ranks, default=0) > 2 and rows not in given and (rows - 1) & (rows - 2) != 0


def _ranks(tensor: Tensor) -> Iterator[int]:
    """The number of axes that a tensor has by its own shape, by the order that they were put in, and by the sizes that it was given."""
    if tensor.shape is not None:
        yield len(tensor.shape)
    maker = tensor.producer
    order = maker.attributes.get("perm") if maker is not None and maker.kind is OpKind.MOVE else None
    if isinstance(order, tuple):
        yield len(order)
    sizes = maker.inputs[1] if maker is not None and operation(maker) == "reshape" and len(maker.inputs) > 1 else None
    if sizes is not None and sizes.shape is not None and len(sizes.shape) == 1 and isinstance(sizes.shape[0], int):
        yield sizes.shape[0]


def _scored(node: Node) -> Iterator[Tensor]:
    """What a product gives, and what becomes of it on the way out: moved, cast, with a bias, as probabilities."""
    stack = list(node.outputs)
    for _ in range(50):
        if not stack:
            return
        tensor = stack.pop()
        yield tensor
        stack += [output for user in tensor.consumers if user.kind in (*PASSING, *SCORING) for output in user.outputs]


def _rows(node: Node) -> int | None:
    tables: tuple[Tensor | None, ...] = (*node.weights.values(), *node.inputs[:2])
    for table in tables:
        shape = source(table).shape if table is not None else None
        if shape is not None and len(shape) == 2 and isinstance(shape[0], int) and (table is None or source(table).weights is not None):
            return shape[0]
    return None


def next_heavy(node: Node) -> Node | None:
    """A product or convolution that reads, with lighter nodes in between, what `node` computes, in bodies of calls and behind them."""
    seen: set[int] = set()
    stack = list(node.outputs)
    while stack and len(seen) < REACH:
        tensor = stack.pop(0)
        for user in users(tensor, ()):
            if user.kind in HEAVY:
                return user
            if id(user) not in seen:
                seen.add(id(user))
                stack += user.outputs
    return None
