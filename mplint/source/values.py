"""What an expression may stand for: the expressions that define it, constants, dtypes."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from functools import cached_property

from mplint.frameworks.names import keras_path
from mplint.python.folding import Constant, NotConstant, fold_binary, fold_unary
from mplint.python.names import Binding, Names, alternatives
from mplint.python.syntax import FUNCTIONS, Function, Syntax, argument, has_star, walk_expressions
from mplint.source.configuration import Configuration, default_of
from mplint.source.dtype_names import DTYPE_ROOTS as DTYPE_ROOTS
from mplint.source.dtype_names import DTYPES as DTYPES
from mplint.source.dtype_names import HALF as HALF
from mplint.source.dtype_names import UNKNOWN as UNKNOWN
from mplint.source.followed import Definition as Definition

MAX_DEPTH = 8
MAX_STEPS = 300  # expressions looked at to find what one stands for
MAX_ALTERNATIVES = 64  # what more expressions than these define may be anything

NUMBERS = {
    "math.inf": math.inf,
    "numpy.inf": math.inf,
    "torch.inf": math.inf,
    "math.nan": math.nan,
    "numpy.nan": math.nan,
    "numpy.Inf": math.inf,
    "math.pi": math.pi,
}


class Values:
    """Follows expressions of one program to what defines them."""

    def __init__(self, syntax: Syntax, names: Names, path: str = "") -> None:
        self.syntax = syntax
        self.names = names
        self.path = path
        self._defined: dict[ast.AST, list[Definition]] = {}
        self._returned: dict[Function, list[ast.expr]] = {}
        self._steps = 0

    @cached_property
    def configuration(self) -> Configuration:
        """The settings that the program reads from its command line and its configuration."""
        return Configuration(self)

    @cached_property
    def attributes(self) -> dict[tuple[ast.ClassDef, str], list[ast.expr]]:
        """What is assigned to `self.name` in each class (methods and class body), in source order."""
        table: dict[tuple[ast.ClassDef, str], list[ast.expr]] = {}
        for node in self.syntax.all(ast.Attribute):
            if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                owner = self.syntax.enclosing_class(node)
                parent = self.syntax.parents[node]
                value: ast.expr | None = None
                if isinstance(parent, (ast.Assign, ast.AnnAssign)):
                    value = parent.value
                elif isinstance(parent, ast.Tuple) and isinstance(outer := self.syntax.parents[parent], ast.Assign):
                    at = next(i for i, e in enumerate(parent.elts) if e is node)
                    value = (
                        outer.value.elts[at] if isinstance(outer.value, ast.Tuple) and len(outer.value.elts) == len(parent.elts) else None
                    )
                if owner is not None and value is not None:
                    table.setdefault((owner, node.attr), []).append(value)
        for owner in self.syntax.all(ast.ClassDef):
            for item in owner.body:
                if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                    table.setdefault((owner, item.targets[0].id), []).append(item.value)
                elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value is not None:
                    table.setdefault((owner, item.target.id), []).append(item.value)
        return table

    @cached_property
    def _fields(self) -> frozenset[str]:
        """The names of all attributes that something in sight is given for: by a class of this file, or to its constructor."""
        return frozenset([*(name for _, name in self.attributes), *(k.arg for k in self.syntax.all(ast.keyword) if k.arg is not None)])

    @cached_property
    def call_sites(self) -> dict[Function, list[ast.Call]]:
        """The calls of each function of this file (a class stands for its `__init__`)."""
        table: dict[Function, list[ast.Call]] = {}
        self.__dict__["call_sites"] = table  # what a parameter may hold is asked while the table is being filled
        later: list[ast.Call] = []
        for call in self.syntax.all(ast.Call):
            target = self.names.local_function(call.func)
            callee = self.names.method(target, "__init__") if isinstance(target, ast.ClassDef) else target
            if callee is not None:
                table.setdefault(callee, []).append(call)
            elif target is None and self._has_callable_class and isinstance(call.func, (ast.Name, ast.Attribute)):
                later.append(call)
        for call in later:
            callee = self.callee(call)
            if callee is not None:
                table.setdefault(callee, []).append(call)
        return table

    @cached_property
    def _has_callable_class(self) -> bool:
        """Whether the instances of some class of this file can be called."""
        return any(isinstance(i, FUNCTIONS) and i.name in ("__call__", "forward") for c in self.syntax.all(ast.ClassDef) for i in c.body)

    @cached_property
    def _makes_instances(self) -> bool:
        """Whether the program calls a class of its own."""
        return any(isinstance(self.names.local_function(call.func), ast.ClassDef) for call in self.syntax.all(ast.Call))

    def callee(self, call: ast.Call) -> Function | None:
        """The function of this file that the call runs: by name, `self.method`, constructor, or an instance's `__call__`/`forward`."""
        target = self.names.local_function(call.func)
        if isinstance(target, ast.ClassDef):
            return self.names.method(target, "__init__")
        if target is None and self._has_callable_class and isinstance(call.func, (ast.Name, ast.Attribute)):
            owner = self.instance_class(call.func)
            return (self.names.method(owner, "__call__") or self.names.method(owner, "forward")) if owner else None
        return target

    def instance_class(self, node: ast.expr) -> ast.ClassDef | None:
        """The class of this file that the expression is an instance of, or None."""
        for definition in self.definitions(node) if self._makes_instances else ():
            if isinstance(definition, ast.Call) and isinstance(made := self.names.local_function(definition.func), ast.ClassDef):
                return made
        return None

    def definitions(self, node: ast.expr | ast.arg | None, depth: int = 0) -> list[Definition]:
        """The expressions that `node` may stand for, through names, `self.` attributes, conditionals, local functions and their arguments.

        An expression that can't be followed further stands for itself; a parameter that no call in the file fills
        is given as its `ast.arg`.
        """
        if node is None:
            return []
        if depth:
            self._steps += 1
            return self._definitions(node, depth) if depth <= MAX_DEPTH and self._steps <= MAX_STEPS else [node]
        known = self._defined.get(node)
        if known is None:
            outside, self._steps = self._steps, 0
            known = self._defined[node] = self._definitions(node, 0)
            self._steps = outside
        return known

    def _definitions(self, node: ast.expr | ast.arg, depth: int) -> list[Definition]:
        found: list[Definition] = []
        match node:
            case ast.Name():
                for binding in self.names.reaching(node):
                    found += self._of_binding(binding, depth)
            case ast.Attribute(value=owner_expr, attr=attr):
                values = self.attribute_values(owner_expr, attr, depth)
                for value in values if len(values) <= MAX_ALTERNATIVES else ():
                    found += self.definitions(value, depth + 1)
                if not values and self.configuration.has_namespaces:
                    found = self._settled(node, depth)
            case ast.Subscript(slice=ast.Constant(value=str())):
                found = self._settled(node, depth)
            case ast.IfExp() | ast.BoolOp() | ast.NamedExpr():
                for arm in alternatives(node):
                    found += self.definitions(arm, depth + 1)
            case ast.Await(value=inner):
                found += self.definitions(inner, depth + 1)
            case ast.Call():
                callee = self.names.local_function(node.func)
                if isinstance(callee, FUNCTIONS):
                    for value in self.returns(callee):
                        found += self.definitions(value, depth + 2)
            case ast.arg():
                return self._of_parameter(node, depth) or [node]
        unique = {id(item): item for item in found}
        return list(unique.values()) or [node]

    def _settled(self, node: ast.expr, depth: int) -> list[Definition]:
        """What a setting that nobody can change stands for."""
        setting = self.configuration.setting(node)
        only = setting.default if setting is not None and setting.closed and not setting.values and not setting.switch else None
        return self.definitions(only, depth + 1) if only is not None else []

    def attribute_values(self, owner_expr: ast.expr, attr: str, depth: int = 0) -> list[ast.expr]:
        """What `owner.attr` was given: assignments in the owner's class and its bases in this file.

        A field of a configuration object counts as what its constructor was given, or as its default where all it was given is in sight.
        """
        if attr not in self._fields:
            return []
        owner: ast.ClassDef | None = None
        made: ast.Call | None = None
        written: list[ast.expr] = []
        if isinstance(owner_expr, ast.Name) and owner_expr.id in ("self", "cls"):
            owner = self.syntax.enclosing_class(owner_expr)
        elif depth < MAX_DEPTH and isinstance(owner_expr, (ast.Name, ast.Attribute)):
            if isinstance(owner_expr, ast.Name) and isinstance(named := self.names.local_function(owner_expr), ast.ClassDef):
                owner, written = named, self.configuration.written.get(attr, [])
            for definition in self.definitions(owner_expr, depth + 2):
                if isinstance(definition, ast.Call) and isinstance(found_class := self.names.local_function(definition.func), ast.ClassDef):
                    owner, made = found_class, definition
        if owner is not None and made is not None and self.configuration.is_configuration(owner):
            written = self.configuration.written.get(attr, [])
            given = argument(made, attr)
            if given is not None or has_star(made) or made.args or self.configuration.is_overwritten:
                return [given, *written] if given is not None else []
        found: list[ast.expr] = []
        classes = [owner] if owner is not None else []
        for item in classes:
            found += self.attributes.get((item, attr), [])
            classes += [base for base in self.names.bases(item) if base not in classes]
        return [default_of(value) or value for value in found] + (written if found else [])

    def _of_binding(self, binding: Binding, depth: int) -> list[Definition]:
        if isinstance(binding.node, ast.arg):
            return self.definitions(binding.node, depth + 1)
        if binding.value is None:
            return []
        if binding.element is None:
            return self.definitions(binding.value, depth + 1)
        found: list[Definition] = []
        for whole in self.definitions(binding.value, depth + 1):
            if isinstance(whole, ast.Tuple) and binding.element < len(whole.elts):
                found += self.definitions(whole.elts[binding.element], depth + 1)
        return found

    def _of_parameter(self, parameter: ast.arg, depth: int) -> list[Definition]:
        spec = self.syntax.parents[parameter]
        function = self.syntax.parents.get(spec)
        if (
            not isinstance(spec, ast.arguments)
            or not isinstance(function, FUNCTIONS)
            or parameter is spec.vararg
            or parameter is spec.kwarg
        ):
            return []
        found: list[Definition] = []
        calls = self.call_sites.get(function, [])
        if len(calls) > MAX_ALTERNATIVES:
            return []
        for call in calls:
            given = self.passed(call, function, parameter.arg)
            if given is not None:
                found += self.definitions(given, depth + 2)
        if not found and (default := self.default(function, parameter.arg)) is not None and not isinstance(default, ast.Constant):
            found += self.definitions(default, depth + 1)
        return found

    def passed(self, call: ast.Call, function: Function, name: str) -> ast.expr | None:
        """The expression that `call` passes for the parameter `name` of `function`, or None."""
        spec = [*function.args.posonlyargs, *function.args.args]
        index = next((i for i, a in enumerate(spec) if a.arg == name), None)
        if index is not None and spec and spec[0].arg in ("self", "cls"):
            index -= 1
        return argument(call, name, index if index is None or index >= 0 else None)

    def default(self, function: Function, name: str) -> ast.expr | None:
        """The default of the parameter `name`, or None."""
        spec = [*function.args.posonlyargs, *function.args.args]
        for parameter, value in zip(reversed(spec), reversed(function.args.defaults), strict=False):
            if parameter.arg == name:
                return value
        for parameter, keyword in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
            if parameter.arg == name:
                return keyword
        return None

    def returns(self, function: Function) -> list[ast.expr]:
        """The values that `function` returns."""
        known = self._returned.get(function)
        if known is None:
            found = (s.value for s in self.own_statements(function) if isinstance(s, ast.Return))
            known = self._returned[function] = [value for value in found if value is not None]
        return known

    def own_statements(self, function: Function) -> Iterator[ast.stmt]:
        """All statements of `function`, nested blocks included, nested functions and classes left out."""
        stack: list[ast.AST] = list(reversed(function.body))
        while stack:
            node = stack.pop()
            if isinstance(node, ast.stmt):
                yield node
            if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.expr)):
                stack.extend(
                    reversed([c for c in ast.iter_child_nodes(node) if isinstance(c, (ast.stmt, ast.ExceptHandler, ast.match_case))])
                )

    def made_by(self, node: ast.expr | ast.arg | None) -> list[tuple[ast.Call, str]]:
        """The calls of imported names that may have produced `node`, with those names."""
        found: list[tuple[ast.Call, str]] = []
        for definition in self.definitions(node):
            if isinstance(definition, ast.Call):
                found += [(definition, name) for name in self.names.candidates(definition.func)]
        return found

    def constant(self, node: ast.expr | None) -> Constant:
        """The value that the program text fixes for `node`; raises NotConstant where it is open or ambiguous."""
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
        """The number that the program text fixes for `node`, or None (bools are not numbers)."""
        value = self.constant_or(node)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        return float(value) if abs(value) < 1e300 or value in (math.inf, -math.inf) else None

    def _constant(self, node: ast.expr, depth: int) -> Constant:
        if depth > MAX_DEPTH:
            raise NotConstant
        match node:
            case ast.Constant(value=value) if value is not ...:
                return value
            case ast.UnaryOp(op=op, operand=operand):
                return fold_unary(op, self._constant(operand, depth + 1))
            case ast.BinOp(left=left, op=op, right=right):
                return fold_binary(op, self._constant(left, depth + 1), self._constant(right, depth + 1))
            case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))]):
                try:
                    return float(text)
                except ValueError:
                    raise NotConstant from None
            case ast.Call(func=ast.Name(id="float" | "int"), args=[inner]):
                return self._constant(inner, depth + 1)
            case ast.Name() | ast.Attribute() | ast.Subscript(slice=ast.Constant(value=str())):
                for name in self.names.candidates(node):
                    if name in NUMBERS:
                        return NUMBERS[name]
                found = {self._constant(d, depth + 1) for d in self.definitions(node) if d is not node and isinstance(d, ast.expr)}
                if len(found) == 1 and all(isinstance(d, ast.expr) for d in self.definitions(node)):
                    return found.pop()
        raise NotConstant

    def strings(self, node: Definition | None) -> set[str | None]:
        """The strings that `node` may be; None among them stands for anything else."""
        found: set[str | None] = set()
        for definition in self.definitions(node):
            value = self.constant_or(definition) if isinstance(definition, ast.expr) else None
            if isinstance(value, str):
                found.add(value)
            elif (setting := self.configuration.setting(definition)) is not None:
                given = [*([setting.default] if setting.default is not None else []), *setting.values]
                found |= {text for item in given if isinstance(text := self.constant_or(item), str)}
                found |= set() if setting.closed and found else {None}
            else:
                found.add(None)
        return found

    def dtypes(self, node: ast.expr | None) -> set[str]:
        """The dtypes that `node` names ("float16", "bfloat16", …); "?" stands for one that can't be told."""
        return {dtype for definition in self.definitions(node) for dtype in dtypes_of(self, definition)}

    def mentions(self, node: ast.AST) -> Iterator[ast.Name]:
        """The names read in an expression."""
        for item in walk_expressions(node):
            if isinstance(item, ast.Name):
                yield item


