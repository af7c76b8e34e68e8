"""Program text to syntax tree, with every way of failing turned into an `InputError` at its place."""

from __future__ import annotations

import ast
import gc
import re
import sys
import warnings

from mplint.python.document import Document, InputError

_PYTHON_2 = re.compile(
    r"Missing parentheses in call to '(print|exec)'|multiple exception types must be parenthesized"
    r"|(Lambda expression|Function) parameters cannot be parenthesized"
)


def parse(document: Document) -> ast.Module:
    """The syntax tree of `document`; raises InputError where Python cannot parse it."""
    try:
        if document.language == "r":
            from mplint.python.r.program import parse_r

            return parse_r(document)
        return parse_text(document.text)
    except InputError as error:
        cell = document.cell_at(error.line or 1)
        if cell is None:
            raise
        line = max((error.line or 1) - cell.first_line + 1, 1)
        raise InputError(error.message, line, error.column, cell.index) from None


def parse_text(text: str) -> ast.Module:
    """The syntax tree of a program; raises InputError in program lines (from 1) and columns (from 1)."""
    collecting = gc.isenabled()
    if collecting:
        gc.disable()  # a tree is many objects and no garbage: collecting in between is a third of the time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _tree(text)
    except SyntaxError as error:
        last = text.count("\n") + 1
        line = min(max(error.lineno or 1, 1), last)
        column = max(error.offset or 1, 1) if line == error.lineno else 1
        raise InputError(_explain(error.msg), line, column) from None
    except (RecursionError, MemoryError):
        raise InputError("nested too deeply for Python to parse", *_deepest(text)) from None
    except ValueError as error:  # NUL characters, lone surrogates
        bad = re.search("[\0\ud800-\udfff]", text)
        line, column = _place(text, bad.start()) if bad else (1, 1)
        raise InputError(f"not a Python program: {error}", line, column) from None
    finally:
        if collecting:
            gc.enable()


def _tree(text: str) -> ast.Module:
    """The tree of a program; what is newer than the Python that runs is read in words of the same width."""
    try:
        return ast.parse(text)
    except SyntaxError:
        if sys.version_info >= (3, 12):
            raise
    from mplint.python.newer import tree_of

    return tree_of(text)


def _explain(message: str) -> str:
    if _PYTHON_2.match(message):
        return f"looks like Python 2: {message}"
    return f"syntax error: {message} (read as Python {sys.version_info[0]}.{sys.version_info[1]})"


def _deepest(text: str) -> tuple[int, int]:
    """Where the brackets are nested deepest, or the longest line of a program without brackets."""
    depth = deepest = 0
    place = -1
    for match in re.finditer(r"[(\[{]|[)\]}]", text):
        depth += 1 if match[0] in "([{" else -1
        if depth > deepest:
            deepest, place = depth, match.start()
    if deepest >= 20:
        return _place(text, place)
    lines = text.split("\n")
    return max(range(len(lines)), key=lambda index: len(lines[index])) + 1, 1


def _place(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
