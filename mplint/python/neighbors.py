"""What modules beside a program define: the few names that a decision in the program hangs on are looked up on disk."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator

from mplint.python.document import InputError
from mplint.python.load import load
from mplint.python.parse import parse

MAX_SIZE = 500_000
MAX_READ = 24  # modules read for one program
MAX_UP = 8  # folders above a program in which its packages may lie
ROOT_MARKS = frozenset((".git", ".hg"))

Definition = ast.expr | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Module:
    """A module that was read: its tree, and the path that its own imports count from."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self.tree = tree


class Neighbors:
    """Finds and reads the modules that a program of the project imports; `paths` are those that were looked for, there or not."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.paths: list[str] = []
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str, level: int = 0, importer: str = "") -> Module | None:
        """The module that `from name import …` means in a file of the project; None where the project has none of that name."""
        importer = importer or self.path
        for folder in [_up(os.path.dirname(importer), level - 1)] if level else _search(os.path.dirname(importer)):
            base = os.path.join(folder, *filter(None, name.split(".")))
            for path in (f"{base}.py", os.path.join(base, "__init__.py")) if name else (os.path.join(base, "__init__.py"),):
                found = self._read(path)
                if found is not None:
                    return found
        return None

    def is_there(self, name: str, level: int = 0) -> bool:
        """Whether the project has a module or a package of that name."""
        return self.module(name, level) is not None

    def definitions(self, module: Module, name: str, depth: int = 0) -> Iterator[tuple[Module, Definition]]:
        """What a module-level name may stand for: values, functions and classes, through the module's own imports of the project."""
        for statement in _statements(module.tree.body):
            match statement:
                case ast.Assign(targets=targets, value=value) if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                    yield module, value
                case ast.AnnAssign(target=ast.Name(id=bound), value=ast.expr() as value) if bound == name:
                    yield module, value
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if statement.name == name:
                    yield module, statement
                case ast.ImportFrom(names=names) if depth < 3:
                    for alias in names:
                        if alias.name == "*" or (alias.asname or alias.name) == name:
                            origin = self.module(statement.module or "", statement.level, module.path)
                            if origin is not None and origin is not module:
                                yield from self.definitions(origin, name if alias.name == "*" else alias.name, depth + 1)

    def _read(self, path: str) -> Module | None:
        if path not in self._modules:
            self._modules[path] = None
            if len(self.paths) < MAX_READ or os.path.exists(path):
                self.paths.append(path)
            if sum(found is not None for found in self._modules.values()) < MAX_READ:
                self._modules[path] = _parsed(path)
        return self._modules[path]


def _parsed(path: str) -> Module | None:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SIZE:
            return None
        with open(path, "rb") as stream:
            return Module(path, parse(load(path, stream.read())))
    except (OSError, InputError):
        return None


def _search(folder: str) -> Iterator[str]:
    """The folders in which a program of `folder` looks for packages: its own, and those around it up to the repository's root."""
    for _ in range(MAX_UP):
        yield folder
        yield os.path.join(folder, "src")
        here = os.path.abspath(folder)
        if any(os.path.exists(os.path.join(here, mark)) for mark in ROOT_MARKS) or os.path.dirname(here) == here:
            return
        folder = _up(folder, 1)


def _up(folder: str, levels: int) -> str:
    for _ in range(levels):
        last = os.path.basename(folder)
        folder = os.path.join(folder, "..") if last in ("", ".", "..") else os.path.dirname(folder)
    return folder


def _statements(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those in its conditions and attempts included."""
    for statement in block:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.TryStar | ast.With):
            yield from _statements(statement.body)
            yield from _statements(getattr(statement, "orelse", []))
            yield from _statements(getattr(statement, "finalbody", []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)
