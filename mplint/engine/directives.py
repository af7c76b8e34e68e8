"""The comments that speak to mplint: what each suppresses and which lines it covers."""

from __future__ import annotations

import io
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from mplint.errors import closest
from mplint.python.document import Document
from mplint.python.suffixes import is_config

IGNORE, FILE_IGNORE, SKIP_FILE, NOQA = "ignore", "file-ignore", "skip-file", "noqa"

_MENTIONED = re.compile(r"mplint:|noqa(?!\s*:)|noqa\s*:[^\n]*(?:MP\d|[a-z]-[a-z])", re.I)
_DIRECTIVE = re.compile(
    r"#\s*(?:mplint:\s*(?P<kind>ignore|file-ignore|skip-file)(?![\w-])(?:\s*\[(?P<listed>[^\]#]*)\]|\s+(?P<bare>MP\d+(?:\s*,\s*MP\d+)*)\b)?"
    r"|(?P<noqa>noqa)(?![\w-])(?::\s*(?P<others>CODE(?:[,\s]+CODE)*)|(?!\s*:)))".replace(
        "CODE", r"(?:[a-z]+\d+|[a-z0-9]+(?:-[a-z0-9]+)+)\b"
    ),
    re.I,
)
# What looks like a suppression and is none: another word, or no colon.
_MEANT = re.compile(r"#\s*(?P<told>mplint\s*:?\s*(?P<word>[a-z]+(?:[-_ ][a-z]+)?))\s*\[[^\]#]*\]", re.I)
_NEXT_COMMENT = re.compile(r"(?<=\s)#(?=\s*[a-z])", re.I)
_ENTRY = re.compile(r"[^\s,]+")


class Entry(NamedTuple):
    """One code or name in a comment, as it is written, and its columns."""

    text: str
    start: int
    end: int


class Directive(NamedTuple):
    """One suppression. `entries` is None where it stands for every rule.

    `line`, `start` and `end` are its place in the program (with the reason that follows it);
    `alone` says that nothing else stands on its line; `first` to `last` are the lines it covers.
    """

    kind: str
    entries: tuple[Entry, ...] | None
    line: int
    start: int
    end: int
    alone: bool
    first: int
    last: int


class Misspelled(NamedTuple):
    """What stands before the codes of a comment that means to suppress and does not, and what it means to say."""

    text: str
    meant: str
    line: int
    start: int
    end: int


def mentions(text: str) -> bool:
    """Whether a program may hold comments that suppress findings."""
    if "mplint" not in text and "noqa" not in text and "NOQA" not in text:
        return False
    if not text.isascii():
        return _MENTIONED.search(text) is not None
    lowered = text.lower()  # looking for the words first takes a tenth of the time
    starts = (match.start() for match in re.finditer("noqa", lowered))
    return "mplint:" in lowered or _MEANT.search(text) is not None or any(_MENTIONED.match(text, start) is not None for start in starts)


def directives(document: Document) -> list[Directive]:
    """The suppressions in the real comments of a program, up to where it can be tokenized."""
    if not mentions(document.text):
        return []
    if document.path.endswith(".json"):
        return []  # JSON has no comments
    layout = _layout(document)
    return [directive for comment in layout.comments for directive in _read(comment, layout, document)]


def misspelled(document: Document) -> list[Misspelled]:
    """The comments that name rules in the form of a suppression and are none."""
    text = document.text
    if _MEANT.search(text) is None or document.path.endswith(".json"):
        return []
    layout = _layout(document)
    found = []
    for comment in layout.comments:
        for match in _MEANT.finditer(comment.text):
            meant = f"mplint: {closest(match['word'], (IGNORE, FILE_IGNORE, SKIP_FILE)) or ''}"
            if not _DIRECTIVE.match(comment.text, match.start()) and meant != "mplint: ":
                start = comment.column + match.start("told")
                found.append(Misspelled(match["told"], meant, comment.line, start, start + len(match["told"])))
    return found


