"""Training loops of TensorFlow: optimizers, the loss scale around them, and gradients of a tape.

A LossScaleOptimizer stands for the scaler: a loss that it scaled carries its identity in `scaled`, and so do the gradients of that loss
until it unscales them. Gradients are tensors with the tag "gradients"; `forward` tells in which dtypes layers computed what they are of.
"""

from __future__ import annotations

import re

from mplint.frameworks.keras.tensors import (
    ANYTHING,
    FACTOR,
    GRADIENTS,
    NOISE,
    TF,
    VARIABLE,
    added_up,
    emit_on,
    held_in,
    is_tensor,
    tensor,
)
from mplint.frameworks.vocabulary import Entered, Vocabulary
from mplint.program.conditions import Path
from mplint.program.expressions import entries_of, items_of
from mplint.program.machine import IDENTITY, STATE, Args, Event, Machine
from mplint.program.store import join, under
from mplint.program.values import (
    BOOLEAN,
    NONE,
    SINGLE,
    TRUE,
    Atom,
    Constant,
    Context,
    Function,
    Items,
    Method,
    Object,
    Partial,
    Place,
    State,
    Tensor,
    Unknown,
    Value,
    Wrapped,
    atoms,
    options,
)

vocabulary = Vocabulary()
call = vocabulary.call
vocabulary.defaults["tape"] = State(None)

OPTIMIZER_HOMES = ("keras.optimizers.", "tensorflow.optimizers.", "tensorflow_addons.optimizers.", "tensorflow.train.")
NOT_OPTIMIZERS = ("keras.optimizers.schedules.", "keras.optimizers.legacy.schedules.", "tensorflow.optimizers.schedules.")
SCALERS = (
    "keras.mixed_precision.LossScaleOptimizer",
    "keras.mixed_precision.experimental.LossScaleOptimizer",
    "keras.optimizers.LossScaleOptimizer",
    "keras.mixed_precision.loss_scale_optimizer.LossScaleOptimizer",
    "tensorflow.train.experimental.MixedPrecisionLossScaleOptimizer",
)
APPLIES = ("apply_gradients", "apply")
SCALES = ("get_scaled_loss", "scale_loss")


@call(*SCALERS)
def new_scaler(m: Machine, name: str, args: Args, place: Place) -> Value:
    """An optimizer that scales the loss."""
    made = Object(("loss scale optimizer", m.identity(place), m.round()), "loss scale optimizer", name, place)
    inner = args.get(0, "inner_optimizer")
    if inner is None:
        inner = args.get(0, "optimizer")
    m.write(made.id, "#inner", inner if inner is not None else NONE)
    m.emit("loss scale optimizer made", place, optimizer=made, inner=inner, args=args, policy=m.state("policy"))
    return made


