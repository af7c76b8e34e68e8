"""A source file as rules see it: syntax, names, values, places, and a memory for what else is found out about it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

from mplint.findings import Location, Span
from mplint.python.document import Document, is_test_path
from mplint.python.names import Names
from mplint.python.syntax import Syntax
from mplint.source.framework_names import unbound
from mplint.source.values import Values

if TYPE_CHECKING:
    from mplint.python.neighbors import Neighbors
    from mplint.targets import Targets

Fact = TypeVar("Fact")


class SourceFile:
    """One parsed program. What rules find out about it is kept: `file.fact(make)`."""

    def __init__(
        self,
        document: Document,
        tree: ast.Module,
        targets: Targets,
        module: str = "",
    ) -> None:
        self.document = document
        self.tree = tree
        self.targets = targets
        self.module = module
        self._facts: dict[Callable[[SourceFile], object], object] = {}

    def fact(self, make: Callable[[SourceFile], Fact]) -> Fact:
        """What `make` says of this file, found out once."""
        if make not in self._facts:
            self._facts[make] = make(self)
        return cast(Fact, self._facts[make])

    @property
    def mentions_autocast(self) -> bool:
        """Whether autocast may be entered in the program."""
        return "autocast" in self.document.text

    @cached_property
    def syntax(self) -> Syntax:
        """Nodes by kind, parents and scopes."""
        return Syntax(self.tree)

    @cached_property
    def names(self) -> Names:
        """What names refer to."""
        return Names(self.syntax, self.module, unbound)

    @cached_property
    def values(self) -> Values:
        """What expressions stand for."""
        return Values(self.syntax, self.names, self.document.path)

    @cached_property
    def neighbors(self) -> Neighbors:
        """The modules of the project that the program imports, as far as a decision hangs on them."""
        from mplint.python.neighbors import Neighbors

        return Neighbors(self.document.path)

    @property
    def reads(self) -> list[str]:
        """The files that the program's settings, and what it imports of its project, were looked for in so far."""
        values: Values | None = vars(self).get("values")
        configuration = vars(values).get("configuration") if values is not None else None
        settings = configuration.files.reader.paths if configuration is not None and "files" in vars(configuration) else []
        neighbors: Neighbors | None = vars(self).get("neighbors")
        return [*settings, *(neighbors.paths if neighbors is not None else ())]

    @cached_property
    def lines(self) -> list[str]:
        """The program's lines without their ends."""
        return self.document.text.split("\n")

    @cached_property
    def is_test(self) -> bool:
        """Whether the path says that this is test code, which sets policies on purpose."""
        return is_test_path(self.document.path)

    def close(self) -> None:
        """Drop the facts, which refer to this object and to each other, so that they and the tree are freed at once."""
        syntax = vars(self).get("syntax", self)
        held: list[object] = [self, *self._facts.values()]
        while held:
            facts = held.pop()
            if facts is self or any(value is self or value is syntax for value in getattr(facts, "__dict__", {}).values()):
                held += vars(facts).values()
                vars(facts).clear()

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
        """The source text of a node."""
        line, column, end_line, end_column = self.span(node)
        if line == end_line:
            return self.lines[line - 1][column:end_column]
        middle = self.lines[line : end_line - 1]
        return "\n".join([self.lines[line - 1][column:], *middle, self.lines[end_line - 1][:end_column]])
