"""What a watched run has shown, as text for a terminal and as JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator

from mplint.doctor.diagnosis import Diagnosis, Report, as_json
from mplint.report.style import Style
from mplint.runs.record import Run


def doctor_json(report: Report) -> str:
    """One object with every diagnosis, verdict and figure."""
    return json.dumps(as_json(report), indent=2, ensure_ascii=False) + "\n"


def doctor_text(report: Report, script: str, style: Style) -> str:
    """How the run went, what is wrong in it, and what it says of each finding of `check`."""
    run = report.run
    lines = [style.paint(f"{script} on {run.text('device') or 'CPU'}, {len(run.steps)} steps, {_looked(run)}", "bold"), ""]
    for each in report.diagnoses:
        lines += [*_told(each, style), ""]
    if not report.diagnoses:
        lines += ["Nothing wrong was seen.", ""]
    for verdict in report.verdicts:
        at = f"{verdict.finding.location.path}:{verdict.finding.location.line}"
        lines += style.wrap(f"{at}: {verdict.finding.code} {verdict.verdict}: {verdict.evidence}")
    if report.verdicts:
        lines.append("")
    lines += [f"  {label:<28}{value}" for label, value in _figures(run)]
    if run.text("output"):
        lines += ["", "the end of the program's output:", *(f"  | {line}" for line in run.text("output").splitlines())]
    return "".join(f"{line}\n" for line in lines)


def _looked(run: Run) -> str:
    looked = run.number("looked_at")
    return f"{looked:g} looked at closely" if looked is not None else "none looked at closely"


def _told(each: Diagnosis, style: Style) -> Iterator[str]:
    at = f"{os.path.relpath(each.path)}:{each.line}: " if each.path else ""
    code = style.paint(each.code, "error") + " " if each.code else ""
    yield from style.wrap(f"{at}{code}{each.message}")
    for detail in each.details:
        yield from style.wrap(detail, "  ", "    ")


def _figures(run: Run) -> Iterator[tuple[str, str]]:
    losses = [step.loss for step in run.steps if step.loss is not None]
    scales = [step.scale for step in run.steps if step.scale is not None]
    if losses:
        yield "loss", f"{losses[0]:.4g} to {losses[-1]:.4g}"
        broken = sum(1 for loss in losses if not math.isfinite(loss))
        if broken:
            yield "steps without a finite loss", str(broken)
    if scales:
        yield "loss scale", f"{scales[0]:g} to {scales[-1]:g}, {sum(1 for step in run.steps if step.skipped)} steps skipped"
    operations = run.facts.get("operations")
    if isinstance(operations, dict) and operations:
        whole = sum(operations.values())
        yield (
            "operations by dtype",
            ", ".join(f"{name} {count / whole:.0%}" for name, count in sorted(operations.items(), key=lambda i: -i[1])),
        )
