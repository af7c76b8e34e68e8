"""Parameters: in which dtype a model keeps them, which of them are trained, and which optimizers hold them.

A model's slot "@weights" holds `State((Group, …))`: its own parameters, and those of adapters. The events: "half parameters", where an
optimizer gets or steps parameters that are in float16, at the place that made them so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from mplint.frameworks.torch.forwards import trains
from mplint.frameworks.torch.protocol import dtype_of, map_value
from mplint.frameworks.torch.tensors import MODULE_WORDS, PARAMETER
from mplint.frameworks.vocabulary import Vocabulary
from mplint.precisions import spellings
from mplint.program.conditions import Path, extend
from mplint.program.expressions import external_bases, truths
from mplint.program.machine import IDENTITY, Args, Event, Machine, derived
from mplint.program.store import join
from mplint.program.values import (
    ANY,
    BFLOAT,
    DOUBLE,
    FALSE,
    HALF,
    NONE,
    SINGLE,
    TRUE,
    Atom,
    By,
    Chain,
    Class,
    Constant,
    DType,
    Function,
    Items,
    Object,
    Partial,
    Place,
    State,
    Step,
    Tensor,
    Unknown,
    Value,
    Wrapped,
    atoms,
    options,
)

vocabulary = Vocabulary()
call = vocabulary.call

CONVERSIONS = {"half": HALF, "bfloat16": BFLOAT, "float": SINGLE, "double": DOUBLE}
NAMES = {HALF: "float16", BFLOAT: "bfloat16", SINGLE: "float32", DOUBLE: "float64"}
CLASS = "#class"  # the slot of a loaded model that holds the project's class that it is of
OWN = "base"  # the group of a model's own parameters
OF = "weights of:"
GROUP = "group:"
PARAMETER_NAME = "parameter name"
MAX_PARTS = 24


class Group(NamedTuple):
    """Parameters of a model: `dtype` is a letter, `chain` how they came to it; `trained` None: some of them, nobody knows which.

    `created`: it is a tensor that the program itself creates.
    """

    name: str
    dtype: str
    trained: bool | None = True
    chain: Chain = ()
    created: bool = False


UNKNOWN_WEIGHTS = State((Group(OWN, ANY),))
vocabulary.defaults["@weights"] = UNKNOWN_WEIGHTS


# what is known of a model


def owner_of(model: Atom) -> Hashable:
    """Under what a model's slots stand."""
    return model.id if type(model) is Object else model


def weights(m: Machine, model: Atom) -> Value:
    """The groups of a model's parameters; those of an unknown part are what is known of the whole."""
    held = m.read(owner_of(model), "@weights") or UNKNOWN_WEIGHTS
    if type(model) is not Unknown or held != UNKNOWN_WEIGHTS:
        return held
    text, _, identity = model.symbol.partition(IDENTITY)
    whole = text.rpartition(".")[0]
    return weights(m, Unknown(f"{whole}{IDENTITY}{identity}")) if whole else held


def change(m: Machine, model: Atom, of: Callable[[Group], Group]) -> None:
    """Change every group of a model."""
    before = weights(m, model)
    after = map_value(before, lambda atom: State(tuple(of(g) for g in groups_of(atom))))
    if after != before:
        m.write(owner_of(model), "@weights", after)


def groups_of(state: Atom) -> tuple[Group, ...]:
    """The groups in a state."""
    return state.data if type(state) is State and isinstance(state.data, tuple) else ()


def add_group(m: Machine, model: Atom, name: str, place: Place, *, dtype: str = "", freeze: bool = True, words: str = "") -> None:
    """Parameters that are added to a model: in the dtype of its own where none is given, which are frozen."""

    def one(atom: Atom) -> Value:
        held = [g._replace(trained=False) if freeze and g.name == OWN else g for g in groups_of(atom) if g.name != name]
        own = next((g for g in held if g.name == OWN), Group(OWN, ANY))
        letter = dtype or own.dtype
        chain = (*own.chain, Step(place, words)) if letter == own.dtype and letter == HALF else ()
        return State((*held, Group(name, letter, True, chain)))

    m.write(owner_of(model), "@weights", map_value(weights(m, model), one))


