"""Counts over findings, and how reports write counts and places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import Applicability, Finding, Location, Severity

if TYPE_CHECKING:
    from mplint.report.style import Style


class Summary(NamedTuple):
    """How many files were checked, how many findings of each severity there are, and how many `fix` can mend."""

    files: int
    errors: int
    warnings: int
    infos: int
    safe: int
    unsafe: int

    @property
    def fixable(self) -> int:
        """Findings with a fix that `mplint fix` can apply."""
        return self.safe + self.unsafe


def summarize(findings: Sequence[Finding], files: int) -> Summary:
    """Count `findings` of `files` checked files."""
    severities = [finding.severity for finding in findings]
    fixes = [finding.fix.applicability for finding in findings if finding.fix is not None]
    return Summary(
        files,
        severities.count(Severity.ERROR),
        severities.count(Severity.WARNING),
        severities.count(Severity.INFO),
        fixes.count(Applicability.SAFE),
        fixes.count(Applicability.UNSAFE),
    )


def statistics(findings: Sequence[Finding]) -> str:
    """One line a rule: how often, its code, its name, and whether `fix` can mend some; the most frequent first."""
    counts: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        counts.setdefault((finding.code, finding.name), []).append(finding)
    width = max((len(str(len(found))) for found in counts.values()), default=0)
    name_width = max((len(name) for _, name in counts), default=0)
    lines = []
    for (code, name), found in sorted(counts.items(), key=lambda item: (-len(item[1]), item[0])):
        fixable = summarize(found, 0).fixable
        lines.append(f"{len(found):>{width}}  {code}  {name:<{name_width}}  {f'{fixable} fixable' if fixable else ''}".rstrip())
    return "".join(f"{line}\n" for line in lines)


def page_of(finding: Finding) -> str:
    """The address of the page of a finding's rule, "" for the rule of a plugin, whose page only the plugin knows."""
    from mplint.catalog import catalog

    rule = catalog().get(finding.code)
    return rule.url() if rule is not None else ""


class LeftOut(NamedTuple):
    """What is not shown: how many findings the baseline holds, and how many are older than the change that was checked.

    `unjudged` pairs paths of models with what could not be judged in them.
    """

    known: int = 0
    older: int = 0
    unjudged: Sequence[tuple[str, str]] = ()

    def __str__(self) -> str:
        known = f"; {self.known} known {'one is' if self.known == 1 else 'ones are'} in the baseline" if self.known else ""
        return known + (f"; {self.older} {'was' if self.older == 1 else 'were'} there before the change" if self.older else "")


SHOWN = LeftOut()


def summary_text(findings: Sequence[Finding], files: int, style: Style, left_out: LeftOut = SHOWN) -> str:
    """How many findings there are beside those left out, how many of them `fix` can mend, where to read more, what could not be judged."""
    left = unjudged_text(left_out.unjudged, style)
    if not findings:
        if not files and left_out.unjudged:
            return f"Nothing was checked: {counted(len({path for path, _ in left_out.unjudged}), 'file')} could not be judged.\n{left}"
        if not files:
            return "Nothing to check: no Python files, notebooks or models found.\n" + left
        where = "what could be judged of " if left_out.unjudged else ""
        new = "new " if left_out.known or left_out.older else ""
        clean = style.wrap(f"No {new}mixed-precision mistakes found in {where}{counted(files, 'file')}{left_out}.")
        return "".join(f"{line}\n" for line in clean) + left
    summary = summarize(findings, files)
    kinds = [
        style.paint(counted(number, kind), kind)
        for number, kind in ((summary.errors, "error"), (summary.warnings, "warning"), (summary.infos, "info"))
        if number
    ]
    affected = len({finding.location.path for finding in findings})
    where = counted(files, "file") if affected == files else f"{affected} of {counted(files, 'file')}"
    lines = [f"Found {_listed(kinds)} in {where}{left_out}."]
    if summary.safe:
        more = f", {summary.unsafe} more with `--unsafe-fixes`" if summary.unsafe else ""
        lines.append(f"{summary.safe} can be fixed by `mplint fix --apply`{more}; without `--apply` it shows a diff.")
    elif summary.unsafe:
        lines.append(f"{summary.unsafe} can be fixed by `mplint fix --apply --unsafe-fixes`; without `--apply` it shows a diff.")
    lines.append(f"`mplint explain {findings[0].code}` tells more; so it does for every code and name above.")
    return "".join(f"{line}\n" for part in lines for line in style.wrap(part)) + left


def unjudged_text(unjudged: Sequence[tuple[str, str]], style: Style) -> str:
    """What could not be judged, the same reason once for all the files that it holds for."""
    paths: dict[str, list[str]] = {}
    for path, reason in unjudged:
        paths.setdefault(reason, []).append(path)
    lines = ["Not judged:"] if paths else []
    for reason, found in paths.items():
        more = f" and {counted(len(found) - 1, 'other')}" if len(found) > 1 else ""
        lines += style.wrap(f"{found[0]}{more}: {reason}", "  ", "  ")
    return "".join(f"{line}\n" for line in lines)


def place(location: Location) -> str:
    """`path:line:column` as editors and terminals link it; in a notebook `path:cell 3:line:column`, cells counted from 0 as in JSON."""
    return ":".join((location.path, *_position(location)))


def spot(finding: Finding) -> str:
    """Where in its file a finding is: `line:column`, a cell's as `cell 3:line:column`, or the node."""
    return ":".join(_position(finding.location)) or finding.node or "the file"


def _position(location: Location) -> list[str]:
    parts = []
    if location.cell is not None:
        parts.append(f"cell {location.cell}")
    if location.line is not None:
        parts.append(str(location.line))
        if location.column is not None:
            parts.append(str(location.column))
    return parts


def counted(number: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed(items: Sequence[str]) -> str:
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last
