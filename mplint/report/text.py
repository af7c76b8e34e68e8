"""The report for people: what is wrong, where, why it matters, what to do, and whether `fix` can do it."""

from __future__ import annotations

from collections.abc import Sequence

from mplint.findings import Applicability, Finding
from mplint.report.snippet import snippet
from mplint.report.sources import Sources
from mplint.report.style import Style
from mplint.report.summary import SHOWN, LeftOut, summary_text

_HOW = {
    Applicability.SAFE: "`mplint fix --apply` does it",
    Applicability.UNSAFE: "`mplint fix --apply --unsafe-fixes` does it; review the result",
    Applicability.DISPLAY: "to be done by hand",
}


def text_report(findings: Sequence[Finding], files: int, sources: Sources, style: Style, left_out: LeftOut = SHOWN) -> str:
    """Every finding with its source lines, then a summary that counts those left out, too."""
    parts = ["\n".join(describe(finding, sources, style)) + "\n\n" for finding in findings]
    return "".join(parts) + summary_text(findings, files, style, left_out)


def describe(finding: Finding, sources: Sources, style: Style) -> list[str]:
    """The lines about one finding."""
    severity = finding.severity.value
    title, *rest = style.wrap(f"{severity}[{finding.code}] {finding.name}: {finding.message}", rest="    ")
    head = f"{severity}[{finding.code}]"
    lines = [style.paint(head, severity) + style.paint(title[len(head) :], "bold"), *(style.paint(line, "bold") for line in rest)]
    shown, gutter = snippet(finding, sources, style)
    lines += shown
    notes = [("why", finding.why), ("help", finding.help)]
    if finding.node is not None:
        notes.insert(0, ("node", finding.node))
    if finding.fix is not None:
        notes.append(("fix", f"{finding.fix.title.rstrip('.')}; {_HOW[finding.fix.applicability]}"))
    for name, note in notes:
        if note:
            first = f"{'':{gutter}} = {name}: "
            for number, line in enumerate(style.wrap(note, first, " " * len(first))):
                mark = (
                    style.paint(line[: gutter + 2], "gutter")
                    + style.paint(line[gutter + 2 : len(first) - 1], "bold")
                    + line[len(first) - 1 :]
                )
                lines.append(mark if number == 0 else line)
    return lines
