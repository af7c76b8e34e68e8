"""What happened in a whole program, as rules ask it: entries with their events, places with their text, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar, overload

from mplint.findings import Location, Span
from mplint.program.conditions import Condition, Path, extend
from mplint.program.lower import span_of
from mplint.program.machine import IDENTITY, Event, Switch
from mplint.program.project import Project
from mplint.program.values import Atom, Chain, Items, Place, Tensor, Value, options
from mplint.program.verdict import Verdict, judged, needs, switch_of
from mplint.python.document import InputError, is_test_path
from mplint.targets import Targets

T = TypeVar("T")
CALLERS = "callers"  # the context of an entry that users of a library run

if TYPE_CHECKING:
    import ast

    from mplint.python.file import SourceFile


class Source(Protocol):
    """The text of a program and the way to its own lines."""

    @property
    def text(self) -> str:
        """The program with `\\n` line ends."""
        ...

    @property
    def language(self) -> str:
        """The language that it is written in."""
        ...

    def location(self, span: Span) -> Location:
        """A span as reports show it."""
        ...


class Ask(Protocol):
    """Answers a question about the text of a path; nobody asks a text that can't be read otherwise than an empty one."""

    def __call__(self, path: str, question: Callable[[bytes], T], /) -> T:
        """The answer."""
        ...


class Guess(Enum):
    """Something that is taken for granted so that a part of a program can be run, and that may be otherwise."""

    CHOSEN = "the model that is chosen at run time is this one"
    UNMADE = "something makes this class, which no name leads to"
    UNREACHED = "something imports this module, which no program does"
    ASIDE = "somebody imports this module, which its package offers to nobody"
    UNTRAINED = "a program that trains nothing runs this step of training"
    FAILING = "an exception was raised and passed over before"

    @property
    def weak(self) -> bool:
        """Whether it is more often wrong than right."""
        return self in (Guess.UNMADE, Guess.UNREACHED, Guess.ASIDE, Guess.UNTRAINED, Guess.FAILING)


@dataclass(slots=True)
class Entry:
    """One beginning of the program, and what happened from there. `script`: a real main program, not library code with open arguments."""

    path: str
    name: str
    script: bool
    events: Sequence[Event] = ()
    context: str = ""  # what was taken for granted: "autocast" where the project runs unknown models in float16, or CALLERS
    complete: bool = True  # it was run to its end: what has not happened does not happen
    unfinished: Sequence[Event] = field(default=(), repr=False)  # the events of calls that were cut off: others may follow them there
    guesses: frozenset[Guess] = frozenset()  # what it was run on
    meant: Chain = ()  # what tells that users outside the project run it as it was run
    offered: bool = False  # such users make what it begins with, and give the arguments
    hollow: bool = False  # models are made and called in it, and nothing is seen of what happens inside of them
    usual: bool = False  # and the project itself runs what is alike as it was run
    by_kinds: dict[tuple[str, ...], tuple[Event, ...]] = field(default_factory=dict, repr=False, compare=False)  # of the `counted` events
    counted: Sequence[Event] = field(default=(), repr=False, compare=False)
    count: int = field(default=0, repr=False, compare=False)

    def of(self, *kinds: str) -> tuple[Event, ...]:
        """The events of some kinds, in order."""
        events = self.events
        if type(events) is Supposed:
            return events.of(*kinds)
        if self.counted is not events or self.count != len(events):
            self.counted, self.count = events, len(events)
            by_kind: dict[str, list[Event]] = {}
            for event in events:
                by_kind.setdefault(event.kind, []).append(event)
            self.by_kinds = {(kind,): tuple(found) for kind, found in by_kind.items()}
        found = self.by_kinds.get(kinds)
        if found is None:
            some = len(kinds) > 1 and any((kind,) in self.by_kinds for kind in kinds)
            found = self.by_kinds[kinds] = tuple(event for event in events if event.kind in kinds) if some else ()
        return found


