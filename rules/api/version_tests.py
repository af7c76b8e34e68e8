"""Conditions that ask which version of a library there is, or whether it has a name: in the program, or imported from its project."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from mplint.python.definitions import Definitions
from mplint.python.neighbors import Definition, Module, Neighbors
from mplint.python.syntax import FUNCTIONS, Function

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

MAX_DEPTH = 4
LIBRARIES = ("torch", "tensorflow", "keras", "tf_keras")
ROOTS = (*LIBRARIES, "tf", "K")
# Identifiers that speak of a library's version or of one of its names, whatever they are defined as.
NAMES = re.compile(
    r"(?i:(?:^|_)(?:tf|tensorflow|torch|pytorch|pt|keras)_?(?:major|minor|ver|version|\d)|is_tf_?\d|is_(?:tf|torch|keras)_version"
    r"|__version__|has_native_amp|(?:torch|tf|tensorflow|keras)_(?:greater|at_least|gte?|lte?|ge|le|lt|gt|prev|older|newer)"
    r"|prev_(?:tf|torch|keras))|IS_TF2$|^tf2$|^TF2$"
)
VERSION = re.compile(r"(?i)version")
# Objects whose attributes are settings of the program.
SETTINGS = frozenset(("self", "args", "opt", "opts", "options", "config", "cfg", "conf", "FLAGS", "flags", "hparams", "hps", "params"))
PROBES = frozenset(("hasattr", "getattr", "find_spec", "try_import"))
CAUGHT = frozenset(("ImportError", "AttributeError", "ModuleNotFoundError", "Exception", "BaseException"))


class VersionTests:
    """Answers for one file, with the modules of its project, which of its conditions ask for a version."""

    def __init__(self, file: SourceFile, modules: Neighbors) -> None:
        self.file = file
        self.modules = modules
        self.definitions = Definitions(file.syntax, file.names)
        self._known: dict[ast.expr, bool] = {}

    def asks(self, test: ast.expr) -> bool:
        """Whether a condition hangs on a library's version or on whether it has a name."""
        known = self._known.get(test)
        if known is None:
            self._known[test] = False  # a value that hangs on itself asks nothing
            known = self._known[test] = self._asks(test, 0)
        return known

    def _asks(self, test: ast.AST, depth: int) -> bool:
        if says_version(test):
            return True
        if depth > MAX_DEPTH:
            return False
        return any(self._name_asks(node, depth + 1) for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute))

    def _name_asks(self, node: ast.Name | ast.Attribute, depth: int) -> bool:
        """Whether what a name stands for asks for a version."""
        if not isinstance(node.ctx, ast.Load):
            return False
        defined = self.file.names.local_function(node)
        if isinstance(defined, FUNCTIONS):
            return function_asks(defined)
        if isinstance(node, ast.Name):
            reaching = self.file.names.reaching(node)
            for binding in reaching:
                if binding.value is not None and (self._asks(binding.value, depth) or self._is_flag(binding.node)):
                    return True
            if not reaching:
                return any(self._imported_asks(s, node.id) for s in self.file.syntax.all(ast.ImportFrom) if s.names[0].name == "*")
            return any(
                self._imported_asks(b.node, alias.name)
                for b in reaching
                if isinstance(b.node, ast.ImportFrom)
                for alias in b.node.names
                if (alias.asname or alias.name) == node.id
            )
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            owner = self.file.syntax.enclosing_class(node)
            values = self.definitions.attributes.get((owner, node.attr), []) if owner is not None else []
            return any(self._asks(value, depth) for value in values)
        return isinstance(node.value, ast.Name | ast.Attribute) and self._attribute_asks(node)

    def _attribute_asks(self, node: ast.Attribute) -> bool:
        """Whether an attribute of a module of the project (`compat.IS_OLD`) asks for a version."""
        neighbors = self.modules
        for name in self.file.names.candidates(node.value):
            level = len(name) - len(name.lstrip("."))
            if name.lstrip(".").partition(".")[0] in LIBRARIES:
                continue
            module = neighbors.module(name.lstrip("."), level)
            if module is not None and definition_asks(neighbors, module, node.attr):
                return True
        return False

    def _imported_asks(self, statement: ast.ImportFrom, name: str) -> bool:
        """Whether a name that is imported from the project asks for a version there."""
        if (statement.module or "").partition(".")[0] in LIBRARIES and not statement.level:
            return False
        neighbors = self.modules
        module = neighbors.module(statement.module or "", statement.level)
        return module is not None and definition_asks(neighbors, module, name)

    def _is_flag(self, node: ast.AST) -> bool:
        """Whether an assignment of a constant stands in an attempt to import or to read a name of a library."""
        for parent in self.file.syntax.ancestors(node):
            if isinstance(parent, ast.Try | ast.TryStar):
                return is_attempt(parent)
            if isinstance(parent, FUNCTIONS):
                return False
        return False


