"""Notebooks: the code cells of nbformat 3 and 4 joined into one program."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from mplint.python.document import Cell, Document, InputError
from mplint.python.magics import blank, is_other_language, neutralize, neutralize_automagic
from mplint.python.parse import parse_text

# A run of this many characters without space or punctuation is an image in an output.
_PICTURE = re.compile(r'"[A-Za-z0-9+/=\\]{10000,}"')
_KERNELS_OF_OTHERS = re.compile(r"ir\b|julia|scala|bash|javascript|deno|octave|xcpp|rust|sas|stata|matlab|ruby|perl|\.net", re.I)
_INDENTED = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]+[^\s#]")


class CodeCell(NamedTuple):
    """A code cell: its position among all the cells of the notebook and its source with `\\n` line ends."""

    position: int
    source: str


def load_notebook(path: str, text: str) -> Document:
    """The document of a notebook's JSON text.

    A cell that is no Python after its magics are neutralized is blank in the program and stands in
    `problems`. A notebook in another language is an empty program. Raises InputError for broken JSON
    and for what is no notebook.
    """
    notebook = _json(text)
    cells = list(_code_cells(notebook)) if _is_python(notebook) else []
    if not cells:
        return Document(path, "")
    programs = [neutralize(cell.source) for cell in cells]
    problems: list[InputError] = []
    joined = _join(cells, programs)
    try:
        parse_text(joined.text)
    except InputError:
        for number, cell in enumerate(cells):
            try:
                programs[number] = _parsable(programs[number])
            except InputError as error:
                if not is_other_language(cell.source):
                    problems.append(InputError(error.message, error.line, error.column, cell.position))
                programs[number] = blank(programs[number])
        joined = _join(cells, programs)
    before = 2 - joined.cells[0].first_line  # 1 where no line stands before the first cell
    raw = "\n".join(line for cell in cells for line in ("", cell.source))[before:].encode("utf-8", "replace").decode()
    return Document(path, joined.text, joined.cells, raw if raw != joined.text else "", tuple(problems))


class _Joined(NamedTuple):
    text: str
    cells: tuple[Cell, ...]


def _join(cells: list[CodeCell], programs: list[str]) -> _Joined:
    """One line stands before every cell but a plain first one; it holds the `if` that makes an indented cell legal, as in IPython."""
    parts: list[str] = []
    places: list[Cell] = []
    line = 1
    for cell, program in zip(cells, programs, strict=True):
        indented = _INDENTED.match(program) is not None
        if places or indented:
            parts.append("if True:" if indented else "")
            line += 1
        places.append(Cell(cell.position, line))
        parts.append(program)
        line += program.count("\n") + 1
    return _Joined("\n".join(parts), tuple(places))


def _parsable(program: str) -> str:
    """The program of one cell, freed of commands without `%` where it needs that; raises InputError where it does not parse."""
    try:
        _parse_cell(program)
        return program
    except InputError as error:
        plain = neutralize_automagic(program)
        if plain == program:
            raise
        try:
            _parse_cell(plain)
        except InputError:
            raise error from None
        return plain


def _parse_cell(program: str) -> None:
    if not _INDENTED.match(program):
        parse_text(program)
        return
    try:
        parse_text("if True:\n" + program)
    except InputError as error:
        raise InputError(error.message, max((error.line or 1) - 1, 1), error.column) from None


def _json(text: str) -> dict[str, object]:
    """A notebook's JSON; an empty file is a notebook without cells, as an empty module is a program without statements."""
    if not text.strip():
        return {"cells": []}
    try:
        value = json.loads(_PICTURE.sub('""', text) if len(text) > 1_000_000 else text)
    except RecursionError:
        raise InputError("the notebook's JSON is nested too deeply", 1, 1) from None
    except ValueError:
        value = _broken(text)
    if not isinstance(value, dict) or not isinstance(value.get("cells", value.get("worksheets")), list):
        raise InputError("not a Jupyter notebook: its JSON has no list of cells", 1, 1)
    return value


def _broken(text: str) -> object:
    """Read the JSON again as it stands in the file, so that the error has its true place."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"the notebook's JSON is broken: {error.msg}", error.lineno, error.colno) from None
    except ValueError as error:
        raise InputError(f"the notebook's JSON is broken: {error}", 1, 1) from None


def _is_python(notebook: dict[str, object]) -> bool:
    """Whether the notebook's kernel speaks Python; one that does not say is taken for Python."""
    metadata = _table(notebook.get("metadata"))
    kernel = _table(metadata.get("kernelspec"))
    for language in (_table(metadata.get("language_info")).get("name"), kernel.get("language")):
        if isinstance(language, str) and language:
            return "python" in language.lower()
    name = kernel.get("name")
    return not (isinstance(name, str) and _KERNELS_OF_OTHERS.match(name))


def _code_cells(notebook: dict[str, object]) -> Iterator[CodeCell]:
    for index, value in enumerate(_all_cells(notebook)):
        cell = _table(value)
        if cell.get("cell_type") != "code" or not _cell_is_python(cell):
            continue
        source = cell.get("source", cell.get("input", ""))
        if isinstance(source, list):
            source = "".join(line for line in source if isinstance(line, str))
        if isinstance(source, str):
            yield CodeCell(index, source.replace("\r\n", "\n").replace("\r", "\n"))


def _all_cells(notebook: dict[str, object]) -> Iterator[object]:
    cells = notebook.get("cells")
    if isinstance(cells, list):
        yield from cells
        return
    worksheets = notebook.get("worksheets")
    for sheet in worksheets if isinstance(worksheets, list) else ():
        cells = _table(sheet).get("cells")
        yield from cells if isinstance(cells, list) else ()


def _cell_is_python(cell: dict[str, object]) -> bool:
    """Cells may name their own language: in nbformat 3, and in editors that mix languages."""
    editor = _table(_table(cell.get("metadata")).get("vscode")).get("languageId")
    return all("python" in language.lower() for language in (cell.get("language"), editor) if isinstance(language, str) and language)


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
