"""Filling a tolerance: which items are half, where all of them together are too much. The cheapest come first, by estimate or by trial."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Generic, TypeVar

from mplint.conversion.distance import Distance

TRIALS = 24
BLOCKS = 8
FINEST = 32  # how much of a tolerance is worth a trial: this part of the items
CULPRIT = 4.0  # how many times the tolerance an error is that a single item makes, and not many small ones
Item = TypeVar("Item", bound=Hashable)
Measure = Callable[[Collection[Item]], Distance]
Cost = Callable[[Item], float]


def misfits(
    items: Sequence[Item],
    measure: Measure[Item],
    tolerance: float,
    *,
    cost: Cost[Item] | None = None,
    accepted: Collection[Item] = (),
    trials: int = TRIALS,
) -> dict[Item, Distance]:
    """The items that must stay float32, each with how far the outputs were when it joined the others in half.

    `measure(half)` says how far the outputs are with only `half` in half; all of `items` together are known to fail, `accepted` to pass.
    `cost` estimates what an item adds to the error; without it, blocks of items are measured. When the trials are spent, what was not
    accepted counts as a misfit.
    """
    return _Filling(measure, tolerance, list(accepted), trials).without(items, cost)


class _Filling(Generic[Item]):
    def __init__(self, measure: Measure[Item], tolerance: float, taken: list[Item], trials: int) -> None:
        self.measure, self.tolerance, self.taken, self.left = measure, tolerance, taken, trials
        self.found: dict[Item, Distance] = {}
        self.finest = 1  # how many items that are too much together are not told apart

    def without(self, items: Sequence[Item], cost: Cost[Item] | None) -> dict[Item, Distance]:
        known = {item: cost(item) for item in items} if cost is not None else self._weighed(items)
        order = sorted(items, key=known.__getitem__)  # stable: equal ones stay in their order
        first = _affordable([known[item] for item in order], self.tolerance)
        if first in (0, len(order)):  # all of them together are known to fail
            first = len(order) // 2
        self.finest = max(1, len(order) // FINEST)
        for block in (order[:first], order[first:]):
            self._take(block)
        return self.found

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

    def _take(self, block: Sequence[Item], failed: Distance | None = None) -> bool:
        """Accept what fits of a block, the cheapest first; whether all of it did. `failed`, it is known how far all of it is off."""
        if not block:
            return True
        if self.left <= 0 and failed is None:
            self.found.update(dict.fromkeys(block, Distance(float("inf"))))
            return False
        far = failed or self._trial(block)
        if far.within(self.tolerance):
            self.taken += block
            return True
        culprit = far.broken or far.error > CULPRIT * self.tolerance
        if len(block) <= (1 if culprit else self.finest):
            self.found.update(dict.fromkeys(block, far))
            return False
        middle = len(block) // 2
        if self._take(block[:middle]):
            self._take(block[middle:], far)  # with the first half, it is the block that failed
        elif culprit:
            self._take(block[middle:])
        else:  # the tolerance is used up
            self.found.update(dict.fromkeys(block[middle:], far))
        return False


def _affordable(costs: Sequence[float], tolerance: float) -> int:
    """How many of the cheapest items the tolerance is expected to bear: errors that are independent add up by their squares."""
    total = 0.0
    for count, cost in enumerate(costs):
        total += cost**2
        if not total <= tolerance * tolerance:
            return count
    return len(costs)
