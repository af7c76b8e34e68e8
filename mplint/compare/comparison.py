"""What runs under different policies say beside each other, with how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from mplint.compare.experiment import REFERENCE
from mplint.runs.record import Run

WARM_UP = 0.1  # part of the steps that is left out of times, and at least three of them
LAST = 0.25  # part of the steps over which losses are compared
SAME_LOSS = 0.05  # relative difference of losses that training of its own makes


class Measured(NamedTuple):
    """One policy over all its repeats. Seconds of a step: the median, and the medians of the fastest and slowest repeat.

    `memory` and `device_memory` are bytes at most; `loss` is the mean of the last quarter of the steps, `losses` the curve of the first
    repeat; `scales` the loss scale by step, `times` the seconds, `skips` the steps that the scaler skipped, all of that repeat; `medians`
    are those of every repeat; `nonfinite` steps had a loss that was no number; `skipped` ones were skipped by the scaler; `refused`: why a
    library of the program does not train in that policy, where it has said so; `limit`: the
    seconds after which a run was ended before its last step.
    """

    policy: str
    runs: int
    steps: int
    seconds: float | None
    fastest: float | None
    slowest: float | None
    memory: float | None
    device_memory: float | None
    loss: float | None
    losses: tuple[float | None, ...]
    scales: tuple[float | None, ...]
    times: tuple[float, ...]
    skips: tuple[int, ...]
    medians: tuple[float, ...]
    nonfinite: int
    skipped: int
    half: bool
    error: str
    output: str
    refused: str = ""
    limit: float | None = None

    @property
    def spread(self) -> float | None:
        """How far the medians of repeats lie apart, as a part of the median; None for a single run."""
        if self.seconds is None or self.fastest is None or self.slowest is None or self.runs < 2:
            return None
        return (self.slowest - self.fastest) / self.seconds


class Compared(NamedTuple):
    """A policy beside float32: how many times as fast, with the least and the most that any two repeats say; memory and loss in parts."""

    policy: str
    speedup: float | None
    least: float | None
    most: float | None
    memory: float | None
    loss: float | None
    verdict: str


class Comparison(NamedTuple):
    """Everything that `mplint compare` found."""

    measured: tuple[Measured, ...]
    compared: tuple[Compared, ...]
    device: str
    versions: str


def compare(runs: Sequence[Run]) -> Comparison:
    """Put the runs of each policy together, and every policy beside float32."""
    policies = list(dict.fromkeys(run.policy for run in runs))
    measured = [_measured(policy, [run for run in runs if run.policy == policy]) for policy in policies]
    reference = next((each for each in measured if each.policy == REFERENCE), None)
    compared = [_beside(each, reference, runs) for each in measured if reference is not None and each is not reference]
    versions = next((_versions(run) for run in runs if run.steps), "")
    return Comparison(tuple(measured), tuple(compared), next((run.text("device") for run in runs if run.text("device")), "CPU"), versions)


def _versions(run: Run) -> str:
    """The frameworks of a run; where it trains with torch, Keras is imported alone."""
    names = ("torch",) if run.text("trained") == "torch" else ("torch", "keras")
    return ", ".join(f"{name} {run.text(name)}" for name in names if run.text(name))


def step_time(run: Run) -> float | None:
    """The median of the seconds of a step, the first ones left out; None where too few were made."""
    timed = [step.seconds for step in run.steps[warm_up(len(run.steps)) :]]
    return median(timed) if timed else None


def warm_up(steps: int) -> int:
    """How many of the first steps of a run are left out of times."""
    return max(3, math.ceil(WARM_UP * steps))


def _measured(policy: str, runs: list[Run]) -> Measured:
    times = [time for run in runs if (time := step_time(run)) is not None]
    first = max(runs, key=lambda run: len(run.steps))
    losses = tuple(step.loss for step in first.steps)
    failed = next((run for run in runs if run.text("error")), None)
    return Measured(
        policy=policy,
        runs=len(runs),
        steps=max(len(run.steps) for run in runs),
        seconds=median(times) if times else None,
        fastest=min(times, default=None),
        slowest=max(times, default=None),
        memory=max(_known(run.number("memory") for run in runs), default=None),
        device_memory=max(_known(run.number("device_memory") for run in runs), default=None),
        loss=_last_loss(losses),
        losses=losses,
        scales=tuple(step.scale for step in first.steps),
        times=tuple(step.seconds for step in first.steps),
        skips=tuple(number for number, step in enumerate(first.steps) if step.skipped),
        medians=tuple(times),
        nonfinite=sum(1 for loss in losses if loss is not None and not math.isfinite(loss)),
        skipped=sum(1 for step in first.steps if step.skipped),
        half=any(run.facts.get("half") is True for run in runs),
        error=failed.text("error") if failed is not None else "",
        output=failed.text("output") if failed is not None else "",
        limit=next((limit for run in runs if (limit := run.number("limit"))), None),
        refused=next((text for run in runs if (text := run.text("refused") or run.text("without_half"))), ""),
    )


def _known(numbers: Iterable[float | None]) -> list[float]:
    return [number for number in numbers if number is not None]


def _last_loss(losses: Sequence[float | None]) -> float | None:
    last = [loss for loss in losses[-max(1, round(LAST * len(losses))) :] if loss is not None and math.isfinite(loss)]
    return sum(last) / len(last) if last else None


def _beside(each: Measured, reference: Measured, runs: Sequence[Run]) -> Compared:
    own = _known(step_time(run) for run in runs if run.policy == each.policy)
    others = _known(step_time(run) for run in runs if run.policy == REFERENCE)
    ratios = [other / one for one in own for other in others]
    speedup = reference.seconds / each.seconds if reference.seconds and each.seconds else None
    least, most = min(ratios, default=None), max(ratios, default=None)
    before = reference.device_memory or reference.memory
    after = each.device_memory if reference.device_memory else each.memory
    memory = after / before if before and after else None
    common = min(len(each.losses), len(reference.losses))  # a run may have been ended before its last step
    own_loss, their_loss = _last_loss(each.losses[:common]), _last_loss(reference.losses[:common])
    loss = (own_loss - their_loss) / abs(their_loss) if own_loss is not None and their_loss else None
    between = None if least is None or most is None else (least, most)
    return Compared(each.policy, speedup, least, most, memory, loss, _verdict(each, between, len(ratios) > 1, loss))


def _verdict(each: Measured, between: tuple[float, float] | None, repeated: bool, loss: float | None) -> str:
    if each.error:
        return "failed"
    if not each.half:
        return f"nothing ran in half precision{f': {each.refused}' if each.refused else ''}"
    worse = loss is not None and abs(loss) > SAME_LOSS
    broken = each.nonfinite > each.skipped
    training = (
        ", and its losses are no numbers" if broken else f", and its loss ends {loss:+.0%} away" if worse and loss is not None else ""
    )
    if worse and not broken and each.skipped:
        training += f", after {each.skipped} of {each.steps} steps were skipped to find the loss scale"
    if each.policy == "mixed_float16" and all(scale is None for scale in each.scales):
        training = f"{training}, without a loss scale, since the program has none"
    if between is None:
        return f"too few steps to time{training}"
    if not repeated:
        return f"one run each is no proof of speed{training}"
    least, most = between
    speed = "faster" if least > 1 else "slower" if most < 1 else "no faster that these runs could tell"
    return f"{speed}{training}"
