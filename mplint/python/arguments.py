"""Changes to the arguments of a call, in declarative terms: set a keyword argument, drop an argument."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from mplint.findings import Replace, Span

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

CLOSING = ")]}"


def set_keyword(file: SourceFile, call: ast.Call, name: str, text: str) -> Replace:
    """Give `call` the keyword argument `name=text`, in place of the one it has; the layout of its other arguments stays."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return Replace(file.span(keyword.value), text)
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    _, _, line, column = file.span(call)
    if not given:
        return Replace(Span(line, column - 1, line, column - 1), f"{name}={text}")
    last = max(given, key=lambda a: (a.end_lineno or 0, a.end_col_offset or 0))
    end = argument_end(file, last, call)
    start = file.span(last)
    before = file.lines[start.line - 1][: start.column]
    if before.strip() or start.line == call.lineno:
        return Replace(Span(*end, *end), f", {name}={text}")
    rest = file.lines[end[0] - 1][end[1] :]
    match = re.fullmatch(r"(\s*)(,?)(\s*(?:#.*)?)", rest)
    if match is None:
        return Replace(Span(*end, *end), f",\n{before}{name}={text}")
    return Replace(Span(*end, end[0], end[1] + len(rest)), f",{match[1]}{match[3]}\n{before}{name}={text}{match[2]}")


def drop_argument(file: SourceFile, call: ast.Call, value: ast.expr) -> Replace:
    """Remove the argument whose value is `value`, with its keyword and one comma."""
    given: list[ast.expr | ast.keyword] = sorted([*call.args, *call.keywords], key=lambda a: (a.lineno, a.col_offset))
    at = next(i for i, a in enumerate(given) if a is value or (isinstance(a, ast.keyword) and a.value is value))
    end = argument_end(file, given[at], call)
    start = argument_start(file, given[at])
    if at + 1 < len(given):
        return Replace(Span(*start, *argument_start(file, given[at + 1])), "")
    if at > 0:
        return Replace(Span(*argument_end(file, given[at - 1], call), *end), "")
    return Replace(Span(*start, *end), "")


def argument_start(file: SourceFile, node: ast.expr | ast.keyword) -> tuple[int, int]:
    """Where an argument begins, with the parentheses around it."""
    line, column, _, _ = file.span(node)
    text = file.lines[line - 1]
    while text[:column].rstrip().endswith("(") and not is_call_open(text, len(text[:column].rstrip()) - 1):
        column = len(text[:column].rstrip()) - 1
    return line, column


def is_call_open(text: str, at: int) -> bool:
    """Whether the parenthesis at `at` opens the arguments of a call (something callable stands before it)."""
    before = text[:at].rstrip()
    return bool(before) and (before[-1].isalnum() or before[-1] in "_)]")


def argument_end(file: SourceFile, node: ast.expr | ast.keyword, call: ast.Call) -> tuple[int, int]:
    """Where an argument ends, with the parentheses around it, before any comma or comment."""
    line, column = file.span(node)[2:]
    end_line, end_column = file.span(call)[2:]
    end = (line, column)
    while (line, column) < (end_line, end_column - 1):
        text = file.lines[line - 1]
        rest = text[column:].lstrip()
        at = len(text) - len(rest)
        if not rest or rest.startswith(("#", "\\")):
            line, column = line + 1, 0
        elif rest[0] in CLOSING and (line, at) < (end_line, end_column - 1):  # what stands there closes the call itself
            column = at + 1
            end = (line, column)
        else:
            break
    return end


def quoted(file: SourceFile, text: str, call: ast.Call | None = None) -> str:
    """`text` as a string literal in the quotes that the call already uses, else in those that the program uses most."""
    near = file.text(call) if call is not None else ""
    source = near if ("'" in near) != ('"' in near) else file.document.text
    quote = "'" if source.count("'") > source.count('"') else '"'
    return f"{quote}{text}{quote}"


def drop_entry(file: SourceFile, owner: ast.Dict, key: ast.AST, value: ast.expr) -> Replace | None:
    """Take an entry out of a dict, with its comma or its line; None where a spread follows it."""
    at = owner.values.index(value)
    following = owner.keys[at + 1] if at + 1 < len(owner.keys) else None
    start, end = file.span(key), file.span(value)
    before, after = file.lines[start.line - 1][: start.column], file.lines[end.end_line - 1][end.end_column :].strip()
    if not before.strip() and after.startswith(",") and after[1:].strip()[:1] in ("", "#"):
        return Replace(Span(start.line, 0, end.end_line + 1, 0), "")
    if at + 1 < len(owner.keys):
        return Replace(Span(*start[:2], *file.span(following)[:2]), "") if following is not None else None
    if at:
        return Replace(Span(*file.span(owner.values[at - 1])[2:], *end[2:]), "")
    return Replace(Span(*start[:2], *end[2:]), "")
