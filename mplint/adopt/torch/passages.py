"""Which statements compute a loss: the forward pass and what follows it, which belong under autocast."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from mplint.adopt.torch.losses import casts, computed, is_banned, is_fragile, is_spectral, names_in
from mplint.adopt.torch.models import Models
from mplint.findings import Change, WrapStatements
from mplint.program.machine import Event
from mplint.program.values import Constant, Place, atoms
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS, Function, argument, arguments, walk_expressions
from mplint.recipes.scaler.plan import NoFix, require

LOOPS = (ast.For, ast.AsyncFor, ast.While)
GROWS = frozenset({"append", "extend", "update", "add", "insert", "setdefault"})
STEPS = ("backward", "trainer backward", "optimizer step", "scaler step")
MAX_DEPTH = 4
CONDITIONAL = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
DIFFERENTIATED = (
    "gradients are differentiated again, and those have to be scaled and unscaled by hand in float16: "
    "see the gradient penalty of torch's AMP examples, or use mixed_bfloat16"
)
ADVICE = "open `torch.autocast` where the model runs, and for float16 scale the loss here with a `torch.amp.GradScaler`"


class Passage(NamedTuple):
    """Consecutive statements of one block that belong under autocast, and changes to what reads their results outside."""

    first: ast.stmt
    last: ast.stmt
    casts: tuple[Change, ...] = ()

    def changes(self, file: SourceFile, header: str) -> Iterator[Change]:
        """Put the statements under `header`."""
        yield WrapStatements(file.span(self.first), file.span(self.last), header)
        yield from self.casts


class Passages:
    """Finds the statements that compute the losses of one file."""

    def __init__(self, models: Models, policy: str) -> None:
        self.models, self.file, self.syntax, self.policy = models, models.file, models.file.syntax, policy
        self.execution = models.execution

    def of_backward(self, backward: ast.Call) -> list[Passage]:
        """The passages behind a backward pass; raises NoFix where they are not in sight."""
        loss = loss_of(backward)
        found: list[Passage] = []
        for chain in self._chains(backward):
            found += self._before(self.syntax.statement(backward), keys_of(loss), chain)
        require(bool(found), f"what computes `{self.file.text(loss)}` is not in sight of it: {ADVICE}")
        return list(dict.fromkeys(found))

    def _chains(self, backward: ast.Call) -> list[tuple[Place, ...]]:
        """The calls that lead to a backward pass, in each way, innermost last."""
        found = {event.calls[-MAX_DEPTH:]: None for event in self.execution.at(backward, "backward")}
        return list(found) or [()]

    def _before(self, statement: ast.stmt, needed: set[str], chain: tuple[Place, ...]) -> list[Passage]:
        """The passages before a statement that compute what it needs, in its function or in those that call it."""
        function = self.syntax.function(statement)
        found: list[Passage] = []
        losses: list[ast.stmt] = []
        stopped = False
        while not stopped:
            block = self.syntax.block(statement)
            chosen: list[ast.stmt] = []
            for earlier in reversed(block[: next(i for i, s in enumerate(block) if s is statement)]):
                if self.is_barrier(earlier):
                    if not chosen and binds(earlier).isdisjoint(needed):
                        continue  # the losses of several steps were computed before the first of them
                    stopped = True
                    break
                if isinstance(earlier, (*FUNCTIONS, ast.ClassDef)):
                    continue
                if binds(earlier) & needed:
                    chosen.append(earlier)
                    needed |= reads(earlier)
            passages = self._passages(list(reversed(chosen)))
            found += passages
            losses += [s for s in chosen if not passages and self.models.takes_loss(s)]
            parent = self.syntax.parents[statement]
            if not isinstance(parent, ast.stmt) and not isinstance(parent, (ast.ExceptHandler, ast.match_case)):
                break
            if isinstance(parent, (*FUNCTIONS, ast.ClassDef)) or (isinstance(parent, LOOPS) and found):
                break
            statement = self.syntax.statement(parent)
        if function is not None and not stopped:
            elsewhere = self._on_the_object(function, needed)
            if not found and not elsewhere and chain:
                elsewhere = self._of_caller(function, needed, chain)
            found += elsewhere
            if elsewhere:
                found += [Passage(s, s) for s in losses if not self.is_covered(s)]
                require(
                    not any(is_fragile(self.models, s) for s in losses),
                    "its loss has to be computed in float32, from outputs cast with `.float()`",
                )
        return found

    def _of_caller(self, function: Function, needed: set[str], chain: tuple[Place, ...]) -> list[Passage]:
        """The passages behind what the caller of a function passes for the parameters that the loss is made of."""
        call = self.execution.node(chain[-1])
        if not isinstance(call, ast.Call) or function not in self.execution.functions(call):
            return []
        given = [value for name in needed - {"self", "cls"} if (value := passed(call, function, name)) is not None]
        keys = {key for value in given if not self.models.is_model(value) for key in keys_of(value)}
        return self._before(self.syntax.statement(call), keys, chain[:-1]) if keys else []

    def _on_the_object(self, function: Function, needed: set[str]) -> list[Passage]:
        """The passages in other methods that compute what the object keeps of the forward pass."""
        owner = self.syntax.enclosing_class(function)
        found: list[Passage] = []
        for node in self.syntax.all(ast.Attribute) if owner is not None else ():
            if not isinstance(node.ctx, ast.Store) or not (keys_of(node) & {key for key in needed if key.startswith("self.")}):
                continue
            statement = self.syntax.statement(node)
            home = self.syntax.function(statement)
            if self.syntax.enclosing_class(node) is not owner or home is function or home is None or home.name == "__init__":
                continue
            if self.models.runs(statement):
                found += self._passages([s for s in self.syntax.block(statement) if binds(s) & needed and self.models.runs(s)])
        return list(dict.fromkeys(found))

    def is_barrier(self, statement: ast.stmt) -> bool:
        """Whether a statement is a step of its own: what comes before it belongs to another loss."""
        if not self.execution.leads_to(statement, *STEPS):
            return False
        calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and self.execution.at(n, *STEPS)]
        return not calls or any(argument(call, "retain_graph") is None for call in calls)

    def _passages(self, chosen: Sequence[ast.stmt]) -> list[Passage]:
        """From the first statement that runs a model to the last one that autocast may run, without those that stay in float32."""
        runs = [s for s in chosen if self.models.runs_model(s) and not self.stays(s)]
        runs = runs or [s for s in chosen if self.models.runs(s) and not (self.stays(s) or is_spectral(self.models, s))]
        runs = runs or [s for s in chosen if isinstance(s, ast.Assign) and self.models.hands_model(s)]
        apart = [s for s in runs if is_banned(self.models, s)]  # part of a loss that autocast refuses, with a model of its own
        if len(apart) < len(runs):
            runs = [s for s in runs if s not in apart]
        require(bool(runs) or not any(self.stays(s) for s in chosen), DIFFERENTIATED)
        if not runs or any(self.is_covered(s) for s in runs):
            return []
        body = [s for s in chosen if position(s) >= position(runs[0])]
        body = [s for s in self.between(body[0], body[-1]) if s in body or is_spectral(self.models, s)]
        parts: list[list[ast.stmt]] = [[]]
        outside: list[ast.stmt] = []
        aside: list[ast.stmt] = []
        spectra: set[str] = set()  # and what is made of them
        for statement in body:
            spectral = is_spectral(self.models, statement)
            if spectral or (statement not in runs and not reads(statement).isdisjoint(spectra)):
                spectra |= binds(statement)
                aside.append(statement)
                parts += [[]] if parts[-1] else []
            elif self.needs_float32(statement) or (statement in apart and statement not in runs):
                outside.append(statement)
                parts += [[]] if parts[-1] else []
            elif statement in runs or not outside:
                parts[-1].append(statement)
            else:
                outside.append(statement)
        parts = [part for part in parts if part]
        while len(parts[-1]) > 1 and not any(isinstance(n, (ast.Call, ast.Return)) for n in ast.walk(parts[-1][-1])):
            last = parts[-1].pop()  # arithmetic on losses
            outside += [last] if outside else []
        if not outside:
            parts[-1] += self._sums_after(parts[-1])
        inside = [s for part in parts for s in self.between(part[0], part[-1])]
        samples = frozenset(name.id for s in outside if self.feeds_penalty(s) for name in names_in(s.value))  # type: ignore[attr-defined]
        changes = casts(self.models, inside, sorted([*outside, *aside], key=position), samples)
        return [Passage(part[0], part[-1], tuple(changes) if part is parts[0] else ()) for part in parts]

    def _sums_after(self, part: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The statements right behind a part that sum up what it computes: float16 by itself sums no further than 65504."""
        block = self.syntax.block(part[-1])
        results = {name for s in self.between(part[0], part[-1]) for name in computed(self.models, s, set())}
        found: list[ast.stmt] = []
        for statement in block[next(i for i, s in enumerate(block) if s is part[-1]) + 1 :]:
            if not isinstance(statement, ast.Assign) or not any(sums(node, results) for node in walk_expressions(statement.value)):
                break
            found.append(statement)
        return found

    def needs_float32(self, statement: ast.stmt) -> bool:
        """Whether a statement has to stand outside autocast."""
        return self.stays(statement) or (is_fragile(self.models, statement) and not self.models.runs(statement))

    def stays(self, statement: ast.stmt) -> bool:
        """Whether a statement takes gradients that are differentiated again: under a loss scale those would be scaled, too."""
        if self.policy != "mixed_float16":
            return False
        if any(self.takes(n) for n in ast.walk(statement)):
            return self.penalty_in(statement) is None
        return self.feeds_penalty(statement)

    def feeds_penalty(self, statement: ast.stmt) -> bool:
        """Whether a statement runs a model on a sample so that a function of the project can take its gradients, of both."""
        if not isinstance(statement, ast.Assign) or not self.models.runs_model(statement):
            return False
        read = {name.id for name in names_in(statement.value)}
        for call in self._penalties:
            given = [value for value in call.args if isinstance(value, ast.Name)]
            made = [v.id for v in given if any(self.syntax.statement(b.node) is statement for b in self.file.names.reaching(v))]
            if made and any(value.id in read for value in given if value.id not in made):
                return True
        return False

    @cached_property
    def _penalties(self) -> list[ast.Call]:
        """The calls of the project's functions that take gradients which are differentiated again."""
        return [call for call in self.file.syntax.all(ast.Call) if self.execution.codes(call) and self.takes(call)]

    def penalty_in(self, statement: ast.stmt) -> ast.Call | None:
        """The call that takes such gradients in the midst of an expression that runs models besides, and may stand before it."""
        if self.policy != "mixed_float16" or not isinstance(statement, ast.Assign):
            return None
        calls = [n for n in ast.walk(statement.value) if isinstance(n, ast.Call) and self.execution.codes(n) and self.takes(n)]
        outer = calls[0] if calls else None
        if outer is None or outer is statement.value:
            return None
        own = {id(n) for n in ast.walk(outer)}
        beside = any(id(n) not in own and self.models.runs_here(n) for n in ast.walk(statement))
        around = [p for p in self.syntax.ancestors(outer) if isinstance(p, ast.expr)]
        return outer if beside and not any(isinstance(p, CONDITIONAL) for p in around) else None

    def takes(self, node: ast.AST) -> bool:
        """Whether a call takes gradients that are differentiated again."""
        return any(keeps_graph(event) for event in self._taken(node))

    def _taken(self, node: ast.AST) -> list[Event]:
        if not isinstance(node, ast.Call):
            return []
        found = self.execution.at(node, "gradients taken")
        for _, event in self.execution.events("gradients taken"):
            if any(self.execution.node(place) is node for place in event.calls):
                found = [*found, event]
        return found

    def between(self, first: ast.stmt, last: ast.stmt) -> list[ast.stmt]:
        """The statements of a block from one to another."""
        block = self.syntax.block(first)
        return [s for s in block if position(first) <= position(s) <= position(last)]

    def is_covered(self, statement: ast.stmt) -> bool:
        """Whether the model calls of a statement run under autocast already."""
        work = self.models.work(statement)
        return bool(work) and all(item.covered for item in work)


