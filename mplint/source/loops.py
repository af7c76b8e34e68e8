"""What the names that loops bind are items of."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mplint.source.file import SourceFile


def iterated(file: SourceFile, name: ast.Name) -> list[ast.expr]:
    """What a loop goes through whose variable the name is, also in `zip` and `enumerate`; nothing where something else binds it, too."""
    found = []
    for binding in file.names.reaching(name):
        whole = source_of(file, binding.node) if isinstance(binding.node, ast.Name) else None
        if whole is None:
            return []
        found.append(whole)
    return found


def source_of(file: SourceFile, target: ast.Name) -> ast.expr | None:
    """What a loop takes the items out of that it binds to `target`."""
    around = file.syntax.parents[target]
    index = around.elts.index(target) if isinstance(around, ast.Tuple) else None
    loop = file.syntax.parents[around] if isinstance(around, ast.Tuple) else around
    if not isinstance(loop, (ast.For, ast.comprehension)):
        return None
    match loop.iter:
        case ast.Call(func=ast.Name(id="zip"), args=args) if index is not None and index < len(args):
            return args[index]
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]) if index == 1:
            return inner
        case ast.Call(func=ast.Name(id="zip" | "enumerate")):
            return None
    return loop.iter if index is None else None
