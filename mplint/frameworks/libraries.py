"""Which code is a library's: installed with a distribution, offered to users, and run under the policies that they set."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from mplint.program.project import Project
from mplint.python.roots import MAX_READ, builds_distribution

# folders of what is run, shown or tried out beside a library
APART = frozenset(
    {
        "apps", "apphub", "benchmark", "benchmarks", "bin", "ci", "demo", "demos", "doc", "docs", "example", "examples", "experiment",
        "experiments", "notebooks", "playground", "pretraining",
        "projects", "recipes", "reference", "references", "research", "sample", "samples", "scripts", "template", "templates",
        "test", "tests", "testing", "tools", "tutorial", "tutorials",
    }
)  # fmt: skip
PACKAGING: Mapping[str, Callable[[str], object]] = {
    "setup.py": builds_distribution,
    "setup.cfg": re.compile(r"^\[(?:options|metadata)\]", re.M).search,
    "pyproject.toml": re.compile(r"^\[(?:project|tool\.poetry|tool\.flit\.metadata)\](?:(?!^\[).)*?^name\s*=", re.M | re.S).search,
}
SOURCES = (".", "src", "lib", "python")  # folders of a distribution's packages
REGISTERED = frozenset(["register_keras_serializable", "register_serializable", "keras_serializable"])


class Libraries:
    """Tells library code among the files of a project. `is_program`: whether a file is one that trains when it is run."""

    def __init__(self, project: Project, is_program: Callable[[str], bool]) -> None:
        self.project = project
        self.is_program = is_program
        self.known: dict[str, bool] = {}
        self.roots: dict[str, str | None] = {}

    def holds(self, path: str) -> bool:
        """Whether a file is part of a library."""
        if path not in self.known:
            self.known[path] = self.is_framework(path) or (self.is_packaged(path) and self.is_offered(path))
        return self.known[path]

    def is_framework(self, path: str) -> bool:
        """Whether the project is such a framework itself."""
        return os.path.dirname(path).partition("/")[0] in self.project.foreign

    def is_packaged(self, path: str) -> bool:
        """Whether a file is installed with a distribution: in a package beside or below what builds it."""
        folder = os.path.dirname(path)
        root = self.root_of(folder)
        if root is None or folder == root or not self.project.is_file(os.path.join(folder, "__init__.py")):
            return False
        return not self.is_apart(folder, root)

    def root_of(self, folder: str) -> str | None:
        """The folder around a package that holds what builds the distribution; that of the project may look like a package itself."""
        if folder not in self.roots:
            found = None
            alone = folder in ("", ".") or not self.project.is_file(os.path.join(folder, "__init__.py"))
            if alone and self.is_built_from(folder):
                found = folder
            elif folder not in ("", ".", "/") and not folder.endswith(".."):
                found = self.root_of(os.path.dirname(folder))
            self.roots[folder] = found
        return self.roots[folder]

    def is_built_from(self, folder: str) -> bool:
        """Whether a folder holds what builds a distribution."""
        for name, tells in PACKAGING.items():
            place = os.path.join(folder, name)
            self.project.looked_up.add(place)
            try:
                with open(place, encoding="utf-8", errors="replace") as file:
                    if tells(file.read(MAX_READ)):
                        return True
            except OSError:
                continue
        return False

    def is_offered(self, path: str) -> bool:
        """Whether users are meant to import it: exported or registered, or nothing that the project runs uses it."""
        folder, packages = self.packages(path)
        if path in self.project.graph.below(packages):
            return True
        ir = self.project.ir(path)
        if ir is not None and not REGISTERED.isdisjoint(ir[2]):
            return True
        users = sorted(self.project.graph.above([path]) - {path})
        return not any(self.is_program(user) and not self.is_apart(os.path.dirname(user), folder) for user in users)

    def packages(self, path: str) -> tuple[str, list[str]]:
        """The packages around a file, the nearest first, and the folder that the outermost stands in."""
        folder, packages = os.path.dirname(path), []
        while folder not in ("", ".") and self.project.is_file(os.path.join(folder, "__init__.py")):
            packages.append(os.path.join(folder, "__init__.py"))
            folder = os.path.dirname(folder)
        return folder, packages

    def is_distributed(self, path: str) -> bool:
        """Whether a library's file lies where distributions have their packages: beside what builds them, or in `src`."""
        root = self.root_of(os.path.dirname(path)) if self.holds(path) else None
        return root is not None and os.path.relpath(self.packages(path)[0] or ".", root or ".") in SOURCES

    def is_left_aside(self, path: str) -> bool:
        """Whether the packages around a file offer some of their modules and not this one: who wants it, has to know where it is."""
        _, packages = self.packages(path)
        found = self.project.graph.below(packages[-1:])
        return path not in self.project.graph.below(packages) and len(found) > 1

    def is_apart(self, folder: str, root: str) -> bool:
        """Whether a folder holds examples, tests and the like beside what stands in a distribution's root."""
        return not APART.isdisjoint(os.path.relpath(folder or ".", root or ".").lower().split("/"))
