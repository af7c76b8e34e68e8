"""What defines the expressions of one file: names, attributes of `self`, the calls of its functions. No call is followed."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from functools import cached_property

from mplint.python.bindings import Binding
from mplint.python.folding import BINARY, UNARY, Constant, NotConstant, fold, fold_unary
from mplint.python.names import Names, alternatives
from mplint.python.syntax import FUNCTIONS, Function, Syntax, argument

MAX_DEPTH = 8
MAX_FOUND = 64  # what more expressions than these define may be anything
NUMBERS = {"math.inf": math.inf, "numpy.inf": math.inf, "torch.inf": math.inf, "math.nan": math.nan, "numpy.nan": math.nan}


class Definitions:
    """Follows the expressions of one file to what is written for them."""

    def __init__(self, syntax: Syntax, names: Names) -> None:
        self.syntax = syntax
        self.names = names

    @cached_property
    def attributes(self) -> dict[tuple[ast.ClassDef, str], list[ast.expr]]:
        """What is assigned to `self.name` in each class (methods and class body), in source order."""
        table: dict[tuple[ast.ClassDef, str], list[ast.expr]] = {}
        for node in self.syntax.all(ast.Attribute):
            if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                owner, value = self.syntax.enclosing_class(node), self._assigned(node)
                if owner is not None and value is not None:
                    table.setdefault((owner, node.attr), []).append(value)
        for owner in self.syntax.all(ast.ClassDef):
            for item in owner.body:
                match item:
                    case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
                        table.setdefault((owner, name), []).append(value)
                    case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                        table.setdefault((owner, name), []).append(value)
        return table

    def _assigned(self, target: ast.expr) -> ast.expr | None:
        """What an assignment gives to a target, alone or in a tuple of as many values."""
        match self.syntax.parents[target]:
            case ast.Assign(value=value) | ast.AnnAssign(value=value):
                return value
            case ast.Tuple(elts=targets) as around:
                match self.syntax.parents[around]:
                    case ast.Assign(value=ast.Tuple(elts=values)) if len(values) == len(targets):
                        return next(value for value, other in zip(values, targets, strict=True) if other is target)
        return None

    @cached_property
    def call_sites(self) -> dict[Function, list[ast.Call]]:
        """The calls of each function of this file by its name (a class stands for its `__init__`)."""
        table: dict[Function, list[ast.Call]] = {}
        for call in self.syntax.all(ast.Call):
            callee = self.callee(call)
            if callee is not None:
                table.setdefault(callee, []).append(call)
        return table

    def callee(self, call: ast.Call) -> Function | None:
        """The function of this file that a call runs: by name, `self.method`, a constructor, or an instance that can be called."""
        target = self.names.local_function(call.func)
        if isinstance(target, ast.ClassDef):
            return self.names.method(target, "__init__")
        if target is None and self._has_callable_class and isinstance(call.func, ast.Name | ast.Attribute):
            made = (self.names.local_function(d.func) for d in self.of(call.func) if isinstance(d, ast.Call))
            owner = next((m for m in made if isinstance(m, ast.ClassDef)), None)
            return (self.names.method(owner, "__call__") or self.names.method(owner, "forward")) if owner else None
        return target

    @cached_property
    def _has_callable_class(self) -> bool:
        return any(isinstance(i, FUNCTIONS) and i.name in ("__call__", "forward") for c in self.syntax.all(ast.ClassDef) for i in c.body)

    def of(self, node: ast.expr | None, depth: int = 0) -> list[ast.expr]:
        """The expressions that are written for `node`: through names, attributes of `self` and conditionals; itself where none is."""
        if node is None:
            return []
        found: list[ast.expr] = []
        match node:
            case _ if depth > MAX_DEPTH:
                pass
            case ast.Name():
                for binding in self.names.reaching(node):
                    found += self._bound(binding, depth)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attr):
                for owner in self.classes(node):
                    for value in self.attributes.get((owner, attr), []):
                        found += self.of(value, depth + 1)
            case ast.IfExp() | ast.BoolOp() | ast.NamedExpr():
                for arm in alternatives(node):
                    found += self.of(arm, depth + 1)
        unique = {id(item): item for item in found}
        return list(unique.values()) if 0 < len(unique) <= MAX_FOUND else [node]

    def _bound(self, binding: Binding, depth: int) -> list[ast.expr]:
        if binding.value is None:
            return []
        if binding.element is None:
            return self.of(binding.value, depth + 1)
        wholes = [whole for whole in self.of(binding.value, depth + 1) if isinstance(whole, ast.Tuple)]
        return [d for whole in wholes if binding.element < len(whole.elts) for d in self.of(whole.elts[binding.element], depth + 1)]

    def classes(self, node: ast.AST) -> list[ast.ClassDef]:
        """The class around a node and its bases in this file."""
        owner = self.syntax.enclosing_class(node)
        found = [owner] if owner is not None else []
        for item in found:
            found += [base for base in self.names.bases(item) if base not in found]
        return found

    def kept_as(self, node: ast.Attribute) -> list[ast.expr]:
        """What is assigned to an attribute of `self` in the class around it, or else in the nearest of its bases in this file."""
        return next((found for owner in self.classes(node) if (found := self.attributes.get((owner, node.attr)))), [])

    def constant(self, node: ast.expr | None) -> Constant:
        """The value that the text fixes for `node`; raises NotConstant where it is open or ambiguous."""
        if node is None:
            raise NotConstant
        return self._constant(node, 0)

    def constant_or(self, node: ast.expr | None, default: Constant = None) -> Constant:
        """Like `constant`, with `default` where nothing fixes the value."""
        try:
            return self.constant(node)
        except NotConstant:
            return default

    def number(self, node: ast.expr | None) -> float | None:
        """The number that the text fixes for `node`, or None (bools are not numbers)."""
        value = self.constant_or(node)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 else None

    def strings(self, node: ast.expr | None) -> set[str | None]:
        """The strings that `node` may be; None among them stands for anything else."""
        values = [self.constant_or(definition) for definition in self.of(node)]
        return {value if isinstance(value, str) else None for value in values}

    def _constant(self, node: ast.expr, depth: int) -> Constant:
        if depth > MAX_DEPTH:
            raise NotConstant
        match node:
            case ast.Constant(value=value) if value is not ...:
                return value
            case ast.UnaryOp(op=op, operand=operand):
                return fold_unary(UNARY[type(op)], self._constant(operand, depth + 1))
            case ast.BinOp(left=left, op=op, right=right):
                return fold(BINARY[type(op)], self._constant(left, depth + 1), self._constant(right, depth + 1))
            case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))]):
                try:
                    return float(text)
                except ValueError:
                    raise NotConstant from None
            case ast.Name() | ast.Attribute():
                for name in self.names.candidates(node):
                    if name in NUMBERS:
                        return NUMBERS[name]
                found = {self._constant(d, depth + 1) for d in self.of(node) if d is not node}
                if len(found) == 1:
                    return found.pop()
        raise NotConstant


def passed(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """The expression that a call passes for the parameter `name` of a function, or None."""
    spec = [*function.args.posonlyargs, *function.args.args]
    index = next((i for i, a in enumerate(spec) if a.arg == name), None)
    if index is not None and spec and spec[0].arg in ("self", "cls"):
        index -= 1
    return argument(call, name, index if index is None or index >= 0 else None)


def own_statements(function: Function) -> Iterator[ast.stmt]:
    """All statements of a function, nested blocks included, nested functions and classes left out."""
    stack: list[ast.AST] = list(reversed(function.body))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.expr)):
            inner = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.stmt | ast.ExceptHandler | ast.match_case)]
            stack.extend(reversed(inner))
