"""What was scaled and unscaled on the way from a tape's loss to an optimizer of Keras, across functions and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mplint.program.conditions import Path, extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, possible
from mplint.program.values import Atom, Constant, Object, Place, State, Tensor

BY_HAND = "by hand"
KERAS_2 = "get_scaled_loss"


class Misused(NamedTuple):
    """Something that happens to gradients as it should not: the event, the path, and the event that scaled the loss or took them."""

    event: Event
    path: Path
    cause: Event


def ways_of(event: Event) -> Sequence[tuple[Path, Tensor]]:
    """The gradients of an event, each with the path that it is there on."""
    ways = event.data["ways"]
    assert isinstance(ways, tuple)
    return [(path, gradient) for path, gradient in ways if extend(event.path, path) is not None]


def scaling_of(entry: Entry, gradient: Tensor) -> Event | None:
    """The event that scaled the loss which gradients are of, where one is in sight."""
    if gradient.scaled is None or gradient.scaled == BY_HAND:
        return None
    return next((event for event in entry.of("keras loss scaled") if key_of(event) == gradient.scaled), None)


def key_of(event: Event) -> object:
    """What stands for the optimizer of an event in the gradients that it scales."""
    optimizer = event.data["optimizer"]
    return optimizer.id if type(optimizer) is Object else optimizer


def before(entry: Entry, event: Event, kind: str, key: object) -> bool:
    """Whether something of a kind happens to what an optimizer scales before an event, on whatever path."""
    for other in entry.events:
        if other is event:
            return False
        if other.kind == kind and key_of(other) == key:
            return True
    return False


def taken_of(entry: Entry, gradient: Tensor, plain: bool = False) -> Event | None:
    """The event that took gradients of a loss which is known; `plain`: or of any."""
    if "of an unknown loss" in gradient.tags and not plain:
        return None
    return next((e for e in entry.of("tape gradients taken") if f"taken:{e.place.path}:{e.place.position}" in gradient.tags), None)


def taken_at(entry: Entry, misused: Misused, plain: bool = False) -> list[Event]:
    """The events that took the gradients which something happens to, each place once."""
    found = {event.place: event for _, gradient in ways_of(misused.event) if (event := taken_of(entry, gradient, plain)) is not None}
    return list(found.values())


def never_unscaled(entry: Entry) -> Iterator[Misused]:
    """Updates by gradients that `get_scaled_loss` scaled and nobody has unscaled."""
    for event in entry.of("gradients applied"):
        ways = ways_of(event)
        if any("unscaled" in gradient.tags for _, gradient in ways):
            continue  # under a condition, which may be that of the scaling in other words
        for path, gradient in ways:
            scaled = scaling_of(entry, gradient)
            if scaled is None or before(entry, event, "keras gradients unscaled", gradient.scaled):
                continue
            if scaled.data["how"] != KERAS_2 or scaled.data["tape"] == State(None):
                continue
            yield Misused(event, extend(event.path, path) or event.path, scaled)
            break


def never_scaled(entry: Entry) -> Iterator[Misused]:
    """Gradients that are unscaled, of losses that nobody has scaled on any way, nor asked the same optimizer to scale."""
    asked = {(key_of(event), event.frame) for event in entry.of("keras loss scaled")}
    for event in entry.of("keras gradients unscaled"):
        if (key_of(event), event.frame) in asked:
            continue
        ways = ways_of(event)
        taken = [taken_of(entry, gradient) for _, gradient in ways]
        plain = all(gradient.scaled is None and "unscaled" not in gradient.tags for _, gradient in ways)
        if ways and plain and taken[0] is not None and all(taken) and not before(entry, event, "keras loss scaled", key_of(event)):
            yield Misused(event, event.path, taken[0])


def scaled_too_late(entry: Entry) -> Iterator[Misused]:
    """Losses that are scaled where no tape records it, and of which a tape is then asked for gradients."""
    recorded = {event.place for event in entry.of("keras loss scaled") if event.data["tape"] != State(None)}
    last: dict[object, Event] = {}  # what an optimizer has scaled last
    told: set[Place] = set()
    for other in entry.of("keras loss scaled", "tape gradients taken"):
        if other.kind == "keras loss scaled":
            last[key_of(other)] = other
            continue
        if not other.data["tape"]:
            continue  # the torch backend records everything
        for path, loss in ways_of(other):
            event = last.get(loss.scaled)
            if event is None or event.place in recorded | told or not really_scales(event):
                continue
            if other.function == event.function and other.calls == event.calls:
                told.add(event.place)
                yield Misused(event, extend(event.path, path) or event.path, other)


def really_scales(event: Event) -> bool:
    """Whether a call multiplies the loss: `scale_loss` of a plain optimizer gives it back as it is."""
    optimizer = event.data["optimizer"]
    return event.data["how"] == KERAS_2 or (type(optimizer) is Object and optimizer.kind == "loss scale optimizer")


def changed_scaled(entry: Entry) -> Iterator[tuple[Misused, Event]]:
    """Changes of gradients that are still scaled, by a threshold (or an amount) that is not, and what unscales them later."""
    for event in entry.of("keras gradients clipped", "keras gradients changed"):
        if event.kind == "keras gradients clipped" and not isinstance(event.data["threshold"], Constant):
            continue
        ways = ways_of(event)
        if any("unscaled" in gradient.tags for _, gradient in ways):
            continue
        for path, gradient in ways:
            scaled = scaling_of(entry, gradient)
            if scaled is None or not really_scales(scaled) or before(entry, event, "keras gradients unscaled", gradient.scaled):
                continue
            later = next((e for e in following(entry, event) if e.kind in ENDS and same_gradients(e, gradient)), None)
            if later is not None and (later.kind == ENDS[0] or scaled.data["how"] != KERAS_2):
                yield Misused(event, extend(event.path, path) or event.path, scaled), later
                break


ENDS = ("keras gradients unscaled", "gradients applied")


def following(entry: Entry, event: Event) -> Sequence[Event]:
    """What happens after an event in its entry."""
    return entry.events[next(n for n, other in enumerate(entry.events) if other is event) + 1 :]


def divided_by_hand(entry: Entry) -> Iterator[tuple[Event, Event]]:
    """Divisions of gradients by the scale of an optimizer that divides by it as well (Keras 3), and where it applies them."""
    for event in entry.of("keras gradients divided"):
        for later in following(entry, event):
            if later.kind != ENDS[1]:
                continue
            wrapped = any(is_wrapped(o) for _, o in possible(later.data["optimizer"], later.path))  # type: ignore[arg-type]
            applied = frozenset().union(*(taken_tags(gradient) for _, gradient in ways_of(later)))
            if wrapped and any(taken_tags(gradient) & applied for _, gradient in ways_of(event)):
                yield event, later
                break


def is_wrapped(optimizer: Atom) -> bool:
    """Whether an optimizer scales the loss."""
    return type(optimizer) is Object and optimizer.kind == "loss scale optimizer"


def taken_tags(gradient: Tensor) -> frozenset[str]:
    """The tags that tell where gradients were taken."""
    return frozenset(tag for tag in gradient.tags if tag.startswith("taken:"))


def same_gradients(event: Event, gradient: Tensor) -> bool:
    """Whether an event is about gradients that the same call has taken."""
    return any(taken_tags(gradient) & other.tags and other.scaled == gradient.scaled for _, other in ways_of(event))


def divided_unscaled(entry: Entry, plain: bool, mixed: bool) -> Iterator[Misused]:
    """Updates through an optimizer that divides by its loss scale (Keras 3), by gradients of a loss that nobody has scaled on any way.

    `plain`: what nobody knows of a loss is no scale. `mixed`: a policy of mixed_float16 that other programs set is in force.
    """
    for event in entry.of("gradients applied"):
        ways = ways_of(event)
        seen = plain or any(other.frame == event.frame for other in entry.of("keras loss scaled"))  # this function scales in plain sight
        taken = [taken_of(entry, gradient, seen) for _, gradient in ways]
        unscaled = all(gradient.scaled is None and "unscaled" not in gradient.tags for _, gradient in ways)
        if not ways or not unscaled or taken[0] is None or not all(taken):
            continue
        for path, optimizer in possible(event.data["optimizer"], event.path):  # type: ignore[arg-type]
            if type(optimizer) is not Object or before(entry, event, "keras loss scaled", optimizer.id):
                continue
            if divides(event, optimizer, mixed):
                yield Misused(event, path, taken[0])
                break


def divides(applied: Event, optimizer: Object, mixed: bool) -> bool:
    """Whether an optimizer divides the gradients by a loss scale: a LossScaleOptimizer, or one with a fixed scale."""
    if optimizer.kind == "loss scale optimizer":
        return True
    return (mixed and optimizer.type == "compile") or applied.data["factor"] is not None


def made_at(misused: Misused) -> Place | None:
    """Where the optimizer of an update was wrapped, or got its scale."""
    for _, optimizer in possible(misused.event.data["optimizer"], misused.path):  # type: ignore[arg-type]
        if type(optimizer) is Object and optimizer.kind in ("loss scale optimizer", "keras optimizer"):
            return optimizer.made
    return None
