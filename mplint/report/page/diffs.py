"""Changes of programs as the lines of a diff."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from markupsafe import Markup

from mplint.findings import Edit
from mplint.report.page.code import painted
from mplint.report.page.units import counted
from mplint.rewrite.errors import FixError
from mplint.rewrite.splices import splice, splices

CONTEXT = 3
WORDS_FROM = 0.5  # how much alike two lines are of which only the difference is marked


class DiffLine(NamedTuple):
    """A line of a diff: `kind` is "same", "gone", "new" or "skip" (what is left out between)."""

    kind: str
    old: int | None
    new: int | None
    html: Markup


def fix_lines(path: str, before: Sequence[str], edits: Iterable[Edit]) -> list[DiffLine]:
    """What the edits of one file or cell change in its lines; nothing where they do not fit."""
    text = "\n".join(before)
    try:
        after = splice(text, splices(path, text, edits))
    except FixError:
        return []
    return diff_lines(before, after.split("\n"), context=1)


def diff_lines(before: Sequence[str], after: Sequence[str], *, context: int = CONTEXT) -> list[DiffLine]:
    """A unified diff."""
    found: list[DiffLine] = []
    shown = 0
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(context):
        first = group[0][1]
        if first > shown:
            found.append(DiffLine("skip", None, None, unchanged(first - shown)))
        for kind, old, old_end, new, new_end in group:
            if kind == "equal":
                pairs = zip(range(old, old_end), range(new, new_end), strict=True)
                found += [DiffLine("same", one + 1, other + 1, painted(before[one])) for one, other in pairs]
            else:
                found += _changed(before, after, range(old, old_end), range(new, new_end))
            shown = old_end
    if found and shown < len(before):
        found.append(DiffLine("skip", None, None, unchanged(len(before) - shown)))
    return found


def unchanged(count: int) -> Markup:
    """What stands for lines that are left out."""
    return Markup("{}").format(counted(count, "unchanged line"))


def _changed(before: Sequence[str], after: Sequence[str], gone: range, new: range) -> list[DiffLine]:
    marks: dict[tuple[bool, int], tuple[int, int]] = {}
    if len(gone) == len(new):
        for one, other in zip(gone, new, strict=True):
            if SequenceMatcher(None, before[one], after[other], autojunk=False).ratio() >= WORDS_FROM:
                marks[False, one], marks[True, other] = _differing(before[one], after[other])
    return [DiffLine("gone", at + 1, None, painted(before[at], mark=marks.get((False, at)))) for at in gone] + [
        DiffLine("new", None, at + 1, painted(after[at], mark=marks.get((True, at)))) for at in new
    ]


def _differing(one: str, other: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """The parts between what two lines begin with and what they end with alike."""
    least = min(len(one), len(other))
    head = next((at for at in range(least) if one[at] != other[at]), least)
    tail = next((at for at in range(least - head) if one[-1 - at] != other[-1 - at]), least - head)
    return (head, len(one) - tail), (head, len(other) - tail)
