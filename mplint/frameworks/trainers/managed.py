"""What a trainer manages: optimizers whose steps it unscales and skips by itself, and gradients that it has scaled.

A trainer is an object of the kind "trainer"; its slot "#precision" is what its user asked for. What it has prepared knows it by the slot
"#managed". Events: "trainer precision" (what a trainer computes in), "models prepared", "trainer backward", "trainer step", "trainer clip".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mplint.frameworks.torch.protocol import (
    dtype_of,
    is_named_scheduler,
    is_optimizer_name,
    key_of,
    map_value,
    of_optimizer,
    only_reads,
    optimizer_step,
    zero_grad,
)
from mplint.frameworks.trainers.weights import owner_of
from mplint.frameworks.vocabulary import Entered, Vocabulary
from mplint.precisions import dtypes
from mplint.program.conditions import Path
from mplint.program.expressions import bind, class_member
from mplint.program.machine import IDENTITY, Args, Event, Machine
from mplint.program.store import join
from mplint.program.values import (
    ANY,
    BFLOAT,
    HALF,
    NONE,
    SINGLE,
    Atom,
    Autocast,
    Class,
    Code,
    Constant,
    Context,
    DType,
    Function,
    Object,
    Place,
    State,
    Step,
    Unknown,
    Value,
    Wrapped,
    atoms,
    options,
)

vocabulary = Vocabulary()
COMPUTES = "the trainer computes in"  # the words of the region of a trainer, up to the dtype
HOSTED = "trainer of"  # begins the identity of the trainer that runs a module, whichever that is

LETTERS = {"float16": HALF, "bfloat16": BFLOAT, "float32": SINGLE}
# what a precision is called, and the dtype in which a trainer then computes
MODES: Mapping[str, str] = {word: LETTERS[dtype] for word, dtype in dtypes("mixed").items() if dtype in LETTERS}


def dtypes_of_precision(value: Value | None, half: tuple[object, ...], bfloat: tuple[object, ...]) -> list[tuple[Path, str]]:
    """The dtypes that a precision setting asks for, each with its conditions; `half` and `bfloat` are the words for them."""
    found: list[tuple[Path, str]] = []
    for guards, atom in options(value if value is not None else NONE):
        if type(atom) is Constant:
            found.append((guards, MODES.get(str(atom.value), ANY)))
        elif type(atom) is DType:
            found.append((guards, atom.letter))
        elif type(atom) is Unknown:
            for words, letter in ((half, HALF), (bfloat, BFLOAT)):
                found.append((guards | {(("in", atom.symbol, frozenset(words)), True)}, letter))
            found.append((guards | {(("in", atom.symbol, frozenset((*half, *bfloat))), False)}, SINGLE))
        else:
            found.append((guards, ANY))
    return found


def new_trainer(m: Machine, name: str, title: str, precision: Value | None, dtypes: list[tuple[Path, str]], place: Place) -> Object:
    """A trainer, and that it computes in a precision."""
    made = Object(("trainer", m.identity(place)), "trainer", name, place)
    m.write(made.id, "#precision", precision if precision is not None else NONE)
    m.write(made.id, "#title", Constant(title))
    m.write(made.id, "#dtypes", join((guards, DType(letter)) for guards, letter in dtypes) if dtypes else DType(SINGLE))
    m.emit("trainer precision", place, trainer=made, title=title, precision=precision, dtypes=tuple(dtypes), model=None, scales=True)
    return made


def region_of(m: Machine, trainer: Object, place: Place) -> Value:
    """The autocast region of a trainer."""
    held = m.read(trainer.id, "#dtypes")
    found: list[tuple[Path, Value]] = []
    for guards, letter in dtype_of(held):
        on = letter in (HALF, BFLOAT)
        step = Step(trainer.made or place, f"{COMPUTES} {'float16' if letter == HALF else 'bfloat16'}")
        found.append((guards, Autocast("cuda", letter if on else None, (step,) if on else (), True, trainer.id)))  # type: ignore[arg-type]
    return join(found)


def manage(m: Machine, trainer: Object, value: Value) -> None:
    """Mark what a trainer has prepared."""
    for atom in atoms(value):
        if type(atom) in (Object, Unknown) and getattr(atom, "kind", "") not in ("list", "dict"):
            m.write(owner_of(atom), "#managed", trainer)


def prepare(m: Machine, trainer: Object, given: Sequence[Value], place: Place) -> None:
    """What a trainer hands out again is managed by it: of models, only these compute in its precision."""
    for value in given:
        manage(m, trainer, value)
    m.emit("models prepared", place, trainer=trainer, prepared=tuple(given))


def manager_of(m: Machine, atom: Atom) -> Object | None:
    """The trainer that manages an optimizer or a model, or None."""
    if type(atom) not in (Object, Unknown):
        return None
    held = m.read(owner_of(atom), "#managed")
    return next((a for a in atoms(held) if type(a) is Object), None) if held is not None else None


@vocabulary.method("optimizer")
def of_managed(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """An optimizer's methods: those of a trainer's optimizer go by the trainer."""
    trainer = manager_of(m, receiver)
    if trainer is not None and name == "step":
        return trainer_step(m, trainer, receiver, place)
    return of_optimizer(m, receiver, name, args, place)


def managed_unknown(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """The same of values that nobody knows, and of project classes that extend an optimizer."""
    if name not in ("step", "zero_grad") or type(atom) not in (Unknown, Object):
        return None
    trainer = manager_of(m, atom)
    if trainer is None or (type(atom) is Unknown and any(map(is_named_scheduler, (atom.symbol.partition(IDENTITY)[0], m.written)))):
        return None
    return trainer_step(m, trainer, atom, place) if name == "step" else zero_grad(m, atom, place)


vocabulary.atom_methods.append(managed_unknown)


OWN_STEP = "own step of an optimizer"


def with_own_step(m: Machine, made: Object, bases: Sequence[str], args: Args, place: Place) -> None:
    """An instance of a project's optimizer: to call the step that its class writes is a step."""
    if type(made.type) is not Class or not any(is_optimizer_name(name) for name in bases):
        return
    member = class_member(m, made.type, "step")
    code = code_of(member[0]) if member is not None else None
    if member is None or code is None or ("step" in code.words and "super" not in code.words):
        return  # it steps the optimizer that it wraps
    m.write(made.id, "step", Wrapped(bind(m, member[0], made, made.type, member[1], place.position), Context(OWN_STEP, made)))


