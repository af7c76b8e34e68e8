"""`mplint dev coverage`: of the calls that half precision can reach, the share whose meaning is known, and what the others call."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from mplint.dev.programs import programs_below, watched
from mplint.program.machine import Args, Machine, shown
from mplint.program.values import (
    ANY,
    BFLOAT,
    COMPUTE,
    FLOAT8,
    HALF,
    Alternatives,
    Atom,
    Autocast,
    Class,
    External,
    Items,
    Method,
    Object,
    Place,
    State,
    Super,
    Tensor,
    Unknown,
    Value,
    atoms,
)

HALVES = frozenset({HALF, BFLOAT, FLOAT8, COMPUTE})
MAYBE = HALVES | {ANY}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mplint dev coverage`."""
    parser.add_argument("folders", nargs="+", metavar="DIR", help="repositories, each for itself")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="how many unknown calls to name (default: 20)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to write it (default: text)")


def run(options: argparse.Namespace) -> int:
    """Count over each folder and over all."""
    counts = {}
    for folder in options.folders:
        counts[folder] = coverage(folder)
        if options.format == "text":
            sys.stdout.write(f"{line_of(folder, counts[folder])}\n")
            sys.stdout.flush()
    total = together(counts.values())
    sys.stdout.write(text_of(total, options.top) if options.format == "text" else json_of(counts, total, options.top))
    return 0


@dataclass(slots=True)
class Count:
    """Calls in the source that half precision can reach: all, and the unknown by what they call; `folders`: where each was met.

    Of the known, `models` are taken for models of unknown class, and `others` are those of which a table says that they have no effect.
    """

    calls: int = 0
    models: int = 0
    others: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    folders: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """The share of calls whose meaning is known; 1.0 where there are none."""
        return 1.0 - self.unknown.total() / self.calls if self.calls else 1.0


def coverage(folder: str) -> Count:
    """Count the calls of one repository."""
    calls = Calls()
    watched(programs_below(folder), calls)
    gc.collect()
    known = Counter(how for place, how in calls.taken.items() if place not in calls.unknowns)
    found = Count(len(calls.reached), known["model"], known["other"])
    found.unknown.update(calls.unknowns.values())
    found.folders.update(set(found.unknown))
    return found


def together(counts: Iterable[Count]) -> Count:
    """The sum of several counts."""
    total = Count()
    for count in counts:
        total.calls += count.calls
        total.models += count.models
        total.others += count.others
        total.unknown.update(count.unknown)
        total.folders.update(count.folders)
    return total


def line_of(name: str, count: Count) -> str:
    """One repository on a line."""
    taken = f"{count.models:5} models  {count.others:5} without effect"
    return f"{count.share:7.1%}  {count.calls:6} calls  {count.unknown.total():5} unknown  {taken}  {name}"


def text_of(total: Count, top: int) -> str:
    """The total, and the most frequent unknown calls."""
    lines = [line_of("in total", total), ""]
    lines += [f"{number:6} in {total.folders[name]:3}  {name}" for name, number in ranked(total)[:top]]
    return "\n".join(lines) + "\n"


def json_of(counts: dict[str, Count], total: Count, top: int) -> str:
    """Everything as one JSON object."""
    rows = [{"folder": folder, **row(count)} for folder, count in counts.items()]
    unknown = [{"call": name, "count": number, "folders": total.folders[name]} for name, number in ranked(total)[:top]]
    return json.dumps({"version": "1", "folders": rows, "total": row(total), "unknown": unknown}, indent=2) + "\n"


def row(count: Count) -> dict[str, object]:
    """The numbers of a count."""
    unknown = count.unknown.total()
    return {"calls": count.calls, "unknown": unknown, "models": count.models, "others": count.others, "share": round(count.share, 4)}


def ranked(count: Count) -> list[tuple[str, int]]:
    """The unknown calls, the most frequent first."""
    return sorted(count.unknown.items(), key=lambda item: (-item[1], item[0]))


class Calls:
    """A recorder that keeps the calls which half precision can reach, and which of them nobody knew."""

    def __init__(self) -> None:
        self.reached: set[Place] = set()
        self.now: set[Place] = set()  # calls that were last made where half precision can reach them
        self.taken: dict[Place, str] = {}
        self.unknowns: dict[Place, str] = {}

    def begin(self, path: str, name: str, script: bool) -> None:
        """Entries are not told apart."""

    def saw(self, m: Machine, place: Place, value: Value) -> None:
        """Values are of no interest."""

    def called(self, m: Machine, place: Place, callee: Value, name: str, args: Args) -> None:
        """Keep a call that half precision can reach."""
        if half_in_force(m) or any(may_be_half(v) for v in (callee, *args.all())):
            self.reached.add(place)
            self.now.add(place)
        else:
            self.now.discard(place)

    def assumed(self, m: Machine, place: Place, callee: Atom, how: str) -> None:
        """Keep what a call was taken for."""
        if place in self.now:
            self.taken.setdefault(place, how)

    def unknown(self, m: Machine, place: Place, callee: Atom) -> None:
        """Keep what an unknown call calls."""
        if place in self.now:
            self.unknowns.setdefault(place, name_of(m, callee))

    def computed(self, m: Machine, place: Place, name: str, kind: str) -> None:
        """Only calls are counted."""


def half_in_force(m: Machine) -> bool:
    """Whether autocast may be on, or a policy in force."""
    if any(type(a) is Autocast and a.dtype is not None for a in atoms(m.state("autocast"))):
        return True
    return any(type(a) is State and in_half(a) for a in atoms(m.state("policy")))


def in_half(policy: State) -> bool:
    """Whether the layers of a policy compute in half precision; one that library code may run under shows in its tensors."""
    name = policy.data[0] if isinstance(policy.data, tuple) and policy.data else None
    return isinstance(name, str) and name.endswith("float16")


def may_be_half(value: Value, depth: int = 0) -> bool:
    """Whether a value is a tensor (or holds one) that may be in half, or that half precision has computed."""
    for atom in atoms(value):
        if type(atom) is Tensor and (atom.dtypes & HALVES or atom.half or atom.forward & MAYBE):
            return True
        if depth < 2 and type(atom) is Items and any(may_be_half(v, depth + 1) for v in atom.items):
            return True
    return False


def name_of(m: Machine, callee: Atom) -> str:
    """What a call calls: a dotted name, a method by its receiver's kind, `?` for a receiver that nobody knows."""
    if type(callee) is External:
        return callee.name
    if type(callee) is Unknown:
        text = shown(callee.symbol)
        _, dot, last = text.rpartition(".")
        return f"?.{last}" if dot and last.isidentifier() else f"?{last if last.isidentifier() else '(…)'}"
    if type(callee) is Method:
        return f"{kind_of(callee.receiver)}.{callee.name}"
    if type(callee) is Object:
        return f"{kind_of(callee)}(…)"
    return f"{type(callee).__name__}(…)"


def kind_of(value: Value) -> str:
    """What a receiver is, in a word."""
    if type(value) is Alternatives:
        return "|".join(sorted({kind_of(a) for a in atoms(value)}))
    if type(value) is Object:
        return f"{value.kind}:{'…' if type(value.type) is Class else value.type}"
    if type(value) is External:
        return value.name
    if type(value) is Method:
        return f"{kind_of(value.receiver)}.{value.name}"
    if type(value) is Super:
        return "super()"
    return type(value).__name__
