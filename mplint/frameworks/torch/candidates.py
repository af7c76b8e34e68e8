"""Which modules of the project a model that nobody knows may be: those that its program imports and that its call fits."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from mplint.frameworks.packages import is_package
from mplint.frameworks.torch.tensors import MODULE_WORDS
from mplint.frameworks.torch.units import names_imported
from mplint.program.entries import begins, definitions
from mplint.program.lower import IR
from mplint.program.lowered import parts
from mplint.program.machine import IDENTITY, Args
from mplint.program.project import Project
from mplint.program.trace import Ask, Words
from mplint.program.values import Unknown
from mplint.python.document import is_test_path

# what imports modules by names that no import statement tells
LOADERS = frozenset(
    ["import_module", "__import__", "instantiate", "get_class", "get_method", "locate", "entry_points", "spec_from_file_location"]
)
# what tells which packages a project needs
REQUIREMENTS = ("requirements.txt", "setup.py", "setup.cfg", "pyproject.toml", "environment.yml", "environment.yaml", "Pipfile")
WORD = re.compile(r"[a-z_]\w*")
MEMBER = re.compile(r"\.([A-Za-z_]\w*)$")
NO_MODELS = re.compile(r"\.\w*(?:data|token|config|logg|metric|plot|visuali)\w*(?:\.|$)", re.I)  # what modules are called that hold none
PASSED_ON = frozenset({"forward", "__call__", "base_model", "_orig_mod"})  # what every model has, or what wraps it


@dataclass(frozen=True, slots=True)
class Shape:
    """What a call gives: how many arguments by position, which by name; `more`: others that nobody knows.

    `home`: the file of the class that is called, or of what makes the container that holds it, where it is known. `member`: the method or
    attribute of something unknown that is called.
    """

    count: int
    names: frozenset[str]
    more: bool
    home: str = ""
    member: str = ""

    @staticmethod
    def of(args: Args, member: str = "") -> Shape:
        """The shape of some arguments."""
        return Shape(len(args.positional), frozenset(args.named), args.opaque, member=member)

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


def member_of(model: Unknown) -> str:
    """The method or attribute of something unknown that an unknown callee is, where only modules of some classes have it."""
    found = MEMBER.search(model.symbol.partition(IDENTITY)[0])
    return found[1] if found is not None and found[1] not in PASSED_ON else ""


def first_name(value: IR) -> str:
    """The name that the dotted name of what a call calls begins with, or ""."""
    node = value[2] if value[0] == "call" else value
    while node[0] == "attribute" and node is not value:
        node = node[2]
    return str(node[2]) if node[0] == "name" and node is not value else ""


@dataclass(frozen=True, slots=True)
class Defines:
    """The question whether a program defines methods of a name, and whether attributes."""

    name: str

    def __call__(self, data: bytes) -> tuple[bool, bool]:
        if self.name.encode() not in data:
            return False, False
        name = re.escape(self.name.encode())
        method = rb"\bdef[ \t]+" + name + rb"[ \t]*\("
        taken = rb"(?![^\n#]*\." + name + rb"[ \t]*(?:#|$))"  # a variable that holds the same member of something
        attribute = rb"\." + name + rb"(?:[ \t]*,[^\n=()]*)?[ \t]*(?::[^\n=]*)?=(?!=)|^[ \t]+" + name + rb"[ \t]*[:=]" + taken
        return re.search(method, data) is not None, re.search(attribute, data, re.M) is not None


def declared(project: Project, folder: str) -> frozenset[str]:
    """The words of the files in a folder, and in those around it, that tell which packages a project needs."""
    key = (declared, folder)
    if key not in project.kept:
        found: set[str] = set()
        for name in REQUIREMENTS:
            place = os.path.join(folder, name)
            project.looked_up.add(place)
            with suppress(OSError), open(place, encoding="utf-8", errors="replace") as file:
                found |= set(WORD.findall(file.read(200_000).lower().replace("-", "_")))
        around = declared(project, os.path.dirname(folder)) if folder not in ("", ".", "/") and not folder.endswith("..") else frozenset()
        project.kept[key] = around | found
    return project.kept[key]  # type: ignore[return-value]


@dataclass(slots=True)
class Candidates:
    """The files that may hold a model that is chosen at run time, and its parts, by the call of it."""

    project: Project
    ask: Ask
    open: dict[str, bool] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    leading: dict[str, tuple[str, ...]] = field(default_factory=dict)
    programs: dict[str, frozenset[str] | None] = field(default_factory=dict)
    known: dict[tuple[str, Shape | None], frozenset[str] | None] = field(default_factory=dict)
    forwards: dict[tuple[str, str], tuple[tuple[str, Sequence[IR]], ...]] = field(default_factory=dict)
    takers: dict[Shape, frozenset[tuple[str, str]]] = field(default_factory=dict)
    bound: dict[str, dict[str, frozenset[str]]] = field(default_factory=dict)

    def admit(self, begun: str, shape: Shape | None, path: str) -> bool:
        """Whether a module of a file may be the model that a program calls like that which begins in another file, or a part of it."""
        files = self.files(begun, shape)
        return files is None or path in files

    def files(self, begun: str, shape: Shape | None) -> frozenset[str] | None:
        """The files of the models that a call of a program may mean, and what these import; None where any may be meant."""
        if (begun, shape) not in self.known:
            self.known[begun, shape] = self.files_of(begun, shape)
        return self.known[begun, shape]

    def files_of(self, begun: str, shape: Shape | None) -> frozenset[str] | None:
        """The same, worked out."""
        if shape is not None and shape.home:
            homes = self.homes_of(shape.home, shape.member) if shape.member else None
            return self.unless_by_name(self.project.graph.below([shape.home] if homes is None else sorted(homes)))
        program = self.program(begun)
        if shape is None:
            return program
        called = self.called(shape)
        if not called:
            return frozenset()
        if program is None and called == "forward":
            return None
        files = sorted(program if program is not None else (path for path in self.project.paths if not is_test_path(path)))
        fitting = {path: {cls for cls, parameters in self.methods_of(path, called) if shape.fits(parameters)} for path in files}
        holding = [path for path in files if fitting[path]]
        if program is not None and any(self.takes_parts(path, fitting[path]) for path in holding):
            return self.unless_by_name(set(files))  # whoever makes it gives it modules of other files
        return self.unless_by_name(self.project.graph.below(holding))

    def takes_parts(self, path: str, names: set[str]) -> bool:
        """Whether one of some classes of a file is given what makes a part of it: `self.field = field(width)`."""
        ir = self.project.ir(path)
        return any(cls[0] == "class" and cls[2] in names and makes_given(cls) for cls in definitions(ir[1])) if ir is not None else False

    def taking(self, shape: Shape) -> frozenset[tuple[str, str]]:
        """The classes that a call fits, by path and name."""
        if shape not in self.takers:
            called = self.called(shape)
            paths = [shape.home] if shape.home else [path for path in self.project.paths if not is_test_path(path)]
            self.takers[shape] = frozenset(
                (path, name) for path in paths for name, parameters in self.methods_of(path, called) if shape.home or shape.fits(parameters)
            )
        return self.takers[shape]

    def homes_of(self, path: str, member: str) -> frozenset[str] | None:
        """The files of what the classes of a file assign to an attribute of theirs; None where that is more than calls by name."""
        ir = self.project.ir(path)
        classes = [cls for cls in definitions(ir[1]) if cls[0] == "class"] if ir is not None else []
        held = [s[3] for cls in classes for s in parts(cls[6], "assign") if any(t[0] == "attribute" and t[3] == member for t in s[2])]
        homes = [self.bound_at(path).get(first_name(value)) for value in held]
        return None if not held or None in homes else frozenset[str]().union(*(files for files in homes if files is not None))

    def bound_at(self, path: str) -> dict[str, frozenset[str]]:
        """The names that a module imports, anywhere, or defines at its top, with the files of the project that they come from."""
        if path not in self.bound:
            found: dict[str, frozenset[str]] = {}
            ir = self.project.ir(path)
            for statement in parts(ir[1], "import", "from") if ir is not None else ():
                for name, files in self.imported_by(path, statement):
                    found[name] = found.get(name, frozenset()) | files
            for statement in definitions(ir[1]) if ir is not None else ():
                if statement[0] == "class":
                    found[statement[2]] = found.get(statement[2], frozenset()) | {path}
            self.bound[path] = found
        return self.bound[path]

    def imported_by(self, path: str, statement: IR) -> Iterator[tuple[str, frozenset[str]]]:
        """The names that an import binds, with the files that they come from: none where another package has them."""
        if statement[0] == "import":
            for given, alias in statement[2]:
                home = self.project.absolute(path, given)
                yield alias or given.partition(".")[0], frozenset([home.path] if home is not None and home.path else [])
            return
        _, _, module, level, names = statement
        home = self.project.relative(path, level, module) if level else self.project.absolute(path, module)
        for given, alias in names:
            inner = self.project.member(home, given) if home is not None else None
            yield alias or given, frozenset(found.path for found in (inner or home,) if found is not None and found.path)

    def called(self, shape: Shape) -> str:
        """The method that runs where a model or a member of it is called; "" where the project has no such method or attribute."""
        if not shape.member:
            return "forward"
        if shape.member.lower().endswith(MODULE_WORDS):
            return "forward"
        if shape.member not in self.members:
            answers = [self.ask(path, Defines(shape.member)) for path in self.project.paths if not is_test_path(path)]
            attribute, method = any(attribute for _, attribute in answers), any(method for method, _ in answers)
            self.members[shape.member] = "forward" if attribute else shape.member if method else ""
        return self.members[shape.member]

    def unless_by_name(self, paths: set[str]) -> frozenset[str] | None:
        """Some programs, or None where one of them imports modules by names that it works out."""
        return None if self.loads_by_name(paths) else frozenset(paths)

    def program(self, path: str) -> frozenset[str] | None:
        """What the scripts that lead to a file import; None where nobody runs it, or where it is open what they import."""
        if path not in self.programs:
            scripts = self.scripts(path)
            closed = scripts and not self.is_open(path)
            self.programs[path] = frozenset(self.project.graph.below([path, *scripts])) if closed else None
        return self.programs[path]

    def is_open(self, path: str) -> bool:
        """Whether what leads to a file loads modules by their names, or imports at its beginning some that are nowhere to be found."""
        if path not in self.open:
            own = (path, *self.scripts(path))
            self.open[path] = self.loads_by_name(self.project.graph.below(own)) or self.is_partly_out_of_sight(path)
        return self.open[path]

    def is_partly_out_of_sight(self, path: str) -> bool:
        """Whether what leads to a file imports at its beginning modules that are nowhere to be found."""
        return any(self.misses(program) for program in (path, *self.scripts(path)))

    def misses(self, path: str) -> bool:
        """Whether a program imports a module that is neither the project's nor a package's that is known."""
        heads = (
            {name.partition(".")[0] for name in self.ask(path, names_imported) if name[0] != "." and NO_MODELS.search(name) is None}
            - sys.stdlib_module_names
            - self.project.foreign
        )
        unknown = [head for head in heads if not self.project.modules.knows(head) and not is_package(head)]
        return bool(unknown) and not declared(self.project, os.path.dirname(path)).issuperset(head.lower() for head in unknown)

    def is_within_reach(self, begun: str, path: str) -> bool:
        """Whether who runs a program from outside may give it what a file defines: no script has that for itself, or it imports it."""
        return not self.scripts(path) or path in self.project.graph.below([begun])

    def scripts(self, path: str) -> tuple[str, ...]:
        """The scripts that lead to a file."""
        if path not in self.leading:
            above = sorted(self.project.graph.above([path]))
            self.leading[path] = tuple(p for p in above if not is_test_path(p) and self.is_script(p))
        return self.leading[path]

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

    def methods_of(self, path: str, name: str) -> tuple[tuple[str, Sequence[IR]], ...]:
        """The classes of a file that define a method of a name, with its parameters."""
        if (path, name) not in self.forwards:
            ir = self.project.ir(path) if self.ask(path, Words((name,))) else None
            classes = [cls for cls in definitions(ir[1]) if cls[0] == "class"] if ir is not None else []
            methods = [(cls, s[2]) for cls in classes for s in cls[6] if s[0] == "define"]
            meant = {id(cls): {name, *put_in_place(cls, name)} for cls in classes}
            self.forwards[path, name] = tuple((cls[2], method[3]) for cls, method in methods if method[2] in meant[id(cls)])
        return self.forwards[path, name]


def makes_given(cls: IR) -> bool:
    """Whether the constructor of a class calls one of its parameters, and keeps what that makes."""
    for method in (s[2] for s in cls[6] if s[0] == "define" and s[2][2] == "__init__"):
        own = {name for name, _, _, _ in method[3][1:]}
        for part in parts(method[4], "assign"):
            value = part[3]
            called = value[2] if value[0] == "call" else value
            if called is not value and called[0] == "name" and called[2] in own and any(t[0] == "attribute" for t in part[2]):
                return True
    return False


def put_in_place(cls: IR, name: str, trained: bool | None = None) -> tuple[str, ...]:
    """The methods of a class that its instances take for another one: `self.forward = self.forward_train`.

    `trained`: those alone that they take where gradients are computed, or where none are, as far as `train` and `eval` tell.
    """
    found: dict[str, list[str]] = {}
    for method in (s[2] for s in cls[6] if s[0] == "define"):
        assigned = (part for part in parts(method[4], "assign") if any(t[0] == "attribute" and t[3] == name for t in part[2]))
        taken = [node[3] for part in assigned for node in parts(part[3:], "attribute") if node[2][0] == "name"]
        if taken:
            found[method[2]] = taken
    chosen, other = ("train", "eval") if trained else ("eval", "train")
    if trained is not None and not found.keys().isdisjoint(("train", "eval")):
        found = {chosen: found[chosen]} if chosen in found else {maker: taken for maker, taken in found.items() if maker != other}
    return tuple(dict.fromkeys(target for taken in found.values() for target in taken))
