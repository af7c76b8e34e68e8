"""Which steps use the same backward passes: the scaler is updated once, after the last of them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mplint.python.names import position
from mplint.recipes.scaler.plan import require

if TYPE_CHECKING:
    from mplint.python.file import SourceFile


def another_follows(file: SourceFile, call: ast.Call, steps: Sequence[ast.Call], backwards: Sequence[ast.AST]) -> bool:
    """Whether another optimizer steps on the same backward passes after `call`, one of `steps`."""
    function = file.syntax.function(call)
    later = [s for s in steps if file.syntax.function(s) is function and position(s) > position(call)]
    following = next((s for s in later if not file.names.exclusive(call, s)), None)
    if following is None or any(position(call) < position(b) < position(following) for b in backwards):
        return False
    here, there = (file.syntax.block(file.syntax.statement(s)) for s in (call, following))
    if ast.unparse(call.func) == ast.unparse(following.func) and here is not there:
        return False  # what the loop left over
    require(here is there and ast.unparse(call.func) != ast.unparse(following.func), "it is not clear which steps use one backward pass")
    return True
