"""From R to a program: one tree of Python's syntax nodes that stand at the places of the R text, for everything that reads programs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mplint.python.document import Document, InputError
from mplint.python.r.grammar import first_error, tree_of
from mplint.python.r.statements import Statements

if TYPE_CHECKING:
    from tree_sitter import Node


def parse_r(document: Document) -> ast.Module:
    """The program of an R document; raises InputError where its text is no R."""
    root = tree_of(document.text).root_node
    error = first_error(root)
    if error is not None:
        line, column = error.start_point
        raise InputError(f"syntax error: {said_of(error)} (read as R)", line + 1, len(before(document.text, line, column)) + 1)
    return Statements(root).module(root)


def said_of(error: Node) -> str:
    """What is wrong at an error of the grammar."""
    if error.is_missing:
        return f"`{error.type}` is missing here"
    text = (error.text or b"").decode("utf-8", "replace").strip().split("\n")[0][:30]
    return f"`{text}` is not expected here" if text else "something is missing here"


def before(text: str, line: int, column: int) -> str:
    """The characters of a line before a column in bytes."""
    lines = text.split("\n")
    return lines[line].encode("utf-8")[:column].decode("utf-8", "ignore") if line < len(lines) else ""
