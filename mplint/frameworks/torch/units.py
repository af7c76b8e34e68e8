"""Which programs of a repository belong together: packages and folders of scripts, joined where one imports another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from mplint.program.project import Project
from mplint.program.trace import Ask

IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+(\.*[A-Za-z_][\w.]*)[ \t]+import|import[ \t]+([A-Za-z_][\w., \t]*))", re.M)


SOURCES = ("src", "lib", "python", "packages")  # folders that are put on the path


def names_imported(data: bytes) -> tuple[str, ...]:
    """The dotted names of modules that a program imports; relative ones begin with dots."""
    found: dict[str, None] = {}
    for match in IMPORT.finditer(data):
        if match[1]:
            found[match[1].decode()] = None
        else:
            for part in match[2].decode().split(","):
                name = part.split(" as ")[0].strip()
                if name:
                    found[name] = None
    return tuple(found)


class Units:
    """The connected parts of a project."""

    def __init__(self, project: Project, paths: Iterable[str], ask: Ask) -> None:
        self.project = project
        self.parents: dict[str, str] = {}
        for path in sorted(paths):
            for name in ask(path, names_imported):
                if name.startswith("."):
                    self.join_relative(path, name)
                    continue
                first = name.partition(".")[0]
                if not project.modules.knows(first):
                    continue
                module = project.absolute(path, name)
                while module is None and "." in name:
                    name = name.rpartition(".")[0]
                    module = project.absolute(path, name)
                if module is not None and module.path and reaches(path, module.path, name):
                    self.join(self.unit(path), self.unit(module.path))

    def join_relative(self, path: str, name: str) -> None:
        """What a relative import reaches belongs to the program, also below a folder that is no package: `from .ops.modules import …`."""
        bare = name.lstrip(".")
        if "." not in bare:
            return  # in the same package
        module = self.project.relative(path, len(name) - len(bare), bare)
        if module is not None and module.path:
            self.join(self.unit(path), self.unit(module.path))

    def unit(self, path: str) -> str:
        """The topmost package that holds a program, or else its folder."""
        folder = os.path.dirname(path)
        top = folder
        while folder and f"{folder}/__init__.py" in self.project.files:
            top = folder
            folder = os.path.dirname(folder)
        return top

    def top(self, unit: str) -> str:
        """What stands for a connected part."""
        while self.parents.get(unit, unit) != unit:
            unit = self.parents[unit]
        return unit

    def join(self, one: str, other: str) -> None:
        """Two units belong together."""
        first, second = sorted((self.top(one), self.top(other)))
        if first != second:
            self.parents[second] = first

    def together(self, one: str, other: str) -> bool:
        """Whether two programs belong together."""
        return self.top(self.unit(one)) == self.top(self.unit(other))

    def nearness(self, one: str, other: str) -> int:
        """How many folders two programs share, from the top."""
        parts = zip(one.split("/")[:-1], other.split("/")[:-1], strict=False)
        return next((n for n, (a, b) in enumerate(parts) if a != b), min(one.count("/"), other.count("/")))


def reaches(path: str, found: str, name: str) -> bool:
    """Whether a program finds a module where it stands: beside or above it, or below a folder for sources."""
    parts = found.removesuffix(".py").removesuffix("/__init__").split("/")
    home = "/".join(parts[: len(parts) - len(name.split("."))])
    folder = os.path.dirname(path)
    return not home or folder == home or folder.startswith(home + "/") or os.path.basename(home) in SOURCES
