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
    return Replace(Span(end.end_line, end.end_column, end.end_line, end.end_column), ".float()")
