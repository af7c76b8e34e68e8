"""One line a finding: for editors and grep (`concise`, `grouped` by file), and the annotations of GitHub and Azure."""

from __future__ import annotations

from collections.abc import Sequence

from mplint.findings import Finding, Severity
from mplint.report.fingerprints import relative_path
from mplint.report.style import Style
from mplint.report.summary import SHOWN, LeftOut, page_of, place, spot, summary_text

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def concise_report(findings: Sequence[Finding]) -> str:
    """`path:line:column: CODE[severity] message`; in a notebook `path:cell 3:line:column: …`."""
    return "".join(f"{place(f.location)}: {f.code}[{f.severity.value}] {_one_line(f.message)}\n" for f in findings)


def grouped_report(findings: Sequence[Finding], files: int, style: Style, left_out: LeftOut = SHOWN) -> str:
    """The findings of each file under its name, a line each, then the summary."""
    by_path: dict[str, list[Finding]] = {}
    for finding in findings:
        by_path.setdefault(finding.location.path, []).append(finding)
    parts = []
    for path, found in by_path.items():
        width = max(len(spot(finding)) for finding in found)
        lines = [style.file_link(style.paint(path, "bold"), path)]
        for finding in found:
            severity = finding.severity.value
            head = style.link(style.paint(f"{finding.code}[{severity}]", severity), page_of(finding))
            lines.append(f"  {spot(finding):<{width}}  {head} {_one_line(finding.message)}")
        parts.append("\n".join(lines) + "\n\n")
    return "".join(parts) + summary_text(findings, files, style, left_out)


def azure_report(findings: Sequence[Finding], unjudged: Sequence[tuple[str, str]] = ()) -> str:
    """Logging commands, which Azure Pipelines lists as issues of the run; what is less than a warning is a line of its log."""
    left = (f"##[debug]{_one_line(path)}: not judged: {_one_line(reason)}" for path, reason in unjudged)
    return "".join(f"{line}\n" for line in (*map(_issue, findings), *left))


def _issue(finding: Finding) -> str:
    location = finding.location
    if finding.severity is Severity.INFO:
        return f"{place(location)}: {finding.code} {_one_line(finding.message)}"
    fields = {"type": finding.severity.value, "sourcepath": relative_path(location.path)}
    if location.cell is None and location.line is not None:
        fields |= {"linenumber": str(location.line), "columnnumber": str(location.column or 1)}
    properties = "".join(f"{key}={_escape_azure(value)};" for key, value in (fields | {"code": finding.code}).items())
    return f"##vso[task.logissue {properties}]{_escape_azure(_sentences(finding))}"


def _escape_azure(text: str) -> str:
    escapes = {"%": "%AZP25", "\r": "%0D", "\n": "%0A", ";": "%3B", "]": "%5D"}
    return "".join(escapes.get(char, char) for char in text)


def github_report(findings: Sequence[Finding], unjudged: Sequence[tuple[str, str]] = ()) -> str:
    """Workflow commands, which GitHub Actions shows beside the changed lines."""
    left = [f"::notice file={_escape_property(path)},title=Not judged::{_escape(reason)}" for path, reason in unjudged]
    return "".join(f"{line}\n" for line in (*map(_command, findings), *left))


def _command(finding: Finding) -> str:
    location = finding.location
    fields = {"file": location.path.replace("\\", "/")}
    if location.cell is None and location.line is not None:
        fields["line"] = str(location.line)
        fields["endLine"] = str(location.end_line or location.line)
        if location.column is not None:
            fields["col"] = str(location.column)
            if location.end_column is not None and location.end_line == location.line:
                fields["endColumn"] = str(location.end_column)
    fields["title"] = f"{finding.code} {finding.name}"
    properties = ",".join(f"{key}={_escape_property(value)}" for key, value in fields.items())
    return f"::{_COMMANDS[finding.severity]} {properties}::{_escape(_sentences(finding))}"


def _sentences(finding: Finding) -> str:
    """What is said of a finding; the lines of a notebook's cell are not those of its file, so there it begins with the place."""
    message = finding.message if finding.location.cell is None else f"{place(finding.location)}: {finding.message}"
    return "\n".join(sentence for sentence in (message, finding.why, finding.help) if sentence)


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def _one_line(text: str) -> str:
    return " ".join(text.split())
