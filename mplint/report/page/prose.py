"""Texts of rules and messages as HTML: code in backticks, and the Markdown that documentation is written in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from markupsafe import Markup, escape

_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_SPANS = re.compile(
    r"(?P<ticks>`+)(?P<code>.+?)(?P=ticks)|\[(?P<label>[^\]]+)\]\((?P<link>https://[^)\s]+)\)|<(?P<bare>https://[^>\s]+)>|\*\*(?P<bold>[^*]+)\*\*"
)
_BULLET = re.compile(r"\s*(?:[-*]|\d+\.)\s+")
_BAR = re.compile(r"[\s|:-]+")


def code_spans(text: str) -> Markup:
    """A sentence, what stands in backticks set as code."""
    parts = _CODE.split(text)  # text, ticks, code, text, …
    pieces = [Markup("<code>{}</code>").format(part) if at % 3 == 2 else escape(part) for at, part in enumerate(parts) if at % 3 != 1]
    return Markup("").join(pieces)


def markdown(text: str) -> Markup:
    """Documentation: headings, paragraphs, lists, tables and code."""
    return Markup("\n").join(_blocks(text.split("\n")))


def _blocks(lines: list[str]) -> Iterator[Markup]:
    code = False
    kinds = []
    for line in lines:
        fence = line.lstrip().startswith("```")
        code = code is not fence
        kinds.append("fence" if fence else "code" if code else _kind(line))
    for at in range(1, len(lines)):  # an indented line goes on with the item above it
        if kinds[at] == "text" and kinds[at - 1] == "list" and lines[at].startswith(" "):
            kinds[at] = "list"
    for kind, group in groupby(zip(kinds, lines, strict=True), key=lambda pair: pair[0]):
        yield from _block(kind, [line for _, line in group])


def _kind(line: str) -> str:
    if not line.strip():
        return "blank"
    if line.startswith("#"):
        return "heading"
    return "table" if line.lstrip().startswith("|") else "list" if _BULLET.match(line) else "text"


def _block(kind: str, lines: list[str]) -> Iterator[Markup]:
    match kind:
        case "code":
            yield Markup("<pre><code>{}</code></pre>").format("\n".join(lines))
        case "heading":
            yield from (Markup("<h5>{}</h5>").format(line.lstrip("#").strip()) for line in lines)
        case "list":
            items = "\n".join(f"\0{_BULLET.sub('', line, count=1)}" if _BULLET.match(line) else line for line in lines).split("\0")
            yield Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(_spans(item)) for item in items if item))
        case "table":
            rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines if not _BAR.fullmatch(line)]
            cells = (Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(_spans(c)) for c in row)) for row in rows)
            yield Markup("<div class='scroll'><table>{}</table></div>").format(Markup("").join(cells))
        case "text":
            yield Markup("<p>{}</p>").format(_spans("\n".join(lines)))


def _spans(text: str) -> Markup:
    found, done = Markup(""), 0
    for match in _SPANS.finditer(text):
        found += escape(text[done : match.start()])
        done = match.end()
        if match["code"] is not None:
            found += Markup("<code>{}</code>").format(match["code"])
        elif match["bold"] is not None:
            found += Markup("<strong>{}</strong>").format(match["bold"])
        else:
            address = match["link"] or match["bare"]
            found += Markup('<a href="{}" rel="noreferrer">{}</a>').format(address, match["label"] or address)
    return found + escape(text[done:])
