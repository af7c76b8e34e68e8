"""Which file an import means, and which files a project's imports connect."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import cached_property

from mplint.python.imports import SIBLINGS
from mplint.python.suffixes import R_MODULE, R_SOURCES


class Modules:
    """The project's files under every dotted name that an import may use for them.

    An import is looked up as Python would from the importing file's place: in its own folder, in the folders that it adds to `sys.path`,
    then in the folders around it and their `src`. What lies elsewhere counts where only one folder can be meant: one that another file
    adds to `sys.path`, or one that holds a package of that name. Where two places may be meant, none is.
    """

    def __init__(self, paths: Iterable[str], folders: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._files: dict[str, str] = {}
        self._packages: set[str] = set()
        self._solid: dict[str, set[str]] = {}  # by name: folders with a module or a package of that name
        self._loose: dict[str, set[str]] = {}  # by name: folders with a folder of that name that is no package
        self._members: dict[str, list[str]] = {}
        self._own = {place(path): [place(folder) for folder in added] for path, added in (folders or {}).items()}
        self.adding = frozenset(folders or ())  # the files that add folders to the import path
        self._added = {folder for added in self._own.values() for folder in added}
        self._found: dict[tuple[str, str], str | None] = {}
        self._roots: dict[str, tuple[str, ...]] = {}
        self.folders: set[str] = set()  # that hold programs, themselves or further down
        for path in sorted(paths):
            if not path.endswith((".py", *R_SOURCES)):
                continue
            key = place(path)[:-3] if path.endswith(".py") else place(path)[:-2] + R_MODULE
            folder, _, stem = key.rpartition("/")
            if stem == "__init__":
                self._packages.add(folder)
                self._files[folder] = path  # a package wins over a module of its name
                key, (folder, _, stem) = folder, folder.rpartition("/")
            else:
                self._files.setdefault(key, path)
            self._solid.setdefault(stem, set()).add(folder)
            self._members.setdefault(folder, []).append(path)
            while folder and folder not in self.folders:
                self.folders.add(folder)
                outer, _, name = folder.rpartition("/")
                self._loose.setdefault(name, set()).add(outer)
                folder = outer

    def find(self, name: str, importer: str) -> str | None:
        """The file that the module `name` is, as `importer` imports it; None when it is not in the project, or open which one it is."""
        head = name.partition(".")[0]
        if head and not self.knows(head):
            return None
        key = (name, importer if importer in self.adding else os.path.dirname(importer))
        if key not in self._found:
            self._found[key] = self._find(name, place(importer))
        return self._found[key]

    def spread(self, name: str, importer: str) -> str | None:
        """The folder that the package `name` without an `__init__.py` is, as `importer` imports it; None where there is none."""
        parts = name.split(".")
        root = self._root(parts[0], place(importer))
        homes = [root] if root is not None else [r for r in self._search(place(importer)) if r in self._loose.get(parts[0], ())]
        return next((found for home in homes if (found := inside(home, *parts)) in self.folders), None)

    def knows(self, head: str) -> bool:
        """Whether the project has a module, package or folder of a name."""
        return head in self._solid or head in self._loose

    def is_ambiguous(self, head: str, importer: str) -> bool:
        """Whether the project has a module or package of a name, and it can't be told which of several `importer` means, if any."""
        return head in self._solid and self._root(head, place(importer)) is None

    def holds(self, name: str, importer: str) -> bool:
        """Whether the project has the module that a dotted name of `importer` begins with."""
        while name.strip("."):
            if self.find(name, importer) is not None:
                return True
            name = name.rpartition(".")[0]
        return False

    def named(self, name: str, importer: str) -> Iterable[str]:
        """The files that an import mentions: one, none, or with ".*" at the end of the name every module of a package."""
        if not name.endswith(SIBLINGS):
            found = self.find(name, importer)
            return () if found is None else (found,)
        package = name.removesuffix(SIBLINGS)
        folder = place(importer).rpartition("/")[0]
        if package:
            home = self.find(package, importer)
            if home is None or os.path.basename(home) != "__init__.py":
                return ()
            folder = place(home).rpartition("/")[0]
        return self._members.get(folder, ())

    def _find(self, name: str, importer: str) -> str | None:
        folder = importer.rpartition("/")[0]
        rest = name.lstrip(".")
        if rest != name:
            for _ in range(len(name) - len(rest) - 1):
                folder = folder.rpartition("/")[0]
            return self._files.get(inside(folder, *rest.split(".")))
        parts = name.split(".")
        root = self._root(parts[0], importer)
        found = self._files.get(inside(root, *parts)) if root is not None else None
        if found is not None or (root is not None and inside(root, parts[0]) in self._packages):
            return found
        loose = self._loose.get(parts[0], ())
        tails = [inside(root, *parts) for root in self._search(importer) if root in loose] if loose else []
        return next((self._files[tail] for tail in tails if tail in self._files), None)

    def _root(self, head: str, importer: str) -> str | None:
        """The folder out of which `importer` gets the module or package `head`."""
        homes = self._solid.get(head)
        if not homes:
            return None
        folder = importer.rpartition("/")[0]
        hits = [root for root in self._search(importer) if root in homes]
        if head in sys.stdlib_module_names:
            return folder if hits[:1] == [folder] and folder not in self._packages else None
        if hits and hits[0] == folder and folder in self._packages and len(hits) > 1:
            return None  # a script beside its package, or a module of it: two files may be meant
        if hits:
            return next((root for root in hits if root not in self._packages), hits[0])
        elsewhere = homes & self._added or {h for h in homes if h not in self._packages and inside(h, head) in self._packages}
        return next(iter(elsewhere)) if len(elsewhere) == 1 else None

    def _search(self, importer: str) -> tuple[str, ...]:
        """The folders in which `importer` looks for modules, each once, the first one first."""
        folder = importer.rpartition("/")[0]
        key = importer if importer in self._own else folder
        if key not in self._roots:
            self._roots[key] = tuple(self._folders(importer, folder))
        return self._roots[key]

    def _folders(self, importer: str, folder: str) -> Iterable[str]:
        roots = dict.fromkeys([folder, *self._own.get(importer, ())])
        while True:
            roots |= dict.fromkeys([folder, *(inside(folder, name) for name in ("src", "lib", "python"))])
            if not folder:
                return roots
            folder = folder.rpartition("/")[0]


