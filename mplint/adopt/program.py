"""A program while mixed precision is adopted in it, and what came of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar, cast

from mplint.adopt.execution import Execution
from mplint.findings import Fix, Location
from mplint.frameworks.names import unbound
from mplint.python.document import Document
from mplint.python.file import SourceFile
from mplint.python.load import load
from mplint.python.parse import parse
from mplint.rewrite import apply_edits, realize
from mplint.targets import Targets

Fact = TypeVar("Fact")


class Note(NamedTuple):
    """A place in the program as it was, and what is done there, or why nothing is."""

    location: Location
    text: str

    def at(self, title: str, path: str) -> Note:
        """The note with the path of a program in the place of the title under which it was read."""
        return self._replace(location=self.location._replace(path=path)) if self.location.path == title else self


class Program:
    """The bytes of a Python file or notebook, and what they mean; raises InputError for what is no program."""

    def __init__(self, path: str, data: bytes, targets: Targets) -> None:
        self.path, self.data, self.targets = path, data, targets
        self.document: Document = load(path, data)
        self.tree = parse(self.document)
        self._kept: dict[object, object] = {}
        self._states = {data: self}  # of the program, by their bytes

    def kept(self, ask: Callable[[Program], Fact]) -> Fact:
        """What `ask` says of this state of the program, asked once."""
        if ask not in self._kept:
            self._kept[ask] = ask(self)
        return cast(Fact, self._kept[ask])

    @cached_property
    def file(self) -> SourceFile:
        """This state of the program, parsed."""
        return SourceFile(self.document, self.tree, unbound)

    @cached_property
    def execution(self) -> Execution:
        """What happens when this state of the program runs."""
        return Execution(self.path, self.data, self.file, self.targets)

    def after(self, fixes: Iterable[Fix]) -> Program:
        """The program after fixes that do not overlap; raises FixError where one can't be carried out, InputError where nothing parses."""
        edits = [edit for fix in fixes for edit in realize(self.document, fix)]
        if not edits:
            return self
        data = apply_edits(self.path, self.data, edits)
        if data not in self._states:
            state = Program(self.path, data, self.targets)
            state._states = self._states
            self._states[data] = state
        return self._states[data]


class Adopted(NamedTuple):
    """What one framework's adoption gave: the program after it, what was done, and what is left to the user.

    `trains` says that the program trains with this framework, in whatever precision; a program that does not has nothing to adopt.
    """

    program: Program
    made: tuple[Note, ...] = ()
    left: tuple[Note, ...] = ()
    trains: bool = False


# What adopts a policy ("mixed_float16" or "mixed_bfloat16") in a program; each framework has one.
Adopt = Callable[[Program, str], Adopted]


@dataclass(frozen=True, slots=True)
class Adoption:
    """What became of a file: its bytes before and after, and notes in the order of their places."""

    path: str
    policy: str
    before: bytes
    after: bytes
    made: tuple[Note, ...]
    left: tuple[Note, ...]
    trains: bool
