"""Finding by measurement what may not be half, where a whole plan fails: blocks by the error of their own fill the tolerance."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from heapq import heappop, heappush
from typing import TypeVar

from mplint.conversion.distance import Distance

TRIALS = 40
BLOCKS = 8
Item = TypeVar("Item", bound=Hashable)
Measure = Callable[[Collection[Item]], Distance]


def culprits(
    items: Sequence[Item], measure: Measure[Item], tolerance: float, trials: int = TRIALS, accepted: Collection[Item] = ()
) -> dict[Item, Distance]:
    """The items that must stay float32, each with how far the outputs were when it joined the others in half.

    `measure(half)` says how far the outputs are with only `half` in half; all of `items` together are known to fail, `accepted` to pass.
    Each block of items is measured by itself, and the best fill the tolerance; what does not fit is split. When the trials are spent, what
    was not accepted counts as culprits.
    """
    taken, found = list(accepted), dict[Item, Distance]()
    waiting: list[tuple[float, int, Sequence[Item], Distance]] = []
    left = trials

    def trial(half: Collection[Item]) -> Distance:
        nonlocal left
        left -= 1
        return measure(half)

    def weigh(group: Sequence[Item]) -> None:
        if group:
            far = trial([*accepted, *group]) if left > 0 else Distance(float("inf"))
            heappush(waiting, (float("inf") if far.broken else far.error / len(group), len(found) + trials - left, group, far))

    size = -(-len(items) // BLOCKS)
    for start in range(0, len(items), max(1, size)):
        weigh(items[start : start + size])
    while waiting:
        _, _, group, far = heappop(waiting)
        if far.within(tolerance):
            if left <= 0:
                found.update(dict.fromkeys(group, far))
                continue
            far = trial([*taken, *group]) if len(taken) > len(accepted) else far
            if far.within(tolerance):
                taken += group
                continue
        if len(group) == 1 or left <= 0:
            found.update(dict.fromkeys(group, far))
            continue
        middle = len(group) // 2
        weigh(group[:middle])
        weigh(group[middle:])
    return found
