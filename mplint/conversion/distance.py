"""How far the outputs of a converted model are from the original's: one measure for every format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mplint.conversion.result import Conversion

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


def distance(reference: Sequence[object], got: Sequence[object]) -> Distance:
    """How far `got` is from `reference`: per output max |y - y32| / (max |y32| + 1e-6), over finite references."""
    if len(_flat(reference)) != len(_flat(got)):
        return Distance(float("inf"), "the number of outputs differs")
    worst, compared, skipped = 0.0, False, False
    for expected, actual in zip(_flat(reference), _flat(got), strict=True):
        if expected.shape != actual.shape:
            return Distance(float("inf"), f"an output has the shape {actual.shape} instead of {expected.shape}")
        if expected.dtype.kind in "iubOUS":
            if not np.array_equal(expected, actual):
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
            worst = max(worst, float(np.abs(one - other)[finite].max() / (np.abs(one[finite]).max() + 1e-6)))
            compared = True
        else:
            skipped = True
    return Distance(worst, empty=skipped and not compared)


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
        result.problems.append("the original's outputs are NaN or infinite on all samples: give data on which they are numbers")
