"""`mplint dev facts`: what the interpreter saw on each line of a program: values, autocast, events, and from which entries."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mplint.dev.programs import programs_around, watched
from mplint.dev.words import Words
from mplint.engine.prefilter import key_of
from mplint.program.conditions import Path
from mplint.program.lower import line_of, span_of
from mplint.program.machine import Args, Event, Machine
from mplint.program.trace import Trace
from mplint.program.values import ANY, Atom, Autocast, Constant, Place, Tensor, Unknown, Value, options


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mplint dev facts`."""
    parser.add_argument("file", metavar="FILE", help="a program or notebook")
    parser.add_argument("--root", metavar="DIR", help="the folder of its project (default: where that seems to begin)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to write it (default: text)")


def run(options: argparse.Namespace) -> int:
    """Interpret the program's project, and write what was seen in the program."""
    found = facts(options.file, options.root)
    sys.stdout.write(text_of(found) if options.format == "text" else json_of(found))
    return 0


# what is seen while the program runs


class Begun(NamedTuple):
    """An entry: its file, the function or class (or `<module>`), and whether it is a script."""

    path: str
    name: str
    script: bool


class Sight(NamedTuple):
    """A thing that an expression gave, and the conditions under which."""

    place: Place
    guards: Path
    atom: Atom


class Watch:
    """A recorder of one file: values of all entries in the order in which they were first seen, each with its entries."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.entries: list[Begun] = []
        self.values: dict[Sight, set[int]] = {}
        self.regions: dict[tuple[int, Path, Atom], set[int]] = {}
        self.paths: dict[int, tuple[Path, set[int]]] = {}

    def begin(self, path: str, name: str, script: bool) -> None:
        """A new entry."""
        self.entries.append(Begun(path, name, script))

    def saw(self, m: Machine, place: Place, value: Value) -> None:
        """Keep what an expression of the file gave, and the state that it was evaluated in."""
        if place.path != self.path:
            return
        entry, line = len(self.entries) - 1, line_of(place.position)
        for guards, atom in options(value):
            if type(atom) is not Constant and not (type(atom) is Tensor and atom == NOTHING_KNOWN):
                self.values.setdefault(Sight(place, guards, atom), set()).add(entry)
        for guards, atom in options(m.state("autocast")):
            if type(atom) is Autocast and atom.dtype is not None:
                self.regions.setdefault((line, guards, atom), set()).add(entry)
        path, entries = self.paths.get(line, (m.path, set()))
        self.paths[line] = (path & m.path, entries | {entry})

    def called(self, m: Machine, place: Place, callee: Value, name: str, args: Args) -> None:
        """Calls are seen by what they give."""

    def assumed(self, m: Machine, place: Place, callee: Atom, how: str) -> None:
        """Models that nobody knows are events."""

    def unknown(self, m: Machine, place: Place, callee: Atom) -> None:
        """Unknown calls give unknown values."""

    def computed(self, m: Machine, place: Place, name: str, kind: str) -> None:
        """Operations are seen by what they give."""


NOTHING_KNOWN = Tensor(frozenset({ANY}))
IDENTITIES = ("key", "identity")  # data that only tells things apart
LONG = 80  # characters of an expression that are shown


# what is said of it


@dataclass(slots=True)
class Said:
    """A sentence about a line, and the numbers of the entries that it holds for. `subject`: the code that it speaks of, or ""."""

    subject: str
    words: str
    entries: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Happened:
    """An event: its kind, its data in words, its conditions, the calls that lead there, and its entry's number."""

    kind: str
    data: dict[str, str]
    conditions: list[str]
    calls: list[str]
    entries: set[int]


@dataclass(slots=True)
class LineFacts:
    """What is known of one line."""

    number: int
    source: str
    conditions: list[str] = field(default_factory=list)
    autocast: list[Said] = field(default_factory=list)
    values: list[Said] = field(default_factory=list)
    events: list[Happened] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.autocast or self.values or self.events)


