"""What happens when a program runs, as adoption asks it: its trace, and what the interpreter saw at each of its expressions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.adopt.users import users_of
from mplint.engine.prefilter import key_of
from mplint.engine.tracing import Programs, deep_stack, traced
from mplint.frameworks.torch.modules import calls_part
from mplint.program.lower import span_of
from mplint.program.machine import Args, Event, Machine
from mplint.program.trace import Entry, Trace
from mplint.program.values import BFLOAT, HALF, Atom, Autocast, Code, Place, Tensor, Value, atoms
from mplint.python.document import InputError
from mplint.python.imports import imported, search_folders
from mplint.python.syntax import FUNCTIONS, Function

if TYPE_CHECKING:
    from mplint.python.file import SourceFile
    from mplint.targets import Targets


KERAS = re.compile(r"\b(keras|tensorflow)\b")


class Work(NamedTuple):
    """Tensors are computed: by which operation, and what autocast does with it ("model": a model that nobody knows).

    `covered`: autocast is in force; `owned`: by a layer or another part of a model, and not by a product of two tensors somewhere else.
    """

    name: str
    kind: str
    covered: bool
    owned: bool


LOW = frozenset({HALF, BFLOAT})
# layers as functions, which are given their weights
FUNCTIONAL = frozenset(
    [
        *("linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        "multi_head_attention_forward",
    ]
)


@dataclass(slots=True)
class Sight:
    """What was seen in one file from one beginning of the program, by the positions of expressions; `entered`: what calls ran."""

    begun: tuple[str, str, bool]
    values: dict[int, dict[Atom, None]] = field(default_factory=dict)
    callees: dict[int, dict[tuple[Atom, str], None]] = field(default_factory=dict)
    work: dict[int, set[Work]] = field(default_factory=dict)
    entered: dict[int, dict[Code, None]] = field(default_factory=dict)


class Sights:
    """A recorder of one file: what its expressions gave and called, and what was computed while they ran."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.all: list[Sight] = []
        self.halves: dict[str, set[int]] = {}  # the expressions of other files that gave tensors in half precision

    def begin(self, path: str, name: str, script: bool) -> None:
        """A new entry."""
        self.all.append(Sight((path, name, script)))

    def saw(self, m: Machine, place: Place, value: Value) -> None:
        """Keep what an expression of the file gave."""
        now = self.all[-1]
        if place.path == self.path:
            now.values.setdefault(place.position, {}).update(dict.fromkeys(atoms(value)))
        elif any(type(atom) is Tensor and atom.dtypes & LOW for atom in atoms(value)):
            self.halves.setdefault(place.path, set()).add(place.position)
        if m.calls and m.calls[-1].path == self.path and (code := m.frames[-1].code) is not None:
            now.entered.setdefault(m.calls[-1].position, {})[code] = None

    def called(self, m: Machine, place: Place, callee: Value, name: str, args: Args) -> None:
        """Keep what a call of the file calls."""
        if place.path == self.path:
            self.all[-1].callees.setdefault(place.position, {}).update(dict.fromkeys((atom, name) for atom in atoms(callee)))
        if name and any(calls_part(m, atom, name, args) for atom in atoms(callee)):
            self.computed(m, place, name, "model")

    def assumed(self, m: Machine, place: Place, callee: Atom, how: str) -> None:
        """What a call was taken for shows in what it gives."""

    def unknown(self, m: Machine, place: Place, callee: Atom) -> None:
        """Unknown calls give unknown values."""

    def computed(self, m: Machine, place: Place, name: str, kind: str) -> None:
        """Keep what is computed, for each expression of the file that is running then."""
        covered = any(type(atom) is Autocast and atom.dtype is not None for atom in atoms(m.state("autocast")))
        forward = any(frame.code is not None and frame.code.name == "forward" for frame in m.frames)
        work = Work(name, kind, covered, forward or kind == "model" or name[:1].isupper() or name in FUNCTIONAL)
        for at in (place, *m.calls):
            if at.path == self.path:
                self.all[-1].work.setdefault(at.position, set()).add(work)

    def kept(self) -> list[Sight]:
        """What was seen without the functions that were begun with unknown arguments, and are called by others besides."""
        found = list(self.all)
        for sight in self.all:
            own = {code for codes in sight.entered.values() for code in codes if code.path == self.path}
            if sight.begun[2] or not own:
                continue
            begun = {code.place for code in own}
            called = {c for other in found if other is not sight for at, codes in other.entered.items() if at not in begun for c in codes}
            if own <= called:
                found.remove(sight)
        return found


