"""Markdown, for the summary of a job or a comment on a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mplint.catalog import Entry
from mplint.findings import Applicability, Finding
from mplint.report.sources import Sources
from mplint.report.style import Style
from mplint.report.summary import SHOWN, LeftOut, spot, summary_text

_FIXES = {Applicability.SAFE: "`fix --apply`", Applicability.UNSAFE: "`fix --apply --unsafe-fixes`", Applicability.DISPLAY: "by hand"}
_WIDE = Style(width=10_000)


def markdown_report(
    findings: Sequence[Finding], files: int, rules: Mapping[str, Entry], sources: Sources, left_out: LeftOut = SHOWN
) -> str:
    """The summary, a table of the findings of each file, and for each rule why it matters and what to do."""
    first, *rest = summary_text(findings, files, _WIDE, left_out).splitlines()
    parts = ["## mplint", f"**{first}**", "\n".join(rest)]
    by_path: dict[str, list[Finding]] = {}
    for finding in findings:
        by_path.setdefault(finding.location.path, []).append(finding)
    for path, found in by_path.items():
        rows = "\n".join(_row(finding, rules, sources) for finding in found)
        parts.append(f"### {_code(path)}\n\n| place | | rule | what is wrong | fix |\n|---|---|---|---|---|\n{rows}")
    if findings:
        parts.append("<details>\n<summary>Why, and what to do</summary>\n\n" + "\n\n".join(_reasons(findings)) + "\n\n</details>")
    return "\n\n".join(part for part in parts if part) + "\n"


def _row(finding: Finding, rules: Mapping[str, Entry], sources: Sources) -> str:
    entry = rules.get(finding.code)
    page = entry.url() if entry is not None else ""
    rule = f"[{finding.code}]({page}) {finding.name}" if page else f"{finding.code} {finding.name}"
    line = (sources.line(finding.location) or "").strip()
    what = _cell(finding.message) + (f"<br>{_code(line)}" if line else "")
    fix = _FIXES[finding.fix.applicability] if finding.fix is not None else ""
    return f"| {_cell(spot(finding))} | {finding.severity.value} | {rule} | {what} | {fix} |"


def _reasons(findings: Sequence[Finding]) -> list[str]:
    reasons = dict.fromkeys((finding.code, finding.name, finding.why, finding.help) for finding in findings if finding.why or finding.help)
    return [f"**{code} {name}**: {' '.join(text for text in (why, help_text) if text)}" for code, name, why, help_text in reasons]


def _cell(text: str) -> str:
    """Text that stays within its cell of a table; markup of the text itself is left as code is."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    """Text as code, whatever backticks and bars it holds."""
    longest = max((len(run) for run in "".join(c if c == "`" else " " for c in text).split()), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text.replace('|', chr(92) + '|')}{pad}{fence}"