@dataclass(slots=True)
class Facts:
    """What the interpreter saw of a program."""

    path: str
    entries: list[Begun]
    switches: list[str]
    lines: list[LineFacts]
    exhausted: bool
    faults: list[tuple[str, str]]


def facts(file: str, root: str | None = None, given: Mapping[str, bytes] = {}) -> Facts:
    """Interpret the project of a program and gather what happens in it; raises UsageError where it is none.

    `given` are texts by path that stand for what lies on disk.
    """
    programs = programs_around(file, root, given)
    watch = Watch(key_of(file))
    trace = watched(programs, watch)
    words = Words(trace, watch.path)
    source = programs.document(watch.path).text.split("\n")
    lines: dict[int, LineFacts] = {}

    def at(number: int) -> LineFacts:
        return lines.setdefault(number, LineFacts(number, source[number - 1] if number <= len(source) else ""))

    computing = {line_of(sight.place.position) for sight in watch.values}
    for (number, guards, atom), entries in watch.regions.items():
        if number in computing:
            merge(at(number).autocast, Said("", words.guarded(guards, atom), set(entries)))
    for line, found in values_by_line(trace, words, watch):
        at(line).values = found
    for number, entry in numbered(trace, watch):
        for event in entry:
            if event.place.path == watch.path:
                add_event(at(line_of(event.place.position)).events, happened(words, event, number, watch.entries[number].script))
    for number, (path, _) in watch.paths.items():
        if number in lines:
            lines[number].conditions = words.conditions(path)
    told = [lines[number] for number in sorted(lines) if lines[number]]
    seen = sorted({n for line in told for entries in entries_of(line) for n in entries})
    renumber(told, {old: new for new, old in enumerate(seen, 1)})
    return Facts(file, [watch.entries[n] for n in seen], switches(trace, watch, words), told, trace.exhausted, trace.faults)


def numbered(trace: Trace, watch: Watch) -> Iterator[tuple[int, list[Event]]]:
    """The events of each entry, by its number; an entry without events has left none."""
    number = 0
    for entry in trace.entries:
        while watch.entries[number] != (entry.path, entry.name, entry.script):
            number += 1
        yield number, list(entry.events)
        number += 1


def values_by_line(trace: Trace, words: Words, watch: Watch) -> Iterator[tuple[int, list[Said]]]:
    """What is said of the values of each line, outer expressions first; parts of which the same is said are left out."""
    by_line: dict[int, dict[Place, list[Said]]] = {}
    for sight, entries in watch.values.items():
        if words.says_something(sight.atom):
            here = by_line.setdefault(line_of(sight.place.position), {}).setdefault(sight.place, [])
            merge(here, Said(short(trace.text(sight.place)), words.guarded(sight.guards, sight.atom), set(entries)))
    for line in sorted(by_line):
        found: list[Said] = []
        for place in sorted(by_line[line], key=order):
            for said in by_line[line][place]:
                if not any(
                    said.subject in other.subject and said.words == other.words and said.entries <= other.entries for other in found
                ):
                    found.append(said)
        yield line, found


def short(text: str) -> str:
    """An expression as far as it is shown."""
    return text if len(text) <= LONG else text[: LONG - 1] + "…"


def order(place: Place) -> tuple[int, int, int]:
    """Outer expressions before their parts, then from left to right."""
    span = span_of(place.position)
    return (span.column, -span.end_line, -span.end_column)


def merge(found: list[Said], said: Said) -> None:
    """Add a sentence, or its entries to the same one."""
    for other in found:
        if other.subject == said.subject and other.words == said.words:
            other.entries |= said.entries
            return
    found.append(said)


def happened(words: Words, event: Event, number: int, script: bool) -> Happened:
    """An event in words; the call that begins library code is nobody's."""
    told = ((name, value) for name, value in event.data.items() if name not in IDENTITIES and not isinstance(value, Args))
    data = {name: text for name, value in told if (text := words.datum(value))}
    return Happened(
        event.kind, data, words.conditions(event.path), [words.place(place) for place in event.calls[0 if script else 1 :]], {number}
    )


