"""What a finding rests on beside what the programs say: guesses, and how sure it can be with them.

Some of what happens in a trace was run on a guess: what is chosen at run time is taken for one of the project's classes, a
class for one that somebody makes, the way of an exception for one that programs go. A finding that is told without a guess does not
rest on it. One that needs a weak guess, or two guesses of whatever kind, is of low confidence, and so silent by default; what it needs
stands in its reason. What a rule takes for granted by itself, like a size, counts as one beside a guess. So is one that needs a setting
to be what no file of the project sets it to, where files set it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from mplint.findings import Confidence, Finding, Location
from mplint.program.conditions import Condition, Key, Path, extend
from mplint.program.event import Event
from mplint.program.supposed import supposing
from mplint.program.trace import Entry, Guess, Trace, shown_symbol
from mplint.program.values import Alternatives, options

MOST_TRIED = 12  # settings that are tried one by one
MOST_NAMED = 4  # settings of a reason
TOLD = frozenset({"shown"})  # events by which a handler tells people of an exception, and mends nothing


def weighed(trace: Trace, told: Callable[[Trace], list[Finding]]) -> list[Finding]:
    """What a rule tells of a trace, less sure where it rests on guesses, or on settings that the project's files set otherwise."""
    findings = told(trace)
    kinds = guesses_in(trace) if findings else frozenset()
    sure = spots(told(without(trace, kinds))) if kinds else spots(findings)
    if not all(spot(finding) in sure for finding in findings):
        left = {guess: spots(told(without(trace, frozenset({guess})))) for guess in sorted(kinds, key=lambda guess: guess.value)}
        needed = {place: [guess for guess, places in left.items() if place not in places] for place in spots(findings) - sure}
        findings = [lowered(finding, needed[spot(finding)]) if spot(finding) in needed else finding for finding in findings]
    return as_files_say(trace, told, findings)


def as_files_say(trace: Trace, told: Callable[[Trace], list[Finding]], findings: list[Finding]) -> list[Finding]:
    """Findings, of low confidence where the project's own files give a setting no value with which the mistake is made."""
    literals = usual(trace) if any(finding.confidence is not Confidence.LOW for finding in findings) else frozenset()
    if not literals:
        return findings
    left = {finding.location for finding in told(supposed(trace, literals))}
    if all(finding.location in left for finding in findings):
        return findings
    groups = {name: frozenset(literal for literal in literals if setting_shown(literal) == name) for name in map(setting_shown, literals)}
    lost = {finding.location for finding in findings} - left
    why = together(trace, told, groups, singly(trace, told, groups, lost))
    return [set_otherwise(finding, why[finding.location]) if finding.location in why else finding for finding in findings]


Told = Callable[[Trace], list[Finding]]
Groups = Mapping[str, frozenset[Condition]]  # conditions by the setting, as files have it, that they speak of


def singly(trace: Trace, told: Told, groups: Groups, places: Collection[Location]) -> dict[Location, list[str]]:
    """The settings of which each alone, as files have it, keeps a mistake from being made at a place; none where it takes several."""
    found: dict[Location, list[str]] = {place: [] for place in places}
    for name in sorted(groups)[:MOST_TRIED]:
        left = {finding.location for finding in told(supposed(trace, groups[name]))}
        for place in places:
            if place not in left:
                found[place].append(name)
    return found


def together(trace: Trace, told: Told, groups: Groups, found: Mapping[Location, list[str]]) -> dict[Location, list[str]]:
    """The same, with the settings that keep it only together: those of all without which it is made."""
    done = dict(found)
    for place in (place for place, names in found.items() if not names):
        kept = sorted(groups)
        for name in sorted(groups)[:MOST_TRIED]:
            rest = [other for other in kept if other != name]
            if all(finding.location != place for finding in told(supposed(trace, all_of(groups, rest)))):
                kept = rest
        done[place] = kept
    return done


def all_of(groups: Groups, names: Iterable[str]) -> Path:
    """The conditions of several settings."""
    return frozenset[Condition]().union(*(groups[name] for name in names))


def usual(trace: Trace) -> Path:
    """The conditions that the project's own files decide."""
    if "usual" not in trace.held:
        trace.held["usual"] = trace.usual(trace) if trace.usual is not None else frozenset()
    return trace.held["usual"]  # type: ignore[return-value]


