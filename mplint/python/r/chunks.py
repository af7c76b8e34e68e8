"""R Markdown and Quarto: the code of a document, at its own lines."""

from __future__ import annotations

import re

from mplint.python.document import Document, InputError

_OPEN = re.compile(r"^(?P<indent>[ \t>]*)(?P<fence>`{3,}|~{3,})\s*\{\s*(?P<language>\w+)[^}]*\}\s*$")
_EXCERPTS = re.compile(r"opts_chunk\$set\([^)]*eval\s*=\s*F(?:ALSE)?\b|^[ \t]*eval:\s*false\b", re.MULTILINE)  # of all chunks
_EXCERPT = re.compile(r"eval\s*=\s*F(?:ALSE)?\b")  # in the options of one
LANGUAGES = ("r", "python")


def load_chunks(path: str, text: str) -> Document:
    """The document of an R Markdown or Quarto text: its R chunks (or, where it has none, its Python chunks) with all else blanked."""
    lines = text.split("\n")
    chunks = chunks_of(lines)
    language = next((wanted for wanted in LANGUAGES if any(found == wanted for found, _, _ in chunks)), "r")
    kept = [""] * len(lines)
    spans = [(first, last) for found, first, last in chunks if found == language]
    for first, last in spans:
        kept[first:last] = lines[first:last]
    document = Document(path, "\n".join(kept), raw=text, language=language)
    return document if language != "r" else readable(document, spans)


def chunks_of(lines: list[str]) -> list[tuple[str, int, int]]:
    """The language of each chunk, its first line and the one of its closing fence, both from 0."""
    found = []
    number = 0
    while number < len(lines):
        opening = _OPEN.match(lines[number])
        number += 1
        if opening is None:
            continue
        first, fence = number, opening["fence"]
        closing = re.compile(rf"^[ \t>]*{re.escape(fence[0])}{{{len(fence)},}}\s*$")
        while number < len(lines) and not closing.match(lines[number]):
            number += 1
        found.append((opening["language"].lower(), first, number))
        number += 1
    return found


def readable(document: Document, spans: list[tuple[int, int]]) -> Document:
    """The same without the chunks that are no R, where all of them together are none.

    They are its problems, but for excerpts that are only shown.
    """
    from mplint.python.r.grammar import MissingGrammar, first_error, tree_of

    try:
        if not tree_of(document.text).root_node.has_error:
            return document
    except MissingGrammar:
        return document  # who parses it says so
    lines, source = document.text.split("\n"), document.source.split("\n")
    excerpts = _EXCERPTS.search(document.source) is not None
    problems = []
    for first, last in spans:
        error = first_error(tree_of("\n".join(lines[first:last])).root_node)
        if error is not None:
            row, column = error.start_point
            if not excerpts and not _EXCERPT.search(source[first - 1]):
                problems.append(InputError("this chunk is no complete R code", first + row + 1, column + 1))
            lines[first:last] = [""] * (last - first)
    return document._replace(text="\n".join(lines), problems=tuple(problems))
