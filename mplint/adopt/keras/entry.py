"""Where a program begins to build its models: the place before which the policy has to be set."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.adopt.keras.builders import Builders, calls_in
from mplint.adopt.keras.purpose import TRAINING as TRAINS
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS, Function, is_main_guard
from mplint.source.file import SourceFile

IMPORTS = (ast.Import, ast.ImportFrom)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
QUIET = 3  # simple statements between two imports, such as `os.environ[...] = "3"`


class Start(NamedTuple):
    """The statement that builds the first layer or model when the program runs, and the call in it that does."""

    statement: ast.stmt
    call: ast.Call


def start_of(file: SourceFile, builders: Builders) -> Start | None:
    """Where a program that is run begins to build; None for a module that only others run."""
    body = [s for s in file.tree.body if not isinstance(s, (*DEFINITIONS, *IMPORTS)) and not is_guard(s)]
    if (found := first_in(file, builders, body)) is not None:
        return found
    for guard in file.tree.body:
        if isinstance(guard, ast.If) and is_main_guard(guard.test):
            block = [s for s in guard.body if not isinstance(s, (*DEFINITIONS, *IMPORTS))]
            if (found := first_in(file, builders, block)) is not None:
                return found
            if any(isinstance(c.func, ast.Attribute) and c.func.attr == "run" and not c.args for s in block for c in calls_in(s)):
                main = next((s for s in file.tree.body if isinstance(s, FUNCTIONS) and s.name == "main"), None)  # tf.app.run()
                return first_in(file, builders, main.body) if main is not None else None
    entries = [f for f in file.tree.body if isinstance(f, FUNCTIONS) and is_entry(file, builders, f)]
    return first_in(file, builders, entries[0].body) if len(entries) == 1 else None


def is_guard(statement: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and is_main_guard(statement.test)


def first_in(file: SourceFile, builders: Builders, block: list[ast.stmt], depth: int = 0) -> Start | None:
    """The first building statement of a block, in the function that the block leaves the whole work to, where there is one."""
    working = [(s, call) for s in block if (call := next((c for c in calls_in(s) if builders.builds(c)), None)) is not None]
    if not working:
        return None
    statement, call = working[0]
    if len(working) == 1 and depth < 6 and isinstance(statement, ast.Expr):
        worker = delegate(file, builders, statement)
        if worker is not None and (inner := first_in(file, builders, worker.body, depth + 1)) is not None:
            return inner
    return Start(statement, call)


def delegate(file: SourceFile, builders: Builders, statement: ast.Expr) -> Function | None:
    """The function of this file that a statement runs and whose result it drops, where nothing else runs it."""
    found: set[Function] = set()
    for call in calls_in(statement):
        for scope in builders.called(call):
            if isinstance(scope, FUNCTIONS) and builders.inside(scope):
                found.add(scope)
    if len(found) != 1:
        return None
    worker = found.pop()
    if any(isinstance(s, IMPORTS) for s in worker.body) and not is_traced(worker):
        return worker  # it brings its own imports, so it may be sent elsewhere as it is
    uses = [n for n in file.syntax.all(ast.Name) if n.id == worker.name and isinstance(n.ctx, ast.Load)]
    return worker if len(uses) == 1 and file.syntax.parents[worker] is file.tree and not is_traced(worker) else None


def is_traced(function: Function) -> bool:
    """Whether a function becomes a graph, in which a policy can't be set."""
    return any("function" in ast.unparse(decorator) or "jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def is_entry(file: SourceFile, builders: Builders, function: Function) -> bool:
    """Whether a function that nothing in this file calls builds a model and trains it."""
    if any(n.id == function.name and isinstance(n.ctx, ast.Load) for n in file.syntax.all(ast.Name)) or is_traced(function):
        return False
    return builders.inside(function) and trains(builders, function, set())


def trains(builders: Builders, scope: ast.AST, seen: set[ast.AST]) -> bool:
    """Whether the code of a function, or of what it calls in this file, trains a model."""
    seen.add(scope)
    for node in ast.walk(scope):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
            if name in TRAINS or any(trains(builders, d, seen) for d in builders.called(node) if d not in seen):
                return True
    return False


def after_imports(file: SourceFile, source: ast.stmt, start: ast.stmt) -> ast.stmt:
    """The last import of the run of imports that `source` belongs to, before `start`; in a notebook, of the same cell."""
    body = file.tree.body
    top: ast.AST = source
    while file.syntax.parents[top] is not file.tree:
        top = file.syntax.parents[top]
    last = next(s for s in body if s is top)
    cell, others = file.document.cell_at(last.lineno), 0
    for statement in body[body.index(last) + 1 :]:
        if position(statement) >= position(start) or file.document.cell_at(statement.lineno) != cell:
            break
        if imports_only(statement):
            last, others = statement, 0
        elif not isinstance(statement, (ast.Expr, ast.Assign, ast.Import)) or (others := others + 1) > QUIET:
            break
    return last


def imports_only(statement: ast.stmt) -> bool:
    """Whether a statement only imports, also under `try` or `if`."""
    match statement:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Try(body=body):
            return all(imports_only(s) for s in body)
        case ast.If(body=body, orelse=orelse) if not is_main_guard(statement.test):
            return all(imports_only(s) for s in (*body, *orelse))
    return False
