"""What a watched run has shown, as text for a terminal and as JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mplint.about import VERSION
from mplint.doctor.diagnosis import Diagnosis, Report
from mplint.engine.baseline import Keys
from mplint.engine.evidence import VERSION as FORM
from mplint.engine.texts import Texts
from mplint.findings import Confidence, Evidence, Finding, Location, Severity
from mplint.limits import HALF_MAX
from mplint.report.sarif import sarif_report
from mplint.report.sources import Sources
from mplint.report.style import Style
from mplint.report.summary import counted
from mplint.rule import Rule
from mplint.runs.record import Run

NO_STEP = "No step of an optimizer was seen."
SHOWN = 8
SHOWN_SCALES = 6  # changes of the loss scale
FEW = 4
WHOLE = 1e12  # below which a loss scale is written with all its digits
LEAST_REACHED = 0.001  # part of the range of a half dtype from which on it is told of
MOST = 12  # parameters whose gradients are told of
LEAST_SHOWN = 0.05  # part of a layer's gradients from which on they are told of


def doctor_json(report: Report) -> str:
    """One object with every diagnosis, verdict and figure, which `mplint check --evidence` reads."""
    run = report.run
    written = {
        "version": FORM,
        "tool": {"name": "mplint", "version": VERSION},
        "steps": len(run.steps),
        "ended": run.text("ended"),
        "history": {
            "seconds": [step.seconds for step in run.steps],
            "loss": [_finite(step.loss) for step in run.steps],
            "scale": [_finite(step.scale) for step in run.steps],
            "skipped": [number for number, step in enumerate(run.steps) if step.skipped],
        },
        "diagnoses": [each._asdict() for each in report.diagnoses],
        "remarks": [each._asdict() for each in report.remarks],
        "findings": _findings(report),
        "facts": {name: value for name, value in run.facts.items() if name not in ("reached", "output")},
    }
    return json.dumps(written, indent=2, ensure_ascii=False) + "\n"


def _finite(number: float | None) -> float | None:
    """A number as every reader of JSON takes it: what is none is null."""
    return number if number is not None and math.isfinite(number) else None


def _findings(report: Report) -> list[dict[str, object]]:
    """The verdicts. A finding is known again by its rule, its file and the text of its line."""
    keys = Keys(os.getcwd(), Texts())
    found = []
    for finding, verdict, evidence in report.verdicts:
        key = keys.key(finding)
        place: dict[str, object] = {
            "code": finding.code,
            "name": finding.name,
            "path": key.path,
            "line": finding.location.line,
            "text": key.line,
        }
        found.append({**place, "verdict": verdict, "evidence": evidence})
    return found


def doctor_sarif(report: Report, script: str, rules: Mapping[str, type[Rule]]) -> str:
    """The findings of `check` with their verdicts, and what the run has shown besides."""
    told = {evidence for _, verdict, evidence in report.verdicts if verdict == "confirmed"}
    results = [finding._replace(evidence=Evidence(verdict, text)) for finding, verdict, text in report.verdicts]
    results += [_as_finding(each, script, rules) for each in report.diagnoses if each.message not in told]
    return sarif_report(results, rules, Sources())


def _as_finding(each: Diagnosis, script: str, rules: Mapping[str, type[Rule]]) -> Finding:
    """What a run has shown, in the form of a finding; what no rule tells is named after its kind."""
    rule = rules.get(each.code)
    severity = rule.severity if rule is not None else Severity.WARNING
    location = Location(os.path.relpath(each.path) if each.path else script, each.line, None, each.line, None)
    name = rule.name if rule is not None else each.kind
    why = "\n".join(each.details)
    evidence = Evidence("confirmed", each.message)
    return Finding(each.code or each.kind, name, severity, Confidence.HIGH, each.message, location, why, evidence=evidence)


def doctor_text(report: Report, script: str, style: Style) -> str:
    """How the run went, what is wrong in it, and what it says of each finding of `check`."""
    run = report.run
    lines = [style.paint(f"{script} on {run.text('device') or 'CPU'}, {len(run.steps)} steps{_in_time(run)}, {_looked(run)}", "bold"), ""]
    for each in report.diagnoses:
        lines += [*_told(each, style), ""]
    if not report.diagnoses:
        lines += [*style.wrap(_well(run)), ""]
    took_part = run.facts.get("files")
    above = {each.message for each in report.diagnoses}
    elsewhere = 0
    for verdict in report.verdicts:
        if isinstance(took_part, list) and os.path.abspath(verdict.finding.location.path) not in took_part:
            elsewhere += 1
            continue
        at = f"{verdict.finding.location.path}:{verdict.finding.location.line}"
        evidence = "as told above" if verdict.evidence in above else verdict.evidence
        lines += style.wrap(f"{at}: {verdict.finding.code} {verdict.verdict}: {evidence}")
    if elsewhere:
        lines += style.wrap(f"{counted(elsewhere, 'finding')} of `mplint check` in files that the run did not read: not reached")
    if report.verdicts:
        lines.append("")
    lines += [f"  {label:<28}{value}" for label, value in _figures(run)]
    for title, rows in _tables(report):
        lines += ["", title, *(line for row in rows for line in style.wrap(row, "  ", "    "))]
    if run.text("output"):
        lines += ["", "the end of the program's output:", *(f"  | {line}" for line in run.text("output").splitlines())]
    return "".join(f"{line}\n" for line in lines)


def _well(run: Run) -> str:
    if not run.steps:
        return NO_STEP
    counts = run.facts.get("operations")
    if not isinstance(counts, dict) or not counts or counts.keys() & HALF_MAX.keys():
        return "Nothing wrong was seen."
    why = f": {run.text('without_half')}" if run.text("without_half") else ""
    return f"Nothing wrong was seen, and nothing ran in half precision{why}."


def _in_time(run: Run) -> str:
    limit = run.number("limit")
    return f" in the {limit:g} s of --limit" if limit is not None else ""


def _looked(run: Run) -> str:
    looked, in_part = run.number("looked_at"), run.number("looked_in_part")
    part = f", {in_part:g} of these in part, since all of it would take too long" if looked and in_part else ""
    return f"{looked:g} looked at closely{part}" if looked is not None else "none looked at closely"


def _told(each: Diagnosis, style: Style) -> Iterator[str]:
    at = _at(each.path, each.line)
    code = style.paint(each.code, "error") + " " if each.code else ""
    yield from style.wrap(f"{at}{code}{each.message}")
    for detail in each.details:
        yield from style.wrap(detail, "  ", "    ")


def _tables(report: Report) -> Iterator[tuple[str, list[str]]]:
    """What is worth knowing, each under a title."""
    run = report.run
    rows = _rows(run, "gradients")
    gradients = [row for each in rows if (row := _gradients(each))]
    zeros = sorted(((each["zero"] / max(1, each["number"]), each["name"]) for each in rows if _zeros_alone(each)), reverse=True)
    if gradients or zeros:
        more = [f"and {len(gradients) - MOST} more parameters"] if len(gradients) > MOST else []
        more += [_of_zeros(zeros)] if zeros else []
        yield "gradients that are zero or subnormal in their dtype:", gradients[:MOST] + more
    near = [f"{name or 'outside of all modules'}: {part:.1%}" for name, part in _headroom(run)]
    if near:
        yield "nearest to the end of their half dtype's range, in the forward pass:", near[:FEW]
    if report.remarks:
        yield "worth knowing:", [f"{_at(each.path, each.line)}{each.message}" for each in report.remarks[:SHOWN]]
    undone = [
        f"{_at(*(each['place'] or (None, None)))}{each['dtype']} to {each['through']} and back, {each['times']} times"
        for each in _rows(run, "casts_undone")
    ]
    if undone:
        yield "casts that undo each other:", undone
    fallbacks = [
        f"`{each['operation']}`, {each['times']} times, {each['share']:.0%} of the time: {each['why']}" for each in _rows(run, "float32")
    ]
    if fallbacks:
        yield "in float32, though the model computes in half precision:", fallbacks


def _gradients(row: Mapping[str, Any]) -> str:
    """How much of a layer's gradients is subnormal, or nearly lost, with the scale and without; "" where nothing is."""
    number = max(1, row["number"])
    small, without, zero = row["small"] / number, row["small_without"] / number, row["zero"] / number
    if max(small, without) < LEAST_SHOWN:
        return ""
    lost = f", {row['lost'] / number:.0%} would be zero without" if row["lost"] else ""
    return f"{row['name']} ({row['computed']}): {zero:.0%} zero, {small:.0%} subnormal with the scale, {without:.0%} without{lost}"


