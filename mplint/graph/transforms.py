"""Matrices that a formula gives and nobody trains: Fourier and cosine bases, filterbanks. Their sizes are not the author's to round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mplint.graph.flow import source
from mplint.graph.model import FLOATS, Tensor
from mplint.graph.operations import chunks

if TYPE_CHECKING:
    import numpy as np

LARGEST = 1 << 22  # elements of a matrix that is looked at
SHORTEST = 16  # samples of a wave that shows its frequency
LOBE = 9  # places of a spectrum that a wave under a window fills
PURE = 0.9  # of a wave's energy that is there
MOST = 0.95
SPARSE = 0.6  # of a filterbank that is 0


def is_transform(kernel: Tensor | None) -> bool:
    """Whether a kernel is no trained one: a buffer, a bank of waves in the order of their frequencies, or one of adjoining filters."""
    stored = source(kernel) if kernel is not None else None
    if stored is None or stored.weights is None:
        return False
    if stored.fixed:
        return True
    sides = [side for side in stored.shape or () if isinstance(side, int) and side != 1]
    if len(sides) != 2 or stored.dtype not in FLOATS or (stored.size or LARGEST) >= LARGEST:
        return False
    rows = _matrix(stored, sides)
    return rows is not None and any(_are_waves(side) or _are_filters(side) for side in (rows, rows.T))


def _matrix(tensor: Tensor, sides: list[int]) -> np.ndarray | None:
    import numpy as np

    parts = [np.asarray(chunk, np.float32) for chunk in chunks(tensor)]
    whole = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    return whole.reshape(sides) if whole.size == tensor.size and np.isfinite(whole).all() else None


def _are_waves(rows: np.ndarray) -> bool:
    """Whether each row is a wave of one frequency, and frequencies rise from row to row: in one run, in two, or in turns."""
    import numpy as np

    count, length = rows.shape
    if length < 2 * SHORTEST or count < SHORTEST:
        return False
    power = np.abs(np.fft.rfft(rows, axis=1)) ** 2
    total = power.sum(axis=1)
    sounding = total > total.max() * 1e-9  # the sines of the first and the last frequency are 0
    peaks = power.argmax(axis=1)
    near = np.abs(np.arange(power.shape[1]) - peaks[:, None]) <= LOBE // 2
    pure = (power * near).sum(axis=1) >= PURE * total
    if not sounding.any() or pure[sounding].mean() < MOST or peaks[sounding].max() - peaks[sounding].min() < power.shape[1] // 4:
        return False
    half = (count + 1) // 2
    orders = ([slice(None)], [slice(0, half), slice(half, None)], [slice(0, None, 2), slice(1, None, 2)])
    return any(all(_rise(peaks[part][sounding[part]]) for part in order) for order in orders)


def _rise(peaks: np.ndarray) -> bool:
    return len(peaks) < 2 or bool((peaks[1:] >= peaks[:-1]).mean() >= MOST)


def _are_filters(rows: np.ndarray) -> bool:
    """Whether the rows are weights of adjoining bands: nothing below 0, mostly 0, each row in one piece, one after the other."""
    import numpy as np

    if min(rows.shape) < SHORTEST // 2 or rows.min() < 0 or (rows == 0).mean() < SPARSE:
        return False
    filled = rows > 0
    some = filled.any(axis=1)
    first = filled.argmax(axis=1)
    last = rows.shape[1] - 1 - filled[:, ::-1].argmax(axis=1)
    whole = filled.sum(axis=1) == last - first + 1
    if some.mean() < 0.5 or not whole[some].all():
        return False
    first, last = first[some], last[some]
    return _rise(first) and _rise(last) and bool(last.max() > np.median(last))
