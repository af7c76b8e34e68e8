"""What `mplint estimate` found, as text for a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

from mplint.estimate.basis import TIGHT, Figure
from mplint.estimate.estimate import Estimate, Report, as_json
from mplint.estimate.precision import FLOAT32
from mplint.estimate.roofline import BOUNDS, Step
from mplint.report.style import Style

LABEL, COLUMN = 28, 16
ALIKE = 0.03  # a saving not worth a number
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def estimate_json(report: Report) -> str:
    """One object with every figure."""
    return json.dumps(as_json(report), indent=2, ensure_ascii=False) + "\n"


def estimate_text(report: Report, style: Style) -> str:
    """The verdict, a table with a column a policy, what holds a mixed step back, and how sure all that is."""
    lines = [style.paint(_title(report), "bold"), "", *style.wrap(_verdict(report)), ""]
    lines.append(" " * LABEL + "".join(f"{each.policy:>{COLUMN}}" for each in report.estimates))
    for label, cell in _rows(report):
        lines.append(f"  {label:<{LABEL - 2}}" + "".join(f"{cell(each):>{COLUMN}}" for each in report.estimates))
    if report.holds:
        lines += ["", "What takes the time of a mixed step:"]
        for hold in report.holds:
            layers = f" ({', '.join(hold.layers)})" if hold.layers else ""
            lines += style.wrap(f"{hold.reason}{layers}", f"  {_percent(hold.share):>5}  ", " " * 9)
    lines += ["", *style.wrap(_basis(report))]
    for source, named in _sourced(report.figures).items():
        lines += style.wrap(f"{', '.join(named)}: {source}", "  ", "    ")
    for doubt in report.doubts:
        lines += style.wrap(doubt, "note: ", "      ")
    return "".join(f"{line}\n" for line in lines)


def _title(report: Report) -> str:
    on = f" on {report.target.label}" if report.target is not None else ""
    return f"{report.path}: training at batch {report.batch} with {report.optimizer}{on}"


def _verdict(report: Report) -> str:
    plain, mixed = report.estimates[0], _mixed(report)
    saved = 1 - mixed.memory.peak / plain.memory.peak
    text = f"{mixed.policy} takes {_bytes(mixed.memory.peak)} where float32 takes {_bytes(plain.memory.peak)} ({_percent(saved)} less)"
    if saved < -ALIKE:
        text = (
            f"{mixed.policy} takes {_bytes(mixed.memory.peak)} where float32 takes {_bytes(plain.memory.peak)} ({_percent(-saved)} more): "
            "the copies of weights in half take more than activations save"
        )
    elif saved < ALIKE:
        text = f"{mixed.policy} takes about as much memory as float32, {_bytes(mixed.memory.peak)}: weights and optimizer are most of it"
    if mixed.speedup is None or mixed.ceiling is None or report.target is None:
        return text + "."
    if mixed.step is not None and not mixed.step.on_matrix_units:
        return f"{text}, and is hardly faster: no work of this model runs on matrix units of {report.target.label}."
    return f"{text}, and an ideal step is {mixed.speedup:.1f} times as fast; no run should gain more than {mixed.ceiling:.1f} times."


def _mixed(report: Report) -> Estimate:
    """The mixed policy that a reader would choose: the faster one, float16 where both are alike."""
    return max(report.estimates[1:], key=lambda each: (each.speedup or 0.0, each.policy == "mixed_float16"))


def _rows(report: Report) -> Iterator[tuple[str, Callable[[Estimate], str]]]:
    yield "weights", lambda each: _bytes(each.memory.weights)
    yield "their copies in half", lambda each: _bytes(each.memory.copies) if each.memory.copies else "-"
    yield "gradients", lambda each: _bytes(each.memory.gradients)
    yield "optimizer state", lambda each: _bytes(each.memory.optimizer) if each.memory.optimizer else "-"
    yield "activations kept", lambda each: _bytes(each.memory.activations)
    yield "peak", lambda each: _bytes(each.memory.peak)
    usable = report.usable
    if usable is not None:
        yield f"of {_bytes(usable)} usable", lambda each: _fits(each.memory.peak / usable)
        yield "largest batch", lambda each: str(each.largest or "none")
        yield "largest with room to spare", lambda each: str(each.safe or "none")
    yield "FLOPs of products", lambda each: _counted(sum(each.work.values())) if each.work else "-"
    for dtype in dict.fromkeys(dtype for each in report.estimates for dtype in each.work):
        yield f"  in {dtype}", partial(_part, dtype)
    if report.device is not None:
        yield "FLOPs on matrix units", partial(_of_step, lambda timed: timed.on_matrix_units)
        for bound in BOUNDS:
            yield f"bound by {bound}", partial(_of_step, partial(_share, bound))
        yield "speed of an ideal step", lambda each: f"{each.speedup:.2f}x" if each.speedup else ""
        yield "at most", lambda each: f"{each.ceiling:.1f}x" if each.ceiling and each.policy != FLOAT32 else "-"


def _part(dtype: str, each: Estimate) -> str:
    return _percent(each.work[dtype] / sum(each.work.values())) if dtype in each.work else "-"


def _of_step(part: Callable[[Step], float], each: Estimate) -> str:
    return "" if each.step is None else _percent(part(each.step))


def _share(bound: str, timed: Step) -> float:
    return timed.share(bound)


def _fits(part: float) -> str:
    verdict = "fits" if part <= TIGHT else "tight" if part <= 1 else "too much"
    return f"{verdict}, {_percent(part)}"


def _basis(report: Report) -> str:
    memory = "Memory is followed through the operations of one step; what a framework's allocator wastes comes on top."
    if report.device is None:
        return memory
    return (
        f"{memory} Speed compares the least times that {report.device.name}'s peaks allow: input pipelines, other kernels than the "
        "best and launches make real gains smaller. What this rests on:"
    )


def _sourced(figures: tuple[Figure, ...]) -> dict[str, list[str]]:
    """The figures as text, by where they are from."""
    found: dict[str, list[str]] = {}
    for figure in figures:
        found.setdefault(figure.source, []).append(f"{figure.name} {_valued(figure)}")
    return found


def _valued(figure: Figure) -> str:
    match figure.unit:
        case "s":
            return f"{figure.value * 1e6:.3g} µs"
        case "":
            return _percent(figure.value)
        case "bytes":
            return _bytes(figure.value)
        case "bytes/s":
            return f"{_bytes(figure.value)}/s"
        case _:
            return f"{_counted(figure.value)}{figure.unit}"


def _counted(number: float) -> str:
    for size, letter in UNITS:
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.0f} "


def _bytes(number: float) -> str:
    for size, letter in UNITS:
        if number >= size:
            return f"{number / size:.3g} {letter}B"
    return f"{number:.0f} B"


def _percent(share: float) -> str:
    return "<1%" if 0 < share < 0.01 else f"{100 * share:.0f}%"
