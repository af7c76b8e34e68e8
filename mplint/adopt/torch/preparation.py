"""Parts statements so that forward pass, loss and backward pass stand in statements of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mplint.adopt.torch.losses import is_banned
from mplint.adopt.torch.models import Models
from mplint.adopt.torch.passages import CONDITIONAL, Passages, loss_of
from mplint.findings import Applicability, Change, Fix, InsertStatements, Replace, Span
from mplint.python.file import SourceFile
from mplint.python.syntax import walk_expressions


def parted(models: Models, policy: str, backwards: Sequence[ast.Call]) -> Fix:
    """The fix that names losses computed where their gradients are, and outputs that go straight into a loss to be kept outside."""
    changes: list[Change] = []
    for backward in backwards:
        changes += _named_loss(models, backward)
    passages = Passages(models, policy)
    for statement in (s for s in models.file.syntax.all(ast.Assign) if models.runs(s)):
        changes += [*_named_penalty(passages, statement)] or _named_output(models, statement)
    return Fix("Part the statements", Applicability.UNSAFE, tuple(dict.fromkeys(changes)))


def _named_loss(models: Models, backward: ast.Call) -> Iterator[Change]:
    file, loss = models.file, loss_of(backward)
    statement = file.syntax.statement(backward)
    if not isinstance(statement, ast.Expr) or statement.value is not backward or not (models.takes_loss(loss) or models.runs(loss)):
        return
    name = _fresh(file, backward, "loss")
    yield InsertStatements(file.span(statement), (f"{name} = {file.text(loss)}",))
    yield Replace(_before_dot(file, backward), name)


def _before_dot(file: SourceFile, backward: ast.Call) -> Span:
    """What stands before `.backward(…)`, with its parentheses."""
    start, dot = file.span(backward), file.span(backward.func)
    return Span(start.line, start.column, dot.end_line, dot.end_column - len(".backward"))


def _named_output(models: Models, statement: ast.Assign) -> Iterator[Change]:
    """A model's output that goes straight into a loss which autocast refuses."""
    file = models.file
    for call in (n for n in walk_expressions(statement.value) if isinstance(n, ast.Call)):
        given = call.args[0] if call.args else None
        if isinstance(given, ast.Call) and models.runs(given) and is_banned(models, call) and not models.runs(call.func):
            if is_banned(models, given) or any(isinstance(p, CONDITIONAL) for p in file.syntax.ancestors(call) if isinstance(p, ast.expr)):
                continue
            if models.work(call) - models.work(given):
                continue  # it runs a model besides
            name = _fresh(file, statement, "output")
            yield InsertStatements(file.span(statement), (f"{name} = {file.text(given)}",))
            yield Replace(file.span(given), name)


def _named_penalty(passages: Passages, statement: ast.Assign) -> Iterator[Change]:
    """A penalty on gradients in the midst of an expression that runs models besides."""
    file, penalty = passages.file, passages.penalty_in(statement)
    if penalty is not None:
        name = _fresh(file, statement, "penalty")
        yield InsertStatements(file.span(statement), (f"{name} = {file.text(penalty)}",))
        yield Replace(file.span(penalty), name)


def _fresh(file: SourceFile, node: ast.AST, name: str) -> str:
    scope = file.syntax.scope(node)
    bound = file.names.bindings.get(scope, {})
    return name if name not in bound else next(f"{name}_{n}" for n in range(2, 99) if f"{name}_{n}" not in bound)
