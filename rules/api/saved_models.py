"""Whole models that a program saves and loads: under which policy, and what trains the loaded ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mplint.frameworks.filepaths import ends_of
from mplint.program.conditions import Path
from mplint.program.machine import Args, Event
from mplint.program.trace import Entry, possible
from mplint.program.values import Constant, Object, State, Value

WHOLE = (".keras", ".h5", ".hdf5")
KEEPS = ".keras"  # the format that stores the inner optimizer only: the others keep the one that scales
TRAINING = ("model fit",)


class Save(NamedTuple):
    """A call that saves a whole model (its optimizer too), and the path as far as the program fixes it from its end."""

    event: Event
    file: str


class Load(NamedTuple):
    """A call that loads a whole model which is then trained.

    `policies`: the names of the global policies it may happen under. `training` is the first event that trains it; `compiled` the one
    that gives it an optimizer that scales no loss, None where the restored one goes on.
    """

    event: Event
    file: str
    policies: Sequence[str]
    training: Event
    compiled: Event | None


def saves(entry: Entry) -> Iterator[Save]:
    """Every place that saves whole models in a file whose name is known."""
    for event in entry.of("model saved"):
        flag, wanted = ("save_weights_only", False) if event.data["how"] == "ModelCheckpoint" else ("include_optimizer", True)
        if event.data["how"] not in ("save", "save_model", "ModelCheckpoint") or not is_constant(event, flag, wanted):
            continue
        for file in ends_of(event.data["file"], event.path):  # type: ignore[arg-type]
            if file.endswith(WHOLE):
                yield Save(event, file)


def loads(entry: Entry) -> Iterator[Load]:
    """Every loaded model that is trained without a loss scale of its own."""
    if entry.of("loss scale optimizer made"):
        return
    for event in entry.of("model loaded"):
        if not str(event.data["name"]).endswith(".load_model"):
            continue
        trained = about(entry, event, TRAINING)
        compiled = next(iter(about(entry, event, ("model compiled",))), None)
        for file in ends_of(event.data["file"], event.path)[:1] if trained else ():  # type: ignore[arg-type]
            if compiled is not None or (is_constant(event, "compile", True) and file.endswith(KEEPS)):
                yield Load(event, file, policy_names(event.data["policy"], event.path), trained[0], compiled)  # type: ignore[arg-type]


def about(entry: Entry, loaded: Event, kinds: tuple[str, ...]) -> list[Event]:
    """The events of some kinds that are about a loaded model."""
    model = loaded.data["model"]
    return [event for event in entry.of(*kinds) if type(model) is Object and event.data["model"] == model]


def is_constant(event: Event, argument: str, wanted: bool) -> bool:
    """Whether an argument is left out, or says what is wanted."""
    args = event.data["args"]
    given = args.named.get(argument) if isinstance(args, Args) else None
    return given is None or (type(given) is Constant and given.value is wanted)


def policy_names(policy: Value, path: Path) -> tuple[str, ...]:
    """The names of the policies that a value may be."""
    found = [atom.data[0] for _, atom in possible(policy, path) if type(atom) is State and isinstance(atom.data, tuple)]
    return tuple(dict.fromkeys(str(name) for name in found))