class _Comment(NamedTuple):
    text: str
    line: int
    column: int


class _Layout:
    """Where the comments, the lines with code and the logical lines of a program are."""

    def __init__(self, text: str) -> None:
        import tokenize

        self.comments: list[_Comment] = []
        self.code_lines: list[int] = []
        self.logical_lines: list[tuple[int, int]] = []
        first = 0
        layout = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                line, end = token.start[0], token.end[0]
                if token.type == tokenize.COMMENT:
                    self.comments.append(_Comment(token.string, *token.start))
                elif token.type == tokenize.NEWLINE:
                    self.logical_lines.append((first or line, line))
                    first = 0
                elif token.type not in layout:
                    first = first or line
                    for covered in range(line, end + 1):
                        if not self.code_lines or self.code_lines[-1] < covered:
                            self.code_lines.append(covered)
        except (tokenize.TokenError, SyntaxError):
            pass  # what follows cannot be parsed either, so nothing is reported there

    def has_code(self, line: int) -> bool:
        at = bisect_left(self.code_lines, line)
        return at < len(self.code_lines) and self.code_lines[at] == line

    def next_code(self, line: int) -> int:
        at = bisect_left(self.code_lines, line + 1)
        return self.code_lines[at] if at < len(self.code_lines) else 0

    def logical(self, line: int) -> tuple[int, int]:
        """The first and last line of the logical line that a line belongs to."""
        at = bisect_left(self.logical_lines, line, key=_last)
        if at < len(self.logical_lines) and self.logical_lines[at][0] <= line:
            return self.logical_lines[at]
        return line, line


class _YamlLayout(_Layout):
    """The same of a YAML text, in which every line stands for itself."""

    def __init__(self, text: str) -> None:
        from mplint.configs.yaml_text import comments_of

        comments, self.code_lines = comments_of(text)
        self.comments = [_Comment(*comment) for comment in comments]
        self.logical_lines = []


class _RLayout(_Layout):
    """The same of a program in R."""

    def __init__(self, text: str) -> None:
        from mplint.python.r.layout import layout_of

        comments, self.code_lines, self.logical_lines = layout_of(text)
        self.comments = [_Comment(*comment) for comment in comments]


def _layout(document: Document) -> _Layout:
    """The layout of a text in its language."""
    if is_config(document.path):
        return _YamlLayout(document.text)
    return _RLayout(document.text) if document.language == "r" else _Layout(document.text)


def _last(lines: tuple[int, int]) -> int:
    return lines[1]


def _read(comment: _Comment, layout: _Layout, document: Document) -> Iterator[Directive]:
    for match in _DIRECTIVE.finditer(comment.text):
        group = next((name for name in ("listed", "bare", "others") if match[name] is not None), None)
        entries = None
        if group:
            offset = comment.column + match.start(group)
            found = _ENTRY.finditer(match[group])
            entries = tuple(Entry(entry[0], offset + entry.start(), offset + entry.end()) for entry in found)
        kind = NOQA if match["noqa"] else match["kind"].lower()
        alone = not layout.has_code(comment.line)
        following = _NEXT_COMMENT.search(comment.text, match.end())
        end = comment.column + (following.start() if following else len(comment.text.rstrip()))
        first, last = _covered(comment.line, kind, alone, layout, document)
        yield Directive(kind, entries, comment.line, comment.column + match.start(), end, alone, first, last)


def _covered(line: int, kind: str, alone: bool, layout: _Layout, document: Document) -> tuple[int, int]:
    """On the first or last line of a statement a comment covers all of it, alone on a line the code that follows in its cell."""
    target = line
    if alone:
        target = layout.next_code(line) if kind != NOQA else 0
        if not target or document.cell_at(target) != document.cell_at(line):
            return line, line
    first, last = layout.logical(target)
    whole = line < first if alone else line in (first, last)
    return (first, last) if whole else (target, target)
