"""The report for people: what is wrong, where, why it matters, what to do, and whether `fix` can do it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mplint.findings import Applicability, Finding
from mplint.report.snippet import snippet
from mplint.report.sources import Sources
from mplint.report.style import Style
from mplint.report.summary import SHOWN, LeftOut, counted, page_of, spot, summary_text

_HOW = {
    Applicability.SAFE: "`mplint fix --apply` does it",
    Applicability.UNSAFE: "`mplint fix --apply --unsafe-fixes` does it; review the result",
    Applicability.DISPLAY: "to be done by hand",
}
_NAMED = 4  # messages of the like that a block names; the places of more are only counted
_PLACES = 8


class Block(NamedTuple):
    """What a report shows at once: a finding, and those like it in the same file that need no block of their own."""

    finding: Finding
    like: tuple[Finding, ...] = ()


def text_report(findings: Sequence[Finding], files: int, sources: Sources, style: Style, left_out: LeftOut = SHOWN) -> str:
    """One block for one mistake, explained once, then a summary that counts those left out, too."""
    return listed(findings, sources, style) + summary_text(findings, files, style, left_out)


def full_report(findings: Sequence[Finding], files: int, sources: Sources, style: Style, left_out: LeftOut = SHOWN) -> str:
    """Every finding with its source lines and everything that there is to say of it, then a summary."""
    parts = ["\n".join(describe(finding, sources, style)) + "\n\n" for finding in findings]
    return "".join(parts) + summary_text(findings, files, style, left_out)


def listed(findings: Sequence[Finding], sources: Sources, style: Style) -> str:
    """One block for one mistake; what is said of several stands at the first."""
    explained: set[tuple[str, str, str]] = set()
    parts = []
    for finding, like in blocks(findings):
        reasons = (finding.code, finding.why, finding.help)
        parts.append("\n".join(describe(finding, sources, style, like, explain=reasons not in explained)) + "\n\n")
        explained.add(reasons)
    return "".join(parts)


def blocks(findings: Sequence[Finding]) -> list[Block]:
    """Findings as blocks, in order: those of one rule in one file share one where they have the same reasons, or safe fixes.

    A finding that other places explain keeps a block of its own.
    """
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for number, finding in enumerate(findings):
        how = finding.fix.applicability if finding.fix is not None else None
        reasons = (finding.why, finding.help) if how is not Applicability.SAFE else None
        apart = number if finding.related else None
        kind = (finding.code, finding.location.path, finding.severity, finding.evidence, how, reasons, apart)
        groups.setdefault(kind, []).append(finding)
    return [Block(first, tuple(like)) for first, *like in groups.values()]


def describe(finding: Finding, sources: Sources, style: Style, like: Sequence[Finding] = (), *, explain: bool = True) -> list[str]:
    """The lines about one finding, and about others `like` it; without `explain` the reasons stand elsewhere in the report."""
    severity = finding.severity.value
    title, *rest = style.wrap(f"{severity}[{finding.code}] {finding.name}: {finding.message}", rest="    ")
    head = f"{severity}[{finding.code}]"
    mark = style.link(style.paint(head, severity), page_of(finding))
    lines = [mark + style.paint(title[len(head) :], "bold"), *(style.paint(line, "bold") for line in rest)]
    shown, gutter = snippet(finding, sources, style)
    lines += shown
    for name, note in _notes(finding, like, explain):
        if note:
            first = f"{'':{gutter}} = {name}: "
            for number, line in enumerate(style.wrap(note, first, " " * len(first))):
                begin = (
                    style.paint(line[: gutter + 2], "gutter")
                    + style.paint(line[gutter + 2 : len(first) - 1], "bold")
                    + line[len(first) - 1 :]
                )
                lines.append(begin if number == 0 else line)
    return lines


def _notes(finding: Finding, like: Sequence[Finding], explain: bool) -> Iterator[tuple[str, str]]:
    if finding.node is not None:
        yield "node", finding.node
    if explain:
        yield "why", finding.why
        yield "help", finding.help
    if finding.fix is not None:
        yield "fix", f"{finding.fix.title.rstrip('.')}; {_HOW[finding.fix.applicability]}"
    yield from (("also", also) for also in _also(like))


def _also(like: Sequence[Finding]) -> Iterator[str]:
    """The places of findings that are like another, by message."""
    places: dict[str, list[str]] = {}
    for finding in like:
        places.setdefault(finding.message, []).append(spot(finding))
    messages = list(places)
    for message in messages[:_NAMED]:
        at = places[message]
        more = f" and {len(at) - _PLACES} more" if len(at) > _PLACES else ""
        yield f"{', '.join(at[:_PLACES])}{more}: {message}"
    rest = sum(len(places[message]) for message in messages[_NAMED:])
    if rest:
        yield f"{counted(rest, 'more place')} of this file; `--output-format full` shows each"
