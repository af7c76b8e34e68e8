"""What rules ask of the training protocol: whether gradients were scaled at an event, and what follows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from mplint.program.conditions import Path, extend, none_of
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible, shown_symbol
from mplint.program.values import BFLOAT, Autocast, Class, Place, State, Unknown


class Scaled(NamedTuple):
    """Gradients that a scaler has multiplied: on which path, by which, where, and the optimizers unscaled since.

    `certain`: they are so on every path that leads to the event.
    """

    path: Path
    scaler: Hashable
    place: Place
    unscaled: tuple[str, ...]
    certain: bool


def left_open(trace: Trace, entry: Entry, step: Event) -> str:
    """When the scaler of a step is on that a function is given, as the file around says it where it makes one; "" where nothing does."""
    file = trace.file(step.place.path) if type(step.get("scaler")) is Unknown and not entry.script else None
    for call in file.syntax.all(ast.Call) if file is not None else ():
        name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
        given = next((keyword.value for keyword in call.keywords if keyword.arg == "enabled"), None)
        if name.endswith("GradScaler") and given is not None and not isinstance(given, ast.Constant):
            return f" when `{ast.unparse(given)}`"
    return ""


def scaled_at(event: Event) -> list[Scaled]:
    """The ways in which gradients are still multiplied at an event."""
    value = event.data.get("gradients")
    if value is None:
        return []
    ways = possible(value, event.path)  # type: ignore[arg-type]
    found = []
    for path, state in ways:
        if type(state) is State and isinstance(state.data, tuple) and state.data[0] == "scaled":
            _, scaler, place, unscaled = state.data
            found.append(Scaled(path, scaler, place, unscaled, len(ways) == 1))
    found = [way for way in found if not any(is_ghost_beside(way, other) for other in found)]
    return found if len(found) < len(ways) else [way._replace(certain=True) for way in found]


def is_ghost_beside(way: Scaled, other: Scaled) -> bool:
    """Whether nothing but lost conditions tells one way from another of the same gradients, in which they are unscaled."""
    same = way.scaler == other.scaler and way.place == other.place
    return same and set(way.unscaled) < set(other.unscaled) and extend(way.path, other.path) is not None


def kinds_at(event: Event) -> set[str]:
    """The kinds of gradients that there may be at an event."""
    value = event.data.get("gradients")
    states = possible(value, event.path) if value is not None else []  # type: ignore[arg-type]
    return {str(state.data[0]) for _, state in states if type(state) is State and isinstance(state.data, tuple)}


def following(entry: Entry, event: Event, path: Path) -> Iterator[tuple[Event, Path]]:
    """The events behind one that can happen on its path, each with the path that leads there."""
    start = next((n for n, other in enumerate(entry.events) if other is event), len(entry.events))
    for other in entry.events[start + 1 :]:
        both = extend(path, other.path)
        if both is not None:
            yield other, both


def next_scaler_step(entry: Entry, event: Event, path: Path) -> Event | None:
    """The scaler's step that uses the gradients of an event, before they are computed anew.

    Where they are zeroed under a condition of its own, like before `continue` where they are not finite, or before an attack, a step that
    still meets scaled ones is on the other way.
    """
    zeroed = False
    for other, _ in following(entry, event, path):
        if extend(path, other.path) is None:
            continue  # on the way on which they were zeroed
        if other.kind == "scaler step":
            return other if not zeroed or meets_the_same(event, other) else None
        if other.kind in ("optimizer step", "gradients zeroed") and other.path <= path | event.path:
            return None
        if other.kind == "backward" and zeroed:
            return None
        if other.kind == "gradients zeroed":
            asked = other.path - path - event.path
            around = extend(path, none_of([asked])) if asked else None
            path, zeroed = around or path, zeroed or around is None
    return None


def meets_the_same(event: Event, step: Event) -> bool:
    """Whether a step of the same function and round can take gradients as they were scaled for an event."""
    scaled = {(way.scaler, way.place) for way in scaled_at(event)}
    return (step.frame, step.loops) == (event.frame, event.loops) and any((w.scaler, w.place) in scaled for w in scaled_at(step))


def seen_from(event: Event, other: Event) -> Place:
    """The place of an event as the function of another one sees it: the call that leads there, where that is another function."""
    count = len(other.calls)
    if len(event.calls) > count and event.calls[:count] == other.calls:
        return event.calls[count]
    return event.place


def is_fallback(entry: Entry, event: Event, key: object) -> bool:
    """Whether an optimizer's step stands in the except-clause of a try that steps through the scaler."""
    return any(
        literal[0][0] == "place" and "try" in literal[0] and not literal[1] and (literal[0], True) in other.path
        for other in entry.of("scaler step")
        if other.data["key"] == key
        for literal in event.path
    )


def in_half(value: object, path: Path) -> list[tuple[Path, Autocast]]:
    """The autocast regions in half precision that a state stands for on a path."""
    found = []
    for both, atom in possible(value, path):  # type: ignore[arg-type]
        if type(atom) is Autocast and atom.dtype is not None:
            found.append((both, atom))
    return found


def replicas_in_float16(event: Event) -> list[tuple[Path, Autocast]]:
    """The bfloat16 regions around a DataParallel's replicas, which run in float16 there: they get no dtype."""
    cls = getattr(event.data["module"], "type", None)
    if type(cls) is Class and "autocast" in cls.ir_words:
        return []  # it enters autocast itself
    # the replicas enter the autocast of CUDA devices, and no other
    return [(path, r) for path, r in in_half(event.data["autocast"], event.path) if r.dtype == BFLOAT and r.device in ("cuda", "")]


TPU = re.compile(r"(?<![a-z])(?:tpus?|xla)(?![a-z])", re.I)


def is_for_a_tpu(path: Path) -> bool:
    """Whether a path is taken only on a TPU, where nothing is scaled."""
    return any(key[0] == "true" and sense and TPU.search(shown_symbol(key[1])) is not None for key, sense in path)


def states_of(value: object, path: Path) -> list[tuple[str, Place | None]]:
    """What a scaler knows of an optimizer on a path: "ready", "unscaled" or "stepped", and since where."""
    found = []
    for way, atom in possible(value, path):  # type: ignore[arg-type]
        if type(atom) is State and isinstance(atom.data, tuple) and not is_for_a_tpu(way):
            found.append((atom.data[0], atom.data[1]))
    return found


def is_entered(entry: Entry, region: Autocast) -> bool:
    """Whether the program itself enters a region, and no trainer around a model's steps."""
    return any(is_of(event, region) for event in entry.of("autocast entered"))


def is_of(event: Event, region: Autocast) -> bool:
    """Whether an event is the beginning or the end of a region."""
    return event.data["autocast"].chain[:1] == region.chain[:1]  # type: ignore[attr-defined, no-any-return]
