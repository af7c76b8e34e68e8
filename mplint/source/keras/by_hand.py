"""Loss scaling that a program does itself, by multiplying and dividing, or through helpers that this file does not show."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mplint.frameworks.names import keras_path
from mplint.source.keras.tape import SCALERS, last_name

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

ARITHMETIC = ("multiply", "divide", "truediv", "scalar_mul")
LIBRARIES = ("tensorflow.", "numpy.", "math.")


def scaled_by_hand(file: SourceFile, losses: frozenset[ast.AST], gradients: frozenset[ast.AST]) -> bool:
    """Whether the losses are multiplied, or the gradients divided, by what may be a loss scale.

    `losses` and `gradients` are the nodes that they are computed from.
    """
    if any(is_scale(text) for text in factors(file, gradients)) or any(is_scale(text) for text in factors(file, near_loss(file, losses))):
        return True
    if set(factors(file, losses)) & set(factors(file, gradients)) - {"2", "2.0", "0.5"}:
        return True
    return any(is_foreign_scaling(file, node) for node in (*losses, *gradients))


def is_scale(text: str) -> bool:
    """Whether an expression's text speaks of a scale ("loss_scale", "opt.dynamic_scale"), not of something scaled."""
    return "scale" in text.lower().replace("scaled", "").replace("inverse_scale", "scale")


def factors(file: SourceFile, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The texts of what something is multiplied or divided by."""
    for node in nodes:
        match node:
            case ast.BinOp(op=ast.Mult() | ast.Div(), left=left, right=right):
                yield from (ast.unparse(left), ast.unparse(right))
            case ast.Call(func=func, args=[left, right, *_]) if last_name(func) in ARITHMETIC:
                yield from (ast.unparse(left), ast.unparse(right))
        parent = file.syntax.parents.get(node)
        if isinstance(parent, ast.AugAssign) and isinstance(parent.op, (ast.Mult, ast.Div)) and node is parent.value:
            yield ast.unparse(node)


def near_loss(file: SourceFile, nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes that stand in a statement which speaks of a loss, so that a scale inside the model is left out."""
    for node in nodes:
        statement = file.syntax.statement(node) if isinstance(node, ast.expr) else None
        if statement is not None and any("loss" in word.lower() for word in words(statement)):
            yield node


def words(statement: ast.stmt) -> Iterator[str]:
    """The names in a simple statement."""
    if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)):
        for node in ast.walk(statement):
            if isinstance(node, (ast.Name, ast.Attribute)):
                yield node.id if isinstance(node, ast.Name) else node.attr


def is_foreign_scaling(file: SourceFile, node: ast.AST) -> bool:
    """Whether a call whose name speaks of scaling leads out of this file and its libraries."""
    name = last_name(node.func) if isinstance(node, ast.Call) else ""
    if (
        not isinstance(node, ast.Call)
        or "scale" not in name.lower()
        or name in SCALERS
        or name.lower().startswith(("rescale", "autoscale"))
    ):
        return False
    if name == "get_unscaled_gradients" or file.names.local_function(node.func) is not None:
        return False
    return not any(path.startswith(LIBRARIES) or keras_path(path) is not None for path in file.names.candidates(node.func))
