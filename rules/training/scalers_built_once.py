"""Edits that show how a scaler that is built again and again is built once: before the loop, and handed on from there."""

from __future__ import annotations

import ast

from mplint.findings import Applicability, Change, Fix, InsertStatements, MoveStatement, RemoveStatement
from mplint.program.trace import Trace
from mplint.program.values import Place
from mplint.python.arguments import set_keyword
from mplint.python.definitions import Definitions
from mplint.python.file import SourceFile
from mplint.python.syntax import has_star
from mplint.recipes.scaler.handing import parameter
from mplint.recipes.scaler.plan import NoFix

LOOPS = (ast.For, ast.AsyncFor, ast.While)


def built_before(trace: Trace, made: Place, again: Place | None) -> Fix | None:
    """A scaler that a loop builds, built before it; `again`: the loop, where it is known."""
    found = trace.node(made)
    if found is None:
        return None
    file, call = found
    statement = file.syntax.statement(call)
    if not isinstance(statement, ast.Assign) or statement.value is not call or not isinstance(statement.targets[0], ast.Name):
        return None
    if again is not None and again.path != made.path:
        return None
    loops = [node for node in file.syntax.ancestors(statement) if isinstance(node, LOOPS)]
    outermost = next((loop for loop in reversed(loops) if file.syntax.function(loop) is file.syntax.function(statement)), None)
    if outermost is None:
        changes = handed_in(trace, file, statement)
    elif file.syntax.parents[statement] in loops and not is_of_the_loop(outermost, statement.value):
        changes = (MoveStatement(file.span(statement), file.span(outermost)),)
    else:
        changes = ()
    return Fix("build it once, before the loop", Applicability.DISPLAY, changes) if changes else None


def handed_in(trace: Trace, file: SourceFile, statement: ast.Assign) -> tuple[Change, ...]:
    """The scaler of a function built before the loop that calls it, where that is the only call; nothing where that can't be told."""
    function = file.syntax.function(statement)
    if function is None or file.syntax.parents[statement] is not function or not is_of_imports(file, statement.value):
        return ()
    sites = Definitions(file.syntax, file.names).call_sites.get(function, [])
    if len(sites) != 1 or has_star(sites[0]) or any(program is not file for program in trace.programs(function.name)):
        return ()
    loops = [node for node in file.syntax.ancestors(sites[0]) if isinstance(node, LOOPS)]
    if not loops or file.syntax.function(loops[-1]) is not file.syntax.function(sites[0]):
        return ()
    name = ast.unparse(statement.targets[0])
    try:
        given = parameter(file, function, name)
    except NoFix:
        return ()
    return (
        RemoveStatement(file.span(statement)),
        given,
        InsertStatements(file.span(loops[-1]), (file.text(statement),)),
        set_keyword(file, sites[0], name, name),
    )


def is_of_the_loop(loop: ast.AST, value: ast.expr) -> bool:
    """Whether an expression reads a name that a loop binds."""
    bound = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return any(isinstance(node, ast.Name) and node.id in bound for node in ast.walk(value))


def is_of_imports(file: SourceFile, value: ast.expr) -> bool:
    """Whether an expression names nothing but what the program imports."""
    names = [node for node in ast.walk(value) if isinstance(node, ast.Name)]
    return all(binding.target is not None for name in names for binding in file.names.lookup(name)[1])
