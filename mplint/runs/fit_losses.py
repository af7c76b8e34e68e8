"""The losses of single batches of Keras' `fit`, which reports a running mean of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class FitLosses:
    """Undoes the running mean. A loss that is no number would hide all that follow in its epoch: the mean then begins anew."""

    def __init__(self) -> None:
        self._before = (0.0, 0.0)

    def begin(self) -> None:
        """An epoch begins, and with it the mean."""
        self._before = (0.0, 0.0)

    def of_batch(self, model: Any, batch: int, logs: Mapping[str, Any] | None) -> float | None:
        """The loss of the batch that has just ended, None where a `train_step` of the program's own tells none."""
        told = (logs or {}).get("loss")
        tracker = getattr(model, "_loss_tracker", None)
        sums = _sums(tracker)
        if told is None and (sums is None or not sums[1]):
            return None
        mean = float("nan") if told is None else float(told)
        total, count = sums or (mean * (batch + 1), batch + 1.0)
        before, counted = self._before if self._before[1] < count else (0.0, 0.0)
        self._before = total, count
        if not math.isfinite(total) and tracker is not None:
            tracker.reset_state()
            self._before = (0.0, 0.0)
        return (total - before) / (count - counted) if count > counted else mean


def _sums(tracker: Any) -> tuple[float, float] | None:
    """The sum and the weight that the mean is made of, None where Keras keeps them otherwise."""
    try:
        return float(tracker.total), float(tracker.count)
    except (AttributeError, TypeError):
        return None
