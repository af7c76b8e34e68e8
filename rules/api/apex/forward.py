"""Which statements of a program have to run under autocast: those between the models' runs and the losses that are scaled."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mplint.findings import Change, WrapStatements
from mplint.python.definitions import passed
from mplint.python.file import SourceFile
from mplint.python.syntax import FUNCTIONS
from mplint.recipes.scaler.plan import NoFix, require

from .roles import Roles
from .setup import Setup

LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Forward:
    """Collects the statements that compute the losses, and wraps each run of them that nothing interrupts.

    `barriers` are the statements and calls that must stay outside: backward passes, steps, and what the migration rewrites.
    """

    def __init__(self, file: SourceFile, setup: Setup, roles: Roles, barriers: set[int]) -> None:
        self.file, self.setup, self.roles, self.barriers = file, setup, roles, barriers
        self.owner = file.syntax.function(setup.call)
        self.chosen: dict[int, tuple[list[ast.stmt], set[int]]] = {}

    def need(self, anchor: ast.stmt, loss: ast.expr, depth: int = 0) -> None:
        """Note what computes the loss that is scaled at `anchor`; in the callers too, where the loss is a parameter."""
        wanted = reads(loss)
        tainted: set[str] = set()
        for block, index in self._slice(anchor, wanted):
            computing = False
            for statement in simple_statements(block[index]):
                if binds(statement) & wanted and (self.roles.runs_model(statement) or tainted & reads(statement)):
                    tainted |= binds(statement)
                    computing = True
            if computing:
                self.chosen.setdefault(id(block), (block, set()))[1].add(index)
        if tainted & reads(loss):
            return
        function = self.file.syntax.function(anchor)
        parameters = [a.arg for a in function.args.args] if function is not None else []
        sites = self.roles.definitions.call_sites.get(function, []) if function is not None else []
        given = [p for p in parameters if p in reads(loss)]
        require(function is not None and depth < 2 and bool(sites) and bool(given), "the forward pass is not in sight")
        for site in sites:
            statement = self.file.syntax.statement(site)
            handed = passed(site, function, given[0]) if function is not None else None
            if handed is None:
                raise NoFix("the forward pass is not in sight")
            self.barriers.add(id(site))
            self.need(statement, handed, depth + 1)

    def _slice(self, anchor: ast.stmt, wanted: set[str]) -> list[tuple[list[ast.stmt], int]]:
        """The statements of this round of the loop on which names depend, in source order, as places in their blocks.

        `wanted` grows by the names that these statements read.
        """
        found = []
        here: ast.AST = anchor
        while isinstance(here, ast.stmt) and not isinstance(here, FUNCTIONS):
            block = self.file.syntax.block(here)
            for index in range(next(i for i, s in enumerate(block) if s is here) - 1, -1, -1):
                if binds(block[index]) & wanted and not isinstance(block[index], (*FUNCTIONS, ast.ClassDef)):
                    found.append((block, index))
                    parts = list(simple_statements(block[index]))
                    for part in (*parts[::-1], *parts[::-1]):  # twice, for what a loop carries on
                        wanted |= reads(part) if binds(part) & wanted else set()
            here = self.file.syntax.parents[here]
            if isinstance(here, (*LOOPS, ast.ExceptHandler)):
                break
        return found[::-1]

    def changes(self) -> Iterator[Change]:
        """Put every run of the chosen statements under autocast."""
        for block, indices in self.chosen.values():
            for first, last in self._runs(block, sorted(indices)):
                header = f"with {self._autocast_at(block[first])}:"
                yield WrapStatements(self.file.span(block[first]), self.file.span(block[last]), header)

    def _runs(self, block: list[ast.stmt], indices: list[int]) -> Iterator[tuple[int, int]]:
        first = last = indices[0]
        require(not any(self.is_barrier(block[i]) for i in indices), "the forward pass and the backward pass can't be told apart")
        for index in indices[1:]:
            if any(self.is_barrier(block[i]) for i in range(last, index)):
                yield first, last
                first = index
            last = index
        yield first, last

    def is_barrier(self, statement: ast.stmt) -> bool:
        """Whether a statement, or a function of the file that it calls, holds a backward pass or what the migration rewrites."""
        held = list(ast.walk(statement))
        called = [f for n in held if isinstance(n, ast.Call) and (f := self.roles.definitions.callee(n)) is not None]
        held += [n for function in called for n in ast.walk(function)]
        return any(id(n) in self.barriers for n in held) or any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in held)

    def _autocast_at(self, place: ast.stmt) -> str:
        """The autocast as it is written where the forward pass stands, whose names must mean the same there."""
        text = self.setup.autocast
        function = self.file.syntax.function(place)
        if not self.setup.enabled or function is self.owner:
            return text
        inside = function is not None and self.owner is not None and any(p is self.owner for p in self.file.syntax.ancestors(function))
        tree = ast.parse(self.setup.enabled, mode="eval")
        for name in {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - {"self"}:
            scopes = [scope for scope in (function, self.owner, self.file.syntax.tree) if scope is not None]
            bound = [scope for scope in scopes if name in self.file.names.bindings.get(scope, {})]
            handed = function is not None and any(a.arg == name for a in (*function.args.args, *function.args.kwonlyargs))
            held = next((attribute for held, attribute in self.setup.aliases if held == name), None)
            if handed or bound[:1] == [self.file.syntax.tree] or (inside and bound[:1] == [self.owner]):
                continue
            if held is not None and function is not None and self.file.syntax.enclosing_class(function) is not None:
                text = re.sub(rf"(?<![\w.]){re.escape(name)}\b", held, text)
                continue
            raise NoFix(f"`{name}` is not known where the forward pass runs")
        return text


def simple_statements(statement: ast.AST) -> Iterator[ast.stmt]:
    """A statement, or those in its blocks, in source order."""
    inside = [s for name in ("body", "handlers", "orelse", "finalbody") for s in getattr(statement, name, ())]
    if not inside and isinstance(statement, ast.stmt):
        yield statement
    for part in inside:
        yield from simple_statements(part)


def reads(node: ast.AST) -> set[str]:
    """The names, and the attributes of `self`, that are read in a node."""
    return {text for n in ast.walk(node) if (text := name_of(n)) and isinstance(getattr(n, "ctx", None), ast.Load)}


def binds(node: ast.AST) -> set[str]:
    """The names, and the attributes of `self`, that a statement assigns to, nested ones included, or fills by a method."""
    found = {text for n in ast.walk(node) if (text := name_of(n)) and isinstance(getattr(n, "ctx", None), ast.Store)}
    for n in ast.walk(node):
        match n:
            case ast.Call(func=ast.Attribute(value=owner, attr="append" | "extend" | "update")) if name_of(owner):
                found.add(name_of(owner))
            case ast.Subscript(value=owner, ctx=ast.Store()) if name_of(owner):
                found.add(name_of(owner))
    return found


def name_of(node: ast.AST) -> str:
    """The text of a name or of an attribute of `self`, "" for anything else."""
    match node:
        case ast.Name(id=name) if name != "self":
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            return f"self.{attr}"
    return ""