@vocabulary.prefix(*OPTIMIZER_HOMES)
def new_optimizer(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """An optimizer of Keras or TensorFlow."""
    last = name.rpartition(".")[2]
    if (
        name.startswith(NOT_OPTIMIZERS)
        or not last[:1].isupper()
        or (name.startswith("tensorflow.train.") and not last.endswith("Optimizer"))
    ):
        return None
    made = Object(("keras optimizer", m.identity(place), m.round()), "keras optimizer", name, place)
    inner = args.get(0, "optimizer") if last in ("Lookahead", "MovingAverage", "SWA") else None
    if inner is not None:
        m.write(made.id, "#inner", inner)
    factor = args.named.get("loss_scale_factor")
    if factor is not None and not (type(factor) is Constant and factor.value is None):
        m.write(made.id, "#factor", factor)
    m.emit("keras optimizer made", place, optimizer=made, name=name, args=args)
    return made


def wrapped_by_compile(m: Machine, optimizer: Value, policy: Value, args: Args, place: Place, number: int = 0) -> Value:
    """What `compile()` makes of an optimizer, or of several: under a mixed_float16 policy of the model, what scales the loss."""
    named = Object(("keras optimizer", m.identity(place), "compile", number), "keras optimizer", "compile", place)
    optimizer = m.each(optimizer, lambda atom: named if type(atom) is Constant and isinstance(atom.value, str) else atom)
    flag = args.named.get("auto_scale_loss")
    if type(flag) is Constant and flag.value is False:
        return optimizer
    several = items_of(m, optimizer, place.position) if type(optimizer) in (Items, Object) else None
    if several is not None:
        return Items(tuple(wrapped_by_compile(m, item, policy, args, place, number) for number, item in enumerate(several)))
    found = []
    for guards, atom in options(policy):
        mixed = type(atom) is State and isinstance(atom.data, tuple) and atom.data[0] == "mixed_float16"
        scales = any(type(a) is Object and a.kind == "loss scale optimizer" for a in atoms(optimizer))
        if not mixed or scales:
            found.append((guards, optimizer))
            continue
        made = Object(("loss scale optimizer", m.identity(place), "compile", number), "loss scale optimizer", "compile", place)
        m.write(made.id, "#inner", optimizer)
        m.write(made.id, "#by compile", TRUE)
        found.append((guards, made))
    return join(found)


HOROVOD = ("horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras")


@call("tensorflow.tpu.CrossShardOptimizer", *(f"{home}.DistributedOptimizer" for home in HOROVOD))
def passed_on(m: Machine, name: str, args: Args, place: Place) -> Value:
    """An optimizer that adds up the gradients of several devices, and hands them to another one."""
    return args.get(0, "opt" if name.endswith("CrossShardOptimizer") else "optimizer") or NONE


# the tape


@call("horovod.tensorflow.DistributedGradientTape")
def same_tape(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A tape whose gradients are added up over several devices."""
    return args.get(0, "gradtape") or NONE


@call("tensorflow.GradientTape")
def new_tape(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A gradient tape."""
    return Object(("tape", m.identity(place)), "tape", name, place)


def entered(m: Machine, atom: Atom, place: Place) -> Entered | None:
    """What runs inside of a tape is recorded."""
    if type(atom) is Object and atom.kind == "tape":
        return atom, ((STATE, "tape"), State(place))
    return None


vocabulary.contexts.append(entered)


@vocabulary.method("tape")
def of_tape(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """`tape.gradient(loss, variables)`."""
    if name not in ("gradient", "jacobian"):
        return NONE
    return gradients_of(m, args.get(0, "target"), place)


def gradients_of(m: Machine, loss: Value | None, place: Place, tape: bool = True) -> Value:
    """The gradients of a loss, scaled wherever the loss is. `tape`: only what a tape records has some."""
    held = held_in(m, loss, m.path) if loss is not None else []
    forward: frozenset[str] = frozenset().union(*(t.forward for _, t in held))
    scaled = any(t.scaled for _, t in held)
    policy = m.state("policy")
    ways_in, known = tuple(held), bool(held)
    m.emit("tape gradients taken", place, loss=loss, ways=ways_in, scaled=scaled, forward=forward, known=known, policy=policy, tape=tape)
    for path, t in held:
        for reduction in added_up(t):
            emit_on(m, path, "loss added up in half", reduction, tensor=t, taken=place)
    factors = {tag for _, t in held for tag in t.tags if tag.startswith(FACTOR)} if tape else {FACTOR + ANYTHING}
    tags = frozenset({TF, GRADIENTS, f"taken:{place.path}:{place.position}", *factors, *(() if held else ("of an unknown loss",))})
    if len({t.scaled for _, t in held}) < 2:
        by = held[0][1].scaled if held else None
        return Tensor(frozenset({SINGLE}), scaled=by, forward=forward, tags=tags)
    return join((path - m.path, Tensor(frozenset({SINGLE}), scaled=t.scaled, forward=t.forward, tags=tags)) for path, t in held)


# the torch backend

vocabulary.defaults["backward gradients"] = State(None)


@vocabulary.follows("backward")
def of_backward(m: Machine, event: Event) -> None:
    """`loss.backward()` in a program of Keras: the gradients of the weights are those of this loss."""
    if speaks_of(m, event.place.path, "keras"):
        loss = event.data["loss"]
        m.set_state("backward gradients", gradients_of(m, loss, event.place, tape=False))  # type: ignore[arg-type]


def backward(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`loss.backward()` of a loss that an optimizer of Keras has scaled."""
    if name != "backward" or not is_tensor(atom):
        return None
    m.set_state("backward gradients", gradients_of(m, atom, place, tape=False))
    return NONE


vocabulary.atom_methods.append(backward)


def of_weight(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """`weight.value.grad`, after a backward."""
    if name != "grad" or type(atom) is not Unknown or not speaks_of(m, place.path, "keras"):
        return None
    held = m.state("backward gradients")
    return held if held != State(None) else None


vocabulary.atom_attributes.append(of_weight)


def speaks_of(m: Machine, path: str, word: str) -> bool:
    """Whether a program mentions something."""
    ir = m.project.ir(path)
    return ir is not None and word in ir[2]


# optimizers


def scaled_value(m: Machine, value: Value | None, by: object) -> Value:
    """A loss multiplied by the scale."""

    def one(atom: Atom) -> Value:
        if is_tensor(atom):
            return atom.but(scaled=by)  # type: ignore[union-attr]
        return Tensor(frozenset({SINGLE}), scaled=by, tags=frozenset({TF}))

    return m.each(value if value is not None else NONE, one)


def unscaled_value(m: Machine, value: Value | None) -> Value:
    """Gradients divided by the scale."""
    found = gradients_in(m, value)
    if found:
        return found[0].but(scaled=None, tags=found[0].tags | {"unscaled"})
    return tensor(SINGLE, tags=frozenset({GRADIENTS, "unscaled"}))


def gradients_in(m: Machine, value: Value | None) -> list[Tensor]:
    """The gradients that an argument holds: themselves, pairs of them with variables, or a zip of both."""
    return [gradient for _, gradient in gradients_held(m, value, m.path)]


def gradients_held(m: Machine, value: Value | None, path: Path, depth: int = 0) -> list[tuple[Path, Tensor]]:
    """The same on a path, each with the path that it is there on."""
    found: list[tuple[Path, Tensor]] = []
    for both, atom in under(value, path) if value is not None else ():
        if type(atom) is Tensor and GRADIENTS in atom.tags:
            found.append((both, atom))
        elif type(atom) is Tensor and (kept := variable_of(atom)) is not None:
            held = m.read(("variable", kept), "#gradients")
            found += gradients_held(m, held, both, depth + 1) if held is not None and depth < 4 else []
        elif type(atom) is Object and atom.kind in ("zip", "enumerate") and isinstance(atom.id, tuple) and len(atom.id) > 2:
            held = m.read(("arguments", atom.id[2]), "#items")
            for item in held.items if type(held) is Items else ():
                found += gradients_held(m, item, both, depth + 1)
        elif depth < 4:
            items = list(atom.items) if type(atom) is Items else items_of(m, atom, 0) if type(atom) is Object else None
            if items is None and type(atom) is Object and atom.kind in ("list", "generator"):
                inner = m.read(atom.id, "#items")
                items = [*inner.items, *([inner.rest] if inner.rest is not None else [])] if type(inner) is Items else []
            rest = atom.rest if type(atom) is Items else None
            for item in (*(items or ()), *((rest,) if rest is not None else ())):
                found += gradients_held(m, item, both, depth + 1)
    return found


def variable_of(tensor: Tensor) -> str | None:
    """What stands for the variable that a tensor is read from."""
    return next((tag for tag in tensor.tags if tag.startswith(VARIABLE)), None)


def assigned(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Variables to which gradients are assigned: what accumulates them, or weights that no optimizer updates."""
    if name not in ("assign", "assign_add", "assign_sub") or type(atom) not in (Tensor, Unknown):
        return None
    held = gradients_held(m, args.get(0, "value") or args.get(0, "delta"), m.path)
    if held:
        kept = variable_of(atom) if type(atom) is Tensor else None
        if kept is not None:
            m.write(("variable", kept), "#gradients", join((path - m.path, gradient) for path, gradient in held))
        m.emit("gradients assigned", place, ways=tuple(held), how=name, variable=atom)
    return None


vocabulary.atom_methods.append(assigned)


def optimizer_method(m: Machine, optimizer: Atom, name: str, args: Args, place: Place) -> Value | None:
    """The methods of an optimizer."""
    key = optimizer.id if type(optimizer) is Object else optimizer
    if name in SCALES:
        m.emit("keras loss scaled", place, optimizer=optimizer, loss=args.get(0, "loss"), how=name, tape=m.state("tape"))
        if type(optimizer) is Object and optimizer.kind == "keras optimizer":
            return args.get(0, "loss") or NONE
        return scaled_value(m, args.get(0, "loss"), key)
    if name == "get_unscaled_gradients":
        held = gradients_held(m, args.get(0, "grads"), m.path)
        m.emit("keras gradients unscaled", place, optimizer=optimizer, ways=tuple(held))
        return unscaled_value(m, args.get(0, "grads"))
    if name in APPLIES:
        held = gradients_held(m, args.get(0, "grads_and_vars") or args.get(0, "grads"), m.path)
        factor = m.read(optimizer.id, "#factor") if type(optimizer) is Object else None
        m.emit("gradients applied", place, optimizer=optimizer, ways=tuple(held), policy=m.state("policy"), factor=factor)
        return Unknown(f"step(){IDENTITY}{place.path}:{place.position}")
    if name == "minimize":
        loss, tape = args.get(0, "loss"), args.named.get("tape")
        if loss is not None and any(type(a) in (Function, Wrapped, Partial) for a in atoms(loss)):
            loss = recorded(m, loss, place)
        of_loss = tuple(held_in(m, loss, m.path)) if loss is not None else ()
        factor = m.read(optimizer.id, "#factor") if type(optimizer) is Object else None
        m.emit("minimized", place, optimizer=optimizer, loss=loss, tape=tape, policy=m.state("policy"), ways=of_loss, factor=factor)
        return Unknown(f"minimize(){IDENTITY}{place.path}:{place.position}")
    if name in ("get_gradients", "compute_gradients"):
        gradients = gradients_of(m, args.get(0, "loss"), place, tape=args.named.get("tape") is not None)
        scales = type(optimizer) is Object and optimizer.kind == "loss scale optimizer"
        return unscaled_value(m, gradients) if scales else gradients  # which scales the loss by itself
    return None


def recorded(m: Machine, function: Value, place: Place) -> Value:
    """What a function gives that `minimize` runs under a tape of its own."""
    before = m.state("tape")
    m.set_state("tape", State(place))
    loss = m.call(function, Args(), place.position)
    m.set_state("tape", before)
    return loss


@vocabulary.method("keras optimizer")
def of_optimizer(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    value = optimizer_method(m, receiver, name, args, place)
    return value if value is not None else Unknown(f"optimizer.{name}(){IDENTITY}{place.path}:{place.position}")


@vocabulary.method("loss scale optimizer")
def of_scaler(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    value = optimizer_method(m, receiver, name, args, place)
    return value if value is not None else Unknown(f"optimizer.{name}(){IDENTITY}{place.path}:{place.position}")


def of_unknown(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Optimizers that arrive from outside, told by methods that only they have."""
    if type(atom) is not Unknown:
        return None
    if name in (*SCALES, "get_unscaled_gradients", "apply_gradients") or (name == "apply" and gradients_in(m, args.get(0))):
        return optimizer_method(m, atom, name, args, place)
    return None


vocabulary.atom_methods.append(of_unknown)


@call("tensorflow.gradients", "keras.backend.gradients")
def gradients(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`tf.gradients(loss, variables)`."""
    return gradients_of(m, args.get(0, "ys") or args.get(0, "loss"), place, tape=False)


@call("tensorflow.clip_by_global_norm")
def clipped(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Clipping of all gradients by their norm."""
    held = gradients_held(m, args.get(0, "t_list"), m.path)
    m.emit("keras gradients clipped", place, ways=tuple(held), threshold=args.get(1, "clip_norm"), name=name)
    kept = join((path - m.path, gradient) for path, gradient in held) if held else args.get(0, "t_list") or NONE
    return Items((kept, tensor(SINGLE)))


@call("tensorflow.linalg.global_norm", "tensorflow.linalg.norm", "tensorflow.norm")
def size(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The norm of gradients, which is none of them."""
    if gradients_held(m, args.get(0), m.path):
        return tensor(SINGLE)
    made: Value = m.library.by_prefix(m, name, args, place)  # type: ignore[attr-defined]
    return made


@vocabulary.prefix("tensorflow.clip_by_norm", "tensorflow.clip_by_value", "tensorflow.clip_by_average_norm")
def clipped_each(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """Clipping of one gradient."""
    held = gradients_held(m, args.get(0, "t"), m.path)
    if not held:
        return None
    m.emit("keras gradients clipped", place, ways=tuple(held), threshold=args.get(1, "clip_norm"), name=name)
    return args.get(0, "t")


# what is done to gradients that does not grow with their scale

NOT_FINITE = "mask of what is not finite"
WEIGHTS = re.compile(r"\b(trainable_)?(variables|weights)\b")


def changed(m: Machine, gradient: Atom, what: str, place: Place) -> None:
    """That a gradient is changed by noise, by a penalty of weights, or where it is not finite."""
    m.emit("keras gradients changed", place, ways=tuple(gradients_held(m, gradient, m.path)), what=what)


def added(m: Machine, op: str, left: Atom, right: Atom, place: Place, in_place: bool = False) -> Value | None:
    """What is added to a gradient, and the scale that it is divided by."""
    if op == "/" and type(left) is Tensor and GRADIENTS in left.tags and is_scale(right):
        m.emit("keras gradients divided", place, ways=tuple(gradients_held(m, left, m.path)))
        return left.but(scaled="by hand")
    if op not in ("+", "-"):
        return None
    for gradient, other in ((left, right), (right, left)):
        if type(gradient) is not Tensor or GRADIENTS not in gradient.tags:
            continue
        shown = other.symbol.partition(IDENTITY)[0] if type(other) is Unknown else ""
        if type(other) is Tensor and NOISE in other.tags and GRADIENTS not in other.tags and other.scaled is None:
            changed(m, gradient, "noise", place)
        elif WEIGHTS.search(shown) and "scale" not in shown:
            changed(m, gradient, "penalty", place)
    return None


def is_scale(atom: Atom) -> bool:
    """Whether a value is the scale of an optimizer, which only Keras 3 calls so."""
    shown = atom.symbol.partition(IDENTITY)[0] if type(atom) is Unknown else atom.name if type(atom) is Method else ""
    return shown.rpartition(".")[2] == "dynamic_scale"


vocabulary.binaries.append(added)


@call(*(f"tensorflow.{name}" for name in ("math.is_nan", "math.is_inf", "math.is_finite", "debugging.is_finite")), "keras.ops.isnan")
def not_finite(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Which items of a gradient are not finite."""
    made: Value = m.library.by_prefix(m, name, args, place)  # type: ignore[attr-defined]
    return tensor(BOOLEAN).but(tags=frozenset({TF, NOT_FINITE})) if gradients_held(m, args.get(0), m.path) else made


@vocabulary.follows("operation")
def replaced(m: Machine, event: Event) -> None:
    """`tf.where(tf.math.is_nan(g), 0, g)`."""
    last = str(event.data["name"]).rpartition(".")[2]
    args = event.data["args"]
    if last not in ("where", "nan_to_num") or not isinstance(args, Args):
        return
    mask = args.get(0)
    asked = mask is not None and any(type(a) is Tensor and NOT_FINITE in a.tags for a in atoms(mask))
    held = next((a for v in args.all() for a in atoms(v) if type(a) is Tensor and GRADIENTS in a.tags), None)
    if held is not None and (asked or last == "nan_to_num"):
        changed(m, held, "nan", event.place)


# strategies of distribution

RUNS_REPLICAS = ("run", "experimental_run_v2")


@vocabulary.prefix("tensorflow.distribute.")
def new_strategy(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """A strategy, which runs functions on several devices."""
    last = name.rpartition(".")[2]
    if not last.endswith("Strategy") and last not in ("get_strategy", "OneDeviceStrategy"):
        return None
    return Object(("strategy", m.identity(place)), "strategy", name, place)


def run_replicas(m: Machine, args: Args, place: Place) -> Value | None:
    """`strategy.run(step, args=(…))`."""
    function = args.get(0, "fn")
    if function is None or not any(type(a) in (Function, Wrapped, Partial) for a in atoms(function)):
        return None
    given = args.get(1, "args")
    values = items_of(m, given, place.position) if given is not None else []
    if values is None:
        return None
    named = entries_of(m, kwargs) if (kwargs := args.get(2, "kwargs")) is not None else None
    words = {key.value: value for key, value in named.entries if type(key) is Constant} if named is not None else {}
    inner = Args(values, words, [place.position] * len(values), dict.fromkeys(words, place.position))  # type: ignore[arg-type]
    return m.call(function, inner, place.position)


@vocabulary.method("strategy")
def of_strategy(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """What a strategy does: it enters a scope, hands out data, runs functions and reduces what they give."""
    if name == "scope":
        return Context("null")
    if name in RUNS_REPLICAS and (found := run_replicas(m, args, place)) is not None:
        return found
    if name in ("experimental_distribute_dataset", "distribute_datasets_from_function") and args.positional:
        return args.positional[0]
    if name == "reduce":
        return args.get(1, "value") or NONE
    return Unknown(f"strategy.{name}(){IDENTITY}{place.path}:{place.position}")


def of_unknown_strategy(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Strategies that arrive from outside, told by what they run and how."""
    if type(atom) is Unknown and name in RUNS_REPLICAS and (name != "run" or "args" in args.named):
        return run_replicas(m, args, place)
    return None


vocabulary.atom_methods.append(of_unknown_strategy)
