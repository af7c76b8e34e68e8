"""GitLab's Code Quality report, which merge requests show beside the changed lines."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mplint.findings import Finding, Severity
from mplint.report.fingerprints import fingerprints, relative_path
from mplint.report.sources import Sources
from mplint.report.summary import place

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def gitlab_report(findings: Sequence[Finding], sources: Sources) -> str:
    """A list of issues; what lies in a notebook or a model stands at line 1 of its file, and its description names the place."""
    names = fingerprints(findings, sources)
    return json.dumps([_issue(finding, name) for finding, name in zip(findings, names, strict=True)], indent=2) + "\n"


def _issue(finding: Finding, fingerprint: str) -> dict[str, object]:
    location = finding.location
    in_file = location.cell is None and location.line is not None
    at = "" if in_file else f"{place(location)}: " if finding.node is None else f"{finding.node}: "
    return {
        "check_name": finding.code,
        "description": f"{finding.name}: {at}{finding.message}",
        "content": {"body": "\n\n".join(sentence for sentence in (finding.why, finding.help) if sentence)},
        "categories": ["Bug Risk"],
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[finding.severity],
        "location": {
            "path": relative_path(location.path),
            "lines": {"begin": location.line, "end": location.end_line or location.line} if in_file else {"begin": 1},
        },
    }
