"""One walk over a program: its nodes by kind in source order, the parent of each, and scopes."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

from mplint.findings import Span

Node = TypeVar("Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
SCOPE_KINDS = frozenset(SCOPES)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


# Fields that hold no node, or none worth a visit.
PLAIN = frozenset(
    (
        *("arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "kwd_attrs", "level", "lineno", "module", "n", "name"),
        *("op", "ops", "rest", "s", "simple", "str", "tag", "type_comment", "type_ignores"),
    )
)


def child_fields() -> dict[type[ast.AST], tuple[str, ...]]:
    """Fields that can hold nodes worth a visit, last field first, by node class."""
    table: dict[type[ast.AST], tuple[str, ...]] = {}
    for value in vars(ast).values():
        if isinstance(value, type) and issubclass(value, ast.AST):
            table[value] = tuple(reversed([field for field in value._fields if field not in PLAIN]))
    table[ast.Constant] = table[ast.MatchSingleton] = table[ast.Global] = table[ast.Nonlocal] = ()
    # Evaluation and source order differ from field order here.
    table[ast.Dict] = ("values", "keys")
    table[ast.FunctionDef] = table[ast.AsyncFunctionDef] = ("body", "returns", "args", "decorator_list")
    table[ast.ClassDef] = ("body", "keywords", "bases", "decorator_list")
    return table


FIELDS = child_fields()
IN_ORDER = {kind: tuple(name for name in kind._fields if name in fields) for kind, fields in FIELDS.items()}


class Syntax:
    """The nodes of a program by kind, in source order, with parents.

    Built by one explicit-stack walk; everything else is looked up. `stored` are the names that are assigned to.
    """

    __slots__ = ("_blocks", "_by_kind", "_places", "_scopes", "parents", "stored", "tree")

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        by_kind: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        parents: dict[ast.AST, ast.AST] = {}
        stored: list[ast.Name] = []
        stack: list[ast.AST] = [tree]
        pop, push, fields = stack.pop, stack.append, FIELDS
        # Two thirds of all nodes are of these kinds, so they skip the general way below.
        is_attribute, is_name, is_constant, is_stored = ast.Attribute, ast.Name, ast.Constant, ast.Store
        attributes, names, constants = by_kind[ast.Attribute].append, by_kind[ast.Name].append, by_kind[ast.Constant].append
        while stack:
            node = pop()
            kind = node.__class__
            while kind is is_attribute:
                attributes(node)
                value = node.value  # type: ignore[attr-defined]
                parents[value] = node
                node, kind = value, value.__class__
            if kind is is_name:
                names(node)
                if node.ctx.__class__ is is_stored:  # type: ignore[attr-defined]
                    stored.append(node)  # type: ignore[arg-type]
            elif kind is is_constant:
                constants(node)
            else:
                by_kind[kind].append(node)
                field = node.__dict__.get
                for name in fields[kind]:
                    value = field(name)
                    if value.__class__ is list:
                        for child in reversed(value):
                            if child is not None:
                                parents[child] = node
                                push(child)
                    elif value is not None:
                        parents[value] = node
                        push(value)
        self._by_kind = by_kind
        self.stored = stored
        self._scopes: dict[ast.AST, Scope] = {}
        self._blocks: dict[ast.stmt, list[ast.stmt]] = {}
        self._places: dict[Span, ast.AST] = {}
        self.parents = parents

    def all(self, *kinds: type[Node]) -> list[Node]:
        """Every node of the given kinds; in source order where one kind is asked for."""
        if len(kinds) == 1:
            return self._by_kind.get(kinds[0], [])  # type: ignore[return-value]
        return [node for kind in kinds for node in self._by_kind.get(kind, [])]  # type: ignore[misc]

    def at(self, place: Span) -> ast.AST | None:
        """The innermost node that takes up exactly a range (columns in UTF-8 bytes), or None."""
        if not self._places:
            for node in self.parents:
                if isinstance(node, ast.stmt | ast.expr | ast.ExceptHandler | ast.arg | ast.keyword | ast.alias):
                    span = Span(node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
                    self._places[span] = node  # a node comes after the one it stands in
        return self._places.get(place)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parents of `node`, innermost first, up to the module."""
        parents = self.parents
        while (parent := parents.get(node)) is not None:
            yield parent
            node = parent

    def scope(self, node: ast.AST) -> Scope:
        """The scope whose names `node` sees first (a function's decorators and defaults belong outside)."""
        scopes, parents = self._scopes, self.parents
        found = scopes.get(node)
        if found is not None:
            return found
        passed = [node]
        child = node
        while found is None:
            parent = parents.get(child)
            if parent is None:
                found = self.tree
            elif parent.__class__ in SCOPE_KINDS and (parent is self.tree or in_body(parent, child)):
                found = parent  # type: ignore[assignment]
            else:
                passed.append(parent)
                found = scopes.get(parent)
                child = parent
        for item in passed:
            scopes[item] = found
        return found

    def function(self, node: ast.AST) -> Function | None:
        """The innermost function around `node`, or None at module or class level."""
        for parent in self.ancestors(node):
            if isinstance(parent, FUNCTIONS):
                return parent
        return None

    def enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose method (or body) `node` stands in, through nested functions."""
        for parent in self.ancestors(node):
            if isinstance(parent, ast.ClassDef):
                return parent
        return None

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that contains `node` (or is it)."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that `statement` is one of."""
        known = self._blocks.get(statement)
        if known is None:
            for value in self.parents[statement].__dict__.values():
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    for item in value:
                        self._blocks[item] = value
            known = self._blocks.setdefault(statement, [statement])
        return known

    def qualname(self, node: ast.AST) -> str:
        """The dotted name of a function or class (or of the scope around any other node); "" is the module."""
        names = [node.name] if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else []
        names += [parent.name for parent in self.ancestors(node) if isinstance(parent, (*FUNCTIONS, ast.ClassDef))]
        return ".".join(reversed(names))


