"""How far the outputs of a converted model are from the original's: one measure for every format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mplint.conversion.result import Conversion

STILL = 1e-3  # outputs that move by less, of their size, do not follow the inputs
NO_NUMBER = "an output became infinite or NaN"


class Distance(NamedTuple):
    """How far results are from the reference: the largest relative error, and whether something became infinite, NaN or another integer.

    `empty`: the reference holds no finite number, so there was nothing to compare.
    """

    error: float
    broken: str = ""
    empty: bool = False

    def within(self, tolerance: float) -> bool:
        """Whether the results may stand."""
        return not self.broken and self.error <= tolerance


def distance(reference: Sequence[object], got: Sequence[object], sizes: Sequence[float] = (), *, exact: bool = True) -> Distance:
    """How far `got` is from `reference`: per output max |y - y32| / (max |y32| + 1e-6), over finite references.

    `sizes` are how large outputs are on ordinary samples, which counts where they are smaller on this one. Not `exact`, integers and
    shapes are not compared: a decision between equals.
    """
    if len(_flat(reference)) != len(_flat(got)):
        return Distance(float("inf"), "the number of outputs differs")
    worst, compared, skipped = 0.0, False, False
    for at, (expected, actual) in enumerate(zip(_flat(reference), _flat(got), strict=True)):
        if expected.shape != actual.shape:
            if not exact:
                continue
            return Distance(float("inf"), f"an output has the shape {actual.shape} instead of {expected.shape}")
        if expected.dtype.kind in "iubOUS":
            if exact and not np.array_equal(expected, actual):
                return Distance(float("inf"), "an integer output differs" if expected.dtype.kind in "iub" else "a text differs")
            compared = True
            continue
        if expected.dtype.kind not in "fcV" or expected.size == 0:
            continue
        one, other = _parts(expected), _parts(actual)
        finite = np.isfinite(one)
        if not np.isfinite(other[finite]).all():
            return Distance(float("inf"), NO_NUMBER)
        if finite.any():
            size = max(float(np.abs(one[finite]).max()), sizes[at] if at < len(sizes) else 0.0)
            worst = max(worst, float(np.abs(one - other)[finite].max() / (size + 1e-6)))
            compared = True
        else:
            skipped = True
    return Distance(worst, empty=skipped and not compared)


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
            elif one.size:
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


def judge(result: Conversion, distances: Iterable[Distance]) -> None:
    """Write the worst distance into a result, and what is wrong with it."""
    found = list(distances)
    worst = next((one for one in found if one.broken), max(found, key=lambda one: one.error))
    result.error = worst.error
    if not worst.within(result.policy.tolerance):
        result.problems.append(worst.broken or f"the outputs are off by {worst.error:.2g}, more than {result.policy.tolerance:g}")
    elif all(one.empty for one in found):
        result.gaps.append("the original's outputs are NaN or infinite on all samples: give data on which they are numbers")
