"""What `mplint compare` measured, as text for a terminal and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence

from mplint.compare.comparison import Compared, Comparison, Measured
from mplint.compare.experiment import REFERENCE
from mplint.report.style import Style
from mplint.runs.devices import CPU

LABEL, COLUMN = 28, 17
BARS = "▁▂▃▄▅▆▇█"
POINTS = 40
OF_A_CPU = "These are times of a CPU: they say nothing of a GPU, where mixed precision has its matrix units."


def compare_json(comparison: Comparison) -> str:
    """One object with every figure and curve; what is no number is null."""
    found = {
        "device": comparison.device,
        "versions": comparison.versions,
        "policies": {each.policy: _plain(each) for each in comparison.measured},
        "beside_float32": {each.policy: {k: v for k, v in each._asdict().items() if k != "policy"} for each in comparison.compared},
    }
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(each: Measured) -> dict[str, object]:
    found: dict[str, object] = {key: value for key, value in each._asdict().items() if key not in ("policy", "losses", "scales")}
    found["spread"] = each.spread
    found["losses"] = [_finite(loss) for loss in each.losses]
    found["scales"] = [_finite(scale) for scale in each.scales]
    return found


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def compare_text(comparison: Comparison, script: str, style: Style) -> str:
    """A verdict for each policy, a table with a column a policy, curves of the loss, and what failed."""
    lines = [style.paint(f"{script} on {comparison.device}" + (f" ({comparison.versions})" if comparison.versions else ""), "bold"), ""]
    for beside in comparison.compared:
        lines += style.wrap(sentence(beside, comparison))
    if comparison.compared:
        lines.append("")
    if any(each.steps for each in comparison.measured):
        lines += [*_table(comparison), ""]
    for each in comparison.measured:
        if each.limit is not None and not each.error:
            lines += [*style.wrap(f"{each.policy} was ended after {each.limit:g} s, with {each.steps} steps (--limit)."), ""]
    for each in comparison.measured:
        if each.error:
            lines += [*style.wrap(f"{each.policy} failed: {each.error}"), *(f"  | {line}" for line in each.output.splitlines()), ""]
    if comparison.device == CPU and any(each.seconds for each in comparison.measured):
        lines += [*style.wrap(OF_A_CPU), ""]
    return "".join(f"{line}\n" for line in lines[:-1])


def _table(comparison: Comparison) -> Iterator[str]:
    """A column a policy, and the curves of the loss."""
    yield " " * LABEL + "".join(f"{each.policy:>{COLUMN}}" for each in comparison.measured)
    for label, cell in rows(comparison):
        yield f"  {label:<{LABEL - 2}}" + "".join(f"{cell(each):>{COLUMN}}" for each in comparison.measured)
    curves = [(each.policy, _curve(each.losses)) for each in comparison.measured]
    if any(curve for _, curve in curves):
        yield ""
        yield "loss:"
        yield from (f"  {policy:<16}{curve}" for policy, curve in curves)


def sentence(each: Compared, comparison: Comparison) -> str:
    """The verdict on a policy, with how sure it is."""
    own = next(measured for measured in comparison.measured if measured.policy == each.policy)
    if each.speedup is None or each.least is None or each.most is None or not own.half:
        return f"{each.policy}: {each.verdict}."
    repeats = max(measured.runs for measured in comparison.measured)
    between = f", between {each.least:.2f} and {each.most:.2f} over {repeats} repeats" if repeats > 1 else ""
    return f"{each.policy}: {each.verdict} ({each.speedup:.2f} times the speed of {REFERENCE}{between})."


def rows(comparison: Comparison) -> Iterator[tuple[str, Callable[[Measured], str]]]:
    """What a table says of each policy: a label, and what stands in a policy's column."""
    yield "steps", lambda each: str(each.steps)
    yield "milliseconds a step", lambda each: "-" if each.seconds is None else f"{each.seconds * 1e3:.1f}"
    yield "spread over repeats", lambda each: "-" if each.spread is None else f"{100 * each.spread:.0f}%"
    yield "steps a second", lambda each: "-" if not each.seconds else f"{1 / each.seconds:.1f}"
    if any(each.device_memory for each in comparison.measured):
        yield "peak memory of the GPU", lambda each: size_text(each.device_memory)
    yield "peak memory of the host", lambda each: size_text(each.memory)
    yield "loss at the end", lambda each: "-" if each.loss is None else f"{each.loss:.4g}"
    yield "steps without a finite loss", lambda each: str(each.nonfinite)
    if any(scale is not None for each in comparison.measured for scale in each.scales):
        yield "steps skipped by the scaler", lambda each: str(each.skipped)
        yield "loss scale at the end", lambda each: "-" if not each.scales or each.scales[-1] is None else f"{each.scales[-1]:g}"


def size_text(number: float | None) -> str:
    """Bytes in words."""
    return "-" if number is None else f"{number / 1e9:.2f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"


def _curve(values: Sequence[float | None]) -> str:
    """A curve in one line of blocks, "×" where a value is no number."""
    if not values or all(value is None for value in values):
        return ""
    each = max(1, math.ceil(len(values) / POINTS))
    parts = [values[place : place + each] for place in range(0, len(values), each)]
    means = [_mean(part) for part in parts]
    known = [mean for mean in means if mean is not None]
    if not known:
        return "×" * len(means)
    low, high = min(known), max(known)
    step = (high - low) / (len(BARS) - 1) or 1.0
    return "".join("×" if mean is None else BARS[round((mean - low) / step)] for mean in means)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None
