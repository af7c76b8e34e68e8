"""Which conditions of a path have a part in a mistake: those without which it vanishes.

A path holds whatever the program tested on its way: `--resume` and `--adam` beside `--amp`. What has no part in a mistake is left out of
its message. A switch has none where the mistake is still made, with no other switch turned, on a run that supposes the opposite of it,
whatever else happens there.
What puts half precision in force must still be so there: values that a run has merged tell no more which branch they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from mplint.program.conditions import EMPTY, Condition, Path, extend
from mplint.program.trace import Entry, Supposed, Trace, possible
from mplint.program.values import Alternatives, Atom, Place
from mplint.program.verdict import Verdict, base_of, constant_of, keys_in, parts_of, speaks_of_precision

MAX_SUPPOSED = 12  # runs for one mistake
MAX_SUPPOSITIONS = 32  # entries with what was supposed of them that are kept
MAX_HELD = 64  # literals for which an entry's paths are kept

CHOOSING = (  # events that choose the precision
    "autocast entered",
    "default dtype set",
    "floatx set",
    "model loaded",
    "module cast",
    "module sharded",
    "policy set",
    "scaler made",
    "trainer precision",
)
WORK = (  # events of a program that does what it is for
    "backward",
    "layer called",
    "model called",
    "model fit",
    "module run",
    "operation",
    "optimizer step",
    "tape gradients taken",
    "trainer run",
    "unknown model called",
)
IN_FORCE = ("autocast", "policy")  # the data of other events that tell it

# the verdicts of a mistake in what happened in an entry
Happens = Callable[[Entry], Iterable[Verdict]]


def settled(trace: Trace, entry: Entry, path: Path, happens: Happens) -> Verdict:
    """How sure a mistake on a path is, without the switches that have no part in it."""
    before = frozenset[str]()
    choices = Choices.of(trace, entry)
    runs = MAX_SUPPOSED
    while (verdict := trace.verdict(entry, path)).symbols and verdict.symbols != before:
        before = verdict.symbols
        names = {symbol: switch.name for symbol in before if (switch := trace.switch(symbol)) is not None}
        for precise, symbol in sorted((speaks_of_precision(name, ()), symbol) for symbol, name in names.items()):
            told = frozenset(literal for literal in path if speaks_of(trace, literal, symbol))
            rest = path - told
            asked = asked_of_every_run(entry, told) if not precise else EMPTY
            if asked:
                path = path - asked
                break
            others = trace.verdict(entry, rest).symbols - {symbol}
            turned = frozenset(literal for literal in rest if any(speaks_of(trace, literal, other) for other in others))
            for literals in dict.fromkeys((*at_default(trace, symbol, told), *opposites(told))):
                supposed = extend(turned, literals)
                if supposed is None or not runs or not is_kept(choices, path, supposed, each=precise):
                    continue
                runs -= 1
                found = [other for other in happens(supposition(trace, choices, supposed)) if other.symbols <= others and not other.dead]
                joint = (with_demands(trace, rest, other, others) for other in found)
                both = next((way for way in joint if way is not None), None)
                if both is not None:
                    path = both
                    break
    return verdict


class Choice(NamedTuple):
    """What chooses the precision in an event, or tells what is in force: the event's kind, place and path, and what is open in it."""

    kind: str
    place: Place
    path: Path
    values: tuple[Alternatives, ...]


