"""The page of a comparison: the verdict on each policy, times, memory, and the curves of loss, scale and step times side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from mplint.compare.comparison import SAME_LOSS, Comparison, Measured, warm_up
from mplint.report.compare import OF_A_CPU, rows, sentence, size_text
from mplint.report.page.charts import Chart, Curve, chart
from mplint.report.page.render import render
from mplint.runs.devices import CPU


class Bar(NamedTuple):
    """A measure of a policy: how long its bar is and how far its repeats reach, in parts of the longest; and in words."""

    policy: str
    length: float
    least: float
    most: float
    told: str


class Bars(NamedTuple):
    """One measure of all policies."""

    title: str
    about: str
    bars: tuple[Bar, ...]


def page(comparison: Comparison, script: str, *, interrupted: bool) -> str:
    """The page; `interrupted` where the user stopped before the last run."""
    charts = list(_charts(comparison))
    level, headline = _verdict(comparison)
    return render(
        "comparison.html",
        ("charts.js",),
        {"charts": [each.points for each in charts]},
        comparison=comparison,
        script=script,
        level=level,
        headline=headline,
        interrupted=interrupted,
        sentences=[sentence(each, comparison) for each in comparison.compared],
        of_a_cpu=OF_A_CPU if comparison.device == CPU else "",
        best=_best(comparison),
        repeats=max((each.runs for each in comparison.measured), default=0),
        rows=[(label, [cell(each) for each in comparison.measured]) for label, cell in rows(comparison)],
        bars=[_times(comparison), *_memory(comparison)],
        charts=charts,
        failed=[each for each in comparison.measured if each.error],
    )


def _verdict(comparison: Comparison) -> tuple[str, str]:
    """How grave it is, and the headline."""
    failed = [each.policy for each in comparison.measured if each.error]
    if failed:
        return "bad", f"{' and '.join(failed)} failed"
    broken = [each.policy for each in comparison.measured if each.nonfinite > each.skipped]
    if broken:
        return "bad", f"The losses of {' and '.join(broken)} are no numbers"
    faster = [each.policy for each in comparison.compared if each.verdict.startswith("faster")]
    where = " on this CPU" if comparison.device == CPU else ""
    elsewhere = [each.policy for each in comparison.compared if each.loss is not None and abs(each.loss) > SAME_LOSS]
    if elsewhere:
        return "warn", f"The loss of {' and '.join(elsewhere)} ends elsewhere"
    if faster:
        return "good", f"{' and '.join(faster)}: faster{where}"
    slower = comparison.compared and all(each.verdict.startswith("slower") for each in comparison.compared)
    return "warn", f"Mixed precision is slower{where}" if slower else f"No gain that these runs could tell{where}"


def _best(comparison: Comparison) -> tuple[str, float, str] | None:
    """The policy with the best speed beside float32, that, and between what it lies."""
    known = [each for each in comparison.compared if each.speedup is not None]
    if not known:
        return None
    best = max(known, key=lambda each: each.speedup or 0.0)
    between = f"{best.least:.2f} to {best.most:.2f}" if best.least != best.most else "one run each"
    return best.policy, best.speedup or 0.0, between


def _times(comparison: Comparison) -> Bars:
    longest = max((each.slowest or 0.0 for each in comparison.measured), default=0.0) or 1.0
    bars = [
        Bar(
            each.policy,
            (each.seconds or 0.0) / longest,
            (each.fastest or 0.0) / longest,
            (each.slowest or 0.0) / longest,
            "too few steps" if each.seconds is None else f"{1e3 * each.seconds:.3g} ms",
        )
        for each in comparison.measured
    ]
    return Bars("Time of a step", "median; the line reaches from the fastest repeat to the slowest", tuple(bars))


def _memory(comparison: Comparison) -> Iterator[Bars]:
    for title, about, numbers in (
        ("Peak memory of the GPU", "as the framework's allocator counts it", [each.device_memory for each in comparison.measured]),
        ("Peak memory of the host", "of the whole process, libraries included", [each.memory for each in comparison.measured]),
    ):
        longest = max((number for number in numbers if number is not None), default=0.0)
        if longest:
            pairs = zip(comparison.measured, numbers, strict=True)
            bars = [Bar(each.policy, (n or 0.0) / longest, (n or 0.0) / longest, (n or 0.0) / longest, size_text(n)) for each, n in pairs]
            yield Bars(title, about, tuple(bars))


def _charts(comparison: Comparison) -> Iterator[Chart]:
    measured = comparison.measured
    losses = [Curve(each.policy, each.losses, each.skips) for each in measured]
    scales = [Curve(each.policy, each.scales, each.skips) for each in measured if any(scale is not None for scale in each.scales)]
    times = [Curve(each.policy, _after_warm_up(each)) for each in measured]
    found = (
        chart(
            "Loss", "as the program computes it, before it is scaled; × where it is no number, ○ where a step was skipped", losses, _short
        ),
        chart("Loss scale", "○ where the scaler skipped the step and halved its scale", scales, _short, powers=True),
        chart("Time of each step", "milliseconds, of the first run of each policy, the first steps left out", times, _short),
    )
    yield from (each for each in found if each is not None)


def _after_warm_up(each: Measured) -> list[float | None]:
    left_out = warm_up(len(each.times))
    return [None if number < left_out else 1e3 * seconds for number, seconds in enumerate(each.times)]


def _short(number: float) -> str:
    if number and math.isfinite(number) and float(number).is_integer() and abs(number) < 1e7:
        return f"{number:,.0f}"
    return f"{number:.4g}"
