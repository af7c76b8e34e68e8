"""Autocast regions and scalers of the program's own inside a trainer: what MP109 says of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from mplint.configs.trainers.duties import Kind, kinds, trainer
from mplint.findings import Applicability, Fix, Severity, UnwrapBlock
from mplint.frameworks.trainers.hosted import STEPS
from mplint.frameworks.trainers.queries import precision_around, precision_of
from mplint.program.conditions import extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import ANY, BFLOAT, DTYPE_NAMES, HALF, TRUE, Autocast, Object, Place, Step, Tensor


class Own(NamedTuple):
    """Something of the program's own that a trainer brings: what to say of it."""

    place: Place
    message: str
    why: str
    help: str
    steps: tuple[Step, ...] = ()
    fix: Fix | None = None
    severity: Severity | None = None
    sure: bool = True


def regions(trace: Trace) -> Iterator[Own]:
    """The regions that stand in a trainer's own, then the scalers and scalings that it knows nothing of."""
    for entry in trace.entries:
        for inside in entry.of("inside a trainer"):
            kind, event = trainer(str(inside.data["trainer"])), inside.data["event"]
            assert isinstance(event, Event)
            if event.kind == "autocast entered" or not inside.data["by_hand"]:
                yield from of_hosted(trace, kind, event, inside)
        yield from in_loops(trace, entry)


def of_hosted(trace: Trace, kind: Kind, event: Event, inside: Event) -> Iterator[Own]:
    """What code that a trainer runs brings along, on every way."""
    if event.path:
        return
    outer, built = precision_around(trace, kind, event.place.path)
    by_hand = bool(inside.data["by_hand"])
    does = kind.by_hand if kind.by_hand is not None and by_hand else kind.does
    running = STEPS.intersection(inside.data["functions"])  # type: ignore[arg-type]
    if event.kind == "autocast entered" and running and "autocast" in does:
        region = event.data["autocast"]
        if type(region) is Autocast and region.dtype in (HALF, BFLOAT):
            own = of_region(trace, event.place, region.dtype, kind.title, outer, built, by_hand)
            if own is not None:
                yield own
    elif event.kind == "scaler made" and kind.key == "lightning" and event.data["enabled"] == TRUE:
        if not scales(trace, event.data["scaler"]):
            yield of_scaler(event.place, kind.title)
    elif event.kind == "loss scaled" and running and "scale" in does and ANY in outer and built is not None:
        yield of_scaler(event.place, kind.title, (Step(built, f"{kind.title} is built here"),), sure=False)


def scales(trace: Trace, scaler: object) -> bool:
    """Whether code that a trainer runs scales a loss by the scaler that is made there: that is said of the scaling."""
    inside = [i.data["event"] for _, i in trace.of("inside a trainer")]
    scaled = [e.data["scaler"] for e in inside if isinstance(e, Event) and e.kind == "loss scaled"]
    return any(type(o) is Object and type(scaler) is Object and o.made == scaler.made for o in scaled)


def in_loops(trace: Trace, entry: Entry) -> Iterator[Own]:
    """Losses that are computed in a region of the program's own and handed to a trainer in whose region the model already runs."""
    for event in entry.of("trainer backward"):
        made = precision_of(trace, entry, event.data["trainer"])
        kind = next((k for k in kinds() if made is not None and k.title == made.data["title"]), None)
        loss, holder = event.data["loss"], event.data["trainer"]
        if made is None or kind is None or "autocast" not in kind.does or loss is None or type(holder) is not Object:
            continue
        computed = frozenset().union(*(atom.forward for _, atom in possible(loss, event.path) if type(atom) is Tensor))  # type: ignore[arg-type]
        before = [e for e in entered_before(entry, event) if e.frame == event.frame]
        region = before[-1] if before else None
        autocast = region.data["autocast"] if region is not None else None
        if region is None or region.path or type(autocast) is not Autocast or autocast.identity == holder.id:
            continue
        if autocast.dtype in (HALF, BFLOAT) and autocast.dtype in computed:
            outer = frozenset(letter for guards, letter in made.data["dtypes"] if extend(event.path, guards) is not None)  # type: ignore
            own = of_region(trace, region.place, autocast.dtype, kind.title, outer, made.place, False)
            if own is not None:
                yield own


def entered_before(entry: Entry, event: Event) -> list[Event]:
    """The regions that were entered before an event."""
    found: list[Event] = []
    for other in entry.of("autocast entered", event.kind):
        if other is event:
            break
        if other.kind == "autocast entered":
            found.append(other)
    return found


def of_region(trace: Trace, place: Place, letter: str, title: str, outer: frozenset[str], built: Place | None, by_hand: bool) -> Own | None:
    """What a region does inside that of a trainer; None where that is not known to matter."""
    one = next(iter(outer)) if len(outer) == 1 else ANY
    around = DTYPE_NAMES[one] if one in (HALF, BFLOAT) else ""
    ours = DTYPE_NAMES[letter]
    if not around and (letter != HALF or by_hand):
        return None
    steps = (Step(built, f"{title} gets its precision here"),) if built is not None else ()
    if around == ours:
        return Own(
            place,
            f"{title} runs this under {ours} autocast already",
            "The inner region casts nothing anew, and its cache of cast weights is a second one.",
            f"Take it out and leave the precision to {title}.",
            steps,
            unwrapped(trace, place),
            Severity.WARNING,
        )
    said = f"its own precision is {around}" if around else "it scales the loss only where its own precision is float16"
    return Own(
        place,
        f"{ours} autocast inside {title}, which brings its own",
        f"The inner dtype wins, and {title} knows nothing of it: {said}, so float16 gradients may underflow unscaled."
        if letter == HALF
        else f"The inner dtype wins over {around}, and the loss is scaled for float16 that is not there.",
        f"Take the region out and set the precision of {title}.",
        steps,
        sure=bool(around),
    )


def unwrapped(trace: Trace, place: Place) -> Fix | None:
    """Take the region out that is entered at a place."""
    found = trace.node(place)
    statement = found[0].syntax.statement(found[1]) if found is not None else None
    if found is None or not isinstance(statement, ast.With) or len(statement.items) != 1:
        return None
    return Fix("take the region out", Applicability.SAFE, (UnwrapBlock(found[0].span(statement)),))


def of_scaler(place: Place, title: str, steps: tuple[Step, ...] = (), *, sure: bool = True) -> Own:
    """What a scaler of the program's own does inside a trainer."""
    return Own(
        place,
        f"a GradScaler of the program's own inside {title}, which brings one",
        f"{title} runs backward, clips and steps by itself: it never divides by this scale, which starts at 65536.",
        f"Leave the scaler out and set the precision of {title}.",
        steps,
        sure=sure,
    )
