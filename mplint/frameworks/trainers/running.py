"""The training that a trainer drives: it runs the steps of its model, or the model and then the loss, in its region, on unknown batches."""

from __future__ import annotations

from mplint.configs.trainers.duties import Given, Kind
from mplint.frameworks.trainers.managed import region_of
from mplint.program.machine import IDENTITY, STATE, Args, Machine
from mplint.program.values import NONE, Class, Object, Place, Unknown, Value, atoms

HELD = "#runs "  # begins the slots of a trainer that hold what it runs
HOSTS = "#host"  # the slot of a module that holds the trainer which runs it


def keep(m: Machine, trainer: Object, kind: Kind, args: Args) -> None:
    """Keep the model and the loss that a trainer is made with."""
    for role, given in (("model", kind.model), ("loss", kind.loss)):
        value = taken(args, given)
        if value is not None:
            m.write(trainer.id, HELD + role, value)


def taken(args: Args, given: Given | None) -> Value | None:
    """The argument of a call that is described by its name and its place."""
    return args.get(given.place, given.name) if given is not None else None


def train(m: Machine, trainer: Object, kind: Kind, args: Args, place: Place) -> None:
    """Run what a trainer runs when it is told to train, once."""
    model = taken(args, kind.model) if kind.steps else m.read(trainer.id, HELD + "model")
    if model is None or model == NONE:
        return
    loss = m.read(trainer.id, HELD + "loss")
    for atom in atoms(model):
        if type(atom) is Object:
            m.write(atom.id, HOSTS, trainer)

    def body() -> bool:
        if kind.steps:
            for step in kind.steps:
                m.call_method(model, step, Args(opaque=True), place.position, place.position)
        else:
            result = m.call(model, Args(opaque=True), place.position)
            if loss is not None and loss != NONE:
                target = Unknown(f"target{IDENTITY}{place.path}:{place.position}")
                given = trainer.made if trainer.made is not None and trainer.made.path == place.path else place
                m.call(loss, Args((result, target)), given.position)
        return True

    m.scoped((STATE, "autocast"), region_of(m, trainer, place), body)


def host_of(m: Machine, module: Object) -> Object | None:
    """The trainer that runs a module, where the program has been seen to tell it so."""
    held = m.read(module.id, HOSTS) if type(module.type) is Class else None
    return next((atom for atom in atoms(held) if type(atom) is Object), None) if held is not None else None
