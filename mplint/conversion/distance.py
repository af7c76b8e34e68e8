"""How far the outputs of a converted model are from the original's: one measure for every format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mplint.conversion.policy import ConversionError, Metric, Policy, nearest
from mplint.conversion.result import Conversion, Trial

NOISES = 2.0  # how many times its own noise float32 may be off
STILL = 1e-3  # outputs that move by less, of their size, do not follow the inputs
SMALL = 0.25  # of a tolerance
NEAR = 0.9  # beyond this a probability is decided
VANISHED = 1e-37  # a probability that float32 hardly tells from 0
UNTOLD = 1e-6  # how near 1 a sigmoid says nothing of what went into it
NO_NUMBER = "an output became infinite or NaN"


class Distance(NamedTuple):
    """How far results are from the reference: the largest relative error, and whether something became infinite, NaN or another integer.

    `empty`: the reference holds no finite number, so there was nothing to compare. `each` is the error of each output by itself, None where
    it was not compared. `weight` is by how much the error was made to count, where that is more or less than itself.
    """

    error: float
    broken: str = ""
    empty: bool = False
    each: tuple[float | None, ...] = ()
    weight: float = 1.0

    @property
    def moved(self) -> float:
        """The error itself."""
        return self.error / self.weight

    def weighed(self, weight: float) -> Distance:
        """The same with an error that counts by a weight."""
        return self._replace(error=self.error * weight, weight=self.weight * weight)

    def within(self, tolerance: float) -> bool:
        """Whether the results may stand."""
        return not self.broken and self.error <= tolerance


@dataclass(frozen=True, slots=True)
class Ruler:
    """How outputs are measured: their `names`, the `noise` of each that float32 itself has, and what the policy allows them.

    `weights` say by how much an output's size counts, and the least that it counts as: errors are relative to the larger. An error up to
    `small` is one that the policy allows several times over.
    """

    names: tuple[str, ...] = ()
    noise: tuple[float, ...] = ()
    weights: tuple[tuple[float, float], ...] = ()
    metric: Metric | None = None
    small: float = 0.0

    def error(self, at: int, far: float, size: float) -> float:
        """The error of an output that is `far` from one whose `size` is known; what float32 moves by itself is none."""
        share, least = self.weights[at] if at < len(self.weights) else (1.0, 0.0)
        noise = self.noise[at] if at < len(self.noise) else 0.0
        return max(0.0, far - NOISES * noise) / (max(size * share, least) + 1e-6)


PLAIN = Ruler()


def ruler(policy: Policy, names: Sequence[str], noise: Sequence[float] = ()) -> Ruler:
    """The ruler for a model's outputs; raises ConversionError where the tolerance is for one that the model does not have."""
    for name in policy.outputs:
        if name not in names:
            raise ConversionError(f"--tolerance: the model has no output {name!r}; it gives {', '.join(names)}{nearest(name, names)}")
    allowed = [policy.of(name) for name in names]
    weights = tuple((one.relative / policy.tolerance, one.absolute / policy.tolerance) for one in allowed)
    return Ruler(tuple(names), tuple(noise), weights, policy.metric, SMALL * policy.tolerance)


def distance(
    reference: Sequence[object], got: Sequence[object], sizes: Sequence[float] = (), *, exact: bool = True, by: Ruler = PLAIN
) -> Distance:
    """How far `got` is from `reference`: per output max |y - y32| / (max |y32| + 1e-6), over finite references, as a ruler measures.

    `sizes` are how large outputs are on ordinary samples, which counts where they are smaller on this one. Not `exact`, integers and
    shapes are not compared: a decision between equals.
    """
    expected_all, got_all = _flat(reference), _flat(got)
    if len(expected_all) != len(got_all):
        return Distance(float("inf"), "the number of outputs differs")
    each: list[float | None] = []
    compared, skipped = False, False
    for at, (expected, actual) in enumerate(zip(expected_all, got_all, strict=True)):
        each.append(None)
        if expected.shape != actual.shape:
            if not exact:
                continue
            return Distance(float("inf"), f"an output has the shape {actual.shape} instead of {expected.shape}")
        if expected.dtype.kind in "iubOUS":
            if exact and not np.array_equal(expected, actual):
                return Distance(float("inf"), "an integer output differs" if expected.dtype.kind in "iub" else "a text differs")
            each[-1], compared = 0.0 if exact else None, True
            continue
        if expected.dtype.kind not in "fcV" or expected.size == 0:
            continue
        one, other = _parts(expected), _parts(actual)
        finite = np.isfinite(one)
        if not np.isfinite(other[finite]).all():
            return Distance(float("inf"), NO_NUMBER)
        if finite.any():
            size = max(float(np.abs(one[finite]).max()), sizes[at] if at < len(sizes) else 0.0)
            each[-1], compared = by.error(at, float(np.abs(one - other)[finite].max()), size), True
        else:
            skipped = True
    if by.metric is not None and compared:
        named = [dict(zip(by.names, arrays, strict=False)) for arrays in (expected_all, got_all)]
        return _by_metric(by.metric, *named)._replace(each=tuple(each))
    return Distance(max((error or 0.0 for error in each), default=0.0), empty=skipped and not compared, each=tuple(each))