class Choices:
    """Those of an entry, each once, and what their paths become with further literals."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        found: dict[Choice, None] = {}
        for event in entry.events:
            chooses = event.kind in CHOOSING
            if not chooses and event.data.keys().isdisjoint(IN_FORCE):
                continue
            values = event.data.values() if chooses else [event.data[name] for name in IN_FORCE if name in event.data]
            kind = event.kind if chooses else "in force"
            found[Choice(kind, event.place, event.path, tuple(value for value in values if type(value) is Alternatives))] = None
        self.by_kind = grouped(found, lambda choice: choice.kind)
        self.by_place = grouped(found, lambda choice: (choice.kind, choice.place))
        self._known: dict[Path, Extended] = {}

    @classmethod
    def of(cls, trace: Trace, entry: Entry) -> Choices:
        """Those of an entry, made once for all who ask of it."""
        known = trace.held.setdefault("choices", {})
        assert isinstance(known, dict)
        found = known.get(id(entry))
        if found is None:
            found = known[id(entry)] = cls(entry)
        assert isinstance(found, Choices) and found.entry is entry
        return found

    def with_literals(self, literals: Path) -> Extended:
        """The paths on which they happen if literals hold as well."""
        if len(self._known) > MAX_HELD:
            self._known.clear()
        found = self._known.get(literals)
        if found is None:
            found = self._known[literals] = Extended(literals)
        return found


def grouped(choices: Iterable[Choice], of: Callable[[Choice], Hashable]) -> tuple[tuple[Choice, ...], ...]:
    """Choices by what they have in common."""
    found: dict[Hashable, list[Choice]] = {}
    for choice in choices:
        found.setdefault(of(choice), []).append(choice)
    return tuple(map(tuple, found.values()))


class Extended(dict[Path, Path | None]):
    """What paths become with further literals."""

    def __init__(self, literals: Path) -> None:
        super().__init__()
        self.literals = literals

    def __missing__(self, path: Path) -> Path | None:
        found = self[path] = extend(path, self.literals)
        return found


def is_kept(choices: Choices, path: Path, supposed: Path, each: bool) -> bool:
    """Whether what chooses the precision on a path does so on another one as well: at each place where it is chosen, or one of a kind."""
    before, after = choices.with_literals(path), choices.with_literals(supposed)

    def is_lost(choice: Choice) -> bool:
        """Whether it happens on the one path, and on the other not, or otherwise."""
        now = after[choice.path]
        if now is not None and not choice.values:
            return False
        was = before[choice.path]
        return was is not None and (now is None or not is_among(open_in(choice.values, was), open_in(choice.values, now)))

    def is_there(choice: Choice) -> bool:
        """Whether it happens on the other path as it does on the one, or only there."""
        now = after[choice.path]
        if now is None:
            return False
        return not choice.values or before[choice.path] is None or not is_lost(choice)

    def comes_up(choice: Choice) -> bool:
        """Whether it happens on the other path alone."""
        return after[choice.path] is not None and before[choice.path] is None

    if each:
        return not any(any(map(is_lost, some)) and not any(map(comes_up, some)) for some in choices.by_place)
    return all(any(map(is_there, some)) or not any(map(is_lost, some)) for some in choices.by_kind)


def open_in(values: Iterable[Alternatives], path: Path) -> list[Atom]:
    """What values may be on a path."""
    return [atom for value in values for _, atom in possible(value, path)]


def is_among(few: Iterable[Atom], many: Collection[Atom]) -> bool:
    """Whether each of a few atoms is one of many."""
    return all(atom in many for atom in few)


def asked_of_every_run(entry: Entry, told: Path) -> Path:
    """The literals without which a program runs no model and trains nothing: whoever runs it for anything sees to them."""
    work = dict.fromkeys(event.path for event in entry.of(*WORK))
    if not work:
        return EMPTY
    ways = {literal: opposites(frozenset({literal})) for literal in told}
    return frozenset(one for one in told if not any(extend(path, way) is not None for way in ways[one] for path in work))


def speaks_of(trace: Trace, literal: Condition, symbol: str) -> bool:
    """Whether a literal says something of a switch, or of what follows from it, alone or together with others."""
    return any(base_of(trace.switches, key[1]) == symbol for key in keys_in((literal,)))


def with_demands(trace: Trace, path: Path, other: Verdict, symbols: Collection[str]) -> Path | None:
    """A path with what the mistake asks of some switches elsewhere, so that a condition on these holds for both; None where none does."""
    alone = frozenset(literal for literal in other.path if not parts_of(literal[0]) and literal[0][0] in ("true", "in"))
    asked = frozenset(literal for literal in alone if base_of(trace.switches, literal[0][1]) in symbols)
    return extend(path, asked)


def at_default(trace: Trace, symbol: str, told: Path) -> Iterator[Path]:
    """What holds instead of literals of a switch that is left at its default."""
    switch = trace.switch(symbol)
    default = constant_of(switch.default) if switch is not None else None
    if default is not None:
        kinds = {key[0]: key for key, _ in sorted(told, key=repr) if key[1] == symbol}
        found = {(("in", symbol, frozenset(default)), True)} if "in" in kinds else set()
        yield frozenset({*found, (kinds["true"], bool(default[0]))} if "true" in kinds else found)


def opposites(told: Path) -> Iterator[Path]:
    """What may hold instead of literals, of which one is denied at least."""
    for key, sense in sorted(told, key=repr):
        if key[0] == "all" and not sense:
            yield key[1]
        else:
            yield frozenset({(key, not sense)})


def supposition(trace: Trace, choices: Choices, literals: Path) -> Entry:
    """What happens in an entry where literals hold: the same one for all who suppose the same of it."""
    known = trace.held.setdefault("suppositions", {})
    assert isinstance(known, dict)
    asked = id(choices.entry), literals
    if asked not in known:
        if len(known) >= MAX_SUPPOSITIONS:
            known.clear()
        known[asked] = supposing(choices.entry, literals, choices.with_literals(literals))
    found = known[asked]
    assert isinstance(found, Entry)
    return found


def supposing(entry: Entry, literals: Path, known: Extended | None = None) -> Entry:
    """What happens in an entry where literals hold; `known` holds what paths become with them."""
    return replace(entry, events=Supposed(entry, Extended(literals) if known is None else known))