def sums(node: ast.AST, results: set[str]) -> bool:
    """Whether an expression sums up the elements of a tensor made of `results`, and stays a tensor."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="sum" | "norm")):
            return not results.isdisjoint(name.id for name in names_in(value))
    return False


def keeps_graph(event: Event) -> bool:
    """Whether gradients are taken so that they can be differentiated again."""
    flag = event.data["create_graph"]
    return flag is not None and any(not (type(a) is Constant and not a.value) for a in atoms(flag))  # type: ignore[arg-type]


def passed(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """What a call passes for a parameter of the function that it runs."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if name not in names and name not in [a.arg for a in function.args.kwonlyargs]:
        return None
    given = arguments(call)
    if name in given:
        return given[name]
    bound = 1 if names[:1] in (["self"], ["cls"]) and isinstance(call.func, ast.Attribute) else 0
    return given.get(names.index(name) - bound) if name in names else None


def loss_of(backward: ast.Call) -> ast.expr:
    """The expression whose gradients a backward pass computes."""
    if not isinstance(backward.func, ast.Attribute):
        raise NoFix("gradients are computed by a function of its own")
    return backward.func.value


def keys_of(node: ast.AST) -> set[str]:
    """The names that an expression reads; what an object keeps is read as `self.name`."""
    found: set[str] = set()
    for item in walk_expressions(node):
        match item:
            case ast.Attribute(value=ast.Name(id="self"), attr=attr):
                found.add(f"self.{attr}")
            case ast.Name(id=name) if name != "self":
                found.add(name)
    return found


def reads(statement: ast.stmt) -> set[str]:
    """The names that a statement with all its blocks reads."""
    return {key for node in ast.walk(statement) if isinstance(node, (ast.Name, ast.Attribute)) for key in keys_of(node)}


def binds(statement: ast.stmt) -> set[str]:
    """The names that a statement with all its blocks binds or fills."""
    found: set[str] = set()
    for node in ast.walk(statement):
        target: ast.expr | None = None
        match node:
            case ast.Name(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                target = node
            case ast.Subscript(ctx=ast.Store(), value=value):
                target = value
            case ast.Call(func=ast.Attribute(value=(ast.Name() | ast.Attribute()) as value, attr=attr)) if attr in GROWS:
                target = value
        while isinstance(target, ast.Subscript):
            target = target.value
        match target:
            case ast.Name(id=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=attr):
                found.add(f"self.{attr}")
    return found
