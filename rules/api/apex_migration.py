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
    WrapStatements,
)
from mplint.source.arguments import set_keyword
from mplint.source.file import SourceFile
from mplint.source.names import position
from mplint.source.syntax import FUNCTIONS, Function, has_star
from mplint.source.torch.apex import Apex
from mplint.source.torch.gradients import CLIP, NORM, Gradients

from .apex_setup import NoFix, require, setup_of

KNOWN = {"initialize", "scale_loss", "master_params", "state_dict", "load_state_dict"}


def migrate(file: SourceFile, apex: Apex) -> Fix | None:
    """All changes for the file, or None where one of them can't be told."""
    try:
        changes = tuple(Migration(file, apex).changes())
    except NoFix:
        return None
    return Fix("Use torch.amp instead", Applicability.UNSAFE, tuple(dict.fromkeys(changes)))


class Migration:
    """Collects the changes; raises NoFix at the first thing that is not standard."""

    def __init__(self, file: SourceFile, apex: Apex) -> None:
        self.file, self.apex = file, apex
        self.syntax = file.syntax
        require(all(use.function in KNOWN for use in apex.uses))
        self.calls: dict[str, list[ast.Call]] = {name: [] for name in KNOWN}
        for use in apex.uses:
            call = self.syntax.parents.get(use.node)
            if not isinstance(call, ast.Call) or call.func is not use.node or has_star(call):
                raise NoFix
            self.calls[use.function].append(call)
        require(len(self.calls["initialize"]) == 1 and bool(self.calls["scale_loss"]))
        self.setup = setup_of(file, self.calls["initialize"][0])
        self.owner = self.syntax.function(self.setup.call)
        self.needs_scaler: list[ast.AST] = []

    def changes(self) -> Iterator[Change]:
        """Everything that has to change, forward passes first."""
        yield from self._setup()
        for call in self.calls["scale_loss"]:
            yield from self._backward(call)
        yield from self._steps()
        yield from self._clips()
        for name in ("state_dict", "load_state_dict"):
            for call in self.calls[name]:
                self._reach(call)
                yield Replace(self.file.span(call.func), f"{self.setup.scaler}.{name}")
        yield from self._parameters()
        yield from self._imports()

    def _setup(self) -> Iterator[Change]:
        """Build the scaler, whatever the condition: it goes with the imports that only mixed precision needed."""
        statement = self.syntax.statement(self.setup.call)
        yield Replace(self.file.span(statement), f"{self.setup.scaler} = {self.setup.construction}")
        if self.setup.branch is not None:
            yield UnwrapBlock(self.file.span(self.setup.branch))
            yield from (RemoveStatement(self.file.span(s)) for s in self.setup.branch.body if s is not statement)

    def _backward(self, call: ast.Call) -> Iterator[Change]:
        """Scale the loss in place of the block, and run what computes it under autocast."""
        item = self.syntax.parents[call]
        block = self.syntax.parents[item]
        match block, item, call.args:
            case ast.With(items=[_]), ast.withitem(optional_vars=ast.Name(id=held)), [loss, optimizer] if not call.keywords:
                pass
            case _:
                raise NoFix
        require(ast.unparse(optimizer) == self.setup.optimizer)
        self._reach(block)
        scaled = f"{self.setup.scaler}.scale({self.file.text(loss)})"
        names = [n for s in block.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == held]
        backwards = [p for n in names if isinstance(p := self.syntax.parents[n], ast.Attribute) and p.attr == "backward"]
        require(len(names) == len(backwards) == 1 and not any(n.id == held and n not in names for n in self._reads(block)))
        twin = self._twin(block, loss)
        if twin is not None:
            statement = block.body[0]
            text = self.file.text(statement)
            yield Replace(self.file.span(twin), scaled + text.removeprefix(held))
        else:
            yield Replace(self.file.span(names[0]), scaled)
            yield UnwrapBlock(self.file.span(block))
        yield from self._forward(twin or block, loss)

    def _reads(self, block: ast.With) -> list[ast.Name]:
        """The names that are read in the function after a block."""
        function = self.syntax.function(block) or self.syntax.tree
        return [n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and position(n) > position(block)]

    def _twin(self, block: ast.With, loss: ast.expr) -> ast.If | None:
        """The `if` around a block whose other arm is the plain backward of the same loss, where it can go as a whole."""
        parent = self.syntax.parents[block]
        match parent:
            case ast.If(body=[only], orelse=[ast.Expr(value=plain)]) if only is block and len(block.body) == 1:
                alike = ast.unparse(plain) == ast.unparse(block.body[0]).replace(ast.unparse(self._held(block)), ast.unparse(loss), 1)
                require(ast.unparse(parent.test) == self.setup.enabled)
                return parent if alike and "#" not in self.file.text(parent) else None
        if isinstance(parent, ast.If):
            test = ast.unparse(parent.test)
            inside = any(s is block for s in parent.body)
            require(not parent.orelse or test == (self.setup.enabled if inside else f"not {self.setup.enabled}"))
        return None

    def _held(self, block: ast.With) -> ast.expr:
        held = block.items[0].optional_vars
        if held is None:
            raise NoFix
        return held

    def _forward(self, anchor: ast.stmt, loss: ast.expr) -> Iterator[Change]:
        """Wrap the statements before `anchor` that run the model and compute the loss."""
        if isinstance(loss, ast.BinOp):
            loss = loss.left
        if not isinstance(loss, ast.Name):
            raise NoFix
        header = f"with {self.setup.autocast}:"
        self._see_condition(anchor)
        own = self._before(anchor)
        last = max((i for i, s in enumerate(own) if binds(s, loss.id)), default=None)
        if last is None:
            outer = self.syntax.parents[anchor]
            if not isinstance(outer, ast.If):
                raise NoFix
            yield from self._forward(outer, loss)
            return
        first = min((i for i, s in enumerate(own[: last + 1]) if self._runs_model(s)), default=None)
        if first is None:
            first = min(i for i, s in enumerate(own) if binds(s, loss.id))
            yield from self._outer_forward(anchor, header)
        chosen = own[first : last + 1]
        require(not any(self._is_touched(s) for s in chosen))
        yield WrapStatements(self.file.span(chosen[0]), self.file.span(chosen[-1]), header)

    def _see_condition(self, anchor: ast.stmt) -> None:
        """Make sure that the condition means the same where the forward pass stands."""
        function = self.syntax.function(anchor)
        if not self.setup.enabled or function is self.owner:
            return
        tree = ast.parse(self.setup.enabled, mode="eval")
        for name in {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - {"self"}:
            scopes = [scope for scope in (function, self.owner, self.syntax.tree) if scope is not None]
            bound = [scope for scope in scopes if name in self.file.names.bindings.get(scope, {})]
            handed = function is not None and any(a.arg == name for a in function.args.args)
            require(handed or bound[:1] == [self.syntax.tree])

    def _outer_forward(self, anchor: ast.stmt, header: str) -> Iterator[Change]:
        """Wrap the model's run where it stands before the condition around the loss."""
        outer = self.syntax.parents[anchor]
        while isinstance(outer, ast.If):
            own = self._before(outer)
            runs = [i for i, s in enumerate(own) if self._runs_model(s)]
            if runs:
                chosen = own[runs[0] : runs[-1] + 1]
                require(not any(self._is_touched(s) for s in chosen))
                yield WrapStatements(self.file.span(chosen[0]), self.file.span(chosen[-1]), header)
                return
            outer = self.syntax.parents[outer]
        raise NoFix

    def _before(self, statement: ast.stmt) -> list[ast.stmt]:
        block = self.syntax.block(statement)
        return block[: next(i for i, s in enumerate(block) if s is statement)]

    def _runs_model(self, statement: ast.stmt) -> bool:
        """Whether the model is called, or handed to what computes with it."""
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            return False
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                taken = [node.func, *node.args, *(k.value for k in node.keywords)]
                if any(isinstance(a, (ast.Name, ast.Attribute)) and ast.unparse(a) == self.setup.model for a in taken):
                    return True
        return False

    def _is_touched(self, statement: ast.stmt) -> bool:
        """Whether a statement holds what the migration changes, or leaves its block."""
        mine = {id(call) for calls in self.calls.values() for call in calls} | {id(step) for step in self._stepped}
        for node in ast.walk(statement):
            if id(node) in mine or isinstance(node, (ast.Break, ast.Continue, ast.Return)):
                return True
            if isinstance(node, ast.Attribute) and node.attr == "backward":
                return True
        return False

    @property
    def _stepped(self) -> list[ast.Call]:
        """The calls of the optimizer's `step`."""
        found = []
        for call in self.syntax.all(ast.Call):
            match call.func:
                case ast.Attribute(attr="step", value=owner) if ast.unparse(owner) == self.setup.optimizer:
                    found.append(call)
        return found

    def _steps(self) -> Iterator[Change]:
        """Step and update through the scaler."""
        require(bool(self._stepped))
        for call in self._stepped:
            statement = self.syntax.statement(call)
            require(isinstance(statement, ast.Expr) and statement.value is call and not call.args and not call.keywords)
            self._reach(call)
            yield Replace(self.file.span(call), f"{self.setup.scaler}.step({self.setup.optimizer})")
            yield InsertStatements(self.file.span(statement), (f"{self.setup.scaler}.update()",), after=True)

    def _clips(self) -> Iterator[Change]:
        """Unscale before the first look at the gradients, and take the model's own parameters."""
        for call in self.calls["master_params"]:
            require(len(call.args) == 1 and ast.unparse(call.args[0]) == self.setup.optimizer)
            yield Replace(self.file.span(call), f"{self.setup.model}.parameters()")
        placed: list[ast.stmt] = []
        for node in sorted([*self.calls["master_params"], *self._looks()], key=position):
            statement = self.syntax.statement(node)
            above = {id(s) for s in (statement, *self.syntax.ancestors(statement))}
            if any(id(later) in above for done in placed for later in self.syntax.block(done) if position(later) >= position(done)):
                continue
            require(any(self._runs_with(statement, step) for step in self._stepped))
            self._reach(node)
            placed.append(statement)
            yield InsertStatements(self.file.span(statement), (f"{self.setup.scaler}.unscale_({self.setup.optimizer})",))

    def _looks(self) -> list[ast.expr]:
        """What else clips, measures or reads gradients between the backward and the step; apex had unscaled them by then."""
        gradients = Gradients(self.file)
        found: list[ast.expr] = [call for call in self.syntax.all(ast.Call) if gradients.kind(call) in (CLIP, NORM)]
        found += [a for a in self.syntax.all(ast.Attribute) if a.attr == "grad" and isinstance(a.ctx, ast.Load) and not is_autograd(a)]
        return [node for node in found if self._is_between(node) and not self._is_plain_arm(node)]

    def _is_between(self, node: ast.expr) -> bool:
        """Whether a node stands after a scaled backward and before a step of the same function, or in a function of its own."""
        function = self.syntax.function(node)
        backwards = [c for c in self.calls["scale_loss"] if self.syntax.function(c) is function]
        steps = [c for c in self._stepped if self.syntax.function(c) is function]
        if not backwards and not steps:
            require(function is None or not self.file.values.call_sites.get(function))
            return False
        return all(position(c) < position(node) for c in backwards[:1]) and all(position(node) < position(c) for c in steps[-1:])

    def _is_plain_arm(self, node: ast.expr) -> bool:
        """Whether a node runs only where mixed precision is off."""
        child: ast.AST = node
        for parent in self.syntax.ancestors(node):
            if isinstance(parent, ast.If) and any(child is s for s in parent.orelse) and ast.unparse(parent.test) == self.setup.enabled:
                return True
            child = parent
        return False

    def _runs_with(self, clip: ast.stmt, step: ast.Call) -> bool:
        """Whether a step follows whenever the clip runs: unscaling twice before a step is an error."""
        block = self.syntax.block(self.syntax.statement(step))
        around = [clip, *(p for p in self.syntax.ancestors(clip) if isinstance(p, ast.stmt))]
        here = next((s for s in around if any(s is item for item in block)), None)
        loops = [p for p in around[: around.index(here)] if isinstance(p, (ast.For, ast.While))] if here is not None else []
        return here is not None and position(here) < position(step) and (not loops or clip in loops)

    def _reach(self, node: ast.AST) -> None:
        """Note that the scaler is needed at `node`."""
        self.needs_scaler.append(node)

    def _parameters(self) -> Iterator[Change]:
        """Hand the scaler to the functions that need it, where the function that builds it calls them all."""
        name = self.setup.scaler
        if name.startswith("self."):
            owner = self.syntax.enclosing_class(self.setup.call)
            require(owner is not None and all(self.syntax.enclosing_class(n) is owner for n in self.needs_scaler))
            return
        functions = [f for f in dict.fromkeys(self.syntax.function(n) for n in self.needs_scaler) if f is not self.owner]
        if self.owner is None:
            require(all(f is not None for f in functions))
            return
        for function in functions:
            if function is None:
                raise NoFix
            yield from self._parameter(function, name)

    def _parameter(self, function: Function, name: str) -> Iterator[Change]:
        spec = function.args
        sites = self.file.values.call_sites.get(function, [])
        require(bool(sites) and bool(spec.args) and not (spec.vararg or spec.kwarg or spec.kwonlyargs or function.decorator_list))
        last = spec.defaults[-1] if spec.defaults else spec.args[-1]
        span = self.file.span(last)
        yield Replace(span, f"{self.file.text(last)}, {name}{'=None' if spec.defaults else ''}")
        for call in sites:
            require(self.syntax.function(call) is self.owner and position(call) > position(self.setup.call) and not has_star(call))
            yield set_keyword(self.file, call, name, name)

    def _imports(self) -> Iterator[Change]:
        """Take the imports away, with the `try` around one that holds nothing else."""
        for item in self.apex.imports:
            if self.setup.branch is not None and any(p is self.setup.branch for p in self.syntax.ancestors(item.statement)):
                continue
            parent = self.syntax.parents[item.statement]
            if isinstance(parent, ast.Try):
                flags = {n.id for n in ast.walk(parent) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - {item.name}
                plain = all(isinstance(s, (ast.Import, ast.ImportFrom, ast.Assign)) for s in parent.body)
                require(plain and not parent.finalbody and not parent.orelse)
                if len(item.statement.names) == 1 and sum(isinstance(s, (ast.Import, ast.ImportFrom)) for s in parent.body) == 1:
                    require(not any(n.id in flags and isinstance(n.ctx, ast.Load) for n in self.syntax.all(ast.Name)))
                    yield RemoveStatement(self.file.span(parent))
                    continue
                require(not flags or item.name not in flags)
            yield RemoveImport(self.file.span(item.statement), item.alias.name)
        if not any(a.name == "torch" and a.asname is None for i in self.syntax.all(ast.Import) for a in i.names):
            yield AddImport("torch")


def is_autograd(node: ast.Attribute) -> bool:
    """Whether `x.grad` is the function of torch.autograd."""
    return ast.unparse(node.value).endswith("autograd")


def binds(statement: ast.stmt, name: str) -> bool:
    """Whether a statement assigns to a name, nested ones included."""
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(statement))