def add_event(found: list[Happened], event: Happened) -> None:
    """Add an event, or its entry to one that is the same in words."""
    for other in found:
        if (other.kind, other.data, other.conditions, other.calls) == (event.kind, event.data, event.conditions, event.calls):
            other.entries |= event.entries
            return
    found.append(event)


def switches(trace: Trace, watch: Watch, words: Words) -> list[str]:
    """The switches that stand in the program, or that values of it are."""
    met = {sight.atom.symbol for sight in watch.values if type(sight.atom) is Unknown}
    met |= {symbol for symbol, switch in trace.switches.items() if switch.place is not None and switch.place.path == watch.path}
    return sorted({words.switch(switch) for symbol, switch in trace.switches.items() if symbol in met})


def renumber(lines: list[LineFacts], numbers: dict[int, int]) -> None:
    """Count only the entries that are spoken of, from 1."""
    for line in lines:
        for entries in entries_of(line):
            changed = {numbers[n] for n in entries}
            entries.clear()
            entries |= changed


def entries_of(line: LineFacts) -> list[set[int]]:
    """The sets of entries for which something of a line holds."""
    return [*(s.entries for s in line.autocast), *(s.entries for s in line.values), *(e.entries for e in line.events)]


# how it is written


def text_of(found: Facts) -> str:
    """Lines with what is known of them beneath."""
    out = [found.path, ""]
    for number, entry in enumerate(found.entries, 1):
        out.append(f"[{number}] {begins(entry)}")
    out += [f"switch: {switch}" for switch in found.switches]
    if found.exhausted:
        out.append("the steps of the project were used up before its last entry")
    out += [f"fault in {path}: {text}" for path, text in found.faults]
    if not found.lines:
        out.append("nothing that speaks of mixed precision happens here")
    several = len(found.entries) > 1
    for line in found.lines:
        out += ["", f"{line.number:5} | {line.source}"]
        out += [f"        {text}" for text in said_of(line, several)]
    return "\n".join(out).rstrip("\n") + "\n"


def begins(entry: Begun) -> str:
    """An entry on a line."""
    if entry.script:
        return f"{entry.path} as a script"
    return f"`{entry.name}` of {entry.path}, called with unknown arguments"


def said_of(line: LineFacts, several: bool) -> Iterator[str]:
    """The sentences about a line."""

    def of(entries: set[int]) -> str:
        return " " + "".join(f"[{n}]" for n in sorted(entries)) if several else ""

    if line.conditions:
        yield f"reached when {' and '.join(line.conditions)}"
    for said in line.autocast:
        yield f"in force: {said.words}{of(said.entries)}"
    for said in line.values:
        yield f"`{said.subject}`: {said.words}{of(said.entries)}"
    for event in line.events:
        conditions = [c for c in event.conditions if c not in line.conditions]
        when = f", when {' and '.join(conditions)}" if conditions else ""
        calls = f", called from {', then '.join(event.calls)}" if event.calls else ""
        yield f"* {event.kind}{when}{calls}{of(event.entries)}"
        for name, text in event.data.items():
            yield f"    {name}: {text}"


def json_of(found: Facts) -> str:
    """The same as one JSON object; entries are numbers from 1 into `entries`."""
    lines = [
        {
            "line": line.number,
            "source": line.source,
            "conditions": line.conditions,
            "autocast": [{"words": s.words, "entries": sorted(s.entries)} for s in line.autocast],
            "values": [{"text": s.subject, "words": s.words, "entries": sorted(s.entries)} for s in line.values],
            "events": [
                {"kind": e.kind, "data": e.data, "conditions": e.conditions, "calls": e.calls, "entries": sorted(e.entries)}
                for e in line.events
            ],
        }
        for line in found.lines
    ]
    out = {
        "version": "1",
        "path": found.path,
        "entries": [entry._asdict() for entry in found.entries],
        "switches": found.switches,
        "exhausted": found.exhausted,
        "faults": [{"path": path, "message": text} for path, text in found.faults],
        "lines": lines,
    }
    return json.dumps(out, indent=2, ensure_ascii=False) + "\n"
