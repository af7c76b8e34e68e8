"""The losses of batches, read off the running mean that Keras' `fit` reports."""

from __future__ import annotations

import math

import pytest

from mplint.runs.fit_losses import FitLosses


class Tracker:
    """What Keras keeps of a mean."""

    def __init__(self) -> None:
        self.reset_state()

    def reset_state(self) -> None:
        self.total = self.count = 0.0

    def add(self, loss: float, samples: int) -> dict[str, float]:
        self.total += loss * samples
        self.count += samples
        return {"loss": self.total / self.count}


class Model:
    def __init__(self) -> None:
        self._loss_tracker = Tracker()


def test_each_batch_has_its_own_loss_the_last_smaller_one_as_well() -> None:
    model, losses = Model(), FitLosses()
    batches = [(3.0, 32), (2.0, 32), (5.0, 8)]
    assert [losses.of_batch(model, n, model._loss_tracker.add(*each)) for n, each in enumerate(batches)] == pytest.approx([3.0, 2.0, 5.0])
    losses.begin()
    model._loss_tracker.reset_state()
    assert losses.of_batch(model, 0, model._loss_tracker.add(1.0, 32)) == pytest.approx(1.0)


def test_a_loss_that_is_no_number_does_not_hide_those_that_follow() -> None:
    model, losses = Model(), FitLosses()
    found = [losses.of_batch(model, n, model._loss_tracker.add(each, 4)) for n, each in enumerate((2.0, math.inf, 3.0, math.nan, 1.0))]
    assert found[0] == 2.0 and found[2] == 3.0 and found[4] == 1.0
    assert math.isinf(found[1]) and math.isnan(found[3])


def test_a_model_that_keeps_no_such_sums_is_read_by_its_mean() -> None:
    losses = FitLosses()
    assert [losses.of_batch(object(), n, {"loss": mean}) for n, mean in enumerate((4.0, 3.0))] == pytest.approx([4.0, 2.0])


@pytest.mark.parametrize("tracker", [Tracker(), None])
def test_a_train_step_that_tells_no_loss_has_none(tracker: Tracker | None) -> None:
    model, losses = Model(), FitLosses()
    model._loss_tracker = tracker  # type: ignore[assignment]
    assert losses.of_batch(model, 0, {"accuracy": 0.5}) is None
    assert losses.of_batch(model, 1, {"d_loss": 0.7, "g_loss": float("nan")}) is None
    assert losses.of_batch(model, 2, None) is None
