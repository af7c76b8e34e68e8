"""The report for programs: one JSON object, whose form is a contract."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from mplint.about import VERSION
from mplint.catalog import Entry
from mplint.findings import Finding, Location, Related
from mplint.report.sources import Sources
from mplint.report.summary import summarize

FORMAT_VERSION = "1"


def json_report(
    findings: Sequence[Finding],
    files: int,
    rules: Mapping[str, Entry],
    sources: Sources,
    unjudged: Sequence[tuple[str, str]] = (),
    known: int | None = None,
) -> str:
    """All findings, what could not be judged if anything, and the summary.

    `rules` knows the address of each rule's documentation, `known` counts the findings that a baseline holds.
    """
    summary = summarize(findings, files)
    report = {
        "version": FORMAT_VERSION,
        "tool": {"name": "mplint", "version": VERSION},
        "findings": [_finding(finding, sources, rules) for finding in findings],
        **({"unjudged": [{"path": path, "reason": reason} for path, reason in unjudged]} if unjudged else {}),
        "summary": {
            "files": summary.files,
            "errors": summary.errors,
            "warnings": summary.warnings,
            "infos": summary.infos,
            "fixable": summary.fixable,
            **({} if known is None else {"baselined": known}),
        },
    }
    return json.dumps(report, indent=2) + "\n"


def _finding(finding: Finding, sources: Sources, rules: Mapping[str, Entry]) -> dict[str, object]:
    location = finding.location
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "message": finding.message,
        "why": finding.why,
        "help": finding.help,
        "path": location.path,
        "cell": location.cell,
        "node": finding.node,
        **_range(location),
        "related": [_related(related, location) for related in finding.related],
        "fix": _fix(finding, sources),
        "url": rules[finding.code].url() if finding.code in rules else "",
        **({} if finding.evidence is None else {"evidence": finding.evidence._asdict()}),
    }


def _range(location: Location) -> dict[str, object]:
    return {"line": location.line, "column": location.column, "end_line": location.end_line, "end_column": location.end_column}


def _related(related: Related, primary: Location) -> dict[str, object]:
    location = related.location
    return {"path": location.path, **_range(location), "message": related.message} | _other_cell(location, primary)


def _fix(finding: Finding, sources: Sources) -> dict[str, object] | None:
    if finding.fix is None:
        return None
    edits = [
        {"path": edit.location.path, **_range(edit.location), "content": edit.content} | _other_cell(edit.location, finding.location)
        for edit in sources.edits(finding)
    ]
    return {"title": finding.fix.title, "applicability": finding.fix.applicability.value, "edits": edits}


def _other_cell(location: Location, primary: Location) -> dict[str, object]:
    """The cell of a place that is not in the finding's own cell; a place without one shares the finding's."""
    return {} if location.cell == primary.cell else {"cell": location.cell}
