"""Suppressions: drop what a comment asks to drop, and report comments that drop nothing (MP002)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from mplint.engine.builtin_rules import UnreadableInput, UnusedSuppression, unused
from mplint.engine.directives import FILE_IGNORE, NOQA, SKIP_FILE, Directive, Entry, Misspelled, directives, misspelled
from mplint.errors import closest, nearest
from mplint.findings import Applicability, Finding, Fix, Replace, Span
from mplint.python.document import Document


def suppress(
    document: Document, findings: Iterable[Finding], enabled_codes: Collection[str], known_rules: Mapping[str, str]
) -> list[Finding]:
    """The findings that no comment suppresses, and an MP002 for each comment that suppresses nothing, in report order.

    `findings` are all findings of the document, those of low confidence included; `enabled_codes` are the
    rules that could have reported here; `known_rules` gives the name of every rule by code.
    """
    given = list(findings)
    comments = directives(document)
    if any(comment.kind == SKIP_FILE for comment in comments):
        return []
    if UnusedSuppression.code in enabled_codes:
        given += [_misspelled(comment, document) for comment in misspelled(document)]
    if not comments:
        return sorted(given, key=_order)
    rules = _Rules(known_rules)
    used: dict[Directive, set[str]] = {comment: set() for comment in comments}
    kept = [finding for finding in given if not _suppressed(finding, document, used, rules)]
    unchecked = any(finding.code == UnreadableInput.code and finding.location.cell is None for finding in given)
    if UnusedSuppression.code in enabled_codes and not unchecked:
        reports = [report for comment in comments for report in _unused(comment, document, used[comment], enabled_codes, rules)]
        kept += [report for report in reports if not _suppressed(report, document, used, rules, by_name=True)]
    return sorted(kept, key=_order)


class _Rules:
    """Codes by what a comment may call them."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.codes = {code.upper(): code for code in names} | {name.upper(): code for code, name in names.items()}

    def code(self, entry: Entry) -> str | None:
        return self.codes.get(entry.text.upper())


def _suppressed(finding: Finding, document: Document, used: dict[Directive, set[str]], rules: _Rules, *, by_name: bool = False) -> bool:
    """Whether a comment drops `finding`, noting each one that does; `by_name`: only one that names its rule."""
    span = document.span(finding.location)
    found = False
    for comment, codes in used.items():
        covers = comment.kind == FILE_IGNORE or (span is not None and _covers(comment, span.line))
        named = comment.entries is not None and any(rules.code(entry) == finding.code for entry in comment.entries)
        if covers and (named or (comment.entries is None and not by_name)):
            codes.add(finding.code)
            found = True
    return found


def _covers(comment: Directive, line: int) -> bool:
    return comment.first <= line <= comment.last or line == comment.line


def _unused(comment: Directive, document: Document, used: set[str], enabled: Collection[str], rules: _Rules) -> list[Finding]:
    """The MP002s of one comment: one for the codes that suppress nothing, one for each code that does not exist."""
    if not comment.entries:
        everything = set(rules.names) <= set(enabled)
        if used or comment.kind == NOQA or (comment.entries is None and not everything):
            return []
        location = document.location(Span(comment.line, comment.start, comment.line, comment.end))
        return [unused(location, "this comment suppresses nothing", "remove the comment", _removal(comment, (), document))]
    reports = []
    idle = []
    for entry in comment.entries:
        code = rules.code(entry)
        if code is None and comment.kind != NOQA:
            reports.append(_unknown(comment, entry, document, rules))
        elif code is not None and code in enabled and code not in used and code != UnusedSuppression.code:
            idle.append(entry)
    if idle:
        first, last = idle[0], idle[-1]
        location = document.location(Span(comment.line, first.start, comment.line, last.end))
        names = " or ".join(dict.fromkeys(entry.text for entry in idle))
        kept = tuple(entry for entry in comment.entries if entry not in idle)
        where = "file" if comment.kind == FILE_IGNORE else "place"
        help = f"remove {names} from the comment" if kept else "remove the comment"
        message = f"this comment suppresses nothing: {names} is not reported in this {where}"
        reports.append(unused(location, message, help, _removal(comment, kept, document)))
    return reports


def _unknown(comment: Directive, entry: Entry, document: Document, rules: _Rules) -> Finding:
    span = Span(comment.line, entry.start, comment.line, entry.end)
    candidates = [*rules.names, *rules.names.values()]
    found = closest(entry.text, candidates)
    message = f'there is no rule "{entry.text}", so this suppresses nothing{nearest(entry.text, candidates)}'
    if found:
        fix = Fix(f"Replace {entry.text} by {found}", Applicability.UNSAFE, (Replace(span, found),))
        return unused(document.location(span), message, f"write {found}, or remove it", fix)
    kept = tuple(other for other in comment.entries or () if other is not entry)
    return unused(document.location(span), message, f"remove {entry.text}", _removal(comment, kept, document))


def _misspelled(comment: Misspelled, document: Document) -> Finding:
    span = Span(comment.line, comment.start, comment.line, comment.end)
    fix = Fix(f"Write `{comment.meant}`", Applicability.UNSAFE, (Replace(span, comment.meant),))
    message = f'"{comment.text}" is no suppression, so this suppresses nothing; did you mean "{comment.meant}"?'
    return unused(document.location(span), message, f"write `# {comment.meant}[…]`", fix)


def _removal(comment: Directive, kept: tuple[Entry, ...], document: Document) -> Fix:
    """A safe fix that leaves only the codes `kept` in the comment, or nothing of it."""
    if kept and comment.entries:
        span = Span(comment.line, comment.entries[0].start, comment.line, comment.entries[-1].end)
        change = Replace(span, ", ".join(entry.text for entry in kept))
        return Fix("Remove the codes that suppress nothing", Applicability.SAFE, (change,))
    return Fix("Remove the comment that suppresses nothing", Applicability.SAFE, (Replace(_extent(comment, document), ""),))


def _extent(comment: Directive, document: Document) -> Span:
    """What goes with a comment: the spaces before it, or its whole line where nothing else stands there."""
    lines = document.text.split("\n")
    line = lines[comment.line - 1]
    before = line[: comment.start].rstrip()
    if before or line[comment.end :].strip():
        start = comment.start if line[comment.end :].strip() else len(before)
        return Span(comment.line, start, comment.line, comment.end)
    if comment.line < len(lines) and all(cell.first_line != comment.line + 2 for cell in document.cells):
        return Span(comment.line, 0, comment.line + 1, 0)
    if comment.line > 1 and all(cell.first_line != comment.line for cell in document.cells):
        return Span(comment.line - 1, len(lines[comment.line - 2]), comment.line, len(line))
    return Span(comment.line, 0, comment.line, len(line))


def _order(finding: Finding) -> tuple[str, int, int, int, str, str, str]:
    return finding.sort_key
