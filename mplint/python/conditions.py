"""Conditions: what holds in each arm of an `if`, and which names a condition depends on."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import NamedTuple

from mplint.python.syntax import walk


class Guard(NamedTuple):
    """A condition (normalized text) and the truth it is taken to have."""

    text: str
    holds: bool


def literals_of(test: ast.expr) -> tuple[tuple[Guard, ...], tuple[Guard, ...]]:
    """Simple conditions that hold when `test` is true, and those that hold when it is false."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yes, no = literals_of(inner)
            return no, yes
        case ast.BoolOp(op=op, values=values):
            parts = [literals_of(v) for v in values]
            if isinstance(op, ast.And):
                return tuple(g for yes, _ in parts for g in yes), (Guard(ast.unparse(test), False),)
            return (Guard(ast.unparse(test), True),), tuple(g for _, no in parts for g in no)
        case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=None)]):
            text = ast.unparse(left)
            present = isinstance(op, (ast.IsNot, ast.NotEq))
            return (Guard(text, present),), (Guard(text, not present),)
        case ast.Compare(left=left, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=bool(value))]):
            text = ast.unparse(left)
            return (Guard(text, value),), (Guard(text, not value),)
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
            text = f"{ast.unparse(left)} == {ast.unparse(right)}"
            return (Guard(text, False),), (Guard(text, True),)
        case ast.Compare(left=left, ops=[ast.NotIn()], comparators=[right]):
            text = f"{ast.unparse(left)} in {ast.unparse(right)}"
            return (Guard(text, False),), (Guard(text, True),)
        case _:
            text = ast.unparse(test)
            return (Guard(text, True),), (Guard(text, False),)


def contradicts(facts: frozenset[Guard], literals: tuple[Guard, ...]) -> bool:
    """Whether the literals can't hold together with the facts: an opposite, or all parts of a condition that is to be false (or true)."""
    if any(Guard(g.text, not g.holds) in facts for g in literals):
        return True
    together = facts.union(literals)
    return any(parts and together.issuperset(parts) for parts in map(opposite_parts, together))


@lru_cache(maxsize=4096)
def opposite_parts(guard: Guard) -> tuple[Guard, ...]:
    """The simple conditions that together rule out that "a and b" is false, or "a or b" true; none for any other guard."""
    if f" {'or' if guard.holds else 'and'} " not in guard.text:
        return ()
    yes, no = literals_of(ast.parse(guard.text, mode="eval").body)
    parts = no if guard.holds else yes
    return parts if len(parts) > 1 else ()


def forget(facts: frozenset[Guard], names: frozenset[str]) -> frozenset[Guard]:
    """The facts that do not depend on `names`."""
    return frozenset(f for f in facts if not names & names_in(f.text))


@lru_cache(maxsize=4096)
def names_in(text: str) -> frozenset[str]:
    """The identifiers in a condition's text."""
    return frozenset("".join(c if c.isalnum() or c == "_" else " " for c in text).split())


def bound_names(node: ast.AST) -> frozenset[str]:
    """Names that are bound, and attributes that are assigned, anywhere in `node`."""
    found: set[str] = set()
    for item in walk(node):
        if isinstance(item, ast.Name):
            if isinstance(item.ctx, ast.Store):
                found.add(item.id)
        elif isinstance(item, ast.Attribute):
            if isinstance(item.ctx, ast.Store):
                found.add(item.attr)
        elif isinstance(item, ast.arg):
            found.add(item.arg)
    return frozenset(found)
