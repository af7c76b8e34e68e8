"""Filling a tolerance: which items are half, where all of them together are too much. The cheapest come first, by estimate or by trial."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from mplint.conversion.distance import Distance

BLOCKS = 8
REST = 16  # behind an item that is too much, this part of them, which costs more, is not worth its trials
ROOM = 0.97  # of a tolerance that an estimate fills
ALONE = 0.5  # of a tolerance: an item that takes more is left out for those behind it
IN_A_ROW = 4  # items that are each too much, behind which there is nothing to be had: they cost more
BARELY = 1.5  # how many times the tolerance an error is that a few items less bring within it
CULPRIT = 4.0  # how many times the tolerance an error is that a single item makes, and not many small ones
Item = TypeVar("Item", bound=Hashable)
Measure = Callable[[Collection[Item]], Distance]
Cost = Callable[[Item], float]


class Effort(NamedTuple):
    """How many trials a filling may take, and how much of a tolerance is worth one: `finest` is a part of the items, one in so many."""

    trials: int
    finest: int


FULL = Effort(24, 32)


def misfits(
    items: Sequence[Item],
    measure: Measure[Item],
    tolerance: float,
    *,
    cost: Cost[Item] | None = None,
    accepted: Collection[Item] = (),
    effort: Effort = FULL,
) -> dict[Item, Distance]:
    """The items that must stay float32, each with how far the outputs were when it joined the others in half.

    `measure(half)` says how far the outputs are with only `half` in half; all of `items` together are known to fail, `accepted` to pass.
    `cost` estimates what an item adds to the error, infinite where it alone may be what is wrong; without it, blocks of items are measured.
    When the trials are spent, what was not accepted counts as a misfit.
    """
    return _Filling(measure, tolerance, list(accepted), effort).without(items, cost)


class _Edge(NamedTuple):
    """How many of the cheapest items fit and how far the outputs are with them, how many are too much and how far they are with these."""

    low: int
    high: int
    near: float
    far: Distance


class _Filling(Generic[Item]):
    def __init__(self, measure: Measure[Item], tolerance: float, taken: list[Item], effort: Effort) -> None:
        self.measure, self.tolerance, self.taken = measure, tolerance, taken
        self.left, self.finest = effort
        self.found: dict[Item, Distance] = {}

    def without(self, items: Sequence[Item], cost: Cost[Item] | None) -> dict[Item, Distance]:
        known = {item: cost(item) for item in items} if cost is not None else self._weighed(items)
        rest = sorted(items, key=known.__getitem__)  # stable: equal ones stay in their order
        finest = max(1, len(rest) // self.finest)  # how many items that are too much together are not told apart
        in_a_row = 0  # items that were too much each by itself
        rest = self._without_suspects(rest, known)
        while rest:
            if self.left <= 0 or in_a_row >= IN_A_ROW or (cost and in_a_row and len(rest) <= len(items) // REST):
                self.found.update(dict.fromkeys(rest, Distance(float("inf"))))
                break
            far = self._trial(rest)
            if far.within(self.tolerance):
                self.taken += rest
                break
            edge = self._boundary(rest, known, _Edge(0, len(rest), 0.0, far), finest, galloping=in_a_row > 0)
            self.taken += rest[: edge.low]
            jump = (edge.far.error**2 - edge.near**2) / self.tolerance**2
            alone = edge.far.broken or jump > (ALONE**2 if edge.high - edge.low == 1 else 1)
            left_over = edge.high if alone else len(rest)  # else the tolerance is used up
            self.found.update(dict.fromkeys(rest[edge.low : left_over], edge.far))
            in_a_row = in_a_row + 1 if edge.low == 0 else 1
            rest = rest[left_over:]
        return self.found

    def _without_suspects(self, rest: Sequence[Item], known: dict[Item, float]) -> list[Item]:
        """What is left to be tried where all that nobody suspects (by an infinite cost) is taken together, if it can be."""
        fine = [item for item in rest if known[item] < float("inf")]
        if not 0 < len(fine) < len(rest) or not self._trial(fine).within(self.tolerance):
            return list(rest)
        self.taken += fine
        return [item for item in rest if known[item] == float("inf")]

    def _boundary(self, rest: Sequence[Item], known: dict[Item, float], edge: _Edge, finest: int, *, galloping: bool) -> _Edge:
        """Where the tolerance is filled, to the item where errors are large.

        The next trial is where the errors so far say, and every other time in the middle; where they say that little is too much, a few
        items before; `galloping` (the item before was too much by itself, and so may be the next), at the first one, then at twice as many.
        """
        low, high, near, far = edge
        step, by_halves = 1, False
        while self.left > 0 and high - low > (1 if self._is_culprit(far) else finest):
            middle = at = (low + high) // 2
            if galloping and high == len(rest):
                at = max(1, 2 * low)
            elif far.within(BARELY * self.tolerance) and high < len(rest):
                at, step = high - step * finest, 2 * step  # it is nearly filled
            elif not by_halves:
                within = [known[item] for item in rest[low:high]]
                at = low + (_affordable(within, self.tolerance) if self._is_culprit(far) else self._expected(within, near, far.error))
            by_halves = not by_halves
            at = at if low < at < high else middle
            got = self._trial(rest[:at])
            if got.within(self.tolerance):
                low, near = at, got.error
            else:
                high, far = at, got
        return _Edge(low, high, near, far)

    def _expected(self, costs: Sequence[float], near: float, far: float) -> int:
        """How many more items are expected to fit, where none of them gives an error of `near` and all one of `far`."""
        total = sum(cost**2 for cost in costs)
        room = (ROOM * self.tolerance) ** 2 - near**2
        if not 0 < total < float("inf") or room <= 0 or far <= near:
            return 1
        return _affordable(costs, (room * total / (far**2 - near**2)) ** 0.5)

    def _is_culprit(self, far: Distance) -> bool:
        """Whether an error is that of a single item, and not of many small ones."""
        return bool(far.broken) or far.error > CULPRIT * self.tolerance

    def _weighed(self, items: Sequence[Item]) -> dict[Item, float]:
        """What each item costs, by blocks that are measured with what is accepted."""
        found: dict[Item, float] = {}
        size = max(1, -(-len(items) // BLOCKS))
        for start in range(0, len(items), size):
            block = items[start : start + size]
            far = self._trial(block)
            found.update(dict.fromkeys(block, float("inf") if far.broken else far.error / len(block)))
        return found

    def _trial(self, block: Sequence[Item]) -> Distance:
        self.left -= 1
        return self.measure([*self.taken, *block])


def _affordable(costs: Sequence[float], tolerance: float) -> int:
    """How many of the cheapest items the tolerance is expected to bear: errors that are independent add up by their squares."""
    total = 0.0
    for count, cost in enumerate(costs):
        total += cost**2
        if not total <= tolerance * tolerance:
            return count
    return len(costs)
