"""Sizes of layers as numbers: where one is written, and how to change it everywhere at once."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import Replace

if TYPE_CHECKING:
    from mplint.source.file import SourceFile


class Width(NamedTuple):
    """A size that the program text fixes: the expression given, its number, and the literal it comes from (None: computed)."""

    node: ast.expr
    number: int
    literal: ast.Constant | None


def width(file: SourceFile, node: ast.expr | None) -> Width | None:
    """The size that `node` stands for, or None where the text does not fix a whole number."""
    value = file.values.constant_or(node) if node is not None else None
    if node is None or not isinstance(value, int) or isinstance(value, bool):
        return None
    definitions = file.values.definitions(node)
    literal = definitions[0] if len(definitions) == 1 else None
    return Width(node, value, literal if isinstance(literal, ast.Constant) else None)


def multiple(number: int, step: int) -> int:
    """The next multiple of `step` that is not below `number`."""
    return -(-number // step) * step


def replace_number(file: SourceFile, widths: Collection[Width], new: int) -> tuple[Replace, ...] | None:
    """Changes that give all of `widths` (of one number) the value `new`; None where the number is also used for anything else."""
    literals = {w.literal for w in widths if w.literal is not None}
    number = next(iter(widths)).number
    elsewhere = [c for c in file.syntax.all(ast.Constant) if c.value == number and type(c.value) is int and c not in literals]
    if elsewhere or len(literals) == 0 or any(w.literal is None for w in widths):
        return None
    return tuple(Replace(file.span(c), str(new)) for c in sorted(literals, key=lambda c: (c.lineno, c.col_offset)))
