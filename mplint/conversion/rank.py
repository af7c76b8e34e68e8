"""Which tensors cost how much: an estimate of what each one's rounding moves the outputs by, from one run in float32 and one rounded.

What rounding adds to a tensor is seen in that tensor; what becomes of it on the way to the outputs follows from how much every operation
on the way makes of the errors that it takes: its amplification, read off the same two runs. That is what becomes of fresh errors, which
sums average out. What has passed an operation is no longer so: a third run, with what is computed first rounded and nothing else, shows
what becomes of it from there. The estimates rank tensors, they prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

V = TypeVar("V", bound=Hashable)
PICKED = 512  # elements of a tensor that are looked at
LEAST, MOST = 1e-3, 1e4  # what one operation may make of a relative error
LOST = 10.0  # the relative error of what is no number any more


class Seen(NamedTuple):
    """A tensor in both runs: its size in float32, and the relative errors that rounding adds to it, and that it had before and has then."""

    size: float
    own: float
    before: float
    after: float


def compared(plain: np.ndarray, moved: np.ndarray, stored: np.ndarray) -> Seen:
    """A tensor's facts from elements of it: in float32, in the rounded run, and there as it is stored."""
    finite = np.isfinite(plain)
    plain, moved, stored = (array[finite].astype(np.float64) for array in (plain, moved, stored))
    size = _size(plain)
    if not np.isfinite(moved).all():
        return Seen(size, 0.0, LOST, LOST)
    errors = [_size(part) / size if size > 0 else 0.0 for part in (stored - moved, moved - plain, stored - plain)]
    return Seen(size, *(min(error, LOST) for error in errors))


def _size(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array)))) if array.size else 0.0


class Step(NamedTuple, Generic[V]):
    """An operation, or a place where values are handed on (`passes`); an operation that `adds` weighs its inputs by their sizes."""

    inputs: Sequence[V]
    outputs: Sequence[V]
    adds: bool = False
    passes: bool = False


def contributions(
    steps: Sequence[Step[V]], ends: Collection[V], seen: Mapping[V, Seen], passed: Mapping[V, float] | None = None
) -> dict[V, float]:
    """What the rounding of each tensor moves the outputs (`ends`) by, relative to their size; `steps` in the order of computation.

    `passed` are the relative errors of tensors where nothing but what is computed first is rounded.
    """
    reach: dict[V, float] = dict.fromkeys(ends, 1.0)  # the square of what becomes of a relative error of 1 that has passed an operation
    fresh: dict[V, float] = dict.fromkeys(ends, 1.0)  # and of one that has not
    for step in reversed(steps):
        for output in step.outputs:
            far = reach.get(output, 0.0)
            if far:
                old = _old_gain(step, output, passed or {})
                for value, gain in _gains(step, output, seen).items():
                    kept = gain if old is None else old
                    reach[value] = min(reach.get(value, 0.0) + far * kept * kept, MOST * MOST)
                    fresh[value] = min(fresh.get(value, 0.0) + far * gain * gain, MOST * MOST)
    return {value: facts.own * math.sqrt(fresh.get(value, 0.0)) for value, facts in seen.items()}


def _old_gain(step: Step[V], output: V, passed: Mapping[V, float]) -> float | None:
    """How much of a relative error that has passed an operation arrives in an output; None where that was not seen."""
    given = math.sqrt(sum(passed.get(value, 0.0) ** 2 for value in dict.fromkeys(step.inputs)))
    if step.passes or step.adds or not given or output not in passed:
        return None
    return min(max(passed[output] / given, LEAST), MOST)


def _gains(step: Step[V], output: V, seen: Mapping[V, Seen]) -> dict[V, float]:
    """How much of the relative error of each input arrives in an output."""
    inputs = list(dict.fromkeys(step.inputs))
    made = seen.get(output)
    if step.passes or made is None:
        return dict.fromkeys(inputs, 1.0)
    if step.adds and made.size > 0:
        return {value: min(seen[value].size / made.size, MOST) if value in seen else 1.0 for value in inputs}
    given = math.sqrt(sum(seen[value].after ** 2 for value in inputs if value in seen))
    gain = made.before / given if given > 0 else 1.0
    return dict.fromkeys(inputs, min(max(gain, LEAST), MOST))
