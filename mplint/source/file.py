"""A source file as the detectors of one file see it: besides its syntax, what its values are, and a memory for what is found out."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar, cast

from mplint.frameworks.names import unbound
from mplint.python import file
from mplint.python.document import Document
from mplint.source.values import Values
from mplint.targets import Targets

Fact = TypeVar("Fact")


class SourceFile(file.SourceFile):
    """One parsed program. What is found out about it is kept: `file.fact(make)`."""

    def __init__(self, document: Document, tree: ast.Module, targets: Targets, module: str = "") -> None:
        super().__init__(document, tree, unbound, module)
        self.targets = targets
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
    def values(self) -> Values:
        """What expressions stand for."""
        return Values(self.syntax, self.names, self.document.path)
