"""What a project itself reaches and switches on, by the names in its sources, settings and instructions.

Names stand for what they name wherever they stand, so a function counts as reached where anything that runs mentions its name, and a
switch can be on where anything gives it a value that is true, an option sets it, or nothing is known of it.
"""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
PLAIN = frozenset(("staticmethod", "classmethod", "property", "abstractmethod", "no_grad", "inference_mode", "dataclass", "wraps"))
PLAIN |= frozenset(("function", "compile", "autocast", "custom_fwd", "custom_bwd", "override", "enable_grad", "lru_cache", "cache"))
CALLED_BY_NAME = {"Module": ("forward",), "Function": ("forward", "backward"), "Layer": ("call", "build"), "Model": ("call", "train_step")}
NOBODY = frozenset(("object", "ABC", "Enum", "NamedTuple", "Exception", "Protocol", "TypedDict", "BaseModel"))
OFF = frozenset(("", "no", "none", "false", "off", "null", "0", "32", "fp32", "float32", "float", "n", "f", "~"))
GIVEN = re.compile(r"(?<![\w-])--([A-Za-z][\w-]*)|[\"']?\b([A-Za-z_][\w-]*)[\"']?[ \t]*[:=][ \t]*[\"']?([\w.+-]*)")
CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(|\bimport[ \t]+([\w, \t]+)|:([A-Za-z_]\w*)[\"']")
COMMAND = re.compile(r"\b(?:python[\d.]*|torchrun|launch|run|deepspeed)\b[^\n|&;]*?([\w-]+\.py)\b([^\n|&;>`]*)")
OPTION = re.compile(r"--([A-Za-z][\w-]*)(?:[ =]+(?!-)[\"']?([\w.+-]+))?")
NAMED = re.compile(r"\b(?:[A-Z]\w*[a-z]\w*|[A-Za-z]\w*_\w+)\b")


@dataclass(frozen=True, slots=True)
class Project:
    """Every module of a project, what gives a name a value, the calls by name, and the definitions that something reaches.

    `options` are set by the command line, but those of `always`, which every command that the project shows for their script gives;
    `defined` are functions and properties; `told` holds the values that settings and instructions give; `reached` the paths and lines of
    definitions; `as_keys` says whether options are ever read by key.
    """

    modules: tuple[tuple[str, ast.Module], ...] = ()
    given: dict[str, list[ast.expr]] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)
    options: frozenset[str] = frozenset()
    calls: dict[str, list[ast.Call]] = field(default_factory=dict)
    defined: frozenset[str] = frozenset()
    reached: frozenset[tuple[str, int]] = frozenset()
    always: frozenset[str] = frozenset()
    as_keys: bool = True

    def possible(self, test: ast.expr, wanted: bool, function: ast.AST | None = None, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a test may come out as wanted; `function` is the one whose parameters it may name."""
        match test:
            case ast.Constant():
                on = test.value.lower() not in OFF if isinstance(test.value, str) else bool(test.value)
                return on is wanted
            case ast.UnaryOp(op=ast.Not()):
                return self.possible(test.operand, not wanted, function, seen)
            case ast.BoolOp():
                every = isinstance(test.op, ast.And) is wanted
                return (all if every else any)(self.possible(v, wanted, function, seen) for v in test.values)
            case ast.IfExp():
                return (self.possible(test.test, True, function, seen) and self.possible(test.body, wanted, function, seen)) or (
                    self.possible(test.test, False, function, seen) and self.possible(test.orelse, wanted, function, seen)
                )
            case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
                return self.possible(left, wanted, function, seen)
            case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
                return self.possible(left, not wanted, function, seen)
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=str(value))]):
                return self.may_be(key_of(left), value) if wanted else self.may_be_other(key_of(left), value)
            case ast.Call() if key_of(test.func) in ("bool", "int") and test.args:
                return self.possible(test.args[0], wanted, function, seen)
            case ast.Call() if key_of(test.func) in ("get", "getattr") and key_of(test):
                values = [self.possible(test.args[-1], wanted, function, seen)] if isinstance(test.args[-1], ast.Constant) else []
                by_key = key_of(test.func) == "get" and not self.as_keys
                return any(values) or self.named(key_of(test), wanted, function, seen, bool(values), by_key)
            case ast.Subscript():
                return self.named(key_of(test), wanted, function, seen, by_key=not self.as_keys)
            case ast.Name() | ast.Attribute():
                return self.named(key_of(test), wanted, function, seen)
        return True

    def is_open(self, name: str) -> bool:
        """Whether the command line gives an option what it likes."""
        return name in self.options and name not in self.always

    def named(
        self, name: str, wanted: bool, function: ast.AST | None, seen: frozenset[str], known: bool = False, by_key: bool = False
    ) -> bool:
        """Whether a name may stand for what is wanted; so does one of which nothing is known, but where `known`.

        `by_key`: it is read from settings, which are no options.
        """
        if not name or (self.is_open(name) and not by_key) or name in self.defined or name in seen:
            return name not in seen
        if name in self.always and not by_key:
            return any((word.lower() not in OFF) is wanted for word in self.told.get(name, ()))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and (values := self.arguments(function, name)) is not None:
            passed = [v for v in values if key_of(v) != name]
            through = len(passed) < len(values) and self.named(name, wanted, None, seen)
            return through or any(self.possible(v, wanted, None, seen | {name}) for v in passed)
        told = {(word.lower() not in OFF) is wanted for word in self.told.get(name, ())}
        values = [v for v in self.given.get(name, ()) if key_of(v) != name]
        return True in told or any(self.possible(v, wanted, None, seen | {name}) for v in values) or not (told or values or known)

    def arguments(self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> list[ast.expr] | None:
        """What calls give a parameter; None where it is no parameter, has no default, or who calls its function is not known."""
        spelled = function.args
        names = [a.arg for a in [*spelled.posonlyargs, *spelled.args]]
        defaults = dict(zip(names[::-1], spelled.defaults[::-1], strict=False))
        defaults |= {a.arg: d for a, d in zip(spelled.kwonlyargs, spelled.kw_defaults, strict=True) if d is not None}
        calls = self.calls.get(function.name, ())
        if name not in defaults or not calls:
            return None
        found = []
        for call in calls:
            place = names.index(name) - (names[0] in ("self", "cls")) if name in names else len(call.args)
            if any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
                return None
            keyword = [k.value for k in call.keywords if k.arg == name]
            found += keyword or call.args[place : place + 1] or [defaults[name]]
        return found

    def may_be(self, name: str, value: str) -> bool:
        """Whether a name may be a text: something gives it that, gives it what is not known, or nothing does."""
        values = [v for v in self.given.get(name, ()) if key_of(v) != name]
        known = [v.value for v in values if isinstance(v, ast.Constant)]
        told = self.told.get(name, set())
        return self.is_open(name) or len(known) < len(values) or value in known or value in told or not (values or told)

    def may_be_other(self, name: str, value: str) -> bool:
        """Whether a name may be anything but a text."""
        values = [v for v in self.given.get(name, ()) if key_of(v) != name]
        only = bool(values) and all(isinstance(v, ast.Constant) and v.value == value for v in values)
        return self.is_open(name) or not only or any(word != value for word in self.told.get(name, ()))

    def may_be_any(self, node: ast.expr, values: frozenset[str]) -> bool:
        """Whether an expression may be one of some texts."""
        match node:
            case ast.Constant():
                return str(node.value).lower() in values
            case ast.IfExp():
                return self.may_be_any(node.body, values) or self.may_be_any(node.orelse, values)
        name = key_of(node)
        given = [v for v in self.given.get(name, ()) if key_of(v) != name]
        told = {word.lower() for word in self.told.get(name, ())}
        words = {str(v.value if isinstance(v, ast.Constant) else v.attr).lower() for v in given if is_written(v)}
        unknown = not name or not all(map(is_written, given)) or not (given or told)
        return self.is_open(name) or unknown or not values.isdisjoint(words | told)

    def is_reached(self, path: str, node: Definition) -> bool:
        """Whether something that runs names a definition."""
        return (path, node.lineno) in self.reached


def is_written(node: ast.expr) -> bool:
    """Whether an expression is a constant, or a member of an enumeration."""
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Attribute) and node.attr.isupper())


def project_of(modules: Iterable[tuple[str, ast.Module]], texts: Iterable[tuple[str, str]]) -> Project:
    """What modules and the other texts of a project (settings, scripts of the shell, instructions), by path, say together."""
    read = tuple(modules)
    rest = tuple(texts)
    given: dict[str, list[ast.expr]] = defaultdict(list)
    calls: dict[str, list[ast.Call]] = defaultdict(list)
    told: dict[str, set[str]] = defaultdict(set)
    options, defined = set(), set()
    for _, tree in read:
        for node in ast.walk(tree):
            if isinstance(node, DEFINITIONS):
                defined.add(node.name)
            for name, value in givings(node):
                given[name].append(value)
            if isinstance(node, ast.Call):
                calls[key_of(node.func)].append(node)
                options |= set(options_of(node))
    for _, text in rest:
        for option, name, value in GIVEN.findall(text):
            told[(option or name).replace("-", "_")].add("true" if option else value)
    always = always_given(read, rest)
    for name, values in always.items():
        told[name] = values
    as_keys = any(key_of(node.func) in ("vars", "asdict", "to_dict") for found in calls.values() for node in found) or any(
        isinstance(node, ast.Attribute) and node.attr == "__dict__" for _, tree in read for node in ast.walk(tree)
    )
    reached = reached_of(read, rest)
    return Project(read, dict(given), dict(told), frozenset(options), dict(calls), frozenset(defined), reached, frozenset(always), as_keys)


def always_given(modules: Iterable[tuple[str, ast.Module]], texts: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The options that every command which a project shows for their script gives, with the values: "true" where none is written."""
    declared: dict[str, set[str]] = defaultdict(set)
    for path, tree in modules:
        for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
            for name in options_of(call):
                declared[name].add(os.path.basename(path))
    commands: dict[str, list[dict[str, str]]] = defaultdict(list)
    for _, text in texts:
        for script, rest in COMMAND.findall(re.sub(r"\\[ \t]*\r?\n", " ", text)):
            commands[script].append({name.replace("-", "_"): value or "true" for name, value in OPTION.findall(rest)})
    found = {}
    for name, scripts in declared.items():
        own = [given for script in scripts for given in commands.get(script, ())]
        if len(scripts) == 1 and own and all(name in given for given in own):
            found[name] = {given[name] for given in own}
    return found


def givings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names that a node gives values."""
    match node:
        case ast.Assign():
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts):
                    yield from ((key_of(t), v) for t, v in zip(target.elts, node.value.elts, strict=True))
                elif isinstance(target, ast.Tuple):
                    yield from ((key_of(t), node.value) for t in target.elts)
                else:
                    yield key_of(target), node.value
        case ast.AnnAssign(value=ast.expr() as value):
            yield key_of(node.target), value
        case ast.keyword(arg=str(name), value=value):
            yield name, value
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value
        case ast.arguments():
            names = [*node.posonlyargs, *node.args]
            yield from ((a.arg, d) for a, d in zip(names[::-1], node.defaults[::-1], strict=False))
            yield from ((a.arg, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True) if d is not None)


def options_of(call: ast.Call) -> Iterator[str]:
    """The names of options of the command line that a call adds."""
    for argument in call.args if key_of(call.func) in ("add_argument", "option", "Option", "DEFINE_bool", "DEFINE_boolean") else ():
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            for part in argument.value.split("/"):
                yield part.lstrip("-").replace("-", "_")
                yield part.lstrip("-").removeprefix("no-").replace("-", "_")
    for keyword in call.keywords:
        if keyword.arg == "dest" and isinstance(keyword.value, ast.Constant):
            yield str(keyword.value.value)


def key_of(node: ast.AST) -> str:
    """The last name of an expression: an identifier, an attribute, a key that is written out, also behind `get` and `getattr`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return name
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return name
    return ""


def reached_of(modules: tuple[tuple[str, ast.Module], ...], texts: tuple[tuple[str, str], ...]) -> frozenset[tuple[str, int]]:
    """The definitions that bodies of files, instructions and settings name, and those that these name, by path and line."""
    waiting: dict[str, list[tuple[str, Definition, ast.ClassDef | None]]] = defaultdict(list)
    everywhere = {n.name for _, tree in modules for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    news: list[str] = []
    for path, tree in modules:
        news += names_of(tree, path.endswith("__init__.py"))
        for owner in ast.walk(tree):
            for node in ast.iter_child_nodes(owner):
                for definition in definitions_below(node):
                    waiting[definition.name].append((path, definition, owner if isinstance(owner, ast.ClassDef) else None))
    for path, text in texts:
        written = path.endswith((".md", ".rst", ".ipynb", ".txt"))
        news += [w for found in CALLED.findall(text) for w in re.findall(r"\w+", " ".join(found))] if written else NAMED.findall(text)
        news += [] if written else [found[2] for found in CALLED.findall(text) if found[2]]
    reached: set[tuple[str, int]] = set()
    named: set[str] = set()
    while True:
        named.update(news)
        news = []
        for name, found in waiting.items():
            for path, node, owner in found:
                if (path, node.lineno) in reached or (owner is not None and (path, owner.lineno) not in reached):
                    continue
                if name in named or registered(node) or (owner is not None and by_framework(node, owner, everywhere)):
                    reached.add((path, node.lineno))
                    news += names_of(node, False)
        if not news:
            return frozenset(reached)


def definitions_below(node: ast.AST) -> Iterator[Definition]:
    """A definition, where a node is one."""
    if isinstance(node, DEFINITIONS):
        yield node


def names_of(node: ast.AST, exports: bool) -> Iterator[str]:
    """The names that a body mentions: identifiers, attributes and texts that are names, not what is in inner definitions."""
    stack = list(ast.iter_child_nodes(node))
    while stack:
        at = stack.pop()
        if isinstance(at, (ast.Import, ast.ImportFrom)):
            yield from (alias.name for alias in at.names if exports or alias.asname)
        elif isinstance(at, DEFINITIONS):
            stack += [*at.decorator_list, *(at.bases if isinstance(at, ast.ClassDef) else [])]
        else:
            match at:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name
                case ast.Constant(value=str(name)) if name.isidentifier():
                    yield name
            stack += ast.iter_child_nodes(at)


def registered(node: Definition) -> bool:
    """Whether a decorator may enter a definition somewhere."""
    names = [key_of(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
    return any(name not in PLAIN for name in names)


def by_framework(node: Definition, owner: ast.ClassDef, everywhere: set[str]) -> bool:
    """Whether a base that is not of the project may call a method by its name, or Python does."""
    bases = [key_of(base.value if isinstance(base, ast.Subscript) else base) for base in owner.bases]
    outside = [base for base in bases if base not in everywhere and base not in NOBODY]
    return (node.name.startswith("__") and node.name.endswith("__")) or any(
        node.name in CALLED_BY_NAME.get(b, (node.name,)) for b in outside
    )
