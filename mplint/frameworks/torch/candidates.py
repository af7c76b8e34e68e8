"""Which modules of the project a model that nobody knows may be: those that its program imports and that its call fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mplint.program.entries import begins, definitions
from mplint.program.lower import IR
from mplint.program.machine import Args
from mplint.program.project import Project
from mplint.python.document import is_test_path

# what imports modules by names that no import statement tells
LOADERS = frozenset(
    ["import_module", "__import__", "instantiate", "get_class", "get_method", "locate", "entry_points", "spec_from_file_location"]
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a call gives: how many arguments by position, which by name; `more`: others that nobody knows.

    `home`: the file of the class that is called, where it is known.
    """

    count: int
    names: frozenset[str]
    more: bool
    home: str = ""

    @staticmethod
    def of(args: Args) -> Shape:
        """The shape of some arguments."""
        return Shape(len(args.positional), frozenset(args.named), args.opaque)

    def fits(self, parameters: Sequence[IR]) -> bool:
        """Whether a method with these parameters, `self` the first of them, takes the call."""
        own = parameters[1:]
        kinds = {kind for _, kind, _, _ in own}
        by_position = [parameter for parameter in own if parameter[1] == "positional"]
        known = {name for name, kind, _, _ in own if kind in ("positional", "keyword")}
        if (self.count > len(by_position) and "*" not in kinds) or (not self.names <= known and "**" not in kinds):
            return False
        given = {name for name, _, _, _ in by_position[: self.count]} | self.names
        needed = {name for name, kind, default, _ in own if kind in ("positional", "keyword") and default is None}
        return self.more or needed <= given


@dataclass(slots=True)
class Candidates:
    """The files that may hold a model that is chosen at run time, and its parts, by the call of it."""

    project: Project
    programs: dict[str, frozenset[str] | None] = field(default_factory=dict)
    known: dict[tuple[str, Shape], frozenset[str] | None] = field(default_factory=dict)
    forwards: dict[str, tuple[Sequence[IR], ...]] = field(default_factory=dict)

    def admit(self, begun: str, shape: Shape, path: str) -> bool:
        """Whether a module of a file may be the model that a program calls like that which begins in another file, or a part of it."""
        files = self.files(begun, shape)
        return files is None or path in files

    def files(self, begun: str, shape: Shape) -> frozenset[str] | None:
        """The files of the models that a call of a program may mean, and what these import; None where any may be meant."""
        if (begun, shape) not in self.known:
            self.known[begun, shape] = self.files_of(begun, shape)
        return self.known[begun, shape]

    def files_of(self, begun: str, shape: Shape) -> frozenset[str] | None:
        """The same, worked out."""
        if shape.home:
            return self.unless_by_name(self.project.graph.below([shape.home]))
        program = self.program(begun)
        if program is None:
            return None
        holding = [path for path in sorted(program) if any(shape.fits(parameters) for parameters in self.forwards_of(path))]
        return self.unless_by_name(self.project.graph.below(holding))

    def unless_by_name(self, paths: set[str]) -> frozenset[str] | None:
        """Some programs, or None where one of them imports modules by names that it works out."""
        return None if self.loads_by_name(paths) else frozenset(paths)

    def program(self, path: str) -> frozenset[str] | None:
        """What the scripts that lead to a file import; None where nobody runs it, or where modules are loaded by their names."""
        if path not in self.programs:
            scripts = [p for p in self.project.graph.above([path]) if not is_test_path(p) and self.is_script(p)]
            found = self.project.graph.below([path, *scripts]) if scripts else set()
            self.programs[path] = self.unless_by_name(found) if found else None
        return self.programs[path]

    def is_script(self, path: str) -> bool:
        """Whether a program does something when it is run, and nobody imports it."""
        ir = self.project.ir(path)
        return ir is not None and begins(ir)

    def loads_by_name(self, paths: Iterable[str]) -> bool:
        """Whether one of some programs imports modules by names that it works out.

        A function of their own that is only called like a loader, and takes a name out of what it is given, is none.
        """
        programs = [ir for path in sorted(paths) if (ir := self.project.ir(path)) is not None]
        words = LOADERS.intersection(word for ir in programs for word in ir[2])
        own = {s[2][2]: s[2][8] for ir in programs for s in definitions(ir[1]) if s[0] == "define" and s[2][2] in words} if words else {}
        return any(word not in own or not own[word].isdisjoint(LOADERS) for word in words)

    def forwards_of(self, path: str) -> tuple[Sequence[IR], ...]:
        """The parameters of the `forward`s that the classes of a file define."""
        if path not in self.forwards:
            ir = self.project.ir(path)
            methods = [s for cls in definitions(ir[1]) if cls[0] == "class" for s in cls[6]] if ir is not None else []
            self.forwards[path] = tuple(s[2][3] for s in methods if s[0] == "define" and s[2][2] == "forward")
        return self.forwards[path]
