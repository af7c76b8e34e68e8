"""Steps of training that a class puts in the place of its base's, without the region that the base enters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from mplint.frameworks.torch.half import Numbers
from mplint.program.conditions import extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace
from mplint.program.values import Autocast, Place, options

HELD = "steps in regions"


class Step(NamedTuple):
    """A model that is called for a loss: the scaler and the place where the loss is scaled, the call, and the region around it."""

    scaler: Place
    scaled: Place
    called: Event
    region: Autocast


class Replaced(NamedTuple):
    """A model's call outside of every region, in a method that stands for one which calls it inside; and where that region is."""

    called: Event
    scaled: Event
    region: Place


def replaced(trace: Trace, entry: Entry, made: Event) -> Replaced | None:
    """The first call of a model without a region, for a loss that a scaler scales, whose caller calls another method with one elsewhere."""
    for scaling in entry.of("loss scaled"):
        called = called_before(entry, scaling) if scaling.data["scaler"] == made.data["scaler"] else []
        if not called or any(regions_of(event) for event in called) or has_forward(scaling):
            continue
        steps = [step for step in steps_in_regions(trace) if (step.scaler, step.scaled) == (made.place, scaling.place)]
        for event, step in product(called, steps):
            if stands_for(trace, event, step.called):
                return Replaced(event, scaling, step.region.chain[0].place if step.region.chain else step.called.place)
    return None


def steps_in_regions(trace: Trace) -> list[Step]:
    """The models that any entry calls inside a region for a loss that is scaled."""
    known = trace.held.get(HELD)
    if not isinstance(known, list):
        known = trace.held[HELD] = [step for entry in trace.entries for step in steps_of(entry)]
    return known


def steps_of(entry: Entry) -> Iterator[Step]:
    """Those of an entry."""
    scalers = {repr(made.data["scaler"]): made.place for made in entry.of("scaler made")}
    for scaling in entry.of("loss scaled") if scalers else ():
        scaler = scalers.get(repr(scaling.data["scaler"]))
        for called in called_before(entry, scaling) if scaler is not None else ():
            region = next((state for state in regions_of(called) if state.dtype is not None), None)
            if region is not None and scaler is not None:
                yield Step(scaler, scaling.place, called, region)


def called_before(entry: Entry, scaling: Event) -> list[Event]:
    """The models that are called for a loss: since the backward before it, which the other arm of a test is not."""
    found: list[Event] = []
    for event in entry.events:
        if event is scaling:
            break
        if extend(event.path, scaling.path) is None:
            continue
        if event.kind in ("backward", "scaler step", "optimizer step"):
            found.clear()
        elif event.kind == "model called":
            found.append(event)
    return found


def regions_of(called: Event) -> list[Autocast]:
    """The regions, on or off, that a model may be called in."""
    states = [atom for _, atom in options(called.data["autocast"])]  # type: ignore[arg-type]
    return [atom for atom in states if type(atom) is Autocast and (atom.dtype is not None or atom.identity is not None)]


def has_forward(scaling: Event) -> bool:
    """Whether a region has computed what is scaled."""
    return any(getattr(atom, "forward", None) for _, atom in options(scaling.data["loss"]))  # type: ignore[arg-type]


def stands_for(trace: Trace, called: Event, other: Event) -> bool:
    """Whether a model is called in a method that replaces another one, to which the same call leads, and no region is there."""
    if called.function != other.function or not called.calls or called.calls[-1:] != other.calls[-1:]:
        return False
    if not inherits(called, other):
        return False
    one, two = trace.node(called.place), trace.node(other.place)
    if one is None or two is None or Numbers(trace).in_region(called.place):
        return False
    return one[0].syntax.function(one[1]) is not two[0].syntax.function(two[1])


def inherits(called: Event, other: Event) -> bool:
    """Whether the class whose method calls a model derives from the one whose method calls another."""
    own, base = called.data["classes"], other.data["classes"]
    assert isinstance(own, tuple) and isinstance(base, tuple)
    return bool(base) and base[0] in own[1:]
