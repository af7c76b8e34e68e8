"""The training loop: in which order losses are scaled, gradients unscaled and clipped, optimizers stepped and scalers updated."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.python.conditions import Guard
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS, Function, argument, walk_expressions
from mplint.source.flow import Event, Flow
from mplint.source.torch.autocast import Autocasts
from mplint.source.torch.gradients import RESCALE, Gradients, of_gradients
from mplint.source.torch.modifications import modification
from mplint.source.torch.optimizer import Optimizers
from mplint.source.torch.scaler import Scaler, Scalers, words_of
from mplint.source.torch.trainers import Trainers

if TYPE_CHECKING:
    from mplint.source.file import SourceFile
    from mplint.source.torch.autocast import Region

SCALED = "scaled backward"
MAYBE_SCALED = "backward of a loss that may be scaled"
BACKWARD = "backward"
UNSCALE = "unscale_"
SCALER_STEP = "step by the scaler"
STEP = "step"
UPDATE = "update"
ZERO_GRAD = "zero_grad"
MODIFY = "gradients changed by an amount of their own"
HANDED = "scaler handed to other code"
TRAINER_BACKWARD = "backward by a trainer"
TRAINER_UNSCALE = "unscaling by a trainer"
TRAINER_STEP = "step of an optimizer that a trainer has wrapped"
WRAPPED = "call of a scaler wrapper"
PRECISION_WORDS = {
    "amp",
    "fp16",
    "f16",
    "half",
    "float16",
    "bf16",
    "bfloat16",
    "fp32",
    "float32",
    "scaler",
    "mixed",
    "precision",
    "autocast",
    "apex",
    "dtype",
}
# Functions of other files with these words in their names don't step or update the scaler that they are given.
PASSIVE_WORDS = {
    "save",
    "load",
    "checkpoint",
    "resume",
    "restore",
    "log",
    "logging",
    "logger",
    "print",
    "isinstance",
    "hasattr",
    "len",
    "state",
    "dict",
    "debug",
}


class Act(NamedTuple):
    """Something that the training loop does, at a call.

    `scaler` and `optimizer` are the keys of the objects ("" where there is none), `owner` is the expression that stands for the scaler
    there; `guards`, `loops` and `calls` as in `Event`.
    """

    kind: str
    node: ast.AST
    scaler: str = ""
    optimizer: str = ""
    guards: tuple[Guard, ...] = ()
    loops: tuple[tuple[ast.AST, int], ...] = ()
    calls: tuple[ast.Call, ...] = ()
    owner: ast.expr | None = None


class Walk(NamedTuple):
    """What running one function (or the module) can do; `complete` is False where there were too many paths to follow."""

    scope: Function | ast.Module
    paths: tuple[tuple[Act, ...], ...]
    complete: bool


class TrainingLoop:
    """The training loops of one file."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.scalers = file.fact(Scalers)
        self.optimizers = Optimizers(file, self.scalers)
        self.gradients = Gradients(file)
        self._known: dict[ast.AST, tuple[Event, ...]] = {}
        self._has_gradients = ".grad" in file.document.text
        self._has_trainers = bool(file.fact(Trainers).built)
        kinds = (ast.Call, ast.AugAssign, ast.Assign)
        self.flow = Flow(file.syntax, file.names, file.values, self._events, lambda _: (), lambda _: (), kinds)

    @cached_property
    def walks(self) -> tuple[Walk, ...]:
        """What each function that nothing in the file calls can do, and the module."""
        found = []
        for scope in self.flow.roots():
            paths = self.flow.paths(scope)
            acts: dict[Event, Act] = {}
            for event in (e for path in paths.paths for e in path):
                if event not in acts:
                    acts[event] = self._act(event)
            found.append(Walk(scope, tuple(tuple(acts[e] for e in path) for path in paths.paths), paths.complete))
        return tuple(found)

    def paths(self) -> Iterator[tuple[Act, ...]]:
        """The paths of all walks."""
        for walk in self.walks:
            yield from walk.paths

    def acts(self, kind: str) -> list[Act]:
        """Every act of a kind on some path, each once, in path order."""
        return list(dict.fromkeys(act for path in self.paths() for act in path if act.kind == kind))

    def seen_from(self, act: Act, other: Act) -> ast.AST:
        """The node of `act`, or the call that leads to it, in the function where `other` happens (or an outer one)."""
        common = shared(act, other)
        return act.calls[common] if common < len(act.calls) else act.node

    def exclusive(self, one: Act, other: Act) -> bool:
        """Whether the two stand in different arms of one condition: opposite guards, or an arm that leaves before the other's turn."""
        opposite = {Guard(g.text, not g.holds) for g in other.guards}
        if any(g in opposite for g in one.guards):
            return True
        pairs = [
            (a, b)
            for a in (*one.calls, one.node)
            for b in (*other.calls, other.node)
            if a is not b and self.file.syntax.function(a) is self.file.syntax.function(b)
        ]
        return any(self.file.names.exclusive(a, b) or self._leaves_before(a, b) or self._leaves_before(b, a) for a, b in pairs)

    def _leaves_before(self, node: ast.AST, later: ast.AST) -> bool:
        """Whether `node` stands in an arm that leaves its block, or in a try body whose handler holds `later`: only one of the two runs."""
        syntax = self.file.syntax
        around = {id(parent) for parent in (later, *syntax.ancestors(later))}
        child = node
        for parent in syntax.ancestors(node):
            if isinstance(parent, ast.If) and id(parent) not in around:
                arm = parent.body if any(child is s for s in parent.body) else parent.orelse
                if arm and isinstance(arm[-1], (ast.Return, ast.Continue, ast.Break, ast.Raise)) and position(node) < position(later):
                    return True
            elif (
                isinstance(parent, ast.Try)
                and any(child is s for s in parent.body)
                and any(id(handler) in around for handler in parent.handlers)
            ):
                return True
            elif isinstance(parent, FUNCTIONS):
                return False
            child = parent
        return False

    def chooses_precision(self, act: Act, than: Act) -> bool:
        """Whether `act` is under a condition about precision under which `than` is not: it may belong to the float32 branch."""
        return any(words_of(g.text) & PRECISION_WORDS for g in act.guards if g not in than.guards)

    def is_scaler(self, act: Act, scaler: Scaler) -> bool:
        """Whether the scaler of an act may be the one built there."""
        if act.scaler == scaler.key:
            return True
        return act.owner is not None and any(o is scaler.node for o in self.scalers.subjects.origins(act.owner, act.calls))

    def region_around(self, act: Act) -> Region | None:
        """The innermost autocast region in which `act` happens, through the calls that lead to it."""
        for node in (act.node, *reversed(act.calls)):
            regions = self.file.fact(Autocasts).regions_around(node)
            if regions:
                return regions[0]
        return None

    def kinds(self, node: ast.AST) -> tuple[str, ...]:
        """What the training loop does at one node, whatever leads to it."""
        return tuple(event.kind for event in self._events(node))

    def _act(self, event: Event) -> Act:
        scaler, optimizer = event.detail if isinstance(event.detail, tuple) else (None, None)
        key = self.scalers.subjects.key
        return Act(
            event.kind,
            event.node,
            key(scaler, event.calls) if isinstance(scaler, ast.expr) else "",
            key(optimizer, event.calls) if isinstance(optimizer, ast.expr) else "",
            event.guards,
            event.loops,
            event.calls,
            scaler if isinstance(scaler, ast.expr) else None,
        )

    def _events(self, node: ast.AST) -> tuple[Event, ...]:
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = tuple(self._classify(node))
        return known

    def _classify(self, node: ast.AST) -> Iterator[Event]:
        if self._has_gradients and isinstance(node, (ast.Call, ast.AugAssign, ast.Assign)) and modification(self.file, node) is not None:
            yield Event(MODIFY, node)
        if isinstance(node, ast.AugAssign):
            if of_gradients(node.target):
                yield Event(RESCALE, node)
            return
        if not isinstance(node, ast.Call):
            return
        if (event := self._method(node)) is not None:
            yield event
            return
        if (kind := self.gradients.kind(node)) is not None:
            yield Event(kind, node)
            return
        if not self.scalers.built and not self.scalers.used:
            return
        if self.file.values.callee(node) is None and not words_of(ast.unparse(node.func)) & PASSIVE_WORDS:
            if self.scalers.calls_wrapper(node):
                yield Event(WRAPPED, node, detail=(node.func, argument(node, "optimizer", 1)))
                return
            for given in (*node.args, *(k.value for k in node.keywords)):
                if isinstance(given, (ast.Name, ast.Attribute)) and (self.scalers.scaler_of(given) or self.scalers.is_wrapper(given)):
                    yield Event(HANDED, node, detail=(given, None))

    def _method(self, call: ast.Call) -> Event | None:
        """The event that a method call is by its name and its receiver."""
        if self._has_trainers and (event := self._by_trainer(call)) is not None:
            return event
        match call.func:
            case ast.Attribute(attr="backward", value=loss):
                return self._backward(call, loss)
            case ast.Attribute(attr="unscale_", value=owner) if call.args and self.scalers.scaler_of(owner):
                return Event(UNSCALE, call, detail=(owner, call.args[0]))
            case ast.Attribute(attr="step", value=owner):
                optimizer = argument(call, "optimizer", 0)
                if optimizer is not None and self.scalers.scaler_of(owner):
                    return Event(SCALER_STEP, call, detail=(owner, optimizer))
                if not call.args and not call.keywords and self.optimizers.is_optimizer(owner):
                    return Event(STEP, call, detail=(None, owner))
            case ast.Attribute(attr="update", value=owner) if self.scalers.scaler_of(owner):
                return Event(UPDATE, call, detail=(owner, None))
            case ast.Attribute(attr="zero_grad", value=owner):
                return Event(ZERO_GRAD, call, detail=(None, owner) if self.optimizers.is_optimizer(owner) else None)
            case ast.Attribute(attr="get_scale", value=owner) if of_gradients(self.file.syntax.statement(call)) and self.scalers.scaler_of(
                owner
            ):
                return Event(RESCALE, call)
        return None

    def _by_trainer(self, call: ast.Call) -> Event | None:
        """The event that a call of a trainer object of this file is, or of an optimizer that it has wrapped."""
        trainers = self.file.fact(Trainers)
        match call.func:
            case ast.Attribute(attr="backward", value=owner) if call.args and trainers.made(owner) is not None:
                return Event(TRAINER_BACKWARD, call, detail=(None, owner))
            case ast.Attribute(attr="unscale_gradients" | "unscale_", value=owner) if trainers.stands_for_one(owner):
                return Event(TRAINER_UNSCALE, call)
            case ast.Attribute(attr="step", value=owner) if trainers.wrapped_by(owner) is not None:
                return Event(TRAINER_STEP, call, detail=(None, owner))
        return None

    def _backward(self, call: ast.Call, loss: ast.expr) -> Event | None:
        losses = [loss, *call.args]
        if self.file.names.resolve(call.func) == "torch.autograd.backward":
            losses = call.args[:1]
        elif not self.optimizers.is_loss(loss):
            return None
        scaled = [self._scaler_in(definition) for given in losses for definition in (given, *self.file.values.definitions(given))]
        owner = next((s for s in scaled if s is not None), None)
        if owner is None:
            return Event(BACKWARD, call)
        own = [self._scaler_in(given) for given in losses]
        certain = any(own) or all(self._scaler_in(d) for d in self.file.values.definitions(losses[0]))
        return Event(SCALED if certain else MAYBE_SCALED, call, detail=(owner, None))

    def _scaler_in(self, definition: ast.AST) -> ast.expr | None:
        """The scaler that scales somewhere in an expression."""
        for item in walk_expressions(definition):
            match item:
                case ast.Call(func=ast.Attribute(attr="scale", value=owner)) if self.scalers.scaler_of(owner):
                    return owner
        return None


def shared(one: Act, other: Act) -> int:
    """How many of the calls that lead to the two acts are the same."""
    count = 0
    while count < min(len(one.calls), len(other.calls)) and one.calls[count] is other.calls[count]:
        count += 1
    return count


def receiver(act: Act) -> ast.expr | None:
    """The expression that an act is called on: the scaler of a scaler's step, the optimizer of a plain one."""
    return act.node.func.value if isinstance(act.node, ast.Call) and isinstance(act.node.func, ast.Attribute) else None


def optimizer_of(act: Act) -> ast.expr | None:
    """The optimizer that a scaler's step or unscale_, or a scaler wrapper after the loss, is given."""
    return argument(act.node, "optimizer", 1 if act.kind == WRAPPED else 0) if isinstance(act.node, ast.Call) else None
