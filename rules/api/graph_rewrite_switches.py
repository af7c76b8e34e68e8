"""Places that turn on TensorFlow's automatic mixed-precision graph rewrite: the wrapper, the option, the environment variable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.python.definitions import Definitions
from mplint.python.folding import NotConstant

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

WRAPPER = "enable_mixed_precision_graph_rewrite"
OPTION = "auto_mixed_precision"
VARIABLE = "TF_ENABLE_AUTO_MIXED_PRECISION"
VARIABLES = (VARIABLE, f"{VARIABLE}_GRAPH_REWRITE", f"{VARIABLE}_LOSS_SCALING")
TRUE = (True, 1, "1", "true", "True", "TRUE")


class Rewrite(NamedTuple):
    """One place; `kind` is "wrapper", "option" or "variable", `certain` whether the value is known to be true."""

    kind: str
    node: ast.expr | ast.alias
    certain: bool = True


def graph_rewrites(file: SourceFile) -> Iterator[Rewrite]:
    """Every place that turns the graph rewrite on."""
    text, found = file.document.text, Definitions(file.syntax, file.names)
    if WRAPPER in text:
        yield from wrappers(file)
    if OPTION in text:
        yield from options(file, found)
    if VARIABLE in text:
        yield from variables(file, found)


def wrappers(file: SourceFile) -> Iterator[Rewrite]:
    """Imports and uses of enable_mixed_precision_graph_rewrite."""
    for statement in file.syntax.all(ast.ImportFrom):
        if (statement.module or "").startswith("tensorflow"):
            yield from (Rewrite("wrapper", alias) for alias in statement.names if alias.name.startswith(WRAPPER))
    for node in file.syntax.all(ast.Attribute):
        if node.attr.startswith(WRAPPER) and any(name.startswith("tensorflow.") for name in file.names.candidates(node)):
            yield Rewrite("wrapper", node)


def options(file: SourceFile, found: Definitions) -> Iterator[Rewrite]:
    """Calls of set_experimental_options that name auto_mixed_precision and may turn it on."""
    for call in file.syntax.all(ast.Call):
        if (file.names.resolve(call.func) or "").endswith("config.optimizer.set_experimental_options"):
            for given in [*call.args, *(k.value for k in call.keywords)]:
                for definition in found.of(given):
                    value = entry(definition, OPTION)
                    if value is not None and (certain := is_true(found, value)) is not False:
                        yield Rewrite("option", call, bool(certain))


def entry(node: ast.AST, key: str) -> ast.expr | None:
    """The value under `key` in a dictionary expression."""
    match node:
        case ast.Dict(keys=keys, values=values):
            return next((v for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant) and k.value == key), None)
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            return next((k.value for k in keywords if k.arg == key), None)
    return None


def is_true(found: Definitions, value: ast.expr) -> bool | None:
    """Whether a flag is true; None where it is open, False also where it puts an earlier value back."""
    try:
        return found.constant(value) in TRUE
    except NotConstant:
        reads = any(isinstance(d, ast.Call) and "get" in ast.unparse(d.func) for d in found.of(value))
        return False if reads else None


def variables(file: SourceFile, found: Definitions) -> Iterator[Rewrite]:
    """Assignments of a true value to the environment variable."""
    for target in file.syntax.all(ast.Subscript):
        statement = file.syntax.parents[target]
        if not isinstance(target.ctx, ast.Store) or not isinstance(statement, ast.Assign):
            continue
        if names_variable(found, target.slice) and is_true(found, statement.value):
            yield Rewrite("variable", target)
    for call in file.syntax.all(ast.Call):
        last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if last in ("setdefault", "putenv", "setenv") and len(call.args) == 2 and names_variable(found, call.args[0]):
            if is_true(found, call.args[1]):
                yield Rewrite("variable", call)
        elif last == "update" and (file.names.resolve(call.func) or "").startswith("os.environ"):
            given = [value for arg in call.args for name in VARIABLES if (value := entry(arg, name)) is not None]
            given += [k.value for k in call.keywords if k.arg in VARIABLES]
            if any(is_true(found, value) for value in given):
                yield Rewrite("variable", call)


def names_variable(found: Definitions, node: ast.expr) -> bool:
    """Whether the expression is the name of one of the variables."""
    return found.constant_or(node) in VARIABLES
