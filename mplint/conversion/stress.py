"""What real data brings and samples seldom hold: silence, faint signals, a single event, rows in which nothing differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

Feed = dict[str, np.ndarray]
Given = Mapping[str, np.ndarray]
ZEROS, BETWEEN = "zeros", "between two inputs"
FAINT = (1e-2, 1e-3)
FAR = 30.0  # how many times its usual outputs a model may give for a faint input; beyond, it is made for no such input, but for zeros
STRONGER = (10.0, 100.0, 1000.0)  # where outputs hardly move
NOISE = 1e-6  # of the size of an input
ILL = 0.01  # what outputs may move by such noise, of their size, where they are to be compared
HALVINGS = 8
APART = 0.1  # what tells two samples apart
MIDDLE = 0.2  # of the way: how far from the middle is still between


class Stress(NamedTuple):
    """A sample made of another, and what was done to it."""

    name: str
    feed: Feed


def stressed(feed: Mapping[str, np.ndarray], faint: Sequence[float] = FAINT) -> Iterator[Stress]:
    """What becomes of a sample when its floats go down, by `faint` factors too; it gives the same ones again, and none comes twice."""
    floats = [name for name, array in feed.items() if array.dtype.kind == "f" and array.size]
    seen = {_key(feed)}
    changes: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [
        (ZEROS, np.zeros_like),
        *((f"× {factor:g}", partial(_times, factor)) for factor in faint),
        ("one element", _one_element),
        ("constant rows", _constant_rows),
    ]
    for what, change in changes:
        made = {name: change(array) if name in floats else array for name, array in feed.items()}
        if _key(made) not in seen:
            seen.add(_key(made))
            yield Stress(what, made)


def loudness(feed: Mapping[str, np.ndarray], feeds: Sequence[Mapping[str, np.ndarray]]) -> float:
    """How large the floats of a sample are, by the largest of each input among all samples."""
    total = 0.0
    for name, array in feed.items():
        if array.dtype.kind == "f" and array.size:
            most = max(_mean(other[name]) for other in feeds)
            total += _mean(array) / most if most else 0.0
    return total


def _largest(array: np.ndarray) -> float:
    return float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))


def _mean(array: np.ndarray) -> float:
    return float(np.mean(np.abs(array), where=np.isfinite(array))) if np.isfinite(array).any() else 0.0


def perturbed(feed: Mapping[str, np.ndarray], like: Mapping[str, np.ndarray], share: float) -> Feed:
    """A sample with noise of a `share` of the size of its floats, or of that of another's where they are 0: half rounds by size, too."""
    rng = np.random.default_rng(0)
    made = dict(feed)
    for name, array in feed.items():
        if array.dtype.kind == "f" and array.size:
            size = _largest(array) or _largest(like[name])
            made[name] = np.asarray(array + share * size * rng.standard_normal(array.shape), array.dtype)
    return made


def midway(run: Callable[[Given], Sequence[object] | None], one: Given, other: Given) -> Iterator[Feed]:
    """Mixtures of two samples on which an output between -1 and 1 is between what it is on both, for each such output.

    Where a sigmoid or a softmax saturates nothing moves it, and an error does not show; between, it decides.
    """
    first, last = run(one), run(other)
    known: dict[float, Sequence[object] | None] = {}
    given: set[float] = set()
    for output, element in _bounded(first or (), last or ()):
        low, high = (float(np.asarray(end[output]).reshape(-1)[element]) for end in (first, last) if end is not None)
        near, far, share = 0.0, 1.0, 0.5
        for _ in range(HALVINGS):
            share = (near + far) / 2
            if share not in known:
                known[share] = run(mixed(one, other, share))
            got = known[share]
            flat = np.asarray(got[output]).reshape(-1) if got is not None else np.zeros(0)
            if flat.size <= element:
                break
            value = float(flat[element])
            if abs(value - (low + high) / 2) < MIDDLE * abs(high - low):
                if share not in given:
                    yield mixed(one, other, share)
                given.add(share)
                break
            near, far = (share, far) if (value < (low + high) / 2) == (low < high) else (near, share)


def mixed(one: Given, other: Given, share: float) -> Feed:
    """One sample with a share of the floats of another."""
    return {
        name: np.asarray((1 - share) * array + share * other[name], array.dtype)
        if array.dtype.kind == "f" and array.shape == other[name].shape
        else array
        for name, array in one.items()
    }


def _bounded(one: Sequence[object], other: Sequence[object]) -> Iterator[tuple[int, int]]:
    """The outputs between -1 and 1 that tell two samples apart, each with the element that does most."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        a, b = np.asarray(left), np.asarray(right)
        if a.dtype.kind != "f" or a.shape != b.shape or not a.size:
            continue
        apart = np.abs(a - b).reshape(-1)
        if max(float(np.abs(a).max()), float(np.abs(b).max())) <= 1 and float(apart.max()) > APART:  # no NaN is
            yield at, int(np.argmax(apart))


def _times(factor: float, array: np.ndarray) -> np.ndarray:
    return np.asarray(array * array.dtype.type(factor))


def _one_element(array: np.ndarray) -> np.ndarray:
    """The largest element alone, in the middle."""
    made = np.zeros_like(array)
    flat = array.reshape(-1)
    made.reshape(-1)[array.size // 2] = flat[int(np.argmax(np.abs(flat)))]
    return made


def _constant_rows(array: np.ndarray) -> np.ndarray:
    """Each row with its first element throughout."""
    return np.ascontiguousarray(np.broadcast_to(array[..., :1], array.shape)) if array.ndim else array


def _key(feed: Mapping[str, np.ndarray]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, array.tobytes()) for name, array in feed.items() if array.dtype.kind == "f")
