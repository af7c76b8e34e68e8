"""The statement beside which a scaler is built: where its optimizers are made, on every way to where it is needed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mplint.python.syntax import FUNCTIONS, words_of
from mplint.recipes.scaler.plan import NoFix, require

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

LOOPS = (ast.For, ast.AsyncFor, ast.While)
ROUND = {"epoch", "step", "batch", "iteration"}
CONDITION = "the optimizer is made under a condition"


def built_beside(file: SourceFile, made: Sequence[ast.stmt], uses: Sequence[ast.AST]) -> tuple[ast.stmt, bool]:
    """The statement at which a scaler belongs, and whether it stands after it.

    `made`: the statements of one function that make the optimizers; `uses`: where that function scales and steps, or has it done.
    """
    ways = [path_to(file, node) for node in (*made, *uses)]
    for depth in range(min(map(len, ways))):
        steps = {id(way[depth]): way[depth] for way in ways}
        holders = [way[depth] for way in ways[: len(made)]]
        last = max(holders, key=lambda s: (s.lineno, s.col_offset))
        block = file.syntax.block(last)
        require(all(any(step is item for item in block) for step in steps.values()), CONDITION)  # different arms of a condition
        users = [way[depth] for way in ways[len(made) :]]
        if len(steps) == 1 and depth + 1 < min(map(len, ways)):
            continue  # all of it stands in one statement
        require(not any(user is holder for user in users for holder in holders), CONDITION)
        repeated = next((step for step in ways[0][:depth] if is_round(step)), None)
        return (last, True) if repeated is None else (repeated, False)
    raise NoFix(CONDITION)


def path_to(file: SourceFile, node: ast.AST) -> list[ast.stmt]:
    """The statements of a function in which a node stands, outermost first."""
    found = [file.syntax.statement(node)]
    for parent in file.syntax.ancestors(found[0]):
        if isinstance(parent, (*FUNCTIONS, ast.Lambda)):
            break
        if isinstance(parent, ast.stmt):
            found.append(parent)
    return found[::-1]


def is_round(statement: ast.stmt) -> bool:
    """Whether a statement is a loop over the rounds of one training: what it makes anew belongs to the same training."""
    return isinstance(statement, (ast.For, ast.AsyncFor)) and bool(words_of(ast.unparse(statement.target)) & ROUND)
