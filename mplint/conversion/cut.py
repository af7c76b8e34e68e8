"""Where the casts go: the cheapest division of a graph into half and float32 operations, by an exact minimum cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

SCALE = 1000  # capacities are integers: costs in thousandths of a cast
ENDLESS = 1 << 29


class Edge(NamedTuple):
    """A tensor between operations, which are numbers: who makes it (None: a constant, kept in both forms at no cast), and who takes it."""

    producer: int | None
    consumers: tuple[int, ...]
    cast: float = 1.0


class Problem(NamedTuple):
    """Operations 0 … n-1 with what each gains in half (in casts); `floats` and `halves` are decided beforehand, `ties` must agree.

    Of each pair in `needs`, the first may be half only where the second is.
    """

    gains: Sequence[float]
    edges: Sequence[Edge]
    floats: frozenset[int]
    halves: frozenset[int] = frozenset()
    ties: Sequence[tuple[int, int]] = ()
    needs: Sequence[tuple[int, int]] = ()


def cheapest(problem: Problem) -> list[bool]:
    """Which operations compute in half (True), such that the gains minus the casts are largest.

    One cast of a tensor serves all that take it. Every term is submodular, so the minimum cut is the optimum.
    The source side is float32, the sink side half.
    """
    count = len(problem.gains)
    source, sink, free = count, count + 1, count + 2
    arcs: dict[tuple[int, int], int] = {}

    def arc(tail: int, head: int, capacity: float) -> None:
        if tail != head and capacity > 0:
            arcs[tail, head] = min(ENDLESS, arcs.get((tail, head), 0) + round(capacity if capacity == ENDLESS else capacity * SCALE))

    for number, gain in enumerate(problem.gains):
        if number in problem.floats:
            arc(source, number, ENDLESS)
        elif number in problem.halves:
            arc(number, sink, ENDLESS)
        elif gain >= 0:
            arc(number, sink, gain)
        else:
            arc(source, number, -gain)
    for one, other in problem.ties:
        arc(one, other, ENDLESS)
        arc(other, one, ENDLESS)
    for one, other in problem.needs:
        arc(other, one, ENDLESS)
    for edge in problem.edges:
        takers = sorted(set(edge.consumers) - {edge.producer})
        if edge.producer is None or not takers:
            continue
        if len(takers) == 1:
            arc(takers[0], edge.producer, edge.cast)
            arc(edge.producer, takers[0], edge.cast)
            continue
        up, down, free = free, free + 1, free + 2
        arc(up, edge.producer, edge.cast)  # some taker wants float32 and the producer is half
        arc(edge.producer, down, edge.cast)
        for taker in takers:
            arc(taker, up, ENDLESS)
            arc(down, taker, ENDLESS)
    floats = source_side(arcs, free, source, sink)
    return [number not in floats for number in range(count)]


def source_side(arcs: Mapping[tuple[int, int], int], size: int, source: int, sink: int) -> set[int]:
    """The nodes, of `size` of them, on the source's side of a minimum cut: the fewest that can be, whatever flow is found (Dinic's way).

    Written here, since the library that has it takes longer to import than most models take to plan, and more memory.
    """
    heads: list[int] = []  # of arcs; the one back has the number next to it
    room: list[int] = []
    leaving: list[list[int]] = [[] for _ in range(size)]
    known: dict[tuple[int, int], int] = {}
    for (tail, head), capacity in arcs.items():
        if (head, tail) in known:
            room[known[head, tail] + 1] += capacity
            continue
        known[tail, head] = len(heads)
        leaving[tail].append(len(heads))
        leaving[head].append(len(heads) + 1)
        heads += [head, tail]
        room += [capacity, 0]
    while True:
        levels = [-1] * size
        levels[source] = 0
        reached = [source]
        for node in reached:
            for arc in leaving[node]:
                if room[arc] and levels[heads[arc]] < 0:
                    levels[heads[arc]] = levels[node] + 1
                    reached.append(heads[arc])
        if levels[sink] < 0:
            return set(reached)
        _fill(heads, room, leaving, levels, source, sink)


def _fill(heads: Sequence[int], room: list[int], leaving: Sequence[Sequence[int]], levels: list[int], source: int, sink: int) -> None:
    """Send what fits along the shortest ways, until none is left."""
    upto = [0] * len(leaving)  # arcs that lead nowhere are looked at once
    path: list[int] = []
    node = source
    while True:
        if node == sink:
            flow = min(room[arc] for arc in path)
            for arc in path:
                room[arc] -= flow
                room[arc ^ 1] += flow
            full = next(at for at, arc in enumerate(path) if not room[arc])
            node = heads[path[full] ^ 1]
            del path[full:]
        arcs = leaving[node]
        while upto[node] < len(arcs):
            arc = arcs[upto[node]]
            if room[arc] and levels[heads[arc]] == levels[node] + 1:
                break
            upto[node] += 1
        else:
            if node == source:
                return
            levels[node] = -1
            node = heads[path.pop() ^ 1]
            continue
        path.append(arc)
        node = heads[arc]
