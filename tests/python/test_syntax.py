"""The walks over a program: what they visit, and in which order."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mplint.findings import Span
from mplint.python.imports import import_statements
from mplint.python.syntax import Syntax, walk

PROGRAMS = sorted(Path(__file__).parent.glob("*.py"))
LEFT_OUT = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_walk_visits_what_python_visits_in_its_order(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert list(walk(tree)) == [node for node in ast.walk(tree) if not isinstance(node, LEFT_OUT)]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_syntax_knows_every_node_its_parent_and_the_assigned_names(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    syntax = Syntax(tree)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node) if not isinstance(child, LEFT_OUT)}
    assert syntax.parents == parents
    names = syntax.all(ast.Name)
    assert {*names} == {node for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert syntax.stored == [name for name in names if isinstance(name.ctx, ast.Store)]


def test_patterns_and_declarations_hold_constants_that_are_no_nodes() -> None:
    tree = ast.parse("def f(x):\n    global y\n    match x:\n        case None | {'a': True, **rest} | Point(1, z=[*_]): ...\n")
    found = set(Syntax(tree).parents)
    assert {type(node) for node in ast.walk(tree) if isinstance(node, ast.pattern)} <= {type(node) for node in found}


def test_imports_are_found_in_every_block_in_order() -> None:
    code = """\
import a
try:
    import b
except ImportError:
    import c
else:
    import d
finally:
    import e
def f():
    if x: import g
    match x:
        case 1:
            import h
with x:
    for y in z:
        import i
import j
"""
    names = [alias.name for statement in import_statements(ast.parse(code)) for alias in statement.names]
    assert names == list("abcdeghij")


def test_the_innermost_node_stands_at_a_place() -> None:
    syntax = Syntax(ast.parse("loss = f(x)\nf(x)\n"))
    call = syntax.at(Span(2, 0, 2, 4))
    assert isinstance(call, ast.Call)
    assert isinstance(syntax.parents[call], ast.Expr)
    assert isinstance(syntax.at(Span(1, 7, 1, 11)), ast.Call)
    assert syntax.at(Span(1, 0, 2, 4)) is None
