"""Which file an import means, and which files a project's imports connect."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable
from functools import cached_property

from mplint.source.words import ENABLING

KERAS, TORCH, SETS_POLICY, ENTERS_AUTOCAST, NAMES_HALF, ENABLES, SAVES = "keras", "torch", "policy", "autocast", "half", "enables", "saves"
WORDS = {
    KERAS: ("keras", "tensorflow"),
    TORCH: ("torch",),
    SETS_POLICY: ("set_global_policy", "set_policy", "set_dtype_policy", "set_floatx"),
    ENTERS_AUTOCAST: ("autocast", ".half(", ".bfloat16("),
    NAMES_HALF: ("float16", "torch.half", "HalfTensor", "deepspeed"),
    ENABLES: ENABLING,
    SAVES: (".save(", "save_model(", "ModelCheckpoint("),
}


def words_of(text: str) -> frozenset[str]:
    """Which of the things that links ask about a program mentions."""
    return frozenset(word for word, spellings in WORDS.items() if any(spelling in text for spelling in spellings))


def imported(tree: ast.Module) -> tuple[str, ...]:
    """Dotted names that the imports outside of functions mention (modules, and what may be modules), relative ones with their dots."""
    found: dict[str, None] = {}
    stack: list[ast.stmt] = list(reversed(tree.body))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            found.update((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            found[source] = None
            joint = "" if source.endswith(".") else "."
            found.update((f"{source}{joint}{alias.name}", None) for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.If):
            stack += [*reversed(node.orelse), *reversed(node.body)]
        elif isinstance(node, ast.Try):
            stack += [*reversed(node.orelse), *(s for h in node.handlers for s in h.body), *reversed(node.body)]
    return tuple(found)


class Modules:
    """The project's files under every dotted name that an import may use for them.

    Folders on the import path are not known (source layouts, scripts that extend `sys.path`), so a file answers to each suffix of its path;
    of several the one nearest to the importing file wins.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_suffix: dict[str, list[str]] = {}
        self._paths: dict[str, str] = {}
        for path in paths:
            parts = module_parts(path)
            self._paths[".".join(parts)] = path
            for start in range(len(parts)):
                self._by_suffix.setdefault(".".join(parts[start:]), []).append(path)
        self._found: dict[tuple[str, str], str | None] = {}

    def find(self, name: str, importer: str) -> str | None:
        """The file that the module `name` is, as `importer` imports it; None when it is not in the project."""
        key = (name, os.path.dirname(importer))
        if key not in self._found:
            self._found[key] = self._find(name, importer)
        return self._found[key]

    def holds(self, name: str, importer: str) -> bool:
        """Whether the project has the module that a dotted name of `importer` begins with."""
        while name.strip("."):
            if self.find(name, importer) is not None:
                return True
            name = name.rpartition(".")[0]
        return False

    def _find(self, name: str, importer: str) -> str | None:
        if name.startswith("."):
            level = len(name) - len(name.lstrip("."))
            package = module_parts(importer)
            if os.path.basename(importer) != "__init__.py":
                package = package[:-1]
            package = package[: len(package) - level + 1] if level > 1 else package
            return self._paths.get(".".join([*package, *filter(None, name.lstrip(".").split("."))]))
        found = self._by_suffix.get(name, [])
        if not found:
            return None
        return max(found, key=lambda path: (shared_parts(path, importer), -len(path), path))


def shared_parts(one: str, other: str) -> int:
    """How many leading folders two paths share."""
    shared = 0
    for a, b in zip(one.split("/"), other.split("/"), strict=False):
        if a != b:
            break
        shared += 1
    return shared


def module_parts(path: str) -> list[str]:
    """The parts of the dotted name that a path has from the project's root."""
    parts = os.path.splitext(path.replace("\\", "/"))[0].split("/")
    parts = [part for part in parts if part not in ("", ".")]
    return parts[:-1] if parts and parts[-1] == "__init__" else parts


class ImportGraph:
    """Which project file imports which."""

    def __init__(self, imports: dict[str, tuple[str, ...]]) -> None:
        self.modules = Modules(imports)
        self._imports = imports

    @cached_property
    def targets(self) -> dict[str, set[str]]:
        """The files that each file imports."""
        table: dict[str, set[str]] = {}
        for path, names in self._imports.items():
            found = {self.modules.find(name, path) for name in names}
            table[path] = {target for target in found if target is not None and target != path}
        return table

    @cached_property
    def sources(self) -> dict[str, set[str]]:
        """The files that import each file."""
        table: dict[str, set[str]] = {path: set() for path in self._imports}
        for path, targets in self.targets.items():
            for target in targets:
                table[target].add(path)
        return table

    def below(self, start: Iterable[str]) -> set[str]:
        """`start` and everything it imports, directly or not."""
        return closure(start, self.targets)

    def above(self, start: Iterable[str]) -> set[str]:
        """`start` and everything that imports it, directly or not."""
        return closure(start, self.sources)


def closure(start: Iterable[str], edges: dict[str, set[str]]) -> set[str]:
    """Everything that can be reached from `start`."""
    seen = set(start)
    stack = list(seen)
    while stack:
        for target in edges.get(stack.pop(), ()):
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen
