"""Conditions that a message names: those without which the mistake vanishes, and no other."""

from __future__ import annotations

import random

import pytest

from mplint.program.conditions import EMPTY, Condition, extend
from mplint.program.event import Event
from mplint.program.machine import Switch
from mplint.program.supposed import Choices, Extended, is_among, is_kept, open_in, settled, supposing
from mplint.program.trace import Entry, Trace
from mplint.program.values import FALSE, Constant, Place, alternatives
from mplint.program.verdict import Verdict

NAMES = ("amp", "adam", "resume", "workers")
WHERE = Place("train.py", 1)


def given(name: str, sense: bool = True) -> Condition:
    return ("true", name), sense


def trace_of(*events: Event) -> tuple[Trace, Entry]:
    entry = Entry("train.py", "<module>", True, events)
    return Trace([entry], {name: Switch(f"--{name}", FALSE, None, "option") for name in NAMES}), entry


def event(kind: str, literals: list[Condition], **data: object) -> Event:
    path = extend(EMPTY, frozenset(literals))
    assert path is not None
    return Event(kind, WHERE, path, (), (), 0, "main", data)


def verdict_of(trace: Trace, entry: Entry, path: frozenset[Condition]) -> Verdict:
    return settled(trace, entry, path, lambda run: [trace.verdict(run, event.path) for event in run.of("mistake")])


def test_both_arms_of_a_switch_lead_to_the_mistake() -> None:
    trace, entry = trace_of(event("mistake", [given("amp"), given("adam")]), event("mistake", [given("amp"), given("adam", False)]))
    assert verdict_of(trace, entry, entry.events[0].path).condition() == " when `--amp` is given"


def test_a_switch_that_the_mistake_needs_stays() -> None:
    trace, entry = trace_of(event("mistake", [given("resume"), given("adam")]))
    assert verdict_of(trace, entry, entry.events[0].path).symbols == {"resume", "adam"}


def test_another_switch_is_not_named_instead() -> None:
    """Whichever of two is given leads there: neither can be left out for the other's sake."""
    trace, entry = trace_of(event("mistake", [given("resume")]), event("mistake", [given("adam")]))
    assert verdict_of(trace, entry, entry.events[0].path).symbols == {"resume"}


def test_the_default_is_tried_where_other_values_need_more() -> None:
    values = [(("in", "optimizer", frozenset({name})), True) for name in ("adagrad", "adam", "sgd")]
    trace, entry = trace_of(*(event("mistake", [value]) for value in values))
    trace.switches["optimizer"] = Switch("--optimizer", Constant("sgd"), None, "option")
    assert verdict_of(trace, entry, entry.events[1].path).proven


def test_what_puts_half_precision_in_force_has_a_part() -> None:
    """The tensors of a run are merged: they seem to be half on both arms of the switch that makes them so."""
    policy = alternatives([(frozenset({given("amp")}), Constant("mixed_float16")), (frozenset({given("amp", False)}), Constant("float32"))])
    trace, entry = trace_of(event("mistake", [], policy=policy))
    assert verdict_of(trace, entry, frozenset({given("amp")})).symbols == {"amp"}
    assert verdict_of(trace, entry, frozenset({given("amp"), given("adam")})).symbols == {"amp"}


@pytest.mark.parametrize("seed", range(200))
def test_what_is_named_is_needed_and_enough(seed: int) -> None:
    chance = random.Random(seed)
    told = [[given(name, chance.random() < 0.6) for name in NAMES if chance.random() < 0.7] for _ in range(chance.randint(1, 6))]
    trace, entry = trace_of(*(event("mistake", literals) for literals in told))

    def wrong(on: frozenset[str]) -> bool:
        return any(all((key[1] in on) is sense for key, sense in literals) for literals in told)

    for happened in entry.events:
        symbols = verdict_of(trace, entry, happened.path).symbols
        assert symbols <= trace.verdict(entry, happened.path).symbols
        assert wrong(symbols)
        assert not any(wrong(symbols - {symbol}) for symbol in symbols)


def test_what_is_supposed_of_an_entry_is_the_same_however_it_is_asked_for() -> None:
    events = [event("mistake", [given("amp")]), event("step", [given("amp", False)]), event("step", [given("adam")])]
    run = supposing(trace_of(*events)[1], frozenset({given("amp")}))
    taken = [("mistake", {("true", "amp"): True}), ("step", {("true", "amp"): True, ("true", "adam"): True})]
    assert [(e.kind, dict(e.path)) for e in run.events] == taken
    assert [e.kind for e in run.of("step", "mistake")] == ["mistake", "step"]
    assert run.of("step")[0] is run.events[1] is run.of("step", "mistake")[1]


def test_events_that_nobody_asks_for_are_not_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    missing = Extended.__missing__
    monkeypatch.setattr(Extended, "__missing__", lambda paths, path: asked.append(path) or missing(paths, path))
    events = [event("operation", [given("resume"), given(name)]) for name in NAMES]
    run = supposing(trace_of(event("mistake", []), *events)[1], frozenset({given("amp")}))
    assert [e.kind for e in run.of("mistake")] == ["mistake"]
    assert asked == [EMPTY]


def test_two_mistakes_of_one_program_are_supposed_together() -> None:
    """What happens in a program where `--amp` is off is worked out once, however many places ask for it."""
    trace, entry = trace_of(event("mistake", [given("amp")]), event("mistake", [given("amp")]))
    runs = []
    for mistake in entry.events:
        settled(trace, entry, mistake.path, lambda run: runs.append(run) or [])  # type: ignore[func-returns-value]
    assert len({id(run) for run in runs}) < len(runs)


@pytest.mark.parametrize("each", [False, True])
def test_what_chooses_the_precision_is_kept_as_its_definition_says(each: bool) -> None:
    numbers = random.Random(7)
    told = set()
    for _ in range(400):
        events = []
        for _ in range(numbers.randrange(1, 6)):
            literals = [given(name, numbers.random() < 0.5) for name in numbers.sample(NAMES, 2)]
            off = frozenset({given("workers", False)})
            value = alternatives([(frozenset({given("workers")}), Constant(1)), (off, Constant(numbers.randrange(1, 3)))])
            made = event(numbers.choice(["autocast entered", "scaler made"]), literals, given=value if numbers.random() < 0.5 else None)
            events.append(made._replace(place=Place("train.py", numbers.randrange(1, 3))))
        trace, entry = trace_of(*events)
        path, other = (frozenset(given(name, numbers.random() < 0.5) for name in numbers.sample(NAMES, 2)) for _ in range(2))
        choices = Choices.of(trace, entry)
        assert is_kept(choices, path, other, each) is defined(choices, path, other, each)
        told.add(is_kept(choices, path, other, each))
    assert told == {True, False}


def defined(choices: Choices, path: frozenset[Condition], other: frozenset[Condition], each: bool) -> bool:
    lost, new, there = set(), set(), set()
    for kind, place, where, values in (choice for some in choices.by_kind for choice in some):
        was, now = extend(where, path), extend(where, other)
        if now is not None and (was is None or not values or is_among(open_in(values, was), open_in(values, now))):
            there.add(kind)
            new |= {(kind, place)} if was is None else set()
        elif was is not None:
            lost.add((kind, place))
    return not lost - new if each else {kind for kind, _ in lost} <= there
