"""Gradients of a tape under a mixed_float16 policy that reach an optimizer which scales nothing."""

from __future__ import annotations

from mplint.frameworks.keras.versions import loop_major
from mplint.program.conditions import Path
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import HALF, Chain, Object, Place, State, Step, Tensor


def unscaled_tapes(trace: Trace, entry: Entry) -> list[tuple[Event, Path, Chain]]:
    """Where gradients of a float16 forward are taken that nobody scales: the event, the path, and the places that make it so."""
    factors = {
        event.data["optimizer"].id  # type: ignore[attr-defined]
        for event in entry.of("keras optimizer made")
        if "loss_scale_factor" in event.data["args"].named  # type: ignore[attr-defined]
    }
    taken = {f"taken:{event.place.path}:{event.place.position}": event for event in entry.of("tape gradients taken")}
    found: dict[Place, tuple[Event, Path, Chain]] = {}
    for applied in entry.of("gradients applied"):
        ways = applied.data["ways"]
        assert isinstance(ways, tuple)
        for _, gradient in ways:
            source = next((taken[tag] for tag in sorted(gradient.tags) if tag in taken), None)
            if source is None or source.place in found or not is_plain(gradient) or source.data["scaled"]:
                continue
            case = half_case(trace, source, applied, factors)
            if case is not None:
                found[source.place] = (source, *case)
    return list(found.values())


def is_plain(gradient: Tensor) -> bool:
    """Whether gradients were never scaled."""
    return gradient.scaled is None and "unscaled" not in gradient.tags


def half_case(trace: Trace, source: Event, applied: Event, factors: set[object]) -> tuple[Path, Chain] | None:
    """The path on which a mixed_float16 policy is in force and the optimizer is one that scales nothing."""
    forward = source.data["forward"]
    if forward and HALF not in forward:  # type: ignore[operator]
        return None
    for path, policy in possible(source.data["policy"], applied.path):  # type: ignore[arg-type]
        if type(policy) is not State or not isinstance(policy.data, tuple) or policy.data[0] != "mixed_float16":
            continue
        for way, optimizer in possible(applied.data["optimizer"], path):  # type: ignore[arg-type]
            if type(optimizer) is not Object or optimizer.id in factors or not isinstance(optimizer.type, str):
                continue
            if optimizer.kind != "keras optimizer" and not (optimizer.type == "compile" and not is_keras3(trace, source.place)):
                continue
            if optimizer.type.endswith(("Lookahead", "MovingAverage", "SWA")):
                continue
            steps: Chain = ()
            if isinstance(policy.data[1], Place):
                steps = (Step(policy.data[1], "layers compute in float16 from here on"),)
            if optimizer.made is not None and optimizer.kind == "keras optimizer":
                steps = (*steps, Step(optimizer.made, "the optimizer is made here, without a loss scale"))
            return way, (*steps, Step(applied.place, "its gradients are applied here"))
    return None


def is_keras3(trace: Trace, place: Place) -> bool:
    """Whether a file is written for Keras 3, as what it imports or calls tells: there `compile()` divides (MP313)."""
    file = trace.file(place.path)
    major = loop_major(file, trace.targets(place.path)) if file is not None else None
    if major is not None:
        return major == 3
    text = trace.source(place.path).text
    return any(f"\n{start}" in f"\n{text}" for start in ("import keras\n", "from keras ", "from keras."))