class Supposed(Sequence[Event]):
    """The events of an entry on paths with further conditions, without those that can't happen there: each worked out when it is asked for.

    `paths` tells what a path becomes, None where it can't be taken.
    """

    __slots__ = ("_all", "_made", "_of", "entry", "paths")

    def __init__(self, entry: Entry, paths: Mapping[Path, Path | None]) -> None:
        self.entry, self.paths = entry, paths
        self._made: dict[int, Event] = {}  # by the identity of the entry's own, so that each is one object
        self._of: dict[tuple[str, ...], tuple[Event, ...]] = {}
        self._all: tuple[Event, ...] | None = None

    def of(self, *kinds: str) -> tuple[Event, ...]:
        """Those of some kinds, in order."""
        found = self._of.get(kinds)
        if found is None:
            found = self._of[kinds] = self._with_paths(self.entry.of(*kinds))
        return found

    def every(self) -> tuple[Event, ...]:
        """All of them."""
        if self._all is None:
            self._all = self._with_paths(self.entry.events)
        return self._all

    def __len__(self) -> int:
        return len(self.every())

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Event]: ...
    def __getitem__(self, at: int | slice) -> Event | Sequence[Event]:
        return self.every()[at]

    def __iter__(self) -> Iterator[Event]:
        return iter(self.every())

    def _with_paths(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """Events on their further paths."""
        found = []
        for event in events:
            path = self.paths[event.path]
            if path is not None:
                made = self._made.get(id(event))
                if made is None:
                    made = self._made[id(event)] = event._replace(path=path)
                found.append(made)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Words:
    """The question whether a text has one of some words."""

    words: tuple[str, ...]

    def __call__(self, data: bytes) -> bool:
        return any(word.encode() in data for word in self.words)


@dataclass(slots=True)
class Trace:
    """What happened in a whole program. `unset`: switches that stay at their defaults, whatever a user turns."""

    entries: list[Entry] = field(default_factory=list)
    switches: dict[str, Switch] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()
    turned: frozenset[str] = frozenset()  # those that some call gives, or names
    given: frozenset[str] = frozenset()  # parameters to which every call of the project gives something, whose default is None
    faults: list[tuple[str, str]] = field(default_factory=list)
    exhausted: bool = False
    project: Project | None = None
    sources: Callable[[str], Source] | None = None
    opened: dict[str, Source] = field(default_factory=dict)
    parsed: Callable[[str], SourceFile] | None = None
    targets_of: Callable[[str], Targets] | None = None
    words: Mapping[str, frozenset[str]] = field(default_factory=dict)  # the kinds of words that each program mentions
    files: dict[str, SourceFile | None] = field(default_factory=dict)
    aims: dict[str, Targets] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    ask: Ask | None = None  # what the text of a program answers to a question
    held: dict[Hashable, object] = field(default_factory=dict)  # what rules have worked out for all of them
    grounded: dict[frozenset[Guess], Trace] = field(default_factory=dict)  # without what rests on some guesses
    usual: Callable[[Trace], Path] | None = None  # tells conditions that hold wherever the project's own files run it
    by_kinds: dict[tuple[str, ...], tuple[tuple[Entry, Event], ...]] = field(default_factory=dict, repr=False)  # of the `counted` entries
    counted: Sequence[Entry] = field(default=(), repr=False)
    count: int = field(default=0, repr=False)
    told: list[tuple[Place, Verdict]] | None = None  # where this is a supposition: what rules ask of its paths, with the places

    def of(self, *kinds: str) -> Sequence[tuple[Entry, Event]]:
        """The events of some kinds in all entries, each with its entry, in order."""
        if self.counted is not self.entries or self.count != len(self.entries):
            self.counted, self.count, self.by_kinds = self.entries, len(self.entries), {}
        found = self.by_kinds.get(kinds)
        if found is None:
            found = self.by_kinds[kinds] = tuple((entry, event) for entry in self.entries for event in entry.of(*kinds))
        return found

    def alone(self, entry: Entry) -> Trace:
        """The same programs, of which nothing is run but one entry, for questions what would be if."""
        return replace(self, entries=[entry], held={}, told=[], grounded={})

    @property
    def is_supposed(self) -> bool:
        """Whether this is such a question: what a finding holds beside its place, nobody asks for."""
        return self.told is not None

    def source(self, path: str) -> Source:
        """The program of a path."""
        if path not in self.opened:
            assert self.sources is not None
            self.opened[path] = self.sources(path)
        return self.opened[path]

    def targets(self, path: str) -> Targets:
        """The versions and the hardware that the program of a path is for."""
        if path not in self.aims:
            self.aims[path] = self.targets_of(path) if self.targets_of is not None else Targets()
        return self.aims[path]

    def file(self, path: str) -> SourceFile | None:
        """One program, parsed; None where it can't be read."""
        if path not in self.files:
            try:
                self.files[path] = self.parsed(path) if self.parsed is not None else None
            except (OSError, ValueError, SyntaxError, RecursionError, InputError):
                self.files[path] = None
        return self.files[path]

    def node(self, place: Place) -> tuple[SourceFile, ast.AST] | None:
        """The syntax that stands at a place, with the program it stands in; None where it can't be read."""
        file = self.file(place.path)
        node = file.syntax.at(span_of(place.position)) if file is not None else None
        return (file, node) if file is not None and node is not None else None

    def path_of(self, file: SourceFile) -> str:
        """The path of a program, as the trace knows it."""
        return next(path for path, held in self.files.items() if held is file)

    def programs(self, *words: str) -> Iterator[SourceFile]:
        """The programs that mention one of some words, tests left out, in the order of their paths."""
        for path in sorted(self.words):
            if is_test_path(path) or (self.ask is not None and not self.ask(path, Words(words))):
                continue
            try:
                text = self.source(path).text
            except (OSError, ValueError, InputError):
                continue
            if any(word in text for word in words) and (file := self.file(path)) is not None:
                yield file

    def span(self, place: Place) -> Span:
        """A place in characters."""
        line, column, end_line, end_column = span_of(place.position)
        lines = self.lines.get(place.path)
        if lines is None:
            lines = self.lines[place.path] = self.source(place.path).text.split("\n")
        return Span(line, in_characters(lines, line, column), end_line, in_characters(lines, end_line, end_column))

    def location(self, place: Place) -> Location:
        """A place as reports show it."""
        return self.source(place.path).location(self.span(place))

    def text(self, place: Place) -> str:
        """The source text of a place, on one line."""
        line, column, end_line, end_column = self.span(place)
        lines = self.lines[place.path]
        if line == end_line:
            return lines[line - 1][column:end_column]
        parts = [lines[line - 1][column:], *lines[line : end_line - 1], lines[end_line - 1][:end_column]]
        return " ".join(part.strip() for part in parts)

    def steps(self, chain: Chain) -> tuple[tuple[Location, str], ...]:
        """A chain as the related places of a finding."""
        return tuple((self.location(step.place), step.words) for step in chain)

    def calls(self, event: Event) -> tuple[tuple[Location, str], ...]:
        """The calls that lead to an event in another function, outermost first, as related places."""
        return tuple((self.location(place), "this call leads there") for place in event.calls)

    def verdict(self, entry: Entry, path: Iterable[Condition]) -> Verdict:
        """What has to be turned for a path to be taken."""
        return judged(self.switches, self.unset, entry.script, frozenset(path))

    def switch(self, symbol: Hashable) -> Switch | None:
        """The switch that a symbol stands for, alone or as one of several unknowns that were joined to one."""
        return switch_of(self.switches, symbol)

    def is_dead(self, path: Path) -> bool:
        """Whether a path is taken only with a parameter that the project's callers leave at its default, or all give a value."""
        if not self.unset and not self.given:
            return False
        for key, sense in path:
            if key[0] in ("true", "in") and key[1] in self.given and (sense is False if key[0] == "true" else sense and key[2] <= {None}):
                return True
            if key[0] in ("true", "in") and key[1] in self.unset and needs(self.switches[key[1]], path, key[1]) is not None:
                return True
        return False


def in_characters(lines: Sequence[str], line: int, column: int) -> int:
    """A column in characters of one in UTF-8 bytes."""
    text = lines[line - 1] if line <= len(lines) else ""
    return column if text.isascii() else len(text.encode("utf-8")[:column].decode("utf-8", "ignore"))


def possible(value: Value, path: Path) -> list[tuple[Path, Atom]]:
    """The atoms of a value that can hold on a path, with the path that each holds on."""
    found = []
    for guards, atom in options(value):
        both = extend(path, guards)
        if both is not None:
            found.append((both, atom))
    return found


def tensors_of(value: Value, path: Path, depth: int = 0) -> list[tuple[Path, Tensor]]:
    """The tensors that a value is or holds, each with the path that it holds on."""
    found: list[tuple[Path, Tensor]] = []
    for way, atom in possible(value, path):
        if type(atom) is Tensor:
            found.append((way, atom))
        elif type(atom) is Items and depth < 3:
            for item in atom.items:
                found += tensors_of(item, way, depth + 1)
    return found


def shown_symbol(symbol: Hashable) -> str:
    """What people are shown of a symbol."""
    return str(symbol).partition(IDENTITY)[0]
