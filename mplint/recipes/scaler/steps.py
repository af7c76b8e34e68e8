"""Which steps a scaler is updated after: once a round, after the last of the optimizers that always step one after the other in it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mplint.python.names import position
from mplint.recipes.scaler.plan import NoFix

if TYPE_CHECKING:
    from mplint.python.file import SourceFile


def another_follows(file: SourceFile, call: ast.Call, steps: Sequence[ast.Call], backwards: Sequence[ast.AST]) -> bool:
    """Whether another optimizer steps after `call`, one of `steps`, wherever that does: on the same backward passes or on its own."""
    function = file.syntax.function(call)
    later = [s for s in steps if file.syntax.function(s) is function and position(s) > position(call)]
    following = next((s for s in later if not file.names.exclusive(call, s)), None)
    if following is None:
        return False
    here, there = (file.syntax.block(file.syntax.statement(s)) for s in (call, following))
    others = ast.unparse(call.func) != ast.unparse(following.func)
    if here is there and others:
        return True
    if any(position(call) < position(b) < position(following) for b in backwards) or (here is not there and not others):
        return False  # a round of its own, or what the loop left over
    if end_of_round(file, following, steps, backwards) is not file.syntax.statement(following):
        return True
    raise NoFix("it is not clear which steps use one backward pass")


def end_of_round(file: SourceFile, call: ast.Call, steps: Sequence[ast.Call], backwards: Sequence[ast.AST]) -> ast.stmt:
    """The statement behind which to update for a step: its own, or the condition around it where one before it has no such condition."""
    function, own = file.syntax.function(call), file.syntax.statement(call)
    around = [p for p in file.syntax.ancestors(own) if isinstance(p, ast.If)]
    for before in steps:
        if file.syntax.function(before) is not function or position(before) >= position(call) or file.names.exclusive(before, call):
            continue
        if any(position(before) < position(b) < position(call) for b in backwards):
            continue
        block = file.syntax.block(file.syntax.statement(before))
        outer = next((p for p in around if any(p is s for s in block)), None)
        if outer is not None and not outer.orelse:
            return outer
    return own
