"""Engines of ignite: the function that each calls for a batch, handlers, and checkpoints of states (read in pytorch-ignite 0.5).

The precision is the function's own; an engine enters no region and scales nothing.
"""

from __future__ import annotations

from mplint.frameworks.torch.checkpoints import save
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.calls import call_method
from mplint.program.expressions import entries_of
from mplint.program.machine import IDENTITY, Args, Machine, derived
from mplint.program.values import NONE, Entries, Items, Object, Place, Unknown, Value

vocabulary = Vocabulary()
ENGINE = "ignite engine"


@vocabulary.call("ignite.engine.Engine", "ignite.engine.engine.Engine")
def engine(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`Engine(step)`."""
    made = Object((ENGINE, m.identity(place)), ENGINE, name, place)
    m.write(made.id, "#step", args.get(0, "process_function") or NONE)
    m.write(made.id, "#handlers", Items(()))
    return made


@vocabulary.method(ENGINE)
def of_engine(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """What an engine does: it runs its function, then what was added to its events."""
    shown = f"engine.{name}(){IDENTITY}{place.path}:{place.position}"
    if name == "add_event_handler" and len(args.positional) > 1:
        added(m, receiver, args.positional[1], args.positional[2:])
    elif name == "run":
        batch = Unknown(f"batch{IDENTITY}{place.path}:{place.position}")
        step, handlers = m.read(receiver.id, "#step"), m.read(receiver.id, "#handlers")
        if step not in (None, NONE):
            m.write(receiver.id, "state", Unknown(shown))
            m.call(step, Args((receiver, batch)), place.position)
        for handler in handlers.items if type(handlers) is Items else ():
            if type(handler) is Items:
                m.call(handler.items[0], Args((receiver, *handler.items[1:])), place.position)
    elif name == "state_dict":
        made = Object(("state", receiver.id), "state_dict", "engine", place)
        m.write(made.id, "#of", receiver)
        return made
    return Unknown(shown)


def added(m: Machine, receiver: Object, handler: Value, more: tuple[Value, ...]) -> None:
    """Keep a handler with what else it is given."""
    held = m.read(receiver.id, "#handlers")
    if type(held) is Items:
        m.write(receiver.id, "#handlers", Items((*held.items, Items((handler, *more)))))


@vocabulary.call("ignite.handlers.Checkpoint", "ignite.handlers.checkpoint.Checkpoint")
def checkpoint(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`Checkpoint({"model": model, "optimizer": optimizer}, …)`: a handler that saves the states of these objects."""
    states = Object(("ignite states", m.identity(place)), "dict", "builtins.dict", place)
    unknown = Unknown(f"states{IDENTITY}{place.path}:{place.position}")
    held = entries_of(m, args.get(0, "to_save") or NONE) or Entries((), unknown)
    given = tuple((key, call_method(m, value, "state_dict", Args(), place.position, place.position)) for key, value in held.entries)
    m.write(states.id, "#entries", Entries(given, held.rest))
    save(m, states, args.get(1, "save_handler"), place)
    return Unknown(f"Checkpoint(){IDENTITY}{place.path}:{place.position}")


@vocabulary.call("ignite.handlers.Checkpoint.load_objects", "ignite.handlers.checkpoint.Checkpoint.load_objects")
def load_objects(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`Checkpoint.load_objects({"model": model, …}, checkpoint)`: each object takes its state."""
    held = entries_of(m, args.get(0, "to_load") or NONE) or Entries()
    state = args.get(1, "checkpoint") or NONE
    for key, value in held.entries:
        taken = derived(state, f"[{key!r}]") if type(state) is Unknown else state
        call_method(m, value, "load_state_dict", Args((taken,)), place.position, place.position)
    return NONE
