"""The modules of a project: which file a dotted name means from where, as Python finds it when the project's scripts run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterable
from functools import cached_property
from typing import Protocol

from mplint.program.lower import IR
from mplint.program.modules import ImportGraph
from mplint.program.values import Module
from mplint.python.document import is_test_path

SOURCE = ".py"


class Topic(Protocol):
    """Files beside the programs of which no more is known than the answers to some questions; equal topics are of the same files."""

    def answers(self, questions: Iterable[Hashable]) -> dict[Hashable, Hashable]:
        """What the files say now to each question."""

    def places(self) -> list[str]:
        """The files that there are now."""

    def folders(self) -> list[str]:
        """The folders in which another one would be found, whether they are there or not."""

    def __hash__(self) -> int: ...


class Project:
    """The programs of a project by path ("/" between parts), lowered on demand.

    `lowered` gives the module of a path, or None where it can't be read or parsed. `foreign`: roots of packages that are not the project's.
    `root`: a folder below which further files are looked up on disk, by their names, as imports ask for them. `graph`: which of the
    programs imports which. `layered`: those of the foreign packages that are programs over others of them, and are read as such where the
    project is one.
    """

    def __init__(
        self,
        paths: Iterable[str],
        lowered: Callable[[str], IR | None],
        foreign: frozenset[str] = frozenset(),
        root: str | None = None,
        graph: ImportGraph | None = None,
        layered: frozenset[str] = frozenset(),
    ) -> None:
        self.paths = sorted(paths)
        self.graph = graph if graph is not None else ImportGraph(dict.fromkeys(self.paths, ()))
        self.modules = self.graph.modules
        self.adding = self.modules.adding
        self.foreign = foreign
        self.layered = layered
        self.root = root
        self.kept: dict[Hashable, object] = {}  # what a library has read for this project
        self.looked_up: set[str] = set()  # the other files that were looked for, whether they are there or not
        self.asked: dict[Topic, dict[Hashable, Hashable]] = {}  # what further files were asked, and the answers,
        self.heard: set[str] = set()  # and these files
        self._lowered = lowered
        self._ir: dict[str, IR | None] = {}
        self._found: dict[tuple[str, str], Module | None] = {}

    def ir(self, path: str) -> IR | None:
        """The lowered module of a path."""
        if path not in self._ir:
            self._ir[path] = self._lowered(path)
        return self._ir[path]

    def importers(self, path: str) -> list[str]:
        """The programs that import one, themselves or through packages that pass its names on; no tests, no notebooks."""
        return sorted(user for user in self.graph.users(path) if user != path and user.endswith(SOURCE) and not is_test_path(user))

    def known(self) -> list[IR]:
        """The lowered modules that somebody has asked for."""
        return [ir for ir in self._ir.values() if ir is not None]

    @cached_property
    def files(self) -> frozenset[str]:
        """The paths that modules are found by."""
        return frozenset(self.paths)

    @cached_property
    def folders(self) -> frozenset[str]:
        """The folders that hold programs, themselves or further down."""
        found: set[str] = set()
        for path in self.paths:
            folder = os.path.dirname(path)
            while folder not in found:
                found.add(folder)
                if not folder:
                    break
                folder = os.path.dirname(folder)
        return frozenset(found)

    def is_file(self, path: str) -> bool:
        """Whether a program stands at a path."""
        return path in self.files or (self.root is not None and self.is_below(path) and os.path.isfile(path))

    def is_folder(self, path: str) -> bool:
        """Whether a folder stands at a path."""
        return path in self.folders or (self.root is not None and self.is_below(path) and os.path.isdir(path))

    def is_below(self, path: str) -> bool:
        """Whether a path lies below the folder in which files are looked up."""
        return not self.root or path == self.root or path.startswith(self.root + "/")

    def name_of(self, path: str) -> str:
        """The dotted name under which a file's package knows it."""
        folder, base = os.path.split(path)
        parts = [] if base == "__init__.py" else [base.removesuffix(SOURCE)]
        while folder and self.is_file(os.path.join(folder, "__init__.py")):
            folder, part = os.path.split(folder)
            parts.insert(0, part)
        if parts == ["__main__"]:  # it is called so alone where it is the program that was begun
            parts.insert(0, os.path.basename(folder))
        return ".".join(parts) or os.path.basename(os.path.dirname(path))

    def relative(self, path: str, level: int, module: str) -> Module | None:
        """The module that `from ..module` means in the file `path`."""
        folder = os.path.dirname(path)
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        parts = module.split(".") if module else []
        return self.at(folder, parts)

    def absolute(self, path: str, module: str) -> Module | None:
        """The project's module that `import module` means in the file `path`, or None where it is another package's, or open which."""
        key = (os.path.dirname(path) if path not in self.adding else path, module)
        if key not in self._found:
            self._found[key] = self._absolute(path, module)
        found = self._found[key]
        if found is not None and found.path == path and "." not in module:
            return self.around(os.path.dirname(path), module) or found  # a module or package of the same name, not the file itself
        return found

    def around(self, folder: str, module: str) -> Module | None:
        """The nearest module of a name in the folders around one."""
        while folder:
            folder = os.path.dirname(folder)
            found = self.at(folder, [module])
            if found is not None:
                return found
            if folder == "/":
                break
        return None

    def own(self, path: str, module: str) -> Module | None:
        """The module of a layered package that the project is itself, as a file of that package imports it by its whole name."""
        head = module.partition(".")[0]
        if head not in self.layered or f"/{head}/" not in f"/{path}":
            return None
        found = self.modules.find(module, path)
        home = f"/{found}".partition(f"/{head}/")[0] if found is not None else None
        return Module(module, found) if found is not None and f"/{path}".startswith(f"{home}/{head}/") else None

    def _absolute(self, path: str, module: str) -> Module | None:
        parts = module.split(".")
        if parts[0] in self.foreign:
            return None
        if self.modules.knows(parts[0]):
            found = self.modules.find(module, path)
            if found is not None:
                return Module(module, found)
            is_clear = self.root is not None and not self.modules.is_ambiguous(parts[0], path)
            beside = self.on_disk(os.path.dirname(path), parts) if is_clear else None
            if beside is not None and beside.path:
                return beside  # one of a package of which only some files are given
            folder = self.modules.spread(module, path)
            return Module(folder, "") if folder is not None else None
        return self.on_disk(os.path.dirname(path), parts) if self.root is not None else None

    def on_disk(self, folder: str, parts: list[str]) -> Module | None:
        """The module that an import in a file of `folder` means, out of that folder or of those around it, where none was given."""
        if parts[0] in sys.stdlib_module_names:
            return None
        around = [folder]
        while around[-1] and around[-1] != "/":
            around.append(os.path.dirname(around[-1]))
        for home in around:
            if not (home == folder and folder and self.is_file(os.path.join(folder, "__init__.py"))):
                found = self.at(home, parts)
                if found is not None:
                    return found
        return self.at(folder, parts)  # a package's file that is run as a script

    def at(self, folder: str, parts: list[str]) -> Module | None:
        """The module of dotted `parts` below a folder."""
        where = "/".join([*([folder] if folder else []), *parts])
        name = where.replace("/", ".")
        package = where + "/__init__.py" if where else "__init__.py"
        if self.is_file(package):
            return Module(name, package)
        if parts and self.is_file(where + SOURCE):
            return Module(name, where + SOURCE)
        if self.is_folder(where):
            return Module(name + "/" if not where else where, "")
        return None

    def member(self, module: Module, name: str) -> Module | None:
        """A submodule of a package."""
        if module.path:
            if os.path.basename(module.path) != "__init__.py":
                return None
            return self.at(os.path.dirname(module.path), [name])
        return self.at(module.name, [name])
