"""Where a migrated program looks at its gradients between backward and step: apex had unscaled them by then."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from mplint.findings import Change, InsertStatements, RemoveStatement, Replace
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.recipes.scaler.looks import gradient_looks, is_after_one_of, runs_with
from mplint.recipes.scaler.plan import NoFix, require

from .roles import Roles
from .setup import Setup

ONCE = "gradients are clipped or read where no step follows, and `unscale_` works once a step: do it before the step"


class Looks:
    """Unscales before the first look of every step, and takes the model's own parameters for apex's copies."""

    def __init__(self, file: SourceFile, setup: Setup, roles: Roles, calls: dict[str, list[ast.Call]], stepped: list[ast.Call]) -> None:
        self.file, self.syntax, self.setup, self.roles = file, file.syntax, setup, roles
        self.masters, self.scaled, self.stepped = calls["master_params"], calls["scale_loss"], stepped
        self.needs_scaler: list[ast.AST] = []

    def changes(self, is_plain_arm: Callable[[ast.AST], bool]) -> Iterator[Change]:
        """The replaced parameters, and an `unscale_` before each first look."""
        moved: set[int] = set()
        blocks = {id(n) for call in self.scaled for n in ast.walk(self.syntax.statement(call))}  # apex kept gradients scaled in there
        found = gradient_looks(self.file, self.scaled, self.stepped)
        looks = [node for node in found if id(node) not in blocks and not is_plain_arm(node)]
        placed: list[tuple[ast.stmt, str]] = []
        for node in sorted([*self.masters, *looks], key=position):
            statement = self.syntax.statement(node)
            optimizer = self._optimizer(node)
            if is_after_one_of(self.file, statement, [s for s, of in placed if of == optimizer]):
                continue
            if not any(runs_with(self.file, statement, step) for step in self.stepped):
                moved |= {id(n) for n in ast.walk(statement)}
                yield from self._moved(node, statement, optimizer, is_plain_arm)
                placed.append((statement, optimizer))
                continue
            self.needs_scaler.append(node)
            placed.append((statement, optimizer))
            yield InsertStatements(self.file.span(statement), (f"{self.setup.scaler}.unscale_({optimizer})",))
        for call in self.masters:
            if id(call) not in moved:
                yield Replace(self.file.span(call), self._parameters(call))

    def _moved(self, node: ast.AST, clip: ast.stmt, optimizer: str, is_plain_arm: Callable[[ast.AST], bool]) -> Iterator[Change]:
        """Clip before the step, which alone unscales, what was clipped after every backward pass."""
        steps = [
            s for s in self.stepped if self.syntax.function(s) is self.syntax.function(clip) and ast.unparse(s.func) == f"{optimizer}.step"
        ]
        call = self.syntax.parents.get(node) if node in self.masters else node
        require(len(steps) == 1 and isinstance(clip, ast.Expr) and clip.value is call, ONCE)
        step = self.syntax.statement(steps[0])
        loops = [[p for p in self.syntax.ancestors(s) if isinstance(p, (ast.For, ast.While))] for s in (clip, step)]
        require(loops[0] == loops[1] and position(clip) < position(step), ONCE)
        line = ast.unparse(clip)
        for master in (m for m in self.masters if any(m is n for n in ast.walk(clip))):
            line = line.replace(ast.unparse(master), self._parameters(master))
        lines = [f"{self.setup.scaler}.unscale_({optimizer})", line]
        self.needs_scaler.append(step)
        arm = self.syntax.parents[clip]
        outer = arm if isinstance(arm, ast.If) else clip
        require(any(p is self.syntax.parents[outer] for p in self.syntax.ancestors(step)), ONCE)
        gone: ast.stmt = clip
        if isinstance(arm, ast.If):
            require(any(s is clip for s in arm.body), ONCE)
            alone = arm.body == [clip]
            if alone and (not arm.orelse or [ast.unparse(s) for s in arm.orelse] == [line]):
                gone = arm
            else:
                require(not alone and all(is_plain_arm(s) for s in arm.orelse), ONCE)
            if not (gone is arm and arm.orelse):
                lines = [f"if {ast.unparse(arm.test)}:", *(f"    {text}" for text in lines)]
        yield RemoveStatement(self.file.span(gone))
        yield InsertStatements(self.file.span(step), tuple(lines))

    def _parameters(self, call: ast.Call) -> str:
        """The parameters of an optimizer, by the model where it is in sight."""
        optimizer = ast.unparse(call.args[0]) if len(call.args) == 1 else ""
        require(optimizer in self.roles.optimizers(call), "`master_params` gets another optimizer")
        model, models = self.roles.model_of(optimizer), self.roles.models(call)
        if len(self.setup.models) == 1 and model not in models:
            model = min(models, default=None)
        if model is not None and model in models:
            return f"{model}.parameters()"
        return f'[p for group in {optimizer}.param_groups for p in group["params"]]'

    def _optimizer(self, node: ast.AST) -> str:
        """The optimizer whose gradients are looked at."""
        masters = [m for m in self.masters if any(m is n for n in ast.walk(node))]
        if masters:
            return ast.unparse(masters[0].args[0])
        found = self.roles.optimizer_of(self.syntax.statement(node))
        if found is None:
            raise NoFix("it is not clear which optimizer's gradients are clipped or read")
        return found
