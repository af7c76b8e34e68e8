"""Training of float16 layers whose model has a policy of its own, so that `compile()` adds no loss scaling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mplint.frameworks.keras.policies import MAPPED, policy_name
from mplint.program.conditions import Path, extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible, tensors_of
from mplint.program.values import HALF, Chain, Constant, Object, Step
from mplint.python.document import is_test_path

MIXED = "mixed_float16"


class Training(NamedTuple):
    """A `compile` (or a `fit` of a model that nobody compiles in sight) of layers in float16 that adds no loss scaling.

    `call`: the event; `path`: its path; `steps`: what brings float16.
    """

    call: Event
    path: Path
    steps: Chain


def unscaled_training(trace: Trace, entry: Entry) -> Iterator[Training]:
    """The first such call of each program; tests mix such things on purpose."""
    if is_test_path(entry.path):
        return
    made = {event.data["model"].id: event for event in entry.of("model made")}  # type: ignore[attr-defined]
    compiled = entry.of("model compiled")
    for call in compiled or entry.of("model fit"):
        model, optimizer = call.data["model"], call.data["optimizer"]
        if type(model) is not Object or not is_plain(optimizer, call.path):
            continue
        for path, policy in possible(call.data["policy"], call.path):  # type: ignore[arg-type]
            name = policy_name(policy)
            steps = mapped(entry, path) if name == MAPPED else parts(made.get(model.id), entry, path) if name == "float32" else ()
            if steps:
                yield Training(call, path, steps)
                return


def is_plain(optimizer: object, path: Path) -> bool:
    """Whether an optimizer that `compile()` gets scales nothing, on every way."""
    found = [atom for _, atom in possible(optimizer, path)] if optimizer is not None else []  # type: ignore[arg-type]
    return all((type(a) is Constant) or (type(a) is Object and a.kind == "keras optimizer") for a in found)


def mapped(entry: Entry, path: Path) -> Chain:
    """A map of policies whose default computes in float16: its name is never mixed_float16."""
    for event in entry.of("policy map made"):
        for both, policy in possible(event.data["default"], path):  # type: ignore[arg-type]
            if policy_name(policy) == MIXED and extend(event.path, both) is not None:
                return (Step(event.place, "the model's policy is this map, which loss scaling does not look into"),)
    return ()


def parts(made: Event | None, entry: Entry, path: Path) -> Chain:
    """The first layer with a mixed_float16 policy of its own that computes what a float32 model gives."""
    if made is None or not any(HALF in tensor.forward for _, tensor in tensors_of(made.data["outputs"], path)):  # type: ignore[arg-type]
        return ()
    for event in entry.of("layer made"):
        for both, policy in possible(event.data["policy"], path) if event.data["dtype"] is not None else ():  # type: ignore[arg-type]
            if policy_name(policy) == MIXED and extend(event.path, both) is not None:
                return (Step(event.place, "this layer computes in float16 by its own `dtype`, and the model's policy stays float32"),)
    return ()
