"""What rules ask of trainers: on which paths they compute in float16, and scale."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.configs.trainers.duties import Kind
from mplint.configs.trainers.duties import trainer as trainer_kind
from mplint.frameworks.projects import graph_of
from mplint.frameworks.trainers.managed import HOSTED
from mplint.program.conditions import Path, extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace
from mplint.program.values import ANY, HALF, Constant, Object, Place, Unknown, Value, options

LIGHTNING = trainer_kind("lightning")
# DeepSpeed's engine, and the optimizers of its kind: they copy float16 parameters to float32 ones, and step those
KEEPERS = ("initialize", "FP16_Optimizer")


def keeps_masters(trainer: object) -> bool:
    """Whether a trainer keeps float32 copies of the parameters that it steps."""
    return type(trainer) is Object and str(trainer.type).rpartition(".")[2] in KEEPERS


def precision_of(trace: Trace, entry: Entry, trainer: object) -> Event | None:
    """What a trainer was made with: in the entry, or where a module that it imports made it."""
    wanted = trainer.id if type(trainer) is Object else trainer
    made = [*entry.of("trainer precision"), *(e for _, e in trace.of("trainer precision"))]
    return next((e for e in made if getattr(e.data["trainer"], "id", None) == wanted), None)


def precision_around(trace: Trace, kind: Kind, path: str) -> tuple[frozenset[str], Place | None]:
    """The dtypes of the trainers of a kind in programs that a file runs with, ANY where nothing is known, and where one is built."""
    graph = graph_of(trace)
    around = graph.above([path]) | {path}
    found: dict[str, Place] = {}
    for _, event in trace.of("trainer precision"):
        if event.data["title"] == kind.title and event.place.path in around:
            letters = [letter for _, letter in event.data["dtypes"]]  # type: ignore[attr-defined]
            for letter in letters or [ANY]:
                found.setdefault(letter, event.place)
    return frozenset(found) or frozenset({ANY}), min(found.values(), default=None)


def runners_of(trace: Trace, entry: Entry, trainer: object) -> list[Event]:
    """The trainers in programs that come to an entry's module, one of which runs what its steps do by hand."""
    wanted = trainer.id if type(trainer) is Object else trainer
    if not isinstance(wanted, tuple) or wanted[:1] != (HOSTED,):
        return []
    around = graph_of(trace).above([entry.path]) | {entry.path}
    train = {event.data["trainer"] for _, event in trace.of("trainer run")}
    made = (event for _, event in trace.of("trainer precision"))
    found = [event for event in made if event.data["title"] == LIGHTNING.title and event.place.path in around]
    return [event for event in found if event.data["trainer"] in train] or found


def in_float16(trace: Trace, entry: Entry, trainer: object, path: Path) -> tuple[Event, Path] | None:
    """How a trainer was made, and the path on which it then scales for float16; None where it can't, or nobody in the project says so.

    A project that enters the trainer's own autocast means it to be run in half precision, by whatever its launcher is configured for.
    """
    own = precision_of(trace, entry, trainer)
    entered = {key for event in entry.of("autocast entered") for key, _ in event.path}
    for made in [own] if own is not None else runners_of(trace, entry, trainer):
        base = extend(path, made.path) if made.data["scales"] else None
        for guards, letter in made.data["dtypes"] if base is not None else ():  # type: ignore[attr-defined]
            both = extend(base, guards) if base is not None and letter == HALF else None
            if both is not None and all(is_set(trace, key) or key in entered for key, _ in guards):
                return made, both
    return None


def scaled_by_apex(entry: Entry, path: Path) -> Iterator[tuple[Event, Path]]:
    """Where apex has taken over models and optimizers whose losses it is to scale, with the path on which it has."""
    for event in entry.of("apex initialized"):
        both = extend(path, event.path)
        if both is not None:
            yield event, both


def with_level(trace: Trace, given: Value | None, path: Path, level: str) -> Path | None:
    """The path on which apex is given a level, O1 where it is given none: None where it is another one."""
    for guards, atom in options(Constant("O1") if given is None else given):
        both = extend(path, guards)
        if both is None:
            continue
        if type(atom) is Constant and atom.value == level:
            return both
        switch = trace.switches.get(atom.symbol) if type(atom) is Unknown else None
        if type(atom) is Unknown and (switch is None or not switch.choices or level in switch.choices):
            asked = extend(both, [(("in", atom.symbol, frozenset({level})), True)])
            if asked is not None:
                return asked
    return None


def is_set(trace: Trace, key: tuple[object, ...]) -> bool:
    """Whether a condition is on something that this project sets, and not on accelerate's own configuration."""
    return key[0] in ("true", "in") and not str(key[1]).startswith("mixed_precision\0accelerate:")