def dtypes_of(values: Values, node: Definition) -> set[str]:
    """The dtypes that one defining expression names; "?" stands for one that can't be told."""
    match node:
        case ast.Subscript(value=table, slice=ast.Name() | ast.Attribute() | ast.Call() | ast.Subscript() as key) if (
            entries := entries_of(values, table)
        ) is not None:
            chosen = values.strings(key)
            listed = chosen <= entries.keys()
            named = {dtype_of(values, entries[name]) for name in (chosen if listed else entries) if name is not None}
            return named or {UNKNOWN} if listed or len(named) == 1 else named | {UNKNOWN}
        case ast.Call(func=ast.Name(id="getattr"), args=[_, key]) if values.names.resolve(node.args[0]) == "torch":
            return {DTYPES.get(name or "", UNKNOWN) for name in values.strings(key)}
    found = dtype_of(values, node)
    if found == UNKNOWN and (setting := values.configuration.setting(node)) is not None:
        given = [*([setting.default] if setting.default is not None else []), *setting.values]
        named = {dtype for value in given for dtype in values.dtypes(value)} - {UNKNOWN}
        return named if named and setting.closed else named | {UNKNOWN}
    return {found}


def entries_of(values: Values, table: ast.expr) -> dict[str, ast.expr] | None:
    """The entries of a dictionary with strings as keys, or None."""
    definitions = values.definitions(table)
    match definitions[0] if len(definitions) == 1 else None:
        case ast.Dict(keys=keys, values=entries) if all(isinstance(k, ast.Constant) and isinstance(k.value, str | None) for k in keys):
            listed = zip(keys, entries, strict=True)
            return {k.value: v for k, v in listed if isinstance(k, ast.Constant) and isinstance(k.value, str)}  # None stands for "off"
    return None


def dtype_of(values: Values, node: Definition) -> str:
    """The dtype that an expression spells out, "?" where it names none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return DTYPES.get(node.value.removeprefix("torch."), UNKNOWN)
    for name in values.names.candidates(node):
        if name.startswith(DTYPE_ROOTS) or keras_path(name) is not None:
            return DTYPES.get(name.rpartition(".")[2], UNKNOWN)
    match node:
        case ast.Call(func=func, args=[inner, *_]) if values.names.resolve(func) in (
            "numpy.dtype",
            "tensorflow.as_dtype",
            "tensorflow.dtypes.as_dtype",
        ):
            return dtype_of(values, inner)
    return UNKNOWN
