"""One line a finding: for editors and grep (`concise`), and for GitHub's annotations (`github`)."""

from __future__ import annotations

from collections.abc import Sequence

from mplint.findings import Finding, Severity
from mplint.report.summary import place

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def concise_report(findings: Sequence[Finding]) -> str:
    """`path:line:column: CODE[severity] message`; in a notebook `path:cell 3:line:column: …`."""
    return "".join(f"{place(f.location)}: {f.code}[{f.severity.value}] {_one_line(f.message)}\n" for f in findings)


def github_report(findings: Sequence[Finding], unjudged: Sequence[tuple[str, str]] = ()) -> str:
    """Workflow commands, which GitHub Actions shows beside the changed lines.

    The lines of a notebook's cell are not lines of its file, so there the message names the place.
    """
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
    message = finding.message if location.cell is None else f"{place(location)}: {finding.message}"
    text = "\n".join(sentence for sentence in (message, finding.why, finding.help) if sentence)
    properties = ",".join(f"{key}={_escape_property(value)}" for key, value in fields.items())
    return f"::{_COMMANDS[finding.severity]} {properties}::{_escape(text)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def _one_line(text: str) -> str:
    return " ".join(text.split())