class Execution:
    """One state of a program, run: questions about its syntax, answered by what happened there."""

    def __init__(self, path: str, data: bytes, file: SourceFile, targets: Targets) -> None:
        self.path, self.file, self.targets = key_of(path), file, targets
        self.sights = Sights(self.path)
        users = users_of(path) if "torch" in file.document.text and not KERAS.search(file.document.text) else []
        given = {self.path: path, **{key_of(user): user for user in users}}
        programs = Programs(given, lambda asked: data if asked == path else read(asked), targets=lambda _: targets)
        programs.documents[self.path] = file.document
        for key in given if users else ():
            self._read_imports(programs, key)
        with deep_stack():
            self.trace: Trace = traced(programs, [self.path], self.sights, relevant=everything)
        self.trace.files[self.path] = file
        run = programs.run | programs.opened
        self.run_with = sorted(run - set(given))  # the other files that the program may run
        self.beside = sorted((run | set(given)) - {self.path})  # those, and the files that run it
        kept = self.sights.kept()
        left = [sight.begun for sight in self.sights.all if not any(sight is other for other in kept)]
        self.trace.entries = [entry for entry in self.trace.entries if (entry.path, entry.name, entry.script) not in left]
        self.seen = kept

    def _read_imports(self, programs: Programs, path: str) -> None:
        """Tell which files a program imports: what leads to this one runs as well."""
        try:
            file = programs.parsed(path) if path != self.path else self.file
        except (InputError, OSError, SyntaxError, ValueError, RecursionError):
            return
        programs.imports[path] = imported(file.tree, file.document.text, path)
        if folders := search_folders(file.tree, file.document.text, path):
            programs.folders[path] = folders

    # what was seen at expressions

    @cached_property
    def _works(self) -> dict[ast.AST, set[Work]]:
        found: dict[ast.AST, set[Work]] = {}
        for sight in self.seen:
            for position, seen in sight.work.items():
                if (node := self._at(position)) is not None:
                    found.setdefault(node, set()).update(seen)
        return found

    @cached_property
    def _values(self) -> dict[ast.AST, dict[Atom, None]]:
        found: dict[ast.AST, dict[Atom, None]] = {}
        for sight in self.seen:
            for position, seen in sight.values.items():
                if (node := self._at(position)) is not None:
                    found.setdefault(node, {}).update(seen)
        return found

    @cached_property
    def _callees(self) -> dict[ast.AST, dict[tuple[Atom, str], None]]:
        found: dict[ast.AST, dict[tuple[Atom, str], None]] = {}
        for sight in self.seen:
            for position, seen in sight.callees.items():
                if (node := self._at(position)) is not None:
                    found.setdefault(node, {}).update(seen)
        return found

    def halves_elsewhere(self) -> Iterator[tuple[SourceFile, set[ast.AST]]]:
        """The other files in which something gave tensors in half precision, each with those expressions."""
        for path, positions in sorted(self.sights.halves.items()):
            file = self.trace.file(path)
            if file is not None:
                yield file, {node for position in positions if (node := file.syntax.at(span_of(position))) is not None}

    def _at(self, position: int) -> ast.AST | None:
        return self.file.syntax.at(span_of(position))

    def work(self, node: ast.AST) -> set[Work]:
        """What is computed while a statement or expression runs, nested functions left out that are only defined there."""
        found: set[Work] = set()
        for item in within(node):
            found |= self._works.get(item, frozenset())
        return found

    def own_work(self, node: ast.AST) -> set[Work]:
        """What is computed by one expression, once its operands are there."""
        return self._works.get(node, set())

    def values(self, node: ast.AST) -> tuple[Atom, ...]:
        """What an expression has given."""
        return tuple(self._values.get(node, ()))

    def callees(self, call: ast.AST) -> tuple[tuple[Atom, str], ...]:
        """What a call calls: values, or receivers with the name of a method."""
        return tuple(self._callees.get(call, ()))

    def functions(self, call: ast.AST) -> list[Function]:
        """The functions of this file that a call has run."""
        found = [self._at(code.place) for code in self._entered.get(call, ()) if code.path == self.path]
        return [node for node in found if isinstance(node, FUNCTIONS)]

    def definitions(self, call: ast.AST) -> Iterator[tuple[SourceFile, Function]]:
        """The functions of the project that a call has run, each with its file."""
        for code in self.codes(call):
            found = self.trace.node(Place(code.path, code.place))
            if found is not None and isinstance(found[1], FUNCTIONS):
                yield found[0], found[1]

    def codes(self, call: ast.AST) -> tuple[Code, ...]:
        """The functions that a call runs, those of other files included."""
        return tuple(self._entered.get(call, ()))

    def leaves(self, call: ast.AST) -> bool:
        """Whether a call runs a function of another file."""
        return any(code.path != self.path for code in self._entered.get(call, ()))

    @cached_property
    def _entered(self) -> dict[ast.AST, dict[Code, None]]:
        found: dict[ast.AST, dict[Code, None]] = {}
        for sight in self.seen:
            for position, seen in sight.entered.items():
                if (node := self._at(position)) is not None:
                    found.setdefault(node, {}).update(seen)
        return found

    # what happened

    def events(self, *kinds: str) -> Iterator[tuple[Entry, Event]]:
        """The events of some kinds, with their entries."""
        return iter(self.trace.of(*kinds))

    def all_events(self) -> Iterator[tuple[Entry, Event]]:
        """Everything that happened, with its entries."""
        return ((entry, event) for entry in self.trace.entries for event in entry.events)

    @cached_property
    def _happened(self) -> dict[ast.AST, list[Event]]:
        found: dict[ast.AST, list[Event]] = {}
        for entry in self.trace.entries:
            for event in entry.events:
                node = self.node(event.place)
                if node is not None:
                    found.setdefault(node, []).append(event)
        return found

    @cached_property
    def _led(self) -> dict[ast.AST, set[str]]:
        found: dict[ast.AST, set[str]] = {}
        for entry in self.trace.entries:
            for event in entry.events:
                for place in (event.place, *event.calls):
                    if (node := self.node(place)) is not None:
                        found.setdefault(node, set()).add(event.kind)
        return found

    def node(self, place: Place) -> ast.AST | None:
        """The syntax of this file at a place; None for another file's."""
        return self._at(place.position) if place.path == self.path else None

    def place_of(self, event: Event) -> Place | None:
        """The innermost place of this file that an event happens at, or that leads to it."""
        return next((place for place in (event.place, *reversed(event.calls)) if place.path == self.path), None)

    def innermost(self, event: Event) -> ast.AST | None:
        """The syntax of this file at which an event happens, or that leads to it."""
        place = self.place_of(event)
        return self.node(place) if place is not None else None

    def at(self, node: ast.AST, *kinds: str) -> list[Event]:
        """The events of some kinds at an expression."""
        return [event for event in self._happened.get(node, ()) if event.kind in kinds]

    def leads_to(self, node: ast.AST, *kinds: str) -> bool:
        """Whether an event of some kinds happens while a statement or expression runs."""
        return any(not self._led.get(item, frozenset()).isdisjoint(kinds) for item in within(node))


def within(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what stands in it, without the bodies of nested functions and classes."""
    stack: list[ast.AST] = [node]
    while stack:
        item = stack.pop()
        yield item
        if isinstance(item, (*FUNCTIONS, ast.ClassDef)) and item is not node:
            stack += item.decorator_list
            continue
        stack += children(item)


def children(node: ast.AST) -> Iterable[ast.AST]:
    """The nodes directly below one."""
    return () if isinstance(node, ast.Lambda) else ast.iter_child_nodes(node)


def everything(words: frozenset[str]) -> bool:
    """Adoption is interested in all of its program."""
    return True


def read(path: str) -> bytes:
    """The bytes of another program of the project."""
    with open(path, "rb") as file:
        return file.read()
