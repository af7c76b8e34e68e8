"""SARIF 2.1.0, which GitHub code scanning and other dashboards read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from mplint.about import VERSION
from mplint.findings import Applicability, Confidence, Edit, Finding, Location, Severity
from mplint.report.fingerprints import fingerprints, uri
from mplint.report.sources import Sources
from mplint.report.summary import place
from mplint.rule import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
HOME = "https://github.com/mplint/mplint"
FINGERPRINT = "mplint/v1"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PROBLEMS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "recommendation"}
_RANKS = {Confidence.HIGH: 90.0, Confidence.MEDIUM: 60.0, Confidence.LOW: 30.0}


def sarif_report(
    findings: Sequence[Finding],
    rules: Mapping[str, type[Rule]],
    sources: Sources,
    faults: Sequence[str] = (),
    unjudged: Sequence[tuple[str, str]] = (),
) -> str:
    """One run with the metadata of `rules` and every finding; `faults` are what mplint itself failed at, `unjudged` what it can't tell."""
    known = sorted({*rules, *(finding.code for finding in findings)})
    names = {finding.code: finding.name for finding in findings}
    results = _results(findings, known, sources)
    faults = [*faults, *sources.faults]
    invocation: dict[str, object] = {"executionSuccessful": not faults}
    notes: list[dict[str, object]] = [{"level": "error", "message": {"text": fault}} for fault in faults]
    for path, reason in unjudged:
        place = {"physicalLocation": {"artifactLocation": _artifact(path)}}
        notes.append({"level": "note", "message": {"text": f"Not judged: {reason}"}, "locations": [place]})
    if notes:
        invocation["toolExecutionNotifications"] = notes
    driver = {
        "name": "mplint",
        "version": VERSION,
        "semanticVersion": VERSION,
        "informationUri": HOME,
        "rules": [_rule(code, rules.get(code), names.get(code, code)) for code in known],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str, rule: type[Rule] | None, name: str) -> dict[str, object]:
    if rule is None:
        return {"id": code, "name": name, "shortDescription": {"text": name}}
    documentation = rule.documentation() or rule.name
    return {
        "id": code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary()},
        "fullDescription": {"text": rule.section("Why is this bad?") or rule.summary()},
        "help": {"text": documentation, "markdown": documentation},
        **({"helpUri": rule.url()} if rule.url() else {}),
        "defaultConfiguration": {"level": _LEVELS[rule.severity], "enabled": rule.severity is not Severity.INFO},
        "properties": {"tags": ["mixed-precision", *rule.frameworks], "precision": "high", "problem.severity": _PROBLEMS[rule.severity]},
    }


def _results(findings: Sequence[Finding], known: Sequence[str], sources: Sources) -> list[dict[str, object]]:
    indices = {code: index for index, code in enumerate(known)}
    results = []
    for finding, fingerprint in zip(findings, fingerprints(findings, sources), strict=True):
        text = "\n".join(sentence for sentence in (finding.message, finding.why, finding.help) if sentence)
        cell = finding.location.cell
        result: dict[str, object] = {
            "ruleId": finding.code,
            "ruleIndex": indices[finding.code],
            "level": _LEVELS[finding.severity],
            "message": {"text": text if cell is None else f"{place(finding.location)}: {text}"},
            "rank": _RANKS[finding.confidence],
            "locations": [_location(finding.location, finding.node)],
            "partialFingerprints": {FINGERPRINT: fingerprint},
            "properties": _properties(finding),
        }
        if finding.related:
            result["relatedLocations"] = [
                {"id": number, **_location(related.location), "message": {"text": related.message}}
                for number, related in enumerate(finding.related, 1)
            ]
        fixes = _fixes(finding, sources)
        if fixes:
            result["fixes"] = fixes
        results.append(result)
    return results


def _properties(finding: Finding) -> dict[str, object]:
    """What SARIF has no field for: how sure the finding is, its cell, and what a run has shown of it."""
    properties: dict[str, object] = {"confidence": finding.confidence.value}
    if finding.location.cell is not None:
        properties["cell"] = finding.location.cell
    if finding.evidence is not None:
        properties["evidence"] = finding.evidence._asdict()
    return properties


def _location(location: Location, node: str | None = None) -> dict[str, object]:
    physical: dict[str, object] = {"artifactLocation": _artifact(location.path)}
    region = _region(location)
    if region:
        physical["region"] = region
    entry: dict[str, object] = {"physicalLocation": physical}
    if location.cell is not None:
        name = f"cell {location.cell}"
        entry["logicalLocations"] = [{"name": name, "fullyQualifiedName": f"{location.path}:{name}", "kind": "cell"}]
    if node is not None:
        entry["logicalLocations"] = [{"name": node, "fullyQualifiedName": f"{location.path}:{node}", "kind": "element"}]
    return entry


def _region(location: Location) -> dict[str, int]:
    """The region of a place; in a notebook it counts within the cell, which the logical location names."""
    fields = {"startLine": location.line, "startColumn": location.column, "endLine": location.end_line, "endColumn": location.end_column}
    return {name: value for name, value in fields.items() if value is not None} if location.line is not None else {}


def _fixes(finding: Finding, sources: Sources) -> list[dict[str, object]]:
    """The fix as replacements; none for a notebook, whose cells have no lines in the file, and none for what is only shown."""
    fix = finding.fix
    if fix is None or fix.applicability is Applicability.DISPLAY or finding.location.cell is not None:
        return []
    by_path: dict[str, list[Edit]] = {}
    for edit in sources.edits(finding):
        by_path.setdefault(edit.location.path, []).append(edit)
    changes = [
        {
            "artifactLocation": _artifact(path),
            "replacements": [{"deletedRegion": _region(edit.location), "insertedContent": {"text": edit.content}} for edit in edits],
        }
        for path, edits in by_path.items()
    ]
    review = "" if fix.applicability is Applicability.SAFE else " (changes numerics or control flow: review it)"
    return [{"description": {"text": fix.title + review}, "artifactChanges": changes}] if changes else []


def _artifact(path: str) -> dict[str, str]:
    address = uri(path)
    return {"uri": address} if address.startswith("file:") else {"uri": address, "uriBaseId": "%SRCROOT%"}
