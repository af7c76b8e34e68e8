"""Checkpoints: where the state of an optimizer is saved, and what takes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.source.torch.scaler import words_of

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

MODEL_WORDS = {"model", "models", "net", "network", "weights", "params", "generator", "backbone", "module"}


def store_of(file: SourceFile, call: ast.Call) -> ast.Dict | ast.Call | ast.Assign | None:
    """What takes an optimizer's state.

    A dict or `dict(…)` with a model, a class of this file called with it, `checkpoint[key] = …`, `model.optimizer_state = …`, or a file of
    its own.
    """
    child: ast.AST = call
    for parent in file.syntax.ancestors(call):
        match parent:
            case ast.Dict(keys=keys, values=values):
                names = [str(k.value) for k in keys if isinstance(k, ast.Constant)]
                return parent if holds_model(call, names, values) else None
            case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
                return parent if holds_model(call, [k.arg or "" for k in keywords], [k.value for k in keywords]) else None
            case ast.Call(func=func) if isinstance(child, ast.keyword):
                return parent if isinstance(file.names.local_function(func), ast.ClassDef) else None
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str()))]):
                return parent
            case ast.Assign(targets=[ast.Attribute(attr=attr)]) if child is call and "optim" in attr and "state" in attr:
                return parent
            case ast.Call(func=func, args=[first, *_]) if first is call and file.names.resolve(func) == "torch.save":
                return parent
            case ast.IfExp() | ast.keyword():
                child = parent
            case _:
                return None
    return None


def holds_model(call: ast.Call, keys: list[str], values: list[ast.expr]) -> bool:
    """Whether something besides an optimizer's state is the state of a model."""
    stated = [v for v in values if any(isinstance(n, ast.Attribute) and n.attr == "state_dict" and n is not call.func for n in ast.walk(v))]
    return bool(stated) or any(key == "state_dict" or words_of(key.replace("_", " ")) & MODEL_WORDS for key in keys)


def methods(file: SourceFile, name: str) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls of a method called `name`, and what each is called on."""
    for call in file.syntax.all(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == name:
            yield call, call.func.value
