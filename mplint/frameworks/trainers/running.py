"""The training that a trainer drives: it runs the steps of its model, or the model and then the loss, in its region, on unknown batches.

Event: "trainer run", where a program tells a trainer to train.
"""

from __future__ import annotations

from functools import partial

from mplint.configs.trainers.duties import Given, Kind
from mplint.frameworks.trainers.managed import region_of
from mplint.program.machine import IDENTITY, STATE, Args, Machine
from mplint.program.values import NONE, Atom, Autocast, Class, Object, Place, Unknown, Value, atoms, options

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
    """Run what a trainer runs when it is told to train, once in each half region that it may enter."""
    model = taken(args, kind.model) if kind.steps else m.read(trainer.id, HELD + "model")
    if model is None or model == NONE:
        return
    loss = m.read(trainer.id, HELD + "loss")
    m.emit("trainer run", place, trainer=trainer)
    for atom in atoms(model):
        if type(atom) is Object:
            m.write(atom.id, HOSTS, trainer)

    def within(region: Atom) -> tuple[bool, Value]:
        if type(region) is Autocast and region.dtype is not None:
            m.scoped((STATE, "autocast"), region, partial(run_once, m, trainer, kind, model, loss, place))
        return True, NONE

    m.fork([(guards, partial(within, region)) for guards, region in options(region_of(m, trainer, place))])


def run_once(m: Machine, trainer: Object, kind: Kind, model: Value, loss: Value | None, place: Place) -> bool:
    """Run a model's steps, or the model and the loss, on a batch."""
    for step in kind.steps:
        m.call_method(model, step, Args(opaque=True), place.position, place.position)
    if not kind.steps:
        result = m.call(model, Args(opaque=True), place.position)
        if loss is not None and loss != NONE:
            target = Unknown(f"target{IDENTITY}{place.path}:{place.position}")
            given = trainer.made if trainer.made is not None and trainer.made.path == place.path else place
            m.call(loss, Args((result, target)), given.position)
    return True


def host_of(m: Machine, module: Object) -> Object | None:
    """The trainer that runs a module, where the program has been seen to tell it so."""
    held = m.read(module.id, HOSTS) if type(module.type) is Class else None
    return next((atom for atom in atoms(held) if type(atom) is Object), None) if held is not None else None
