"""Where the casts go: the cheapest division of a graph into half and float32 operations, by an exact minimum cut."""

from __future__ import annotations

from collections.abc import Sequence
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
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

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
    if not arcs:
        return [False] * count
    tails, heads = zip(*arcs, strict=True)
    graph = csr_matrix((np.array(list(arcs.values()), dtype=np.int32), (tails, heads)), shape=(free, free))
    flowing = maximum_flow(graph, source, sink, method="dinic").flow
    residual = graph - flowing
    residual.data = np.maximum(residual.data, 0)
    residual.eliminate_zeros()
    floats = set(breadth_first_order(residual, source, return_predecessors=False).tolist())
    return [number not in floats for number in range(count)]
