"""A source file, parsed: its syntax, its names, and its places."""

from __future__ import annotations

import ast
from functools import cached_property

from mplint.findings import Location, Span
from mplint.python.document import Document, is_test_path
from mplint.python.names import Names, Unbound, nothing
from mplint.python.syntax import Syntax


class SourceFile:
    """One parsed program; `unbound` says what a name stands for that nothing in it binds, `module` its dotted name where that counts."""

    def __init__(self, document: Document, tree: ast.Module, unbound: Unbound = nothing, module: str = "") -> None:
        self.document = document
        self.tree = tree
        self.unbound = unbound
        self.module = module

    @cached_property
    def syntax(self) -> Syntax:
        """Nodes by kind, parents and scopes."""
        return Syntax(self.tree)

    @cached_property
    def names(self) -> Names:
        """What names refer to."""
        return Names(self.syntax, self.module, self.unbound)

    @cached_property
    def lines(self) -> list[str]:
        """The program's lines without their ends."""
        return self.document.text.split("\n")

    @property
    def is_test(self) -> bool:
        """Whether the path says that this is test code, which sets policies on purpose."""
        return is_test_path(self.document.path)

    def span(self, node: ast.AST) -> Span:
        """The range of a node in characters."""
        line, end_line = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        return Span(line, self._column(line, node.col_offset), end_line, self._column(end_line, node.end_col_offset))  # type: ignore[attr-defined]

    def _column(self, line: int, offset: int) -> int:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return offset if text.isascii() else len(text.encode("utf-8")[:offset].decode("utf-8", "ignore"))

    def location(self, node: ast.AST | Span) -> Location:
        """The place of a node (or span) as reports show it."""
        return self.document.location(node if isinstance(node, Span) else self.span(node))

    def text(self, node: ast.AST) -> str:
        """The source text of a node, or how it is spelled where its text says something else."""
        if (spelled := getattr(node, "spelled", None)) is not None:
            return str(spelled)
        line, column, end_line, end_column = self.span(node)
        if line == end_line:
            return self.lines[line - 1][column:end_column]
        middle = self.lines[line : end_line - 1]
        return "\n".join([self.lines[line - 1][column:], *middle, self.lines[end_line - 1][:end_column]])
