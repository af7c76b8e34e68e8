"""The fix of MP104: one change that turns the standard apex.amp pattern of a file into autocast and a GradScaler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import (
    AddImport,
    Applicability,
    Change,
    Fix,
    InsertStatements,
    RemoveImport,
    RemoveStatement,
    Replace,
    UnwrapBlock,
)
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.python.syntax import Function, argument, has_star
from mplint.recipes.scaler.handing import handed_on
from mplint.recipes.scaler.plan import NoFix, require
from mplint.recipes.scaler.steps import another_follows

from .forward import Forward
from .looks import Looks
from .parallel import parallel_changes
from .roles import Roles
from .setup import asks_for_apex, conjuncts, setup_of, without_availability
from .uses import Apex, Import

KNOWN = {"initialize", "scale_loss", "master_params", "state_dict", "load_state_dict", "register_half_function"}
HALF_ALREADY = {"einsum", "matmul", "bmm", "mm", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d", "linear"}


def migrate(file: SourceFile, apex: Apex) -> tuple[Fix | None, str]:
    """All changes for the file, or None and the reason why there is no fix."""
    try:
        changes = tuple(Migration(file, apex).changes())
    except NoFix as reason:
        return None, str(reason)
    return Fix("Use torch.amp instead", Applicability.UNSAFE, tuple(dict.fromkeys(changes))), ""


class Migration:
    """Collects the changes; raises NoFix at the first thing that is not standard."""

    def __init__(self, file: SourceFile, apex: Apex) -> None:
        self.file, self.apex, self.syntax = file, apex, file.syntax
        self.calls: dict[str, list[ast.Call]] = {name: [] for name in KNOWN}
        for use in apex.uses:
            call = self.syntax.parents.get(use.node)
            if not use.function and isinstance(call, ast.Compare) and asks_for_apex(apex, call):
                continue
            require(bool(use.function), "`amp` itself is handed on")
            require(use.function in KNOWN, f"`{use.function}` has no counterpart in torch.amp")
            if not isinstance(call, ast.Call) or call.func is not use.node or has_star(call):
                raise NoFix(f"`{use.function}` is handed on instead of called")
            self.calls[use.function].append(call)
        require(bool(self.calls["initialize"]), "`amp.initialize` is called in another file")
        require(bool(self.calls["scale_loss"]), "`amp.scale_loss` is called in another file")
        require(len(self.calls["initialize"]) == 1, "`amp.initialize` is called in several places")
        restored = bool(self.calls["load_state_dict"]) or not self.calls["state_dict"]
        require(restored, "the state that is saved here may be restored in another file")
        self.setup = setup_of(file, apex, self.calls["initialize"][0], self.calls["scale_loss"])
        self.roles = Roles(file, self.setup, apex.definitions)
        self.stepped = [c for c in self._steps_of_optimizers() if not self.is_plain_arm(c) and not self._is_too_early(c)]
        require(bool(self.stepped), "the optimizer's step is not in sight")
        self.barriers = {id(call) for calls in self.calls.values() for call in calls} | {id(step) for step in self.stepped}
        self.forward = Forward(file, self.setup, self.roles, self.barriers)
        self.needs_scaler: list[ast.AST] = []
        self.gone: set[int] = set()

    def changes(self) -> Iterator[Change]:
        """Everything that has to change."""
        yield from self._setup()
        for call in self.calls["scale_loss"]:
            yield from self._backward(call)
        yield from self._other_backwards()
        yield from self.forward.changes()
        yield from self._steps()
        yield from self._idle_steps()
        looks = Looks(self.file, self.setup, self.roles, self.calls, self.stepped)
        yield from looks.changes(self.is_plain_arm)
        self.needs_scaler += looks.needs_scaler
        for name in ("state_dict", "load_state_dict"):
            for call in self.calls[name]:
                self.needs_scaler.append(call)
                yield Replace(self.file.span(call.func), f"{self.setup.scaler}.{name}")
        for call in self.calls["register_half_function"]:
            yield self._already_half(call)
        yield from handed_on(self.file, self.setup.call, self.setup.scaler, self.needs_scaler)
        parallel, unneeded, gone = parallel_changes(self.file)
        self.gone |= gone
        yield from parallel
        yield from self._imports([*self.apex.imports, *unneeded])

    def is_plain_arm(self, node: ast.AST) -> bool:
        """Whether a node runs only where mixed precision is off."""
        child = node
        for parent in self.syntax.ancestors(node):
            if isinstance(parent, ast.If):
                test = self._condition(parent.test)
                negated = bool(self.setup.enabled) and test == f"not {self.setup.enabled}"
                arm = parent.orelse if self._is_implied(test) else parent.body if negated else []
                if any(child is s for s in arm):
                    return True
            child = parent
        return False

    def _condition(self, test: ast.expr) -> str:
        return self.setup.canonical(without_availability(self.file, self.apex, test))

    def _is_implied(self, test: str) -> bool:
        """Whether mixed precision is off where a condition does not hold: it is the setup's, or a part of it."""
        enabled = self.setup.enabled
        return test in ("", enabled) or (bool(enabled) and test in {ast.unparse(p) for p in conjuncts(tree_of(enabled))})

    def _setup(self) -> Iterator[Change]:
        """Build the scaler, whatever the condition: it goes with the imports that only mixed precision needed."""
        setup, statement = self.setup, self.syntax.statement(self.setup.call)
        built = f"{setup.scaler} = {setup.construction}"
        self.gone |= {id(n) for n in ast.walk(statement)}
        if setup.branch is not None and not setup.alone:
            others = [s for s in setup.branch.body if s is not statement]
            require(bool(others) or bool(setup.rebound), "`amp.initialize` is all that its branch does, and there is another branch")
            yield InsertStatements(self.file.span(setup.branch), (built,))
            yield Replace(self.file.span(statement), setup.rebound) if setup.rebound else RemoveStatement(self.file.span(statement))
            return
        yield Replace(self.file.span(statement), built)
        if setup.rebound:
            yield InsertStatements(self.file.span(statement), (setup.rebound,))
        if setup.branch is not None:
            require(not setup.rebound, "model or optimizer get a new name only with mixed precision")
            self.gone |= {id(n) for n in ast.walk(setup.branch.test)}
            yield UnwrapBlock(self.file.span(setup.branch))
            yield from (RemoveStatement(self.file.span(s)) for s in setup.branch.body if s is not statement)

    def _backward(self, call: ast.Call) -> Iterator[Change]:
        """Scale the loss in place of the block, and run what computes it under autocast."""
        item = self.syntax.parents[call]
        block = self.syntax.parents[item]
        loss, optimizer = argument(call, "loss", 0), argument(call, "optimizers", 1)
        match block, item:
            case ast.With(items=[_]), ast.withitem(optional_vars=ast.Name(id=held)) if loss is not None and optimizer is not None:
                pass
            case _:
                raise NoFix("`amp.scale_loss` is not the usual `with` statement")
        require({k.arg for k in call.keywords} <= {"loss", "optimizers", "loss_id", "delay_unscale", "model"}, "`scale_loss` has options")
        steps = {ast.unparse(o) for o in (optimizer.elts if isinstance(optimizer, (ast.List, ast.Tuple)) else [optimizer])}
        require(steps <= self.roles.optimizers(call), "the loss is scaled for an optimizer that `amp.initialize` did not get")
        self.needs_scaler.append(block)
        names = [n for s in block.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == held]
        backwards = [p for n in names if isinstance(p := self.syntax.parents[n], ast.Attribute) and p.attr == "backward"]
        alone = len(names) == len(backwards) == 1 and not any(n.id == held and n not in names for n in self._read_after(block))
        require(alone, "the scaled loss is used for more than its backward pass")
        scaled = f"{self.setup.scaler}.scale({self.file.text(loss)})"
        twin = self._twin(block, held, loss)
        if twin is not None:
            self.gone |= {id(n) for n in ast.walk(twin.test)}
            yield Replace(self.file.span(twin), scaled + self.file.text(block.body[0]).removeprefix(held))
        else:
            yield Replace(self.file.span(names[0]), scaled)
            yield UnwrapBlock(self.file.span(block))
        self.forward.need(twin or block, loss)

    def _other_backwards(self) -> Iterator[Change]:
        """Scale the losses beside: apex had unscaled the gradients by then, a scaler unscales all of them at the step."""
        scaled = self.calls["scale_loss"]
        inside = {id(n) for call in scaled for n in ast.walk(self.syntax.statement(call))}
        functions = {self.syntax.function(call) for call in scaled}
        for call in self.syntax.all(ast.Call):
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "backward" or id(call) in inside or self.is_plain_arm(call):
                continue
            beside = self.syntax.function(call) in functions and not all(self.file.names.exclusive(call, s) for s in scaled)
            if not beside and self._called_from(call, functions):
                raise NoFix("another loss runs backward unscaled, in a function that the training loop calls")
            if not beside:
                continue
            statement, loss = self.syntax.statement(call), call.func.value
            plain = isinstance(statement, ast.Expr) and statement.value is call and isinstance(loss, ast.Name | ast.Attribute)
            unscaled = f"`{self.file.text(call)}` runs unscaled between the scaled backward pass and the step"
            require(plain and not self._steps_of_others(call), unscaled)
            self.needs_scaler.append(call)
            yield Replace(self.file.span(loss), f"{self.setup.scaler}.scale({self.file.text(loss)})")
            self.forward.need(statement, loss)

    def _called_from(self, call: ast.Call, functions: set[Function | None]) -> bool:
        """Whether one of some functions calls the one around a call."""
        function = self.syntax.function(call)
        sites = self.apex.definitions.call_sites.get(function, ()) if function is not None else ()
        return any(self.syntax.function(site) in functions for site in sites if not self.is_plain_arm(site))

    def _steps_of_others(self, call: ast.Call) -> bool:
        """Whether an optimizer that apex was not given steps in the function around a call."""
        known, function = self.roles.optimizers(call), self.syntax.function(call)
        steps = [c.func.value for c in self.syntax.all(ast.Call) if isinstance(c.func, ast.Attribute) and c.func.attr == "step"]
        owners = {ast.unparse(owner) for owner in steps if self.syntax.function(owner) is function}
        return any("opt" in owner.lower() and owner not in known for owner in owners)

    def _read_after(self, block: ast.With) -> list[ast.Name]:
        """The names that are read in the function after a block, and outside the other blocks that scale a loss."""
        function = self.syntax.function(block) or self.syntax.tree
        others = {id(n) for call in self.calls["scale_loss"] for n in ast.walk(self.syntax.statement(call))} - {
            id(n) for n in ast.walk(block)
        }
        read = [n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in others]
        return [n for n in read if position(n) > position(block)]

    def _twin(self, block: ast.With, held: str, loss: ast.expr) -> ast.If | None:
        """The `if` around a block whose other arm is the plain backward of the same loss, where it can go as a whole."""
        parent = self.syntax.parents[block]
        if not isinstance(parent, ast.If):
            return None
        inside = any(s is block for s in parent.body)
        test = self._condition(parent.test)
        same = self._is_implied(test) if inside else test == f"not {self.setup.enabled}"
        if inside and same and parent.body == [block] and len(block.body) == 1 and "#" not in self.file.text(parent):
            match parent.orelse:
                case [ast.Expr(value=plain)] if ast.unparse(plain) == ast.unparse(block.body[0]).replace(held, ast.unparse(loss), 1):
                    return parent
                case [] if not test:
                    return parent
        fits = same or (inside and self._is_implied(test))
        require(not parent.orelse or fits, "the condition of `amp.scale_loss` is not that of `amp.initialize`")
        return None

    def _steps_of_optimizers(self) -> Iterator[ast.Call]:
        for call in self.syntax.all(ast.Call):
            match call.func:
                case ast.Attribute(attr="step", value=owner) if ast.unparse(owner) in self.roles.optimizers(call):
                    yield call

    def _is_too_early(self, step: ast.Call) -> bool:
        """Whether a step comes before the first backward pass of its function, outside the loop."""
        function = self.syntax.function(step)
        scaled = [c for c in self.calls["scale_loss"] if self.syntax.function(c) is function]
        loops = {id(p) for p in self.syntax.ancestors(step) if isinstance(p, (ast.For, ast.While))}
        return bool(scaled) and all(
            position(step) < position(c) and not any(id(p) in loops for p in self.syntax.ancestors(c)) for c in scaled
        )

    def _steps(self) -> Iterator[Change]:
        """Step through the scaler, and update it after the last of the steps that use one backward pass."""
        for call in self.stepped:
            statement = self.syntax.statement(call)
            plain = isinstance(statement, ast.Expr) and statement.value is call and not call.args and not call.keywords
            require(plain, "the optimizer's step takes a closure")
            self.needs_scaler.append(call)
            optimizer = self.file.text(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            yield Replace(self.file.span(call), f"{self.setup.scaler}.step({optimizer})")
            if not another_follows(self.file, call, self.stepped, self.calls["scale_loss"]):
                yield InsertStatements(self.file.span(statement), (f"{self.setup.scaler}.update()",), after=True)

    def _idle_steps(self) -> Iterator[Change]:
        """Drop steps before the first backward pass that follow right on `zero_grad`: they got apex going, and step nothing."""
        for call in self._steps_of_optimizers():
            statement = self.syntax.statement(call)
            block = self.syntax.block(statement)
            at = next(i for i, s in enumerate(block) if s is statement)
            cleared = ast.unparse(call.func).removesuffix("step") + "zero_grad()"
            if self._is_too_early(call) and at and ast.unparse(block[at - 1]) == cleared and isinstance(statement, ast.Expr):
                yield RemoveStatement(self.file.span(statement))

    def _already_half(self, call: ast.Call) -> Change:
        """Drop the registration of a function that autocast runs in float16 anyway."""
        statement = self.syntax.statement(call)
        name = argument(call, "name", 1)
        known = isinstance(name, ast.Constant) and name.value in HALF_ALREADY and isinstance(statement, ast.Expr)
        require(known, "`register_half_function` has no counterpart in torch.amp")
        self.gone |= {id(n) for n in ast.walk(statement)}
        return RemoveStatement(self.file.span(self._emptied(statement)))

    def _emptied(self, statement: ast.stmt) -> ast.stmt:
        """The outermost statement of which nothing is left when a statement goes: an `if` or a `try` around it."""
        parent = self.syntax.parents[statement]
        dropped = {id(item.alias) for item in self.apex.imports} | {
            id(a) for s in self.syntax.all(ast.Import) for a in s.names if a.name == "apex"
        }
        match parent:
            case ast.If(body=body, orelse=[]) | ast.Try(body=body, orelse=[], finalbody=[]) if isinstance(parent, (ast.If, ast.Try)):
                if all(s is statement or self._is_gone(s, dropped) for s in body):
                    self.gone |= {id(n) for n in ast.walk(parent)}
                    return self._emptied(parent)
        return statement

    def _imports(self, unneeded: list[Import]) -> Iterator[Change]:
        """Take imports away, with the `try` around them where it holds nothing else."""
        self.gone |= {id(n) for calls in self.calls.values() for call in calls for n in ast.walk(call.func)}
        if not any(n.id == "apex" and isinstance(n.ctx, ast.Load) and id(n) not in self.gone for n in self.syntax.all(ast.Name)):
            plain = [(s, a) for s in self.syntax.all(ast.Import) for a in s.names if a.name == "apex" and not a.asname]
            unneeded += [Import(s, a, "apex") for s, a in plain]
        dropped = {id(item.alias) for item in unneeded}
        flags: set[str] = set()
        for item in unneeded:
            parent = self.syntax.parents[item.statement]
            if id(item.statement) in self.gone or (
                self.setup.alone and any(p is self.setup.branch for p in self.syntax.ancestors(item.statement))
            ):
                continue
            if isinstance(parent, ast.Try):
                empty = all(self._is_gone(s, dropped) for s in parent.body) and not parent.finalbody and not parent.orelse
                if empty:
                    flags |= {n.id for n in ast.walk(parent) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
                    yield RemoveStatement(self.file.span(parent))
                    continue
                require(item.name not in {n.id for n in ast.walk(parent) if isinstance(n, ast.Name)}, "the import of apex has a substitute")
            yield RemoveImport(self.file.span(item.statement), item.alias.name)
        if {id(item.alias) for item in self.apex.imports} <= dropped:
            flags |= self.apex.flags
        used = [n for n in self.syntax.all(ast.Name) if n.id in flags and isinstance(n.ctx, ast.Load) and id(n) not in self.gone]
        require(not used, "the file also asks elsewhere whether apex is installed")
        for statement in self.file.tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() | ast.Compare()) if name in flags:
                    yield RemoveStatement(self.file.span(statement))
        if not any(a.name == "torch" and a.asname is None for i in self.syntax.all(ast.Import) for a in i.names):
            yield AddImport("torch")

    def _is_gone(self, statement: ast.stmt, dropped: set[int]) -> bool:
        """Whether nothing of a statement is left: imports that are dropped, flags, registrations."""
        match statement:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                return all(id(alias) in dropped for alias in names)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant()):
                return name in self.apex.flags
            case ast.Expr(value=value):
                return id(value) in self.gone
        return False


def tree_of(text: str) -> ast.expr:
    """The expression that a text is."""
    return ast.parse(text, mode="eval").body