vocabulary.made.append(with_own_step)


def code_of(member: Value) -> Code | None:
    """The code of a method, behind what its decorators make of it."""
    while type(member) is Wrapped:
        member = member.callee
    return member.code if type(member) is Function else None


def steps_itself(m: Machine, atom: Atom, place: Place) -> Entered | None:
    """A project's optimizer takes a step, by itself or by its trainer."""
    if type(atom) is not Context or atom.kind != OWN_STEP or type(atom.value) is not Object:
        return None
    trainer = manager_of(m, atom.value)
    if trainer is not None:
        trainer_step(m, trainer, atom.value, place)
    elif not only_reads(m, atom.value):
        optimizer_step(m, atom.value, place)
    return NONE, None


vocabulary.contexts.append(steps_itself)


def trainer_step(m: Machine, trainer: Object, optimizer: Value, place: Place) -> Value:
    """A step that a trainer takes: it unscales, and skips the step where gradients are infinite."""
    m.emit("trainer step", place, trainer=trainer, optimizer=optimizer, key=key_of(optimizer), gradients=m.state("gradients"))
    return NONE


def trainer_backward(m: Machine, trainer: Object, loss: Value | None, place: Place) -> Value:
    """`trainer.backward(loss)`: the gradients are scaled where the trainer scales."""
    m.emit("trainer backward", place, trainer=trainer, loss=loss, gradients=m.state("gradients"), autocast=m.state("autocast"))
    m.set_state("gradients", State(("managed", trainer.id, place, ())))
    return NONE


def trainer_clip(m: Machine, trainer: Object, parameters: Value | None, threshold: Value | None, place: Place) -> Value:
    """`trainer.clip_grad_norm_(…)`: it unscales first."""
    m.emit("trainer clip", place, trainer=trainer, parameters=parameters, threshold=threshold, gradients=m.state("gradients"))
    trainer_unscale(m, trainer)
    return Unknown("gradient norm")


def trainer_unscale(m: Machine, trainer: Object) -> None:
    """The trainer has unscaled the gradients."""

    def one(atom: Atom) -> Value:
        if type(atom) is State and isinstance(atom.data, tuple) and atom.data[0] == "managed":
            return State((*atom.data[:3], ("all",)))
        return atom

    m.set_state("gradients", map_value(m.state("gradients"), one))


def scaler_stepped(m: Machine, event: Event) -> None:
    """A scaler of the program's own steps an optimizer that a trainer steps by its own."""
    optimizer = event.get("optimizer")
    for atom in atoms(optimizer) if optimizer is not None else ():  # type: ignore[arg-type]
        held = m.read(owner_of(atom), "#managed") if type(atom) in (Object, Unknown) else None
        trainer = manager_of(m, atom) if type(held) is Object else None  # under conditions: flags that exclude each other
        if trainer is not None:
            m.emit("trainer's optimizer stepped", event.place, trainer=trainer, scaler=event.data["scaler"])


vocabulary.follows("scaler step")(scaler_stepped)