def definition_asks(neighbors: Neighbors, module: Module, name: str, depth: int = 0) -> bool:
    """Whether what a module defines as `name` asks for a version: a flag, a version, or a function."""
    for home, found in neighbors.definitions(module, name):
        if isinstance(found, ast.Constant) and any(is_attempt(t) and holds(t, found) for t in ast.walk(home.tree)):
            return True
        if value_asks(neighbors, home, found, depth):
            return True
    return False


def value_asks(neighbors: Neighbors, module: Module, found: Definition, depth: int) -> bool:
    """Whether a value or a function of another module asks for a version."""
    if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return function_asks(found)
    if isinstance(found, ast.ClassDef):
        return False
    if says_version(found):
        return True
    names = {node.id for node in ast.walk(found) if isinstance(node, ast.Name)} if depth < MAX_DEPTH else set()
    return any(definition_asks(neighbors, module, name, depth + 1) for name in sorted(names))


def function_asks(function: Function) -> bool:
    """Whether a function's answer hangs on a version: one of its tests, or what it returns, speaks of it."""
    for node in ast.walk(function):
        tested = node.test if isinstance(node, ast.If | ast.IfExp) else node.value if isinstance(node, ast.Return) else None
        if isinstance(tested, ast.expr) and (says_version(tested) or any(VERSION.search(name) for name in identifiers(tested))):
            return any(VERSION.search(name) or NAMES.search(name) or name in PROBES for name in identifiers(function))
    return False


def says_version(test: ast.AST) -> bool:
    """Whether an expression itself speaks of a version or probes for a name: `tf.__version__`, `hasattr(torch.amp, …)`, `TORCH_VERSION`."""
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Name(id="hasattr" | "getattr"), args=[owner, *_]) if last_name(owner) not in SETTINGS:
                return True
            case ast.Call(func=func) if VERSION.search(last_name(func)) and last_name(func) != "version_info":
                return True
            case ast.Name(id=name) | ast.Attribute(attr=name):
                if NAMES.search(name) or (VERSION.search(name) and root_of(node) in ROOTS):
                    return True
    return False


def is_attempt(node: ast.AST) -> bool:
    """Whether a `try` reads or imports something of a library and survives that it is not there."""
    if not isinstance(node, ast.Try | ast.TryStar) or not catches(node.handlers):
        return False
    for statement in node.body:
        for inner in ast.walk(statement):
            match inner:
                case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in LIBRARIES:
                    return True
                case ast.Attribute() if root_of(inner) in ROOTS:
                    return True
    return False


def holds(attempt: ast.AST, node: ast.AST) -> bool:
    """Whether a node stands in a statement."""
    return any(inner is node for inner in ast.walk(attempt))


def catches(handlers: list[ast.ExceptHandler]) -> bool:
    """Whether a try survives that a name is missing."""
    for handler in handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or ast.unparse(kind).rpartition(".")[2] in CAUGHT for kind in kinds):
            return True
    return False


def identifiers(node: ast.AST) -> set[str]:
    """Every name and attribute in a tree."""
    return {n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)}


def last_name(node: ast.AST) -> str:
    """The last identifier of a dotted expression, "" for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def root_of(node: ast.AST) -> str:
    """The name that a dotted expression begins with, "" for anything else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