def parts(m: Machine, model: Atom, depth: int = 0) -> list[Atom]:
    """A model and the models that it holds as attributes or items."""
    found = [model]
    if type(model) is not Object or depth > 3:
        return found
    held = [v for name, v in m.store.slots.of(model.id) if not name.startswith(("@", "_modules"))]
    for value in held:
        for atom in atoms(value):
            for inner in atom.items if type(atom) is Items else (atom,):
                if type(inner) is Object and inner.id != model.id and is_model(m, inner) and inner not in found and len(found) < MAX_PARTS:
                    found += [part for part in parts(m, inner, depth + 1) if part not in found]
    return found


def is_model(m: Machine, atom: Atom) -> bool:
    """Whether a value is a module, a pretrained model or a pipeline of models."""
    if type(atom) is Unknown:
        return False
    if type(atom) is not Object:
        return False
    if atom.kind in ("model", "pipeline", "layer"):
        return True
    if type(atom.type) is Class:
        return any(is_module_base(name) for name in external_bases(m, atom.type))
    return str(atom.type).startswith("torch.nn.")


def is_module_base(name: str) -> bool:
    """Whether a base of another package makes modules."""
    last = name.rpartition(".")[2]
    return name.startswith(("torch.nn.", "transformers.", "diffusers.", "timm.")) or last in (
        "Module",
        "LightningModule",
        "PreTrainedModel",
        "BaseModule",
        "BaseModel",
        "ModelMixin",
    )


def looks_like_model(atom: Atom) -> bool:
    """Whether the name of something unknown says that it is a model."""
    if type(atom) is not Unknown:
        return False
    last = atom.symbol.partition(IDENTITY)[0].lower().rpartition(".")[2]
    return any(word in last for word in MODULE_WORDS) and not last.endswith(("name", "path", "type", "dir", "config", "args"))


def cast(m: Machine, model: Atom, dtype: Value, place: Place) -> None:
    """A model with all of its parts in another dtype, which may depend on conditions."""
    held = parts(m, model)

    def one(letter: str) -> Value:
        chain = (Step(place, f"the parameters are cast to {NAMES[letter]} here", By.PARAMETERS),) if letter in (HALF, BFLOAT) else ()
        asked = asked_for(m, model, letter) if chain else None
        if asked is not None:
            chain = (*chain, Step(asked, f"{NAMES[letter]} is asked for here"))
        for part in held:
            change(m, part, lambda g: g._replace(dtype=letter, chain=chain))
        return NONE

    choices = [(extend(m.path, guards), letter) for guards, letter in dtype_of(dtype) if letter is not None]  # type: ignore[arg-type]
    choices = [(path, letter) for path, letter in choices if path is not None]
    if len(choices) == 1 and len(list(atoms(dtype))) == 1:
        one(choices[0][1])
    elif choices:
        rest = [path for path, atom in ((extend(m.path, g), a) for g, a in options(dtype)) if path is not None and not names_dtype(atom)]
        base = m.path
        arms = [(path - base, (lambda found: lambda: (True, one(found)))(letter)) for path, letter in choices]  # type: ignore[operator]
        arms += [(path - base, lambda: (True, NONE)) for path in rest]
        m.fork(arms)


SPELLINGS = {HALF: spellings("float16"), BFLOAT: spellings("bfloat16")}


def asked_for(m: Machine, model: Atom, letter: str) -> Place | None:
    """The call that gives the dtype to a function which loads a model; None where it names the dtype, or is given the model itself."""
    found = None
    for frame, place in zip(reversed(m.frames), reversed(m.calls), strict=False):
        if frame.code is None:
            return None
        if not SPELLINGS[letter].isdisjoint(frame.code.words):
            return found
        given = [(kind, m.read(frame.id, name)) for name, kind, *_ in frame.code.parameters]
        held = [a for _, value in given if value is not None for a in atoms(value)]
        if model in held or not (any(kind == "**" for kind, _ in given) or DType(letter) in held):
            return None
        found = place
    return found if m.frames and m.frames[0].code is None else None


