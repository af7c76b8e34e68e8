"""Where a program begins to build its models: the place before which the policy has to be set."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.adopt.keras.builders import TRAINING, Built
from mplint.adopt.keras.scene import Scene
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS, Function, is_main_guard

IMPORTS = (ast.Import, ast.ImportFrom)
QUIET = 3  # simple statements between two imports, such as `os.environ[...] = "3"`


class Start(NamedTuple):
    """The statement that builds the first layer or model when the program runs, and the node in it that does."""

    statement: ast.stmt
    call: ast.AST


def start_of(scene: Scene, built: list[Built]) -> Start | None:
    """Where a program that is run begins to build; None for a module that only others run."""
    body = scene.file.tree.body
    chains = [b.chain for b in built if b.chain and b.entry.script and scene.file.syntax.function(b.chain[0]) is None]
    if chains:
        guards = [s for s in body if is_guard(s)]
        free = [s for s in body if not is_guard(s)]
        found = first_in(scene.file, chains, free)
        for guard in guards:
            found = found or first_in(scene.file, chains, guard.body)  # type: ignore[attr-defined]
        return found
    trained = {(e.path, e.name) for e, event in scene.events(*TRAINING, "unknown model trained")}
    begun = dict.fromkeys(b.entry.name for b in built if not b.entry.script and b.chain and (b.entry.path, b.entry.name) in trained)
    functions = [s for s in body if isinstance(s, FUNCTIONS) and s.name in begun and not is_traced(s)]
    if len(functions) != 1:
        return None
    return first_in(scene.file, [b.chain for b in built if b.chain and b.entry.name == functions[0].name], functions[0].body)


def is_guard(statement: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and is_main_guard(statement.test)


def first_in(file: SourceFile, chains: list[list[ast.expr]], block: list[ast.stmt], depth: int = 0) -> Start | None:
    """The first building statement of a block, in the function that the block leaves the whole work to, where there is one."""
    working: dict[ast.stmt, list[list[ast.expr]]] = {}
    for chain in chains:
        around = {chain[0], *file.syntax.ancestors(chain[0])}
        statement = next((s for s in block if s in around), None)
        if statement is not None:
            working.setdefault(statement, []).append(chain)
    if not working:
        return None
    statement = min(working, key=position)
    if len(working) == 1 and depth < 6 and isinstance(statement, ast.Expr):
        worker = delegate(file, working[statement])
        if worker is not None and (inner := first_in(file, [c[1:] for c in working[statement]], worker.body, depth + 1)) is not None:
            return inner
    return Start(statement, min((chain[0] for chain in working[statement]), key=position))


def delegate(file: SourceFile, chains: list[list[ast.expr]]) -> Function | None:
    """The function of this file to which a statement leaves its building, where nothing else runs it."""
    workers = {file.syntax.function(chain[1]) if len(chain) > 1 else None for chain in chains}
    worker = workers.pop() if len(workers) == 1 else None
    if not isinstance(worker, FUNCTIONS) or is_traced(worker):
        return None
    if any(isinstance(s, IMPORTS) for s in worker.body):
        return worker  # it brings its own imports, so it may be sent elsewhere as it is
    uses = [n for n in file.syntax.all(ast.Name) if n.id == worker.name and isinstance(n.ctx, ast.Load)]
    return worker if len(uses) == 1 and file.syntax.parents[worker] is file.tree else None


def is_traced(function: Function) -> bool:
    """Whether a function becomes a graph, in which a policy can't be set."""
    return any("function" in ast.unparse(decorator) or "jit" in ast.unparse(decorator) for decorator in function.decorator_list)


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
