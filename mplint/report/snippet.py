"""Source lines with a gutter, underlined where a finding points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mplint.findings import Finding, Location
from mplint.report.sources import Sources
from mplint.report.style import Style, display_units
from mplint.report.summary import place

LONGEST_LINE = 1000  # of a longer line only the surroundings of the first mark are looked at
LONGEST_SPAN = 4  # a finding over more lines than this is underlined on its first line only


class Mark(NamedTuple):
    """Something to underline on one line: character columns from 0, and what to write beside it."""

    line: int
    start: int
    end: int
    kind: str
    label: str = ""


def snippet(finding: Finding, sources: Sources, style: Style) -> tuple[list[str], int]:
    """The lines that show where a finding is, its related places after it, and the width of the gutter."""
    groups = _groups(finding, sources)
    shown = [mark.line for _, _, marks in groups for mark in marks]
    gutter = max((len(str(line)) for line in shown), default=1)
    bar = style.paint(f"{'':{gutter}} |", "gutter")
    lines: list[str] = []
    for number, (location, note, marks) in enumerate(groups):
        arrow = style.paint(f"{'':{gutter}}{'-->' if number == 0 else ':::'}", "gutter")
        lines.append(f"{arrow} {style.file_link(place(location), location.path)}{note and f': {note}'}")
        if marks:
            lines += [bar, *_excerpt(marks, sources.lines(location.path, location.cell), gutter, style), bar]
    return lines, gutter


def _groups(finding: Finding, sources: Sources) -> list[tuple[Location, str, list[Mark]]]:
    """The places to show: one entry a file or cell, with its marks; a place without source lines keeps its message as a note."""
    groups: dict[tuple[str, int | None], tuple[Location, str, list[Mark]]] = {}
    bare: list[tuple[Location, str, list[Mark]]] = []
    severity = finding.severity.value
    for location, label, kind in [(finding.location, "", severity), *((r.location, r.message, "related") for r in finding.related)]:
        marks = _marks(location, label, kind, sources)
        if not marks:
            bare.append((location, label, []))
        else:
            groups.setdefault((location.path, location.cell), (location, "", []))[2].extend(marks)
    return sorted([*groups.values(), *bare], key=lambda group: group[0] != finding.location)


def _marks(location: Location, label: str, kind: str, sources: Sources) -> list[Mark]:
    lines = sources.lines(location.path, location.cell)
    first = location.line
    if first is None or not 0 < first <= len(lines):
        return []
    last = min(location.end_line or first, len(lines))
    if last - first >= LONGEST_SPAN:
        last = first
    marks = []
    for line in range(first, last + 1):
        text = lines[line - 1]
        start = location.column - 1 if line == first and location.column is not None else len(text) - len(text.lstrip())
        ends_here = line == location.end_line and location.end_column is not None
        end = location.end_column - 1 if ends_here and location.end_column is not None else len(text.rstrip())
        start = min(start, len(text))
        if end > start or line == first:
            marks.append(Mark(line, start, max(end, start + 1), kind))
    marks[-1] = marks[-1]._replace(label=label)
    return marks


def _excerpt(marks: Sequence[Mark], source: Sequence[str], gutter: int, style: Style) -> list[str]:
    lines: list[str] = []
    previous = 0
    for line in sorted({mark.line for mark in marks}):
        if previous and line == previous + 2:
            lines += _annotated(previous + 1, [], source, gutter, style)
        elif previous and line > previous + 2:
            lines.append(style.paint("...", "gutter"))
        lines += _annotated(line, [mark for mark in marks if mark.line == line], source, gutter, style)
        previous = line
    return lines


def _annotated(line: int, marks: Sequence[Mark], source: Sequence[str], gutter: int, style: Style) -> list[str]:
    text = source[line - 1].rstrip()
    if len(text) > LONGEST_LINE:
        cut = max(0, marks[0].start - LONGEST_LINE // 2) if marks else 0
        text = text[cut : cut + LONGEST_LINE]
        marks = [
            mark._replace(start=max(mark.start - cut, 0), end=max(mark.end - cut, 0)) for mark in marks if mark.start - cut <= LONGEST_LINE
        ]
    units = display_units(text)
    offsets = [0]
    for _, width in units:
        offsets.append(offsets[-1] + width)
    first, last, before, after = _window(offsets, marks, style.width - gutter - 3)
    text = before + "".join(char for char, _ in units[first:last]) + after
    lines = [f"{style.paint(f'{line:>{gutter}} |', 'gutter')} {text}".rstrip()]
    bar = style.paint(f"{'':{gutter}} |", "gutter")
    for mark in marks:
        start = min(max(mark.start, first), last)
        end = min(max(mark.end, start), last)
        at = offsets[start] - offsets[first] + len(before)
        line_of = "-" if mark.kind == "related" else "^"
        underline = line_of * max(1, offsets[end] - offsets[start])
        lines += _labelled(bar, at, underline, mark, gutter, style)
    return lines


def _labelled(bar: str, at: int, underline: str, mark: Mark, gutter: int, style: Style) -> list[str]:
    """The underline with its label beside it where there is room, else on the lines below."""
    drawn = f"{bar} {'':{at}}{style.paint(underline, mark.kind)}"
    room = style.width - gutter - 3 - at - len(underline) - 1
    if not mark.label or len(mark.label) <= room:
        return [f"{drawn} {style.paint(mark.label, mark.kind)}".rstrip()]
    indent = min(at, max(0, style.width - gutter - 3 - min(len(mark.label), 40)))
    wrapped = Style(width=style.width - gutter - 3 - indent).wrap(mark.label)
    return [drawn, *(f"{bar} {'':{indent}}{style.paint(text, mark.kind)}" for text in wrapped)]


def _window(offsets: Sequence[int], marks: Sequence[Mark], room: int) -> tuple[int, int, str, str]:
    """The characters of a long line to show, around its first mark, and what stands for the rest on each side."""
    count = len(offsets) - 1
    if offsets[-1] <= room:
        return 0, count, "", ""
    start = min(marks[0].start, count) if marks else 0
    end = min(marks[0].end, count) if marks else 0
    first = 0
    if offsets[end] > room - 3:
        context = max(4, (room - 6 - (offsets[end] - offsets[start])) // 2)
        first = next(i for i in range(count + 1) if offsets[i] >= min(offsets[start] - context, offsets[-1] - room + 3))
    before = "..." if first > 0 else ""
    fits = [i for i in range(first, count + 1) if offsets[i] - offsets[first] <= room - len(before)]
    last = fits[-1]
    if last == count:
        return first, count, before, ""
    last = max([i for i in fits if offsets[i] - offsets[first] <= room - len(before) - 3], default=first)
    return first, last, before, "..."
