"""Curves over the steps of runs: the lines that a page draws, the ticks of their axes, and the points that it reads out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

MOST = 600  # points of a line; of more the mean of neighbors is drawn
SIDE = 1000  # of the square that lines are drawn in, whatever the size on the screen
HEADROOM = 0.06  # part of the height above and below
APART = 0.02  # part of the width that marks of lost values are apart


class Curve(NamedTuple):
    """One line: its name, a value for each step, None where there is none, and the steps that are marked on it."""

    name: str
    values: Sequence[float | None]
    marked: Sequence[int] = ()


class Tick(NamedTuple):
    """A place on an axis, in parts of its length, and what stands there."""

    at: float
    text: str


class Line(NamedTuple):
    """A line as it is drawn: the path, and the places that are marked on it, in parts of the plane."""

    name: str
    path: str
    marks: tuple[tuple[float, float], ...]


class Chart(NamedTuple):
    """A chart: what is drawn in its plane, its axes, and for each point of each line what is read out there."""

    title: str
    about: str
    lines: tuple[Line, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    points: dict[str, object]


def chart(title: str, about: str, curves: Sequence[Curve], said: Callable[[float], str], *, powers: bool = False) -> Chart | None:
    """A chart of curves over the same steps, None where nothing is known of any; `powers`: each tick is twice the one before, or more."""
    steps = max((len(curve.values) for curve in curves), default=0)
    each = max(1, math.ceil(steps / MOST))
    shown = [_thinned(curve, each) for curve in curves]
    known = [value for curve in shown for value in curve.values if value is not None and math.isfinite(value) and (value > 0 or not powers)]
    if not known:
        return None
    height = math.log2 if powers else float
    low, high = min(map(height, known)), max(map(height, known))
    room = (high - low) * HEADROOM or abs(high) * HEADROOM or 1.0
    low, high = low - room, high + room
    count = math.ceil(steps / each)

    def place(at: int, value: float) -> tuple[float, float]:
        return at / max(1, count - 1), (height(value) - low) / (high - low)

    lines = tuple(_line(curve, place, powers=powers) for curve in shown)
    last = max(1, (count - 1) * each)
    across = tuple(Tick(number / last, f"{number:,.0f}") for number in _ticks(0, last) if number <= last)
    up = tuple(
        Tick((at - low) / (high - low), said(2**at if powers else at)) for at in _ticks(low, high, whole=powers) if low <= at <= high
    )
    points = {
        "each": each,
        "count": count,
        "lines": {curve.name: [_told(value, said) for value in curve.values] for curve in shown},
    }
    return Chart(title, about, lines, across, up, points)


def _thinned(curve: Curve, each: int) -> Curve:
    """A curve with a point for so many steps: their mean, and no number where one of them is none."""
    if each == 1:
        return curve
    parts = [curve.values[at : at + each] for at in range(0, len(curve.values), each)]
    return Curve(curve.name, [_mean(part) for part in parts], sorted({step // each for step in curve.marked}))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _drawable(value: float | None, *, powers: bool) -> bool:
    return value is not None and math.isfinite(value) and (value > 0 or not powers)


def _line(curve: Curve, place: Callable[[int, float], tuple[float, float]], *, powers: bool) -> Line:
    """The path of a curve, broken where it has no value, and marks where it is told to have one or is no number."""
    path: list[str] = []
    marks: list[tuple[float, float]] = []
    before: float | None = None
    for at, value in enumerate(curve.values):
        if value is not None and _drawable(value, powers=powers):
            x, y = place(at, value)
            path.append(f"{'M' if before is None else 'L'}{SIDE * x:.1f} {SIDE * (1 - y):.1f}")
            before = value
            if at in curve.marked:
                marks.append((x, y))
        else:
            before = None
            x = place(at, 1.0)[0]
            if value is not None and not (marks and marks[-1][1] == 1.0 and x - marks[-1][0] < APART):
                marks.append((x, 1.0))
    return Line(curve.name, "".join(path), tuple(marks[:MOST]))


def _told(value: float | None, said: Callable[[float], str]) -> str:
    if value is None:
        return ""
    return said(value) if math.isfinite(value) else "no number" if math.isnan(value) else "infinite"


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """About five round numbers from `low` to `high`."""
    raw = (high - low) / 5 or 1.0
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw)
    step = max(1.0, round(step)) if whole else step
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]
