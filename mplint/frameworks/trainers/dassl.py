"""Trainers of Dassl: models that they register with their optimizers, and what they step (read in dassl 0.6).

The precision is that of the models themselves: nothing is scaled, and no region is entered.
"""

from __future__ import annotations

from mplint.frameworks.torch.protocol import optimizer_made
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.calls import call_method
from mplint.program.expressions import external_bases
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.values import NONE, Atom, Class, Items, Object, Place, Unknown, Value

vocabulary = Vocabulary()
HOME = "dassl.engine."
STEPS = frozenset({"register_model", "model_zero_grad", "model_backward", "model_update", "model_backward_and_update"})


@vocabulary.call("dassl.optim.build_optimizer", "dassl.optim.optimizer.build_optimizer")
def build_optimizer(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`build_optimizer(model, cfg.OPTIM, param_groups)`: an optimizer of all parameters of a model, or of the groups."""
    groups, model = args.get(2, "param_groups"), args.get(0, "model")
    made = Object(("optimizer", m.identity(place)), "optimizer", name, place)
    given = groups if groups is not None and groups != NONE else model
    if given is model and type(model) is Object and model.kind != "list":
        given = call_method(m, model, "parameters", Args(), place.position, place.position)
    optimizer_made(m, made, name, Args((given,)) if given is not None else Args(), place)
    return made


def of_trainer(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """What a trainer does for its heirs: it keeps their optimizers, and steps all of them."""
    if name not in STEPS or type(atom) is not Object or not is_trainer(m, atom):
        return None
    held = m.read(atom.id, "#optimizers")
    optimizers = held.items if type(held) is Items else ()
    position = place.position
    if name == "register_model":
        optimizer = args.get(2, "optim")
        if optimizer is not None and optimizer not in (NONE, *optimizers):
            m.write(atom.id, "#optimizers", Items((*optimizers, optimizer)))
        return NONE
    if name in ("model_zero_grad", "model_backward_and_update"):
        for optimizer in optimizers:
            call_method(m, optimizer, "zero_grad", Args(), position, position)
    loss = args.get(0, "loss")
    if name in ("model_backward", "model_backward_and_update") and loss is not None:
        call_method(m, loss, "backward", Args(), position, position)
    if name in ("model_update", "model_backward_and_update"):
        for optimizer in optimizers:
            call_method(m, optimizer, "step", Args(), position, position)
    return NONE


vocabulary.atom_methods.append(of_trainer)


def is_trainer(m: Machine, atom: Object) -> bool:
    """Whether something is an instance of a project's class that extends one of the trainers."""
    return type(atom.type) is Class and any(base.startswith(HOME) for base in external_bases(m, atom.type))


def settings(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """`self.cfg`: the settings that a trainer is made with."""
    if name != "cfg" or type(atom) is not Object or not is_trainer(m, atom):
        return None
    return Unknown(f"cfg{IDENTITY}{HOME}")


vocabulary.atom_attributes.append(settings)
