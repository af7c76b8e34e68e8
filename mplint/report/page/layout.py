"""A layered layout of nested boxes: what feeds what goes down a column, and columns go from left to right as text does."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

GAP_X, GAP_Y, COLUMN_GAP = 16, 22, 56
PADDING, HEADER = 16, 26
ASPECT = 1.7  # of a box: wider than high, as screens are
MOST_COLUMNS = 48
LEAST = 8  # a last column that is lower than this part of the others goes on with the one before


@dataclass(slots=True)
class Box:
    """A rectangle; one that holds others gets its size from them. `x` and `y` are those of its upper left corner in the whole picture."""

    width: float = 0.0
    height: float = 0.0
    inner: list[Box] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    padding: float = PADDING
    header: float = HEADER


class Link(NamedTuple):
    """The first box feeds the second."""

    source: int
    target: int


def arrange(root: Box, links: Mapping[int, Collection[Link]]) -> None:
    """Give every box in `root` its size and its place; `links` are those among the inner boxes of a box, by the box's identity.

    Inner boxes stand in an order in which they may run; a link against it counts for nothing.
    """
    boxes = list(_below(root))
    for box in reversed(boxes):  # the innermost first
        if box.inner:
            _pack(box, links.get(id(box), ()))
    for box in boxes:
        for inner in box.inner:
            inner.x += box.x
            inner.y += box.y


def _below(root: Box) -> Iterator[Box]:
    stack = [root]
    while stack:
        box = stack.pop()
        yield box
        stack += box.inner


def _pack(box: Box, links: Collection[Link]) -> None:
    """Place the inner boxes relative to `box`, and size it."""
    area = sum((one.width + GAP_X) * (one.height + GAP_Y) for one in box.inner)
    widest = max(max(one.width for one in box.inner), math.sqrt(area * ASPECT))
    rows = [part for row in _rows(len(box.inner), links) for part in _wrapped(row, box.inner, widest)]
    columns = _columns([_size(row, box.inner) for row in rows])
    left, bottom, at = box.padding, 0.0, 0
    for count in columns:
        width = max(_size(row, box.inner)[0] for row in rows[at : at + count])
        top = box.header + box.padding
        for row in rows[at : at + count]:
            high = _place(row, box.inner, left, top, width)
            top += high + GAP_Y
        left += width + COLUMN_GAP
        bottom = max(bottom, top - GAP_Y)
        at += count
    box.width, box.height = left - COLUMN_GAP + box.padding, bottom + box.padding


def _place(row: Sequence[int], boxes: Sequence[Box], left: float, top: float, width: float) -> float:
    own, high = _size(row, boxes)
    x = left + (width - own) / 2
    for number in row:
        boxes[number].x, boxes[number].y = x, top + (high - boxes[number].height) / 2
        x += boxes[number].width + GAP_X
    return high


def _rows(count: int, links: Collection[Link]) -> list[list[int]]:
    """The boxes by how many others come one after the other before them, each as late as what it feeds leaves it.

    In a row those with sources further left come first.
    """
    depth = [0] * count
    sources: list[list[int]] = [[] for _ in range(count)]
    forward = sorted({link for link in links if link.source < link.target}, key=lambda link: (link.target, link.source))
    for link in forward:
        depth[link.target] = max(depth[link.target], depth[link.source] + 1)
        sources[link.target].append(link.source)
    latest: dict[int, int] = {}
    for link in sorted(forward, key=lambda link: -link.source):
        latest[link.source] = min(latest.get(link.source, count), latest.get(link.target, depth[link.target]) - 1)
    depth = [latest.get(number, depth[number]) for number in range(count)]
    rows: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for number in range(count):
        rows[depth[number]].append(number)
    position: dict[int, float] = {}
    for row in filter(None, rows):
        row.sort(key=lambda number: (_mean([position[source] for source in sources[number]]), number))
        position |= {number: (at + 0.5) / len(row) for at, number in enumerate(row)}
    return [row for row in rows if row]


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.5


def _wrapped(row: Sequence[int], boxes: Sequence[Box], widest: float) -> Iterator[list[int]]:
    """A row in parts that are no wider than they may be."""
    part: list[int] = []
    width = 0.0
    for number in row:
        if part and width + boxes[number].width > widest:
            yield part
            part, width = [], 0.0
        part.append(number)
        width += boxes[number].width + GAP_X
    yield part


def _size(row: Sequence[int], boxes: Sequence[Box]) -> tuple[float, float]:
    return sum(boxes[number].width for number in row) + GAP_X * (len(row) - 1), max(boxes[number].height for number in row)


def _columns(sizes: Sequence[tuple[float, float]]) -> list[int]:
    """How many rows stand in each column, so that the whole comes nearest to the aspect of a screen."""
    total = sum(height + GAP_Y for _, height in sizes)
    best, best_far = [len(sizes)], math.inf
    for count in range(1, min(len(sizes), MOST_COLUMNS) + 1):
        columns = _filled(sizes, total / count)
        width, height, at = 0.0, 0.0, 0
        for number in columns:
            rows = sizes[at : at + number]
            width += max(row[0] for row in rows) + COLUMN_GAP
            height = max(height, sum(row[1] + GAP_Y for row in rows))
            at += number
        far = abs(math.log(width / height / ASPECT))
        if far < best_far - 1e-9:
            best, best_far = columns, far
    return best


def _filled(sizes: Sequence[tuple[float, float]], room: float) -> list[int]:
    """Rows in columns of about this height."""
    columns: list[int] = []
    number, high = 0, 0.0
    for _, height in sizes:
        if number and high + (height + GAP_Y) / 2 > room:
            columns.append(number)
            number, high = 0, 0.0
        number += 1
        high += height + GAP_Y
    if columns and high < room / LEAST:
        columns[-1] += number
        return columns
    return [*columns, number]