def names_dtype(atom: Atom) -> bool:
    """Whether an atom may say a dtype (None says none)."""
    return not (type(atom) is Constant and atom.value is None)


def freeze(m: Machine, model: Atom, flag: Value, group: str = "") -> None:
    """`requires_grad_(flag)` of a model, or of one group of its parameters."""

    def one(on: bool | None) -> Value:
        for part in parts(m, model) if not group else [model]:
            change(m, part, lambda g: g._replace(trained=on) if group in ("", g.name) else g)
        return NONE

    if is_partial(m):
        one(None)
        return
    found = truths(m, flag)
    if len(found) == 1:
        one(found[0][1])
    else:
        known = [(literals, None if mentions_name(literals) else truth) for literals, truth in found]
        m.fork([(literals, (lambda on: lambda: (True, one(on)))(truth)) for literals, truth in known])


def is_partial(m: Machine) -> bool:
    """Whether only parameters of some names are looked at."""
    return mentions_name(m.path)


def mentions_name(path: Path) -> bool:
    """Whether conditions speak of a parameter's name."""
    return any(PARAMETER_NAME in repr(key) for key, _ in path)


@vocabulary.follows("module cast")
def container_cast(m: Machine, event: Event) -> None:
    """The cast of a Sequential or another container, whose methods are those of a list or dict besides."""
    module, letters = event.data["module"], event.data["dtypes"]
    if type(module) is Object and module.kind in ("list", "dict") and isinstance(letters, frozenset) and len(letters) == 1:
        cast(m, module, DType(next(iter(letters))), event.place)


# methods of models


