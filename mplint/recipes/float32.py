"""Computing in float32 where half precision is in force: layers with a dtype of their own, and tensors that are cast."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mplint.findings import Replace, Span
from mplint.python.arguments import quoted, set_keyword
from mplint.python.syntax import argument

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

WRAPPERS = ("TimeDistributed", "Bidirectional")
OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda, ast.Await)  # they bind less than a method does


def float32_layers(file: SourceFile, calls: Iterable[ast.Call]) -> tuple[Replace, ...]:
    """Give the layers that are made at `calls`, and those that they wrap, `dtype="float32"`."""
    changes = []
    for call in calls:
        around = file.syntax.parents.get(call)
        outer = around if isinstance(around, ast.Call) and wrapped_by(around) is call else call
        for made in (outer, wrapped_by(outer)):
            if made is not None:
                changes.append(set_keyword(file, made, "dtype", quoted(file, "float32", made)))
    return tuple(changes)


def wrapped_by(call: ast.Call) -> ast.Call | None:
    """The call that makes the layer which the one made at `call` wraps: `TimeDistributed(Dense(…))`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    inner = argument(call, "layer", 0) if name in WRAPPERS else None
    return inner if isinstance(inner, ast.Call) else None


def float32_tensor(file: SourceFile, tensor: ast.expr) -> Replace:
    """Cast a tensor of PyTorch to float32 where it is read."""
    end = file.span(tensor)
    if not isinstance(tensor, OPERATIONS):
        return Replace(Span(end.end_line, end.end_column, end.end_line, end.end_column), ".float()")
    parent = file.syntax.parents.get(tensor)
    around = file.span(parent) if isinstance(parent, ast.Attribute) else None
    dot = around.end_column - len(parent.attr) - 1 if around is not None else -1  # type: ignore[union-attr]
    if around is not None and file.lines[around.end_line - 1][dot : dot + 1] == ".":  # the parentheses are there already
        return Replace(Span(around.end_line, dot, around.end_line, dot), ".float()")
    return Replace(end, f"({file.text(tensor)}).float()")
