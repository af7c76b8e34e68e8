"""Which conditions of a path have a part in a mistake: those without which it vanishes.

A path holds whatever the program tested on its way: `--resume` and `--adam` beside `--amp`. What has no part in a mistake is left out of
its message. A switch has none where the mistake is still made, with no other switch turned, on a run that supposes the opposite of it,
whatever else happens there.
What puts half precision in force must still be so there: values that a run has merged tell no more which branch they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from mplint.program.conditions import Condition, Path, extend
from mplint.program.event import Event
from mplint.program.trace import Entry, Trace, Verdict, constant_of, possible, speaks_of_precision
from mplint.program.values import Alternatives, Atom, Place

MAX_SUPPOSED = 12  # runs for one mistake

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
IN_FORCE = ("autocast", "policy")  # the data of other events that tell it

# the verdicts of a mistake in what happened in an entry
Happens = Callable[[Entry], Iterable[Verdict]]


def settled(trace: Trace, entry: Entry, path: Path, happens: Happens) -> Verdict:
    """How sure a mistake on a path is, without the switches that have no part in it."""
    before = frozenset[str]()
    runs = MAX_SUPPOSED
    while (verdict := trace.verdict(entry, path)).symbols and verdict.symbols != before:
        before = verdict.symbols
        names = {symbol: switch.name for symbol in before if (switch := trace.switch(symbol)) is not None}
        for precise, symbol in sorted((speaks_of_precision(name, ()), symbol) for symbol, name in names.items()):
            told = frozenset(literal for literal in path if speaks_of(literal, symbol))
            rest = path - told
            others = trace.verdict(entry, rest).symbols - {symbol}
            turned = frozenset(literal for literal in rest if any(speaks_of(literal, other) for other in others))
            for literals in dict.fromkeys((*at_default(trace, symbol, told), *opposites(told))):
                supposed = extend(turned, literals)
                if supposed is None or not runs or not is_kept(entry, path, supposed, each=precise):
                    continue
                runs -= 1
                if any(other.symbols <= others and not other.dead for other in happens(supposing(entry, supposed))):
                    path = rest
                    break
    return verdict


def is_kept(entry: Entry, path: Path, supposed: Path, each: bool) -> bool:
    """Whether what chooses the precision on a path does so on another one as well: at each place where it is chosen, or one of a kind."""
    lost: set[tuple[str, Place]] = set()
    left: set[tuple[str, Place]] = set()
    others: set[str] = set()
    for event in entry.events:
        kind = event.kind if event.kind in CHOOSING else "" if event.data.keys().isdisjoint(IN_FORCE) else "in force"
        if not kind:
            continue
        before, after = chosen(event, path), chosen(event, supposed)
        if after is not None and before is None:
            left.add((kind, event.place))
            others.add(kind)
        elif before is not None and after is not None and all(atom in after for atom in before):
            others.add(kind)
        elif before is not None:
            lost.add((kind, event.place))
    lost -= left
    return not lost if each else all(kind in others for kind, _ in lost)


def chosen(event: Event, path: Path) -> list[Atom] | None:
    """What an event chooses on a path, or what is in force there, where it is open otherwise; None where it does not happen."""
    both = extend(event.path, path)
    if both is None:
        return None
    values = event.data.values() if event.kind in CHOOSING else [event.data[name] for name in IN_FORCE if name in event.data]
    return [atom for value in values if type(value) is Alternatives for _, atom in possible(value, both)]


def speaks_of(literal: Condition, symbol: str) -> bool:
    """Whether a literal says something of a switch, alone or together with others."""
    key = literal[0]
    return any(speaks_of(inner, symbol) for inner in key[1]) if key[0] == "all" else key[0] in ("true", "in") and key[1] == symbol


def at_default(trace: Trace, symbol: str, told: Path) -> Iterator[Path]:
    """What holds instead of literals of a switch that is left at its default."""
    switch = trace.switch(symbol)
    default = constant_of(switch.default) if switch is not None else None
    if default is not None:
        kinds = {key[0]: key for key, _ in sorted(told, key=repr)}
        found = {(("in", symbol, frozenset(default)), True)} if "in" in kinds else set()
        yield frozenset({*found, (kinds["true"], bool(default[0]))} if "true" in kinds else found)


def opposites(told: Path) -> Iterator[Path]:
    """What may hold instead of literals, of which one is denied at least."""
    for key, sense in sorted(told, key=repr):
        if key[0] == "all" and not sense:
            yield key[1]
        else:
            yield frozenset({(key, not sense)})


def supposing(entry: Entry, literals: Path) -> Entry:
    """What happens in an entry where literals hold."""
    events = []
    for event in entry.events:
        path = extend(event.path, literals)
        if path is not None:
            events.append(event._replace(path=path))
    return replace(entry, events=events)
