"""Which classes of a project something in it names beside importing them: those of which it may make instances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mplint.frameworks.libraries import Libraries
from mplint.frameworks.torch.units import Ask, Mentions
from mplint.program.entries import words_in, words_of
from mplint.program.lower import IR
from mplint.program.project import Project
from mplint.python.document import is_test_path

SPACES = frozenset({"globals", "locals", "eval"})  # what gives the names of a module to whoever asks for them by name


@dataclass(slots=True)
class Named:
    """Tells the classes that the programs of a project name, or hand to whoever asks for them by name."""

    project: Project
    ask: Ask
    libraries: Libraries
    known: dict[tuple[str, str], bool] = field(default_factory=dict)
    read: dict[str, bool] = field(default_factory=dict)

    def may_be_made(self, path: str, cls: IR) -> bool:
        """Whether a program may make instances of a class of a file: it names it, registers it, or works out its name."""
        return bool(cls[4] or cls[5]) or self.is_named(path, cls[2]) or self.is_read_by_name(path)

    def is_named(self, path: str, name: str) -> bool:
        """Whether a program names a class that stands in a file, other classes that nobody names and tests left out."""
        key = (path, name)
        if key not in self.known:
            self.known[key] = False  # while those that name it are looked at
            self.known[key] = any(self.names(user, path, name) for user in self.users(path))
        return self.known[key]

    def users(self, path: str) -> list[str]:
        """A file, and those that import it, themselves or through packages; no tests."""
        return [path, *sorted(user for user in self.project.graph.users(path) if user != path and not is_test_path(user))]

    def names(self, user: str, path: str, name: str) -> bool:
        """Whether one program names a class of another file, or of its own."""
        ir = self.project.ir(user) if self.ask(user, Mentions((name,))) else None
        for statement in flat(ir[1]) if ir is not None else ():
            kind = statement[0]
            if kind == "from":
                if any(given == name and alias not in (None, name) for given, alias in statement[4]):
                    return True
            elif kind == "class":
                own = user == path and statement[2] == name
                if not own and name in words_of(statement) and (statement[5] or self.is_named(user, statement[2])):
                    return True
            elif kind == "define":
                if name in words_of(statement):
                    return True
            elif kind != "import" and "__all__" not in words_in(statement) and name in words_in(statement):
                return True
        return False

    def is_read_by_name(self, path: str) -> bool:
        """Whether a program takes what a file defines by names that it works out."""
        if path not in self.read:
            self.read[path] = any(self.reads(user) for user in self.users(path))
        return self.read[path]

    def reads(self, user: str) -> bool:
        """Whether one program takes members of a module that it imports, or its own, by names that it works out."""
        ir = self.project.ir(user)
        if ir is None:
            return False
        bound = imported(ir[1])
        if any(f"getattr({name}," in ir[2] for name in bound):
            return True
        if "__dict__" in ir[2] and any(part[3] == "__dict__" and part[2][-1] in bound for part in parts(ir[1], "attribute")):
            return True
        return not SPACES.isdisjoint(ir[2]) and any(part[2][0] == "name" and part[2][2] in SPACES for part in parts(ir[1], "call"))


def flat(body: Iterable[IR]) -> Iterator[IR]:
    """The statements of a module, those under conditions one by one."""
    for statement in body:
        if statement[0] == "if":
            yield ("expression", statement[1], statement[2])
            yield from flat((*statement[3], *statement[4]))
        elif statement[0] == "try":
            yield from flat((*statement[2], *(s for handler in statement[3] for s in handler[3]), *statement[4], *statement[5]))
        else:
            yield statement


def imported(ir: object) -> frozenset[str]:
    """The names that import statements bind."""
    pairs = (pair for part in parts(ir, "import", "from") for pair in (part[2] if part[0] == "import" else part[4]))
    return frozenset(alias or given.partition(".")[0] for given, alias in pairs)


def parts(ir: object, *kinds: str) -> Iterator[IR]:
    """The parts of lowered code that are of some kinds."""
    stack = [ir]
    while stack:
        part = stack.pop()
        if isinstance(part, tuple):
            if part and part[0] in kinds and len(part) > 2 and isinstance(part[1], int):
                yield part
            stack += part