def _of_zeros(zeros: Sequence[tuple[float, str]]) -> str:
    part, name = zeros[0]
    among = ", most in" if len(zeros) > 1 else " in"
    return f"zeros alone, such as a ReLU makes, too: {counted(len(zeros), 'parameter')}{among} {name} ({part:.0%})"


def _zeros_alone(row: Mapping[str, Any]) -> bool:
    """Whether gradients in half precision are zero, and hardly any is near to it."""
    return row["computed"] in HALF_MAX and row["zero"] >= LEAST_SHOWN * max(1, row["number"]) and not _gradients(row)


def _headroom(run: Run) -> list[tuple[str, float]]:
    """The modules whose values in half precision were the largest, with the part of the range that they reached."""
    value = run.facts.get("headroom")
    found = [(str(name), float(part)) for name, part in value] if isinstance(value, list) else []
    return [each for each in found if each[1] >= LEAST_REACHED]


def _rows(run: Run, name: str) -> list[Mapping[str, Any]]:
    value = run.facts.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _at(path: str | None, line: int | None) -> str:
    return f"{os.path.relpath(path)}:{line}: " if path else ""


def _spans(numbers: Sequence[int]) -> str:
    """Numbers in order, those that follow each other as one span."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    told = [" to ".join(map(str, span)) for span in spans[:FEW]]
    return ", ".join([*told, "..."] if len(spans) > FEW else told)


def _scale(scale: float) -> str:
    return f"{scale:.0f}" if scale.is_integer() and scale < WHOLE else f"{scale:g}"


def _changes(run: Run) -> list[str]:
    """The loss scale at first, and every other one with the step from which on it was used."""
    changes: list[str] = []
    before = None
    for number, step in enumerate(run.steps):
        if step.scale is not None and step.scale != before:
            changes.append(_scale(step.scale) + (f" from step {number}" if changes else ""))
            before = step.scale
    return changes


def _figures(run: Run) -> Iterator[tuple[str, str]]:
    losses = [step.loss for step in run.steps if step.loss is not None]
    scales = [step.scale for step in run.steps if step.scale is not None]
    if (run.number("processes") or 0) > 1:
        yield "processes", f"{run.number('processes'):g} that train; the figures are those of the one that made the most steps"
    if losses:
        yield "loss", f"{losses[0]:.4g} to {losses[-1]:.4g}"
        broken = sum(1 for loss in losses if not math.isfinite(loss))
        if broken:
            yield "steps without a finite loss", str(broken)
    if scales:
        skipped = [number for number, step in enumerate(run.steps) if step.skipped]
        at = f": {_spans(skipped)}" if skipped else ""
        yield "loss scale", f"{_scale(scales[0])} to {_scale(scales[-1])}, {len(skipped)} steps skipped{at}"
        if len(changes := _changes(run)) > 2:
            yield "scale over time", ", ".join(changes if len(changes) <= SHOWN_SCALES else [*changes[:2], "...", *changes[-2:]])
    infinite = sorted(((row["infinite"], row["name"]) for row in _rows(run, "gradients") if row.get("infinite")), key=lambda row: -row[0])
    if infinite:
        more = f" and {len(infinite) - FEW} more" if len(infinite) > FEW else ""
        yield "infinite gradients in", ", ".join(f"{name} ({counted(steps, 'step')})" for steps, name in infinite[:FEW]) + more
    for label, name in (("operations by dtype", "operations"), ("work of products by dtype", "work"), ("time by dtype", "seconds")):
        parts = run.facts.get(name)
        whole = sum(parts.values()) if isinstance(parts, dict) else 0
        if isinstance(parts, dict) and whole:
            yield label, ", ".join(f"{dtype} {part / whole:.0%}" for dtype, part in sorted(parts.items(), key=lambda item: -item[1]))
