"""MP111: an autocast that is built and never entered."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.findings import Applicability, Finding, Fix, Replace, Severity, Span
from mplint.python.names import alternatives
from mplint.python.syntax import FUNCTIONS
from mplint.rule import Rule, Surroundings

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

MODULES = [f"{home}.{part}" for home in ("amp", "cuda.amp", "cpu.amp") for part in ("", "autocast_mode.")]
AUTOCASTS = frozenset(["torch.autocast", *(f"torch.{module}autocast" for module in MODULES)])
EXPECTING = ("raises", "warns", "deprecated_call", "suppress", "assert")
GRAD_MODES = {"torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.set_grad_enabled", "torch.autograd.no_grad"}


class AutocastNotEntered(Rule):
    """An autocast object that is created and never entered

    ## What it does
    Finds an autocast object that is created and dropped: a call that stands alone as a statement, and context managers joined
    with `and` or `or` in a `with` statement, of which only one is entered.

    ## Why is this bad?
    `torch.autocast(...)` only builds a context manager. Until it is entered nothing changes: the model runs in float32, at the
    speed and memory of float32, and a loss scaler still multiplies the loss by 65536 for nothing. There is no error and no
    warning. `with a() and b():` evaluates both and enters only `b()`.

    ## Example
    ```python
    import torch

    with torch.autocast("cuda") and torch.no_grad():
        output = model(batch)
    ```

    ## Use instead
    ```python
    import torch

    with torch.autocast("cuda"), torch.no_grad():
        output = model(batch)
    ```

    ## Fix safety
    The fix replaces `and` by a comma, so that every context manager is entered. Unsafe where a region of autocast is what was not
    entered: the block computes in half precision from then on. There is no fix for a call that stands alone, because only its author
    knows which statements it is meant for.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp111.py.

    ## References
    - https://docs.pytorch.org/docs/stable/amp.html#autocasting
    - https://docs.python.org/3/reference/compound_stmts.html#the-with-statement
    """

    code = "MP111"
    name = "autocast-not-entered"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("torch",)
    tokens = ("autocast",)

    def check_source(self, file: SourceFile, around: Surroundings) -> Iterator[Finding]:
        """Report dropped constructions and joined context managers."""
        made = {call for call in file.syntax.all(ast.Call) if is_autocast(file, call)}
        for call in sorted(made, key=lambda c: (c.lineno, c.col_offset)):
            if isinstance(file.syntax.parents[call], ast.Expr) and not is_probe(file, call):
                yield self.dropped(file, call)
        withs: list[ast.With | ast.AsyncWith] = [*file.syntax.all(ast.With), *file.syntax.all(ast.AsyncWith)]
        for block in withs:
            for item in block.items:
                if not isinstance(item.context_expr, ast.BoolOp):
                    continue
                regions = {value for value in item.context_expr.values if value in made or is_trainers(value)}
                if lost := self.lost(file, item.context_expr, regions):
                    yield self.joined(file, block, item, lost)

    def dropped(self, file: SourceFile, call: ast.Call) -> Finding:
        """The finding of a call that stands alone."""
        text = file.text(call)
        return self.finding(
            file,
            call,
            f"`{text}` is built and dropped: nothing runs under autocast",
            why="An autocast has no effect until it is entered, so the model keeps running in float32, without a warning.",
            help=f"Put the forward pass under `with {text}:`.",
        )

    def joined(self, file: SourceFile, block: ast.With | ast.AsyncWith, item: ast.withitem, lost: list[ast.expr]) -> Finding:
        """The finding of context managers joined by `and` or `or`."""
        names = " and ".join(f"`{file.text(value)}`" for value in lost)
        word = "and" if isinstance(item.context_expr, ast.BoolOp) and isinstance(item.context_expr.op, ast.And) else "or"
        return self.finding(
            file,
            item.context_expr,
            f"{names} {'is' if len(lost) == 1 else 'are'} never entered: `{word}` picks one of the context managers",
            why=f"`with a() {word} b():` enters only {'the last' if word == 'and' else 'the first'} object; the other one has no effect.",
            help=f"Separate the context managers by a comma instead of `{word}`.",
            fix=self.comma(file, block, item, Applicability.SAFE if all(is_grad_mode(file, v) for v in lost) else Applicability.UNSAFE),
        )

    def lost(self, file: SourceFile, joined: ast.BoolOp, made: set[ast.expr]) -> list[ast.expr]:
        """The operands that are built and never entered, where one of the operands is an autocast.

        `a and b` is `b` whatever `b` is, once `a` is a context manager: what stands before the last operand is lost for sure.
        """
        values = joined.values
        first = values[0] in made or is_grad_mode(file, values[0])
        if not any(v in made for v in values) or not first:
            return []
        dropped = values[:-1] if isinstance(joined.op, ast.And) else values[1:]
        return [v for v in dropped if v in made or is_grad_mode(file, v)]

    def comma(self, file: SourceFile, block: ast.With | ast.AsyncWith, item: ast.withitem, how: Applicability) -> Fix | None:
        """Commas for the operators; None in parentheses of a `with` that names or lists more."""
        joined = item.context_expr
        assert isinstance(joined, ast.BoolOp)
        line, column, _, _ = file.span(joined)
        if item.optional_vars is not None or (file.lines[line - 1][:column].rstrip().endswith("(") and len(block.items) > 1):
            return None
        if not all(self.is_manager(file, value) for value in joined.values):
            return None
        changes = []
        for left, right in zip(joined.values, joined.values[1:], strict=False):
            start, end = file.span(left), file.span(right)
            between = file.lines[start.end_line - 1][start.end_column : end.column] if start.end_line == end.line else ""
            if between.strip().rstrip("( ") not in ("and", "or"):
                return None
            opened = len(between) - between.find("(") if "(" in between else 0
            changes.append(Replace(Span(start.end_line, start.end_column, end.line, end.column - opened), ", "))
        return Fix("Separate the context managers by commas", how, tuple(changes))

    def is_manager(self, file: SourceFile, value: ast.expr) -> bool:
        """Whether an expression is a context manager of torch, whichever arm of it is taken."""
        arms = alternatives(value)
        return all(is_grad_mode(file, arm) or is_trainers(arm) or (isinstance(arm, ast.Call) and is_autocast(file, arm)) for arm in arms)


def is_grad_mode(file: SourceFile, value: ast.expr) -> bool:
    """Whether an expression is `torch.no_grad()` or one of its kin, whichever arm of it is taken."""
    return all(isinstance(arm, ast.Call) and file.names.resolve(arm.func) in GRAD_MODES for arm in alternatives(value))


def is_autocast(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call builds an autocast of torch."""
    return any(name in AUTOCASTS for name in file.names.candidates(call.func))


def is_trainers(value: ast.expr) -> bool:
    """Whether an expression that a `with` enters is the autocast of an accelerator or a Fabric."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "autocast" and not value.args


def is_probe(file: SourceFile, node: ast.Call) -> bool:
    """Whether a call stands where an error is expected: in a short `try` body, or under `pytest.raises` and its kin."""
    statement = file.syntax.statement(node)
    for parent in file.syntax.ancestors(node):
        if isinstance(parent, ast.Try) and statement in parent.body[:3]:
            return True
        if isinstance(parent, ast.With | ast.AsyncWith):
            names = [ast.unparse(item.context_expr.func) for item in parent.items if isinstance(item.context_expr, ast.Call)]
            if any(name.rpartition(".")[2].startswith(EXPECTING) for name in names):
                return True
        if isinstance(parent, FUNCTIONS):
            return False
    return False