def supposed(trace: Trace, literals: Path) -> Trace:
    """A trace of what happens where some conditions hold."""
    known = trace.held.setdefault(("supposed", literals), None)
    if known is None:
        entries = [supposing(entry, literals) for entry in trace.entries]
        known = trace.held["supposed", literals] = replace(trace, entries=entries, held={}, grounded={})
    assert isinstance(known, Trace)
    return known


def set_otherwise(finding: Finding, settings: Sequence[str]) -> Finding:
    """A finding of a mistake that is not made as the project's files have some settings."""
    shown = " and ".join(f"`{setting}`" for setting in settings[:MOST_NAMED])
    words = f"The project's own files have {shown}, with which it does not happen."
    return finding._replace(confidence=Confidence.LOW, why=f"{finding.why} {words}".strip())


def setting_shown(literal: Condition) -> str:
    """A condition on a setting as a file would say it."""
    (kind, symbol, *rest), sense = literal
    name = shown_symbol(symbol).rpartition(".")[2]
    if kind == "true":
        return f"{name}: {str(sense).lower()}"
    return f"{name}: {' or '.join(sorted(map(str, rest[0])))}" if sense else f"{name}: bfloat16"


def lowered(finding: Finding, guesses: Sequence[Guess]) -> Finding:
    """A finding that rests on guesses: on all of some, or (where none is named) on one of several."""
    if not guesses:
        return finding._replace(confidence=finding.confidence.at_most(Confidence.MEDIUM))
    taken = [*(guess.value for guess in guesses), *([finding.assumed] if finding.assumed else [])]
    most = Confidence.LOW if len(taken) > 1 or guesses[0].weak else Confidence.MEDIUM
    words = f"This assumes that {' and that '.join(taken)}."
    return finding._replace(
        confidence=finding.confidence.at_most(most),
        why=f"{finding.why} {words}".strip(),
    )


def spot(finding: Finding) -> tuple[object, ...]:
    """What tells a finding from others of its rule."""
    return finding.location, finding.severity


def spots(findings: Iterable[Finding]) -> set[tuple[object, ...]]:
    """Those of several findings."""
    return {spot(finding) for finding in findings}


def guesses_in(trace: Trace) -> frozenset[Guess]:
    """The kinds of guesses that something in a trace rests on."""
    kinds = {guess for entry in trace.entries for guess in entry.guesses}
    if any(passed_over(entry) for entry in trace.entries):
        kinds.add(Guess.FAILING)
    return frozenset(kinds)


def without(trace: Trace, guesses: frozenset[Guess]) -> Trace:
    """A trace in which nothing is guessed that is of some kinds."""
    if guesses not in trace.grounded:
        entries = [entry for entry in trace.entries if guesses.isdisjoint(entry.guesses)]
        if Guess.FAILING in guesses:
            entries = [as_usual(entry) for entry in entries]
        trace.grounded[guesses] = replace(trace, entries=entries, held={}, grounded={})
    return trace.grounded[guesses]


def as_usual(entry: Entry) -> Entry:
    """What happens in an entry, and what it tells of the time before, where no exception was raised that a handler passes over."""
    keys = passed_over(entry)
    if not keys:
        return entry
    usual = [frozenset((key, True) for key in keys & tries_of(event)) for event in entry.events]
    paths = [extend(event.path, literals) for event, literals in zip(entry.events, usual, strict=True)]
    events = [event if path is None else event._replace(path=path) for event, path in zip(entry.events, paths, strict=True)]
    return replace(entry, events=events)


def passed_over(entry: Entry) -> frozenset[Key]:
    """The tries whose handlers lead on, so that what follows knows values of both ways, and do nothing of interest themselves."""
    found = {key for event in entry.events for key in tries_of(event)}
    if not found:
        return frozenset()
    done = (event for event in entry.events if event.kind not in TOLD)
    return frozenset(found.difference(key for event in done for key, sense in event.path if not sense))


def tries_of(event: Event) -> frozenset[Key]:
    """The tries by whose ways values differ that an event tells of."""
    return frozenset(key for value in event.data.values() for guards in guards_of(value) for key, _ in guards if is_try(key))


def guards_of(value: object) -> Iterable[Path]:
    """The conditions under which a value of several is each of them."""
    if type(value) is Alternatives:
        return [guards for guards, _ in options(value)]
    if type(value) is dict or type(value) is MappingProxyType:
        return [guards for held in value.values() for guards in guards_of(held)]
    return ()


def is_try(key: Key) -> bool:
    """Whether a condition is that the body of a try raises nothing."""
    return key[0] == "place" and len(key) == 4 and key[2] == "try"
