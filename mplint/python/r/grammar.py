"""The grammar of R, by tree-sitter; its package is an extra."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from mplint.python.document import InputError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

INSTALL = 'reading R needs tree-sitter-language-pack: pip install "mplint[r]"'


class MissingGrammar(InputError):
    """An R program that could be read if an optional package were installed."""

    def __init__(self) -> None:
        super().__init__(INSTALL)


@cache
def parser() -> Parser:
    """The parser of R; raises MissingGrammar where the packages are missing, or have no grammar of R inside."""
    try:
        from tree_sitter_language_pack import get_parser

        return get_parser("r")
    except (ImportError, LookupError, OSError):
        raise MissingGrammar from None


def is_installed() -> bool:
    """Whether R can be read here."""
    try:
        parser()
    except MissingGrammar:
        return False
    return True


def tree_of(text: str) -> Tree:
    """The syntax tree of an R text, with its errors in it."""
    return parser().parse(text.encode("utf-8", "surrogatepass"))


def first_error(node: Node) -> Node | None:
    """The first place in a tree that is not R."""
    if not node.has_error:
        return None
    stack = [node]
    while stack:
        found = stack.pop()
        if found.is_error or found.is_missing:
            return found
        stack += [child for child in reversed(found.children) if child.has_error or child.is_missing]
    return None
