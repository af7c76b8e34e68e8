"""Setting and dropping arguments keeps the layout of a call, whatever it looks like."""

from __future__ import annotations

import ast

import pytest

from mplint.findings import Replace
from mplint.python.arguments import drop_argument, set_keyword
from mplint.python.document import Document
from mplint.python.file import SourceFile
from mplint.python.syntax import argument


def program(text: str) -> tuple[SourceFile, ast.Call]:
    file = SourceFile(Document("layers.py", text), ast.parse(text))
    return file, file.syntax.all(ast.Call)[0]


def applied(text: str, change: Replace) -> str:
    lines = text.split("\n")
    line, column, end_line, end_column = change.span
    lines[line - 1 : end_line] = [lines[line - 1][:column] + change.text + lines[end_line - 1][end_column:]]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Dense()", "Dense(dtype=d)"),
        ("Dense(5)", "Dense(5, dtype=d)"),
        ("Dense((5))", "Dense((5), dtype=d)"),
        ("Dense(5, )", "Dense(5, dtype=d, )"),
        ("Dense(\n    5, name='a'\n)(x)", "Dense(\n    5, name='a', dtype=d\n)(x)"),
        ("Dense(\n    5, (2 *\n    3)\n    )(x)", "Dense(\n    5, (2 *\n    3), dtype=d\n    )(x)"),
        ("Dense(units=(2 * (3)))", "Dense(units=(2 * (3)), dtype=d)"),
        ("Dense(5, dtype=None, name='é')", "Dense(5, dtype=d, name='é')"),
        ("Dense(5, **options)", "Dense(5, **options, dtype=d)"),
        ("Dense(\n    5,  # units\n)", "Dense(\n    5,  # units\n    dtype=d,\n)"),
        ("Dense(\n    5  # (units\n)", "Dense(\n    5,  # (units\n    dtype=d\n)"),
        ("Dense(\n\t(5),\n\tname='ä',\n)", "Dense(\n\t(5),\n\tname='ä',\n\tdtype=d,\n)"),
        ("Dense(\n    5)(x)", "Dense(\n    5,\n    dtype=d)(x)"),
    ],
)
def test_set_keyword_keeps_the_layout(before: str, after: str) -> None:
    file, call = program(before)
    if isinstance(call.func, ast.Call):
        call = call.func
    result = applied(before, set_keyword(file, call, "dtype", "d"))
    assert result == after
    ast.parse(result)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Input(dtype=h)", "Input()"),
        ("Input((3,), dtype=h)", "Input((3,))"),
        ("Input(dtype=h, shape=(3,))", "Input(shape=(3,))"),
        ("Input((3,), dtype=(h), name='x')", "Input((3,), name='x')"),
        ("Input(\n    (3,),\n    dtype=h,\n)", "Input(\n    (3,),\n)"),
        ("Input(\n    dtype=h,\n    shape=(3,),\n)", "Input(\n    shape=(3,),\n)"),
    ],
)
def test_drop_argument_takes_one_comma_with_it(before: str, after: str) -> None:
    file, call = program(before)
    value = argument(call, "dtype")
    assert value is not None
    assert applied(before, drop_argument(file, call, value)) == after