def inside(folder: str, *parts: str) -> str:
    """A path below a folder."""
    tail = "/".join(filter(None, parts))
    return f"{folder}/{tail}" if folder and tail else folder or tail


def place(path: str) -> str:
    """A path with forward slashes, in its shortest form; "" for the current folder."""
    path = path.replace("\\", "/")
    path = os.path.normpath(path).replace("\\", "/") if path.startswith(".") or "/." in path or "//" in path else path
    return "" if path == "." else path


class ImportGraph:
    """Which project file imports which."""

    def __init__(self, imports: Mapping[str, tuple[str, ...]], folders: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.modules = Modules(imports, folders)
        self._imports = imports
        self.paths = sorted(imports)
        self._users: dict[str, set[str]] = {}

    @cached_property
    def targets(self) -> dict[str, set[str]]:
        """The files that each file imports."""
        table: dict[str, set[str]] = {}
        for path, names in self._imports.items():
            table[path] = {target for name in names for target in self.modules.named(name, path) if target != path}
        return table

    @cached_property
    def sources(self) -> dict[str, set[str]]:
        """The files that import each file."""
        table: dict[str, set[str]] = {path: set() for path in self._imports}
        for path, targets in self.targets.items():
            for target in targets:
                table[target].add(path)
        return table

    def users(self, path: str) -> set[str]:
        """The files that import a file, or a package that passes its names on."""
        known = self._users.get(path)
        if known is None:
            known = set(self.sources.get(path, ()))
            packages = [user for user in known if user.endswith("__init__.py")]
            while packages:
                fresh = self.sources.get(packages.pop(), set()) - known
                known |= fresh
                packages += [user for user in fresh if user.endswith("__init__.py")]
            self._users[path] = known
        return known

    @cached_property
    def joined(self) -> dict[str, str]:
        """For each file one that stands for all with which it is joined by imports, in whatever direction, or by its folder."""
        table: dict[str, str] = {}
        folders: dict[str, set[str]] = {}
        for path in self.paths:
            folders.setdefault(path.rpartition("/")[0], set()).add(path)
        edges = {path: self.targets[path] | self.sources[path] | folders[path.rpartition("/")[0]] for path in self.paths}
        for path in self.paths:
            if path not in table:
                table.update(dict.fromkeys(closure([path], edges), path))
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