def _by_metric(metric: Metric, expected: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> Distance:
    """What the user's function says of a sample."""
    try:
        error = float(metric(expected, got))
    except Exception as error_in_it:
        raise ConversionError(f"--metric: {type(error_in_it).__name__}: {str(error_in_it).strip().partition(chr(10))[0]}") from error_in_it
    return Distance(error) if error >= 0 else Distance(float("inf"), f"the metric gives {error}")


def undecided(kind: str, expected: np.ndarray, got: np.ndarray) -> float:
    """How far probabilities would move where two classes are equal, by what went into their "softmax" or "sigmoid".

    Where a probability is near 0 or 1, nothing moves it, and what rounding did to the model before it does not show.
    """
    one, two = expected.astype(np.float64), got.astype(np.float64)
    if kind == "softmax":
        best = np.argsort(one, axis=-1)[..., -2:]
        first, second = (np.diff(np.take_along_axis(np.log(np.maximum(each, VANISHED)), best, -1)) for each in (one, two))
    else:
        first, second = (np.log(each / (1 - each)) for each in (np.clip(array, UNTOLD, 1 - UNTOLD) for array in (one, two)))
    return float(np.tanh(np.max(np.abs(first - second), initial=0.0) / 4))


def is_decided(probabilities: np.ndarray, kind: str) -> bool:
    """Whether all probabilities are near 0 or 1."""
    if kind == "softmax":
        return bool((np.max(probabilities, axis=-1) > NEAR).all())
    return bool(((probabilities > NEAR) | (probabilities < 1 - NEAR)).all())


def tells(probabilities: np.ndarray, kind: str) -> bool:
    """Whether probabilities say what went into their "softmax" or "sigmoid": the second of a row, or one of them, is no plain 0 or 1."""
    if kind == "softmax":
        return bool((np.sort(probabilities, axis=-1)[..., -2:-1] > VANISHED).any())
    return bool(((probabilities > UNTOLD) & (probabilities < 1 - UNTOLD)).any())


def sizes_of(results: Iterable[Sequence[object]]) -> tuple[float, ...]:
    """The largest finite |value| of each output over several results."""
    found: list[float] = []
    for outputs in results:
        sizes = [float(np.max(np.abs(parts), initial=0.0, where=np.isfinite(parts))) for parts in map(_numbers, _flat(outputs))]
        found = [max(pair) for pair in zip(found, sizes, strict=False)] if found else sizes
    return tuple(found)


def moves(results: Sequence[Sequence[object]]) -> list[bool]:
    """Whether each output tells one of several inputs from another: numbers by more than a hundredth of a tolerance, the rest at all."""
    if not results:
        return []
    first = _flat(results[0])
    moved = [False] * len(first)
    for other in results[1:]:
        for at, (one, two) in enumerate(zip(first, _flat(other), strict=False)):
            if one.shape != two.shape or one.dtype.kind in "iubOUS":
                moved[at] |= not np.array_equal(one, two)
            elif not one.size:
                moved[at] = True  # nothing stands still in it
            else:
                a, b = _numbers(one), _numbers(two)
                finite = np.isfinite(a) & np.isfinite(b)
                size = float(np.max(np.abs(a), initial=0.0, where=finite))
                far = float(np.max(np.abs(a - b), initial=0.0, where=finite))
                moved[at] |= far > STILL * size or bool((np.isfinite(a) != np.isfinite(b)).any())
    return moved


def _numbers(array: np.ndarray) -> np.ndarray:
    return _parts(array) if array.dtype.kind in "fciubV" else np.zeros(0)


def _parts(array: np.ndarray) -> np.ndarray:
    """Real numbers; those of complex ones side by side."""
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag]).astype(np.float64)
    return array.astype(np.float64)


def _flat(outputs: Sequence[object]) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    for item in outputs:
        found += _flat(item) if isinstance(item, (list, tuple)) else [np.asarray(item)]
    return found


def judge(result: Conversion, distances: Iterable[Distance], samples: Sequence[str] = ()) -> None:
    """Write the distances on `samples` and the worst of them into a result, and what is wrong with it."""
    found = list(distances)
    result.trials = trials(found, samples)
    worst = next((one for one in found if one.broken), max(found, key=lambda one: one.error))
    result.error = worst.error
    if not worst.within(result.policy.tolerance):
        result.problems.append(worst.broken or f"the outputs are off by {worst.error:.2g}, more than {result.policy.tolerance:g}")
    elif all(one.empty for one in found):
        result.gaps.append("the original's outputs are NaN or infinite on all samples: give data on which they are numbers")


def trials(distances: Sequence[Distance], samples: Sequence[str] = ()) -> list[Trial]:
    """Distances as a result holds them; samples without a name are numbered."""
    named = [*samples, *(f"sample {at + 1}" for at in range(len(samples), len(distances)))]
    return [Trial(name, one.each, one.broken) for name, one in zip(named, distances, strict=False)]
