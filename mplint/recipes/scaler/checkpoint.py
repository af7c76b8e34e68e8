"""The scaler's state beside the optimizer's in a checkpoint."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.findings import Change, InsertStatements, Replace, Span
from mplint.python.syntax import words_of

if TYPE_CHECKING:
    from mplint.python.file import SourceFile
    from mplint.python.names import Binding

KEY = "scaler"
OPTIMIZER = re.compile(r"optim(?:izer)?(?=_state|$)")
IN_PATH = re.compile(r"optimi[sz]er|optim|(?<![a-z])opt(?![a-z])")
MODEL_WORDS = {"model", "models", "net", "network", "weights", "params", "generator", "backbone", "module"}


def saved_beside(file: SourceFile, call: ast.Call, store: ast.AST, scaler: str) -> Change | None:
    """The change that puts the scaler's state beside the optimizer's, the result of `call`, that `store` takes."""
    match store:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=held), slice=index)], value=value) if value is call:
            quote = file.text(index)[:1]
            name = key_like(index.value) if isinstance(index, ast.Constant) else KEY
            return InsertStatements(file.span(store), (f"{held}[{quote}{name}{quote}] = {scaler}.state_dict()",), after=True)
        case ast.Dict(keys=keys, values=values) if call in values:
            key = keys[values.index(call)]
            if key is None or not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                return None
            quote = file.text(key)[:1]
            return beside(file, key, call, f"{quote}{key_like(key.value)}{quote}: {scaler}.state_dict()")
        case ast.Call(keywords=keywords, func=ast.Name(id="dict")):
            keyword = next((k for k in keywords if k.value is call), None)
            return beside(file, keyword, call, f"{key_like(keyword.arg)}={scaler}.state_dict()") if keyword is not None else None
        case ast.Call(args=[first, given, *_]) if first is call:
            statement, path = file.syntax.statement(store), renamed(file, given)
            if path is None or not isinstance(statement, ast.Expr) or statement.value is not store:
                return None
            return InsertStatements(file.span(statement), (f"{file.text(store.func)}({scaler}.state_dict(), {path})",), after=True)
    return None


def renamed(file: SourceFile, given: ast.expr) -> str | None:
    """The path of a file for the scaler's state beside the one for the optimizer's; None where that is not named for the optimizer."""
    text = file.text(given)
    if "\n" in text or len(IN_PATH.findall(text)) != 1:
        return None
    names = [n for n in ast.walk(given) if isinstance(n, ast.Name | ast.Attribute) and IN_PATH.search(ast.unparse(n))]
    return None if names else IN_PATH.sub("scaler", text)


def key_like(key: object) -> str:
    """The key of the scaler's state beside that of the optimizer's: `scaler_state_dict` beside `optimizer_state_dict`."""
    name = str(key)
    ending = OPTIMIZER.match(name)
    return KEY + name[ending.end() :] if ending is not None else KEY


def beside(file: SourceFile, key: ast.expr | ast.keyword | ast.arg, value: ast.expr | ast.arg, text: str) -> Replace:
    """Insert an item after the one of `key` and `value`: on a line of its own where that stands on one."""
    span = file.span(key)
    end = file.span(value)
    before = file.lines[span.line - 1][: span.column]
    rest = file.lines[end.end_line - 1][end.end_column :]
    alone = re.fullmatch(r"\s*,\s*(#.*)?", rest) is not None and not before.strip()
    if alone and "#" in rest:  # a comment stays with the item before
        return Replace(Span(end.end_line, end.end_column, end.end_line, end.end_column + len(rest)), f"{rest}\n{before}{text},")
    joint = f",\n{before}" if alone else ", "
    return Replace(Span(end.end_line, end.end_column, end.end_line, end.end_column), joint + text)


def loaded_after(file: SourceFile, call: ast.Call, state: ast.expr | None, scaler: str) -> Change | None:
    """The statements that load the scaler's state after the optimizer's, which `call` loads from `state`."""
    statement = file.syntax.statement(call)
    match state:
        case ast.Subscript(value=(ast.Name() | ast.Subscript()) as holder, slice=ast.Constant(value=str()) as item):
            if not isinstance(statement, ast.Expr) or statement.value is not call:
                return None
            held = file.text(holder)
            quote = file.text(item)[:1]
            key = f"{quote}{key_like(item.value)}{quote}"
            lines = (f"if {held}.get({key}):", f"    {scaler}.load_state_dict({held}[{key}])")
            return InsertStatements(file.span(statement), lines, after=True)
    return None


def file_beside(file: SourceFile, call: ast.Call) -> tuple[ast.Call, str] | None:
    """The `torch.load` of an optimizer's state from a file of its own, by `call`, and the path of one for the scaler's beside it."""
    statement, given = file.syntax.statement(call), call.args[0] if call.args else None
    alone = isinstance(statement, ast.Expr) and statement.value is call
    if not alone or not isinstance(given, ast.Call) or not given.args or file.names.resolve(given.func) != "torch.load":
        return None
    path = renamed(file, given.args[0])
    return (given, path) if path is not None else None


def loaded_from(file: SourceFile, call: ast.Call, load: ast.Call, path: str, scaler: str) -> Change:
    """The statements that load the scaler's state from a file of its own, where there is one."""
    options = "".join(f", {file.text(part)}" for part in (*load.args[1:], *load.keywords))
    lines = (f"if os.path.exists({path}):", f"    {scaler}.load_state_dict({file.text(load.func)}({path}{options}))")
    return InsertStatements(file.span(file.syntax.statement(call)), lines, after=True)


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
                return parent if holds_model(call, names, values) or is_saved(file, parent) else None
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


def is_saved(file: SourceFile, held: ast.Dict) -> bool:
    """Whether a dict is written to a file by itself, at once or by its name."""
    saves = [c.args[0] for c in file.syntax.all(ast.Call) if c.args and file.names.resolve(c.func) == "torch.save"]
    return any(first is held or any(b.value is held for b in bound(file, first)) for first in saves)


def bound(file: SourceFile, node: ast.expr) -> list[Binding]:
    """The bindings that a name may have where it is read."""
    return file.names.reaching(node) if isinstance(node, ast.Name) else []


def holds_model(call: ast.Call, keys: list[str], values: list[ast.expr]) -> bool:
    """Whether something besides an optimizer's state is the state of a model."""
    stated = [v for v in values if any(isinstance(n, ast.Attribute) and n.attr == "state_dict" and n is not call.func for n in ast.walk(v))]
    return bool(stated) or any(key == "state_dict" or words_of(key.replace("_", " ")) & MODEL_WORDS for key in keys)


def methods(file: SourceFile, name: str) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls of a method called `name`, and what each is called on."""
    for call in file.syntax.all(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == name:
            yield call, call.func.value
