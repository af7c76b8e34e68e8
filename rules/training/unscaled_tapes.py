"""Gradients of a float16 forward that reach an optimizer of Keras or TensorFlow, and that nothing has scaled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mplint.frameworks.keras import steps as keras_steps
from mplint.frameworks.keras.evidence import shared
from mplint.frameworks.keras.policies import policy_name
from mplint.frameworks.keras.versions import loop_major
from mplint.program.conditions import Path, extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import HALF, Chain, Object, Place, State, Step, Tensor

MIXED = "mixed_float16"
WRAPPED, PLAIN = "loss scale optimizer", "keras optimizer"


class Unscaled(NamedTuple):
    """Gradients that nothing scales: where they are taken and applied, the path, the optimizer, and what set the policy."""

    taken: Event
    applied: Event
    path: Path
    optimizer: Object
    setter: Place | None

    @property
    def wrapped(self) -> bool:
        """Whether the optimizer would scale, if it were asked to."""
        return self.optimizer.kind == WRAPPED

    @property
    def steps(self) -> Chain:
        """The places that make it so."""
        found: Chain = (Step(self.setter, "layers compute in float16 from here on"),) if self.setter is not None else ()
        if self.optimizer.made is not None and not self.wrapped:
            found = (*found, Step(self.optimizer.made, "the optimizer is made here, without a loss scale"))
        elif self.optimizer.made is not None and self.optimizer.type != "compile":
            found = (*found, Step(self.optimizer.made, "the optimizer becomes a LossScaleOptimizer here"))
        return (*found, Step(self.applied.place, "its gradients are applied here")) if self.applied is not self.taken else found


def unscaled_tapes(trace: Trace, entry: Entry) -> list[Unscaled]:
    """Each place at which such gradients are taken, once."""
    found: dict[Place, Unscaled] = {}
    for applied, taken, gradient in updates(entry):
        if taken.place in found or not is_plain(taken, gradient):
            continue
        case = next(cases(trace, entry, taken, applied), None)
        if case is not None:
            found[taken.place] = case
    return list(found.values())


def updates(entry: Entry) -> Iterator[tuple[Event, Event, Tensor | None]]:
    """What an optimizer applies: that event, the one that took the gradients, and they; `minimize` takes them itself."""
    taken: dict[str, list[Event]] = {}
    for event in entry.of("tape gradients taken"):
        taken.setdefault(f"taken:{event.place.path}:{event.place.position}", []).append(event)
    for applied in entry.of("gradients applied", "minimized"):
        if applied.kind == "minimized":
            yield applied, applied, None
            continue
        for _, gradient in keras_steps.ways_of(applied):
            sources = next((taken[tag] for tag in sorted(gradient.tags) if tag in taken), None)
            if sources is not None:
                yield applied, nearest(sources, applied), gradient


def nearest(events: list[Event], other: Event) -> Event:
    """Of several events the one that shares most calls with another."""
    return max(events, key=lambda event: shared(event.calls, other.calls))


def is_plain(taken: Event, gradient: Tensor | None) -> bool:
    """Whether gradients, and the loss that they are of, were never scaled."""
    if any(loss.scaled is not None for _, loss in keras_steps.ways_of(taken)):
        return False
    return gradient is None or (gradient.scaled is None and "unscaled" not in gradient.tags)


def cases(trace: Trace, entry: Entry, taken: Event, applied: Event) -> Iterator[Unscaled]:
    """The ways on which the forward computes in float16 and the optimizer scales nothing."""
    for path, setter in half_ways(entry, taken):
        shared = extend(applied.path, path)
        if shared is None:
            continue
        for way, optimizer in possible(applied.data["optimizer"], shared):  # type: ignore[arg-type]
            if type(optimizer) is Object and scales_nothing(trace, entry, taken, applied, optimizer):
                yield Unscaled(taken, applied, way, optimizer, setter)


def half_ways(entry: Entry, taken: Event) -> Iterator[tuple[Path, Place | None]]:
    """The paths on which layers computed a loss in float16, each with where the policy was set, if it was."""
    unknown = True
    for path, loss in keras_steps.ways_of(taken):
        if loss.forward:
            unknown = False
            both = extend(taken.path, path)
            if HALF in loss.forward and both is not None:
                in_force = next(mixed_ways(taken.data["policy"], both), None)
                setter = setter_before(entry, taken, both)
                if in_force is not None or setter is not None or setter_before(entry, taken, frozenset()) is None:
                    yield in_force or (both, setter)  # else it is float16 on other ways alone
    if unknown:
        yield from mixed_ways(taken.data["policy"], taken.path)


def mixed_ways(policy: object, path: Path) -> Iterator[tuple[Path, Place | None]]:
    """The ways on which a policy is mixed_float16, each with where it was set."""
    for both, atom in possible(policy, path):  # type: ignore[arg-type]
        if type(atom) is State and policy_name(atom) == MIXED:
            yield both, atom.data[1]  # type: ignore[index]


def setter_before(entry: Entry, event: Event, path: Path) -> Place | None:
    """Where a mixed_float16 policy was set last before an event, on its path."""
    found = None
    for other in entry.events:
        if other is event:
            break
        for both, _ in mixed_ways(other.data["policy"], path) if other.kind == "policy set" else ():
            found = other.place if extend(other.path, both) is not None else found
    return found


def scales_nothing(trace: Trace, entry: Entry, taken: Event, applied: Event, optimizer: Object) -> bool:
    """Whether an optimizer leaves it to the loop to scale the loss."""
    if optimizer.kind == PLAIN:
        return applied.data["factor"] is None and isinstance(optimizer.type, str) and optimizer.type != "compile"
    if optimizer.kind != WRAPPED or applied is taken or is_keras3(trace, taken.place):  # there it divides, which is another mistake
        return False
    return optimizer.type == "compile" or not any(keras_steps.key_of(e) == optimizer.id for e in entry.of("keras loss scaled"))


def is_keras3(trace: Trace, place: Place) -> bool:
    """Whether a file is written for Keras 3, as what it imports or calls tells."""
    file = trace.file(place.path)
    major = loop_major(file, trace.targets(place.path)) if file is not None else None
    if major is not None:
        return major == 3
    text = trace.source(place.path).text
    return any(f"\n{start}" in f"\n{text}" for start in ("import keras\n", "from keras ", "from keras."))
