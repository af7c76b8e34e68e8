"""What real data brings and samples seldom hold: silence, faint signals, a single event, rows in which nothing differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

Feed = dict[str, np.ndarray]
ZEROS = "zeros"
FAINT = (1e-2, 1e-3)


class Stress(NamedTuple):
    """A sample made of another, and what was done to it."""

    name: str
    feed: Feed


def stressed(feed: Mapping[str, np.ndarray]) -> Iterator[Stress]:
    """What becomes of a sample when its floats go down; the same sample gives the same ones, and none comes twice."""
    floats = [name for name, array in feed.items() if array.dtype.kind == "f" and array.size]
    seen = {_key(feed)}
    changes: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [
        (ZEROS, np.zeros_like),
        *((f"× {factor:g}", partial(_times, factor)) for factor in FAINT),
        ("one element", _one_element),
        ("constant rows", _constant_rows),
    ]
    for what, change in changes:
        made = {name: change(array) if name in floats else array for name, array in feed.items()}
        if _key(made) not in seen:
            seen.add(_key(made))
            yield Stress(what, made)


def perturbed(feed: Mapping[str, np.ndarray], like: Mapping[str, np.ndarray], share: float) -> Feed:
    """A sample with noise of a `share` of the size that the floats of another have."""
    rng = np.random.default_rng(0)
    made = dict(feed)
    for name, array in feed.items():
        if array.dtype.kind == "f" and array.size:
            size = float(np.max(np.abs(like[name]), initial=0.0, where=np.isfinite(like[name])))
            made[name] = (array + share * size * rng.standard_normal(array.shape)).astype(array.dtype)
    return made


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