def watch(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Casts and freezing, on the way to whoever knows the rest; and the methods of single parameters."""
    if type(atom) is Tensor:
        return of_parameter(m, atom, name, args, place)
    if name not in WATCHED or type(atom) not in (Object, Unknown):
        return None
    if type(atom) is Object and not is_model(m, atom):
        return None
    cast_in_place = type(atom) is Object or looks_like_model(atom) or m.dropped == place.position  # of tensors a cast gives a new one
    if name in CONVERSIONS and not args.positional:
        if cast_in_place:
            cast(m, atom, DType(CONVERSIONS[name]), place)
    elif name in ("to", "type"):
        dtype = dtype_argument(args)
        if dtype is not None and cast_in_place:
            cast(m, atom, dtype, place)
    elif name == "requires_grad_":
        freeze(m, atom, args.get(0, "requires_grad") or TRUE)
    elif name in ("parameters", "named_parameters"):
        return parameters(m, atom, name, place)
    elif name in ("train", "eval"):
        trains(m, atom)
    elif name == "apply" and args.positional:
        apply(m, atom, args.positional[0], place)
    return atom if type(atom) is Object and atom.kind in ("model", "pipeline") else None


WATCHED = frozenset(
    [*CONVERSIONS, "to", "type", "requires_grad_", "parameters", "named_parameters", "cuda", "cpu", "train", "eval", "apply"]
)
vocabulary.atom_methods.append(watch)


def apply(m: Machine, model: Atom, function: Value, place: Place) -> None:
    """`model.apply(function)`: the function sees the layers, of which some are of every kind that it asks for."""
    if not any(type(a) in (Function, Wrapped, Partial) for a in atoms(function)):
        return
    before = weights(m, model)
    part = Object(("layers of", owner_of(model)), "layers", "torch.nn.modules", place)
    m.write(part.id, "#of", model)
    m.call(function, Args((part,), places=(place.position,)), place.position)
    after = weights(m, model)
    if after == before:
        return
    step = Step(place, "the parameters of its layers are cast to float16 here", By.PARAMETERS)
    for guards, state in options(after):
        if any(g.dtype == HALF for g in groups_of(state)):
            named = frozenset(literal for literal in guards if literal[0][0] != "place")
            half = State(tuple(g._replace(chain=(step,)) if g.dtype == HALF else g for g in groups_of(state)))
            m.write(owner_of(model), "@weights", join([(named, half), *((g, s) for g, s in options(before) if named)]))
            return


def of_layers(m: Machine, receiver: Atom, name: str, place: Place) -> Value | None:
    """The parameters of the layers that `apply` shows."""
    assert type(receiver) is Object
    model = m.read(receiver.id, "#of")
    if name not in ("weight", "bias") or model is None:
        return None
    owner = next(iter(atoms(model)))
    key = repr(owner_of(owner))[:400]
    m.write((OF, key), "#model", owner)
    letters = frozenset(g.dtype for state in atoms(weights(m, owner)) for g in groups_of(state) if g.name == OWN)
    return Tensor(letters or frozenset({ANY}), tags=frozenset({PARAMETER, OF + key, GROUP + OWN}))


vocabulary.attributes["layers"] = of_layers


def dtype_argument(args: Args) -> Value | None:
    """The dtype that `to` is given, or None."""
    named = args.named.get("dtype", args.named.get("torch_dtype"))
    if named is not None:
        return named
    for value in args.positional[:2]:
        if any(type(a) is DType for a in atoms(value)):
            return value
        if type(value) is Constant and isinstance(value.value, str) and value.value.startswith("torch.") and "Tensor" not in value.value:
            return value
    return None


def parameters(m: Machine, model: Atom, name: str, place: Place) -> Value:
    """`model.parameters()`."""
    made = Object(("parameters", owner_of(model), name), "parameters", "torch.nn.Module.parameters", place)
    m.write(made.id, "#of", model)
    trains(m, model)
    return made


def elements(m: Machine, atom: Atom, place: Place) -> Sequence[Value] | Value | None:
    """The parameters of a model: one stands for each group."""
    if type(atom) is not Object or atom.kind != "parameters" or not isinstance(atom.id, tuple):
        return None
    model = m.read(atom.id, "#of")
    if model is None:
        return None
    found: list[Value] = []
    for owner in atoms(model):
        if type(owner) not in (Object, Unknown):
            continue
        key = repr(owner_of(owner))[:400]
        m.write((OF, key), "#model", owner)
        names: dict[str, frozenset[str]] = {}
        for state in atoms(weights(m, owner)):
            for group in groups_of(state):
                names[group.name] = names.get(group.name, frozenset()) | {group.dtype}
        for name, letters in names.items():
            tensor = Tensor(letters, tags=frozenset({PARAMETER, OF + key, GROUP + name}))
            if atom.id[-1] == "named_parameters":
                found.append(Items((Unknown(f"{PARAMETER_NAME}{IDENTITY}{key}{name}"[:200]), tensor)))
            else:
                found.append(tensor)
    return found[:4] or None


vocabulary.elements.append(elements)


def model_of(m: Machine, tensor: Tensor) -> tuple[Atom, str] | None:
    """The model and group that a parameter belongs to."""
    key = next((t.removeprefix(OF) for t in tensor.tags if t.startswith(OF)), None)
    group = next((t.removeprefix(GROUP) for t in tensor.tags if t.startswith(GROUP)), "")
    if key is None:
        return None
    model = m.read((OF, key), "#model")
    return (next(iter(atoms(model))), group) if model is not None else None


def of_parameter(m: Machine, tensor: Tensor, name: str, args: Args, place: Place) -> Value | None:
    """A parameter that is cast or frozen."""
    if name != "requires_grad_" and name not in CONVERSIONS and name != "to":
        return None
    held = model_of(m, tensor)
    if held is None:
        if name == "requires_grad_":
            freeze_tensor(m, tensor, args.get(0, "requires_grad") or TRUE)
        return None
    if name == "requires_grad_":
        freeze(m, held[0], args.get(0, "requires_grad") or TRUE, held[1])
        return tensor
    dtype = DType(CONVERSIONS[name]) if name in CONVERSIONS else dtype_argument(args)
    if dtype is None:
        return tensor if name == "to" else None
    return m.each(dtype, lambda a: Tensor(frozenset({a.letter if type(a) is DType else ANY}), tags=frozenset({PARAMETER})))


def freeze_tensor(m: Machine, tensor: Tensor, flag: Value) -> None:
    """`requires_grad` of a tensor of the program's own: anything but True may freeze it."""
    if tensor.half:
        m.write(tensor.half[-1].place, "@frozen", NONE if flag == TRUE else TRUE)


def read_parameter(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """Attributes of a parameter."""
    if type(atom) is not Tensor or name not in ("requires_grad", "data", "dtype"):
        return None
    held = model_of(m, atom)
    if held is None:
        return None
    if name == "data":
        return atom
    model, wanted = held
    if not wanted:
        return None  # it stands for parameters of which each may have another

    def one(state: Atom) -> Value:
        group = next((g for g in groups_of(state) if g.name == wanted), None)
        if name == "dtype":
            return DType(group.dtype if group is not None else ANY)
        if group is None:
            return FALSE
        return Unknown(f"requires_grad{IDENTITY}{model!r}{wanted}"[:200]) if group.trained is None else Constant(group.trained)

    value = map_value(weights(m, model), one)
    return None if any(type(a) is DType and a.letter == ANY for a in atoms(value)) else value


vocabulary.atom_attributes.append(read_parameter)


def assigned(m: Machine, atom: Atom, name: str, value: Value, place: Place) -> None:
    """`parameter.requires_grad = …` and `parameter.data = …`."""
    if type(atom) is not Tensor or name not in ("requires_grad", "data"):
        return
    held = model_of(m, atom)
    if held is None:
        if name == "requires_grad":
            freeze_tensor(m, atom, value)
        return
    model, group = held
    if name == "requires_grad":
        freeze(m, model, value, group)
        return

    def one(given: Atom) -> Value:
        letter = next(iter(given.dtypes)) if type(given) is Tensor and len(given.dtypes) == 1 else ANY
        if letter == SINGLE and group == OWN and picks_some(m):
            return NONE  # the others stay as they are
        chain = (Step(place, "the parameters are cast to float16 here", By.PARAMETERS),) if letter == HALF else ()
        change(m, model, lambda g: g._replace(dtype=letter, chain=chain) if g.name == group and g.dtype != letter else g)
        return NONE

    m.each(value, one)


def picks_some(m: Machine) -> bool:
    """Whether the loop that runs does this for parameters that it tells by their names, and not for the others."""
    loops = m.frames[-1].loops
    return bool(loops) and any(PARAMETER_NAME in str(key) for key, _ in m.path - loops[-1].start)


vocabulary.attribute_assigned.append(assigned)


@call("copy.deepcopy")
def deepcopy(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A copy of a model is another model."""
    if not args.positional:
        return NONE
    return map_value(args.positional[0], lambda atom: copied(m, atom, place, 0))


def copied(m: Machine, atom: Atom, place: Place, depth: int) -> Value:
    """A model with the slots of another; anything else as it is."""
    if looks_like_model(atom):
        copy = derived(atom, "", f"|copy{place.path}:{place.position}")  # type: ignore[arg-type]
        m.write(copy, "@weights", weights(m, atom))
        return copy
    if type(atom) is not Object or not is_model(m, atom) or depth > 2:
        return atom
    made = Object(("copy", atom.id, m.identity(place)), atom.kind, atom.type, atom.made)
    for slot, value in m.store.slots.of(atom.id):
        if slot != "@optimizer":
            m.write(made.id, slot, map_value(value, lambda a: copied(m, a, place, depth + 1)) if not slot.startswith(("@", "#")) else value)
    return made