def in_body(scope: ast.AST, child: ast.AST) -> bool:
    """Whether `child`, a direct child of `scope`, is evaluated inside it."""
    if isinstance(scope, ast.Lambda):
        return child is scope.body or child is scope.args
    if isinstance(scope, FUNCTIONS):
        return isinstance(child, ast.stmt) or child is scope.args
    return isinstance(child, ast.stmt)


def walk(start: ast.AST) -> Iterator[ast.AST]:
    """Like `ast.walk`, in the same order, without contexts and operators."""
    nodes, node_type = [start], ast.AST
    for node in nodes:  # which grows meanwhile
        yield node
        values = node.__dict__
        for name in IN_ORDER[node.__class__]:
            value = values.get(name)
            if value.__class__ is list:
                nodes += [child for child in value if isinstance(child, node_type)]
            elif isinstance(value, node_type):
                nodes.append(value)


def walk_expressions(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and the expressions below it in evaluation order (arguments before their call), without nested scopes' bodies."""
    stack = [(node, operands(node))]
    while stack:
        node, below = stack[-1]
        child = next(below, None)
        if child is None:
            stack.pop()
            yield node
        else:
            stack.append((child, operands(child)))


def operands(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions directly below `node`, in evaluation order; none for a nested scope."""
    if not isinstance(node, (ast.Lambda, *FUNCTIONS, ast.ClassDef)):
        for name in reversed(FIELDS[node.__class__]):
            value = getattr(node, name, None)
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, (ast.expr, ast.keyword, ast.comprehension, ast.Slice)):
                    yield child


def arguments(call: ast.Call) -> dict[int | str, ast.expr]:
    """The arguments of a call by position and by keyword; starred ones are left out, and what follows a `*` too."""
    given: dict[int | str, ast.expr] = {}
    for position, value in enumerate(call.args):
        if isinstance(value, ast.Starred):
            break
        given[position] = value
    given.update({k.arg: k.value for k in call.keywords if k.arg is not None})
    return given


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """The argument called `name`, or the one at `position`, or None."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is not None and position < len(call.args):
        head = call.args[: position + 1]
        if not any(isinstance(a, ast.Starred) for a in head):
            return head[position]
    return None


def has_star(call: ast.Call) -> bool:
    """Whether the call passes `*args` or `**kwargs`, so that its arguments are not all in sight."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def is_main_guard(test: ast.expr) -> bool:
    """Whether the test is `__name__ == "__main__"`."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def words_of(text: str) -> set[str]:
    """The lower-case words in an expression's text, identifiers split at underscores."""
    return set("".join(c.lower() if c.isalnum() else " " for c in text).split())


def last_name(node: ast.AST) -> str:
    """The last identifier of a dotted expression, "" for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
