"""What a name or dotted expression refers to: imports, aliases, scopes, and the bindings that reach a use."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import NamedTuple

from mplint.source.syntax import FUNCTIONS, SCOPES, Function, Scope, Syntax

MAX_ALIASES = 6
# Packages that a name stands for when nothing in the file binds it (star imports, notebook fragments).
UNBOUND_ROOTS = {
    "torch": "torch",
    "tf": "tensorflow",
    "tensorflow": "tensorflow",
    "keras": "keras",
    "np": "numpy",
    "numpy": "numpy",
    "torch_xla": "torch_xla",
}
KERAS_ROOTS = (
    "tensorflow.compat.v1.keras",
    "tensorflow.compat.v2.keras",
    "tensorflow.python.keras",
    "tensorflow.keras",
    "tensorflow._keras",
    "tf_keras",
    "keras.api._v2.keras",
    "keras.api",
    "keras.src",
    "keras",
)


class Binding(NamedTuple):
    """One place that binds a name: what binds it and, where it is an expression, the bound value.

    `element` is the position in the value that an unpacking takes (None: the value itself); `target` is a dotted
    name for an import.
    """

    node: ast.AST
    value: ast.expr | None = None
    target: str | None = None
    element: int | None = None


class Names:
    """Resolves expressions of one program to dotted names, following every alias form."""

    def __init__(self, syntax: Syntax, module: str = "") -> None:
        self.syntax = syntax
        self.module = module
        self._resolved: dict[ast.AST, tuple[str, ...]] = {}
        self._reach: dict[ast.Name, list[Binding]] = {}
        self._chains: dict[ast.AST, tuple[int, ...]] = {}
        self._local: dict[ast.AST, Function | ast.ClassDef | None] = {}

    @cached_property
    def star_imports(self) -> tuple[str, ...]:
        """Modules that the program star-imports."""
        return tuple(i.module or "" for i in self.syntax.all(ast.ImportFrom) if any(a.name == "*" for a in i.names))

    @cached_property
    def bindings(self) -> dict[Scope, dict[str, list[Binding]]]:
        """Bindings by scope and name, in source order."""
        return collect_bindings(self.syntax, self.module)

    @cached_property
    def _calls(self) -> dict[str, list[ast.Call]]:
        """Calls by the last name that they are written with."""
        table: dict[str, list[ast.Call]] = {}
        for call in self.syntax.all(ast.Call):
            func = call.func
            if isinstance(func, ast.Attribute):
                table.setdefault(func.attr, []).append(call)
            elif isinstance(func, ast.Name):
                table.setdefault(func.id, []).append(call)
        return table

    @cached_property
    def _aliases(self) -> dict[str, set[str]]:
        """Other names that imports and assignments give to a last name."""
        table: dict[str, set[str]] = {}
        for statement in self.syntax.all(ast.ImportFrom):
            for alias in statement.names:
                if alias.asname:
                    table.setdefault(alias.name, set()).add(alias.asname)
        for assignment in self.syntax.all(ast.Assign):
            value = assignment.value
            last = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else None
            for target in assignment.targets:
                if last is not None and isinstance(target, (ast.Name, ast.Attribute)):
                    table.setdefault(last, set()).add(target.id if isinstance(target, ast.Name) else target.attr)
        return table

    @cached_property
    def _class_aliases(self) -> set[str]:
        return {alias for last, aliases in self._aliases.items() if last[:1].isupper() for alias in aliases}

    def may_be_class(self, func: ast.expr) -> bool:
        """Whether a called expression may be a class by the way it is written (a cheap test before resolving it)."""
        last = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        return last[:1].isupper() or last in self._class_aliases

    def calls_of(self, *lasts: str) -> list[ast.Call]:
        """The calls that may be of a function whose dotted name ends in one of `lasts`, aliases included, in source order."""
        spelled = {*lasts, *(alias for last in lasts for alias in self._aliases.get(last, ()))}
        found = [call for name in spelled for call in self._calls.get(name, ())]
        return sorted(found, key=position)

    def resolve(self, node: ast.AST | None) -> str | None:
        """The one dotted name that `node` refers to; None when it is not a known import or is ambiguous."""
        found = self.candidates(node)
        return found[0] if len(found) == 1 else None

    def candidates(self, node: ast.AST | None) -> tuple[str, ...]:
        """Every dotted name that `node` may refer to (several after a version check or a guarded import)."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return ()
        known = self._resolved.get(node)
        if known is None:
            self._resolved[node] = ()  # a cyclic alias resolves to nothing
            known = self._resolved[node] = tuple(dict.fromkeys(self._candidates(node)))
        return known

    def _candidates(self, node: ast.Name | ast.Attribute) -> list[str]:
        if isinstance(node, ast.Attribute):
            return [f"{base}.{node.attr}" for base in self.candidates(node.value)]
        reaching = self.reaching(node)
        if not reaching:
            return self._unbound(node)
        found: list[str] = []
        for binding in reaching:
            if binding.target is not None:
                found.append(binding.target)
            elif binding.element is None and binding.value is not None:
                for arm in alternatives(binding.value):
                    found.extend(self.candidates(arm))
        return found

    def _unbound(self, node: ast.Name) -> list[str]:
        if (root := UNBOUND_ROOTS.get(node.id)) is not None:
            return [root]
        for module in self.star_imports:
            if keras_path(module) or module in STAR_MODULES:
                return [f"{module}.{node.id}"] if module != "torch" or node.id in ("nn", "optim", "cuda", "autocast") else []
        return []

    def lookup(self, node: ast.Name) -> tuple[Scope | None, list[Binding]]:
        """The scope that binds the name and all its bindings there; (None, []) for an unbound name."""
        scope: Scope = self.syntax.scope(node)
        first = True
        while True:
            if first or not isinstance(scope, ast.ClassDef):
                found = self.bindings.get(scope, {}).get(node.id)
                if found:
                    return scope, found
            if isinstance(scope, ast.Module):
                return None, []
            scope, first = self.syntax.scope(scope), False

    def reaching(self, node: ast.Name) -> list[Binding]:
        """The bindings of the name that can reach this use, in source order."""
        known = self._reach.get(node)
        if known is None:
            known = self._reach[node] = self._reaching(node)
        return known

    def _reaching(self, node: ast.Name) -> list[Binding]:
        scope, found = self.lookup(node)
        if scope is None or len(found) == 1:
            return found
        if scope is not self.syntax.scope(node):
            return self._reaching_point(found, None, scope)
        before = [b for b in found if position(b.node) < position(node) and not self._is_within(node, b)]
        return self._reaching_point(before, node, scope) or found

    def _is_within(self, node: ast.AST, binding: Binding) -> bool:
        return (
            binding.value is not None and any(parent is binding.value for parent in self.syntax.ancestors(node))
        ) or binding.value is node

    def _reaching_point(self, found: list[Binding], use: ast.AST | None, scope: Scope) -> list[Binding]:
        reach: list[Binding] = []
        use_blocks = self._blocks(use) if use is not None else {id(getattr(scope, "body", None))}
        for binding in found:
            blocks = self._block_chain(binding.node)
            if use is not None and self.exclusive(binding.node, use):
                continue
            if not blocks or blocks[0] in use_blocks:
                reach = [binding]
            else:
                reach = [*reach, binding]
        return reach

    def _block_chain(self, node: ast.AST) -> tuple[int, ...]:
        """Identities of the statement lists around `node`, innermost first, with `with` bodies merged outwards."""
        if isinstance(node, ast.arg):
            return ()
        statement = self.syntax.statement(node)
        known = self._chains.get(statement)
        if known is None:
            parent = self.syntax.parents[statement]
            merged = isinstance(parent, (ast.With, ast.AsyncWith))
            own = () if merged else (id(self.syntax.block(statement)),)
            outer = () if isinstance(parent, SCOPES) else self._block_chain(parent)
            known = self._chains[statement] = own + outer
        return known

    def _blocks(self, node: ast.AST) -> set[int]:
        return set(self._block_chain(node))

    def exclusive(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether the two nodes stand in different arms of one `if` (or in a try's `else` and a handler)."""
        arms = {id(parent): arm for parent, arm in self._arms(one)}
        return any(id(parent) in arms and arms[id(parent)] != arm for parent, arm in self._arms(other))

    def _arms(self, node: ast.AST) -> list[tuple[ast.AST, str]]:
        arms: list[tuple[ast.AST, str]] = []
        child = node
        for parent in self.syntax.ancestors(node):
            if isinstance(parent, ast.If) and child is not parent.test:
                arms.append((parent, "body" if any(child is s for s in parent.body) else "orelse"))
            elif isinstance(parent, ast.IfExp) and child is not parent.test:
                arms.append((parent, "body" if child is parent.body else "orelse"))
            elif isinstance(parent, SCOPES):
                break
            child = parent
        return arms

    def local_function(self, node: ast.AST | None, depth: int = 0) -> Function | ast.ClassDef | None:
        """The function or class of this file that `node` names (also `self.method`), or None."""
        if node is None or depth:
            return self._local_function(node, depth)
        if node not in self._local:
            self._local[node] = self._local_function(node, 0)
        return self._local[node]

    def _local_function(self, node: ast.AST | None, depth: int) -> Function | ast.ClassDef | None:
        if depth > MAX_ALIASES:
            return None
        if isinstance(node, ast.Name):
            for binding in self.reaching(node):
                if isinstance(binding.node, (*FUNCTIONS, ast.ClassDef)):
                    return binding.node
                if binding.value is not None and binding.element is None and isinstance(binding.value, (ast.Name, ast.Attribute)):
                    return self.local_function(binding.value, depth + 1)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = self.receiver_class(node.value, depth)
            return self.method(owner, node.attr) if owner is not None else None
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "super"
        ):
            child = self.syntax.enclosing_class(node)
            return next((m for base in self.bases(child) if (m := self.method(base, node.attr))), None) if child else None
        return None

    def receiver_class(self, node: ast.Name, depth: int = 0) -> ast.ClassDef | None:
        """The class of this file whose instance (or itself, for `self` and `cls`) the name holds."""
        if node.id in ("self", "cls"):
            return self.syntax.enclosing_class(node)
        for binding in self.reaching(node):
            if isinstance(binding.node, ast.ClassDef):
                return binding.node
            if isinstance(binding.value, ast.Call) and binding.element is None:
                made = self.local_function(binding.value.func, depth + 1)
                if isinstance(made, ast.ClassDef):
                    return made
        return None

    def method(self, owner: ast.ClassDef | None, name: str, depth: int = 0) -> Function | None:
        """The method `name` of `owner` or of its base classes in this file."""
        if owner is None or depth > 5:
            return None
        for item in owner.body:
            if isinstance(item, FUNCTIONS) and item.name == name:
                return item
        return next((m for base in self.bases(owner) if (m := self.method(base, name, depth + 1))), None)

    def bases(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        """The base classes of `owner` that are defined in this file."""
        found = [self.local_function(base) for base in owner.bases]
        return [base for base in found if isinstance(base, ast.ClassDef) and base is not owner]

    def base_names(self, owner: ast.ClassDef, depth: int = 0) -> list[str]:
        """Dotted names of all imported base classes, through base classes of this file."""
        names = [name for base in owner.bases for name in self.candidates(base)]
        if depth < 5:
            names += [name for base in self.bases(owner) for name in self.base_names(base, depth + 1)]
        return names


STAR_MODULES = ("torch", "torch.nn", "torch.cuda.amp", "torch.amp", "torch.nn.functional", "tensorflow", "apex.amp")


def position(node: ast.AST) -> tuple[int, int]:
    """Line and column of a node, for ordering."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def alternatives(value: ast.expr) -> list[ast.expr]:
    """The expressions that a conditional or boolean expression may evaluate to."""
    match value:
        case ast.IfExp(body=body, orelse=orelse):
            return alternatives(body) + alternatives(orelse)
        case ast.BoolOp(values=values):
            return [arm for item in values for arm in alternatives(item)]
        case ast.NamedExpr(value=inner):
            return alternatives(inner)
        case _:
            return [value]


def keras_path(name: str | None) -> str | None:
    """The part after the Keras package of a dotted name ("layers.Dense"), "" for the package, None for anything else."""
    if name is None:
        return None
    for root in KERAS_ROOTS:
        if name == root:
            return ""
        if name.startswith(root + "."):
            return name[len(root) + 1 :]
    return None


def collect_bindings(syntax: Syntax, module: str) -> dict[Scope, dict[str, list[Binding]]]:
    """All bindings of the program, by scope and name, in source order."""
    table: dict[Scope, dict[str, list[Binding]]] = {}
    outer: dict[Scope, set[str]] = {}
    declarations: list[ast.Global | ast.Nonlocal] = [*syntax.all(ast.Global), *syntax.all(ast.Nonlocal)]
    for declaration in declarations:
        if not isinstance(scope := syntax.scope(declaration), ast.Module):  # valid there, and without effect
            outer.setdefault(scope, set()).update(declaration.names)

    def bind(node: ast.AST, name: str, binding: Binding) -> None:
        scope = syntax.scope(node)
        while name in outer.get(scope, ()):
            scope = syntax.scope(scope)
        table.setdefault(scope, {}).setdefault(name, []).append(binding)

    for statement in syntax.all(ast.Import):
        for alias in statement.names:
            if alias.asname:
                bind(statement, alias.asname, Binding(statement, target=alias.name))
            else:
                root = alias.name.split(".")[0]
                bind(statement, root, Binding(statement, target=root))
    for origin in syntax.all(ast.ImportFrom):
        source = absolute(origin, module)
        for alias in origin.names:
            if alias.name != "*":
                bind(origin, alias.asname or alias.name, Binding(origin, target=f"{source}.{alias.name}"))
    definitions: list[Function | ast.ClassDef] = [
        *syntax.all(ast.FunctionDef),
        *syntax.all(ast.AsyncFunctionDef),
        *syntax.all(ast.ClassDef),
    ]
    for definition in definitions:
        bind(definition, definition.name, Binding(definition))
    for parameter in syntax.all(ast.arg):
        owner = syntax.parents[syntax.parents[parameter]]
        if isinstance(owner, SCOPES):
            table.setdefault(owner, {}).setdefault(parameter.arg, []).append(Binding(parameter))
    for handler in syntax.all(ast.ExceptHandler):
        if handler.name:
            bind(handler, handler.name, Binding(handler))
    for name in syntax.all(ast.Name):
        if isinstance(name.ctx, ast.Store):
            bind(name, name.id, stored(name, syntax))
    for bindings in table.values():
        for found in bindings.values():
            if len(found) > 1:
                found.sort(key=lambda b: position(b.node))
    return table


def stored(name: ast.Name, syntax: Syntax) -> Binding:
    """The binding that a stored name makes: which expression (or which part of one) it takes."""
    parent = syntax.parents[name]
    match parent:
        case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.NamedExpr(value=value):
            return Binding(name, value)
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            index = next(i for i, e in enumerate(elts) if e is name)
            outer = syntax.parents[parent]
            if isinstance(outer, ast.Assign):
                value = outer.value
                if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(elts):
                    return Binding(name, value.elts[index])
                return Binding(name, value, element=index)
            return Binding(name)
        case ast.withitem(context_expr=value):
            return Binding(name, value)
        case _:
            return Binding(name)


def absolute(statement: ast.ImportFrom, module: str) -> str:
    """The absolute name of the module that a `from … import` names; relative ones keep their dots when `module` is unknown."""
    if not statement.level:
        return statement.module or ""
    if not module:
        return "." * statement.level + (statement.module or "")
    parts = module.split(".")[: -statement.level] if statement.level <= module.count(".") + 1 else []
    return ".".join([*parts, *filter(None, [statement.module])])
