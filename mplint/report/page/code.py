"""Source lines as HTML: colored by what their tokens are, marked where a finding points."""

from __future__ import annotations

import io
import keyword
import token
import tokenize
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple

from markupsafe import Markup, escape

from mplint.findings import Location
from mplint.report.page.units import counted

AROUND = 2  # lines before and after
LONGEST_LINE = 400  # characters; of a longer line the surroundings of its mark are shown
LONGEST_SPAN = 8  # lines; of a longer place the first is shown
_KINDS = {token.COMMENT: "c", token.STRING: "s", token.NUMBER: "n"}
_STRINGS = frozenset(number for number, name in token.tok_name.items() if name.startswith(("FSTRING", "TSTRING")))
_BROKEN = (tokenize.TokenError, SyntaxError, IndentationError, ValueError)

Colors = dict[int, list[tuple[int, int, str]]]  # by line, from 1: from which column up to which, and the class


class Line(NamedTuple):
    """A line to show: its number, None where lines are left out, its HTML, and whether something is marked on it."""

    number: int | None
    html: Markup
    marked: bool = False


class Excerpt(NamedTuple):
    """Lines of one file or cell."""

    lines: tuple[Line, ...]


def excerpt(location: Location, lines: Sequence[str], *, around: int = AROUND) -> Excerpt | None:
    """The lines of a place and those around it; None where there are none."""
    first = location.line
    if first is None or not 0 < first <= len(lines):
        return None
    last = min(location.end_line or first, len(lines))
    shown = last if last - first < LONGEST_SPAN else first
    colors = _colors(tuple(lines)) if location.path.endswith((".py", ".pyi", ".pyw", ".ipynb")) else {}
    cut = len(lines[first - 1]) - len(lines[first - 1].lstrip()) if not around and last == first else 0  # alone, it needs no indentation
    found = []
    for number in range(max(1, first - around), min(len(lines), shown + around if shown == last else shown) + 1):
        text = lines[number - 1].rstrip("\n")
        inside = first <= number <= shown
        mark = _marked(text, location, number) if inside else None
        found.append(Line(number, painted(text, colors.get(number, ()), mark, cut), inside))
    if shown < last:
        found.append(Line(None, Markup("… and {}").format(counted(last - shown, "more line"))))
    return Excerpt(tuple(found))


def _marked(text: str, location: Location, number: int) -> tuple[int, int]:
    """From which column up to which a line is marked."""
    blank = len(text) - len(text.lstrip())
    start = location.column - 1 if number == location.line and location.column is not None else blank
    ends = number == location.end_line and location.end_column is not None
    end = location.end_column - 1 if ends and location.end_column is not None else len(text.rstrip())
    start = min(max(start, 0), len(text))
    return start, min(max(end, start), len(text))


def painted(text: str, colors: Sequence[tuple[int, int, str]] = (), mark: tuple[int, int] | None = None, cut: int = 0) -> Markup:
    """A line in colors, with a mark from one column up to another, without the first `cut` columns."""
    first, last = cut, len(text)
    if len(text) > LONGEST_LINE:
        first = max(cut, (mark[0] if mark else 0) - LONGEST_LINE // 4)
        last = min(len(text), first + LONGEST_LINE)
    cuts = {first, last, *(cut for start, end, _ in colors for cut in (start, end)), *(mark or ())}
    ordered = sorted(cut for cut in cuts if first <= cut <= last)
    pieces = []
    for start, end in pairwise(ordered):
        kind = next((kind for low, high, kind in colors if low <= start < high), "")
        piece = escape(text[start:end])
        inside = mark is not None and mark[0] <= start < mark[1]
        pieces.append((inside, Markup('<span class="{}">{}</span>').format(kind, piece) if kind else piece))
    html = Markup("").join(
        Markup("<mark>{}</mark>").format(Markup("").join(part for _, part in group)) if inside else Markup("").join(p for _, p in group)
        for inside, group in groupby(pieces, key=lambda piece: piece[0])
    )
    return Markup("{}{}{}").format("…" if first > cut else "", html, "…" if last < len(text) else "")


@lru_cache(maxsize=16)
def _colors(lines: tuple[str, ...]) -> Colors:
    found: Colors = {}
    text = "\n".join(lines)
    try:
        for number, start, end, kind in _tokens(text):
            found.setdefault(number, []).append((start, end, kind))
    except _BROKEN:
        pass  # what comes after the fault stays black
    return found


def _tokens(text: str) -> Iterator[tuple[int, int, int, str]]:
    for found in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = "s" if found.type in _STRINGS else _KINDS.get(found.type, "")
        if found.type == token.NAME and keyword.iskeyword(found.string):
            kind = "k"
        if not kind:
            continue
        (first, start), (last, end) = found.start, found.end
        for number in range(first, last + 1):
            yield number, start if number == first else 0, end if number == last else 1 << 30, kind
