"""Layers and models of Keras: the policy that each takes when it is made, and the dtype of what it gives.

A layer keeps `#policy`, the global policy when it was made or what its `dtype=` says. It casts what it is called with to its compute
dtype and gives that dtype. `half` of a tensor that a layer gives ends with the layer that computed it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from mplint.frameworks.keras.policies import (
    OPEN,
    WRITTEN,
    chain_of,
    compute_letter,
    letters_of,
    policy_object,
    policy_of,
    variable_letter,
)
from mplint.frameworks.keras.tensors import (
    ISLAND,
    LOW,
    NEST,
    TAKEN_BACK,
    TF,
    WEIGHT,
    added_up_here,
    argument_place,
    gathered,
    held_in,
    is_tensor,
    met,
    tensor,
    written_dtypes,
)
from mplint.frameworks.releases import supported
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.calls import instantiate
from mplint.program.conditions import Path, extend
from mplint.program.expressions import class_member, entries_of, external_bases, items_of, new_dict
from mplint.program.machine import IDENTITY, Args, Event, Machine
from mplint.program.store import join
from mplint.program.values import (
    ANY,
    COMPUTE,
    FALSE,
    HALF,
    INTEGER,
    NONE,
    SINGLE,
    Atom,
    Class,
    Code,
    Constant,
    Entries,
    External,
    Function,
    Items,
    Object,
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

HOMES = ("keras.layers.", "keras.engine.", "tensorflow_addons.layers.", "keras_cv.layers.", "keras_hub.layers.", "keras_nlp.layers.",
         "keras.legacy_tf_layers.", "tensorflow_models.nlp.layers.", "tensorflow.nn.rnn_cell.")  # fmt: skip
BASES = frozenset(
    [
        "keras.Layer",
        "keras.layers.Layer",
        "keras.Model",
        "keras.models.Model",
        "keras.Sequential",
        "keras.models.Sequential",
        "keras.models.Functional",
        "keras.Functional",
        "keras.engine.base_layer.Layer",
        "keras.engine.training.Model",
    ]
)
MODELS = frozenset(["Model", "Sequential", "Functional"])
NO_LAYERS = frozenset(["InputSpec", "Input", "InputLayer", "AbstractRNNCell"])
SHAPES = frozenset(
    [
        "Reshape",
        "Flatten",
        "Permute",
        "RepeatVector",
        "Dropout",
        "SpatialDropout1D",
        "SpatialDropout2D",
        "ZeroPadding1D",
        "ZeroPadding2D",
        "ZeroPadding3D",
        "Cropping1D",
        "Cropping2D",
        "Cropping3D",
        "UpSampling1D",
        "UpSampling2D",
        "UpSampling3D",
        "Identity",
        "Masking",
        "ActivityRegularization",
        "GaussianNoise",
        "InputLayer",
    ]
)
# What prepares data: no floating computation worth a policy, or meant to stay in float32.
PREPARING = frozenset(
    [
        *("Rescaling", "Resizing", "Normalization", "Discretization", "CategoryEncoding", "Hashing", "CenterCrop", "Lambda"),
        *("StringLookup", "IntegerLookup", "TextVectorization"),
    ]
)
PROBABLE = frozenset({"activation:softmax", "activation:sigmoid"})
PASSING = SHAPES | {"Activation", "Softmax", "ReLU", "LeakyReLU", "ELU", "PReLU"}  # of these the layer below counts as the maker
MIXES_INTEGERS = SHAPES | {"Concatenate", "Lambda"}
ACTIVATION_AT = {"Activation": 0, "Dense": 1}  # which argument the activation is, where it may be given without its name
RESIZES = {"UpSampling2D": 2, "UpSampling3D": 2}  # which argument the interpolation is
SINCE_KERAS_3 = (("keras", "3.0"), ("tensorflow", "2.16"))
INTEGER_OUTPUT = frozenset(["StringLookup", "IntegerLookup", "TextVectorization", "Hashing", "Discretization"])


def is_preparing(name: str) -> bool:
    """Whether a layer, by the name of its class, prepares data or augments it."""
    return name in PREPARING or name.startswith("Random")


def last_of(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]


def is_layer_name(name: str) -> bool:
    """Whether a dotted name is that of a layer's or model's class."""
    last = last_of(name)
    return (name in BASES or name.startswith(HOMES)) and last[:1].isupper() and last not in NO_LAYERS


def bases_of(m: Machine, value: Value) -> list[str]:
    """The canonical names of the other packages' bases of an instance of a project's class."""
    if type(value) is Object and type(value.type) is Class:
        return [m.library.canonical(name) for name in external_bases(m, value.type)]  # type: ignore[attr-defined]
    return []


def is_layer_class(m: Machine, cls: Class) -> bool:
    """Whether a project's class is a layer or a model."""
    return any(is_layer_name(m.library.canonical(name)) for name in external_bases(m, cls))  # type: ignore[attr-defined]


def is_layer(m: Machine, value: Value) -> bool:
    """Whether a value is a layer or a model."""
    if type(value) is not Object:
        return False
    return value.kind in ("keras layer", "keras model") or any(is_layer_name(name) for name in bases_of(m, value))


def is_model(m: Machine, value: Value) -> bool:
    """Whether a value is a model."""
    if type(value) is not Object:
        return False
    return value.kind == "keras model" or any(is_layer_name(name) and last_of(name) in MODELS for name in bases_of(m, value))


def policy_held(m: Machine, layer: Object) -> Value:
    """The policy of a layer."""
    held = m.read(layer.id, "#policy")
    return held if held is not None else m.state("policy")


# making layers


@vocabulary.prefix(*HOMES)
def new_layer(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """A layer, or a function that makes one and calls it at once."""
    last = last_of(name)
    if last in ("add", "subtract", "multiply", "average", "maximum", "minimum", "concatenate", "dot"):
        layer = made_layer(m, f"keras.layers.{last.capitalize()}", args, place)
        return called(m, layer, Args(args.positional[:1], None, args.places[:1]), place)
    if not is_layer_name(name):
        return None
    if name in BASES:
        return model(m, name, args, place) if last in MODELS else None
    return made_layer(m, name, args, place)


def made_layer(m: Machine, name: str, args: Args, place: Place) -> Object:
    """A layer of Keras."""
    last = last_of(name)
    made = Object(("layer", m.identity(place), m.round()), "keras layer", name, place)
    dtype = args.named.get("dtype")
    m.write(made.id, "#policy", policy_of(m, dtype, place))
    activation = args.get(ACTIVATION_AT.get(last, -1), "activation")
    activation_place = args.place(ACTIVATION_AT.get(last, -1), "activation")
    if activation is not None:
        m.write(made.id, "#activation", activation)
        m.write(made.id, "#activation place", State(activation_place))
    if last in RESIZES and (interpolation := args.get(RESIZES[last], "interpolation")) is not None:
        m.write(made.id, "#interpolation", interpolation)
    if last in ("TimeDistributed", "Bidirectional", "Lambda", "RNN"):
        inner = args.get(0, "layer" if last != "Lambda" else "function")
        if inner is not None:
            m.write(made.id, "#layer", inner)
    if last == "Softmax":
        m.write(made.id, "#activation", Constant("softmax"))
    m.emit("layer made", place, layer=made, name=name, policy=policy_held(m, made), dtype=dtype, args=args)
    return made


@call("keras.Input", "keras.layers.Input", "keras.layers.InputLayer")
def new_input(m: Machine, name: str, args: Args, place: Place) -> Value:
    """An input of a functional model: float32 unless a dtype is given."""
    from mplint.frameworks.keras.policies import dtype_options

    given = args.named.get("dtype")
    m.emit("input made", place, dtype=given, policy=m.state("policy"))
    if name.endswith("InputLayer"):
        made = Object(("layer", m.identity(place), m.round()), "keras layer", name, place)
        m.write(made.id, "#policy", m.state("policy"))
        return made
    found: list[tuple[Path, Value]] = []
    for guards, letter, _how in dtype_options(m, given):
        chosen = SINGLE if letter is None else letter
        where = Step(place, "a model's input is float32") if chosen == SINGLE else None
        found.append((guards, tensor(chosen, made=where, tags=frozenset({"symbolic", "input"}))))
    return join(found)


@vocabulary.prefix("keras.applications.", "tensorflow_hub.", "efficientnet.tfkeras.", "segmentation_models.", "keras_efficientnets.")
def application(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """A model of `keras.applications`: a softmax head unless `include_top` is off."""
    last = last_of(name)
    if not last[:1].isupper():
        return None
    made = Object(("layer", m.identity(place), m.round()), "keras model", name, place)
    policy = policy_of(m, args.named.get("dtype"), place)
    m.write(made.id, "#policy", policy)
    m.emit("layer made", place, layer=made, name=name, policy=policy, dtype=None, args=args)
    top = args.get(0, "include_top")
    m.write(made.id, "#top", FALSE if not name.startswith("keras.applications.") else top if top is not None else Constant(True))
    made_in_float = tensor(SINGLE, tags=frozenset({"symbolic"}))
    output = output_of(m, made, last, gathered(m, args.named.get("input_tensor")) or [made_in_float], place)
    output = m.each(output, lambda atom: atom.but(tags=atom.tags | {"application"}) if is_tensor(atom) else atom)  # type: ignore[union-attr]
    m.write(made.id, "#output", output)
    m.emit("model made", place, model=made, outputs=output, policy=policy, name=name)
    return made


PACKAGES = ("keras_hub.", "keras_nlp.", "keras_cv.", "kecam.", "keras_cv_attention_models.", "classification_models.", "tfimm.",
            "keras_rs.", "keras_unet_collection.", "vit_keras.", "official.nlp.", "official.vision.",
            "tensorflow_similarity.models.")  # fmt: skip
NOT_MODELS = frozenset(
    {"losses", "metrics", "optimizers", "callbacks", "utils", "preprocessing", "datasets", "tokenizers", "visualization"}
)


@vocabulary.prefix(*PACKAGES)
def packaged(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """A model of a package of models, whose outputs nobody sees."""
    parts = name.split(".")
    last = next((part for part in parts[1:] if part[:1].isupper()), "")
    if not last or not NOT_MODELS.isdisjoint(parts) or last.endswith(("Tokenizer", "Preprocessor", "Converter", "Loss", "Metric")):
        return None
    made = Object(("layer", m.identity(place), m.round()), "keras model", name, place)
    policy = policy_of(m, args.named.get("dtype"), place)
    m.write(made.id, "#policy", policy)
    m.emit("layer made", place, layer=made, name=name, policy=policy, dtype=args.named.get("dtype"), args=args)
    return made


@call(*sorted(name for name in BASES if last_of(name) in MODELS))
def model(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A functional model, or a sequential one."""
    made = Object(("model", m.identity(place), m.round()), "keras model", name, place)
    m.write(made.id, "#policy", policy_of(m, args.named.get("dtype"), place))
    m.emit("container made", place, layer=made, name=name, policy=policy_held(m, made), dtype=args.named.get("dtype"))
    filled(m, made, last_of(name) == "Sequential", args, place)
    return made


def filled(m: Machine, made: Object, sequential: bool, args: Args, place: Place) -> None:
    """A model gets its outputs, or its layers."""
    if sequential:
        given = args.get(0, "layers")
        m.write(made.id, "#output", tensor(SINGLE, tags=frozenset({"symbolic", "first"})))
        for layer in (items_of(m, given, place.position) or ()) if given is not None else ():
            add(m, made, layer, place)
        return
    outputs = args.get(1, "outputs") or args.named.get("output")  # as Keras 1 calls them
    if outputs is None:
        return
    m.write(made.id, "#output", outputs)
    m.emit("model made", place, model=made, outputs=held_out(m, outputs), policy=policy_held(m, made), name=str(made.type))


def held_out(m: Machine, value: Value, depth: int = 0) -> Value:
    """Outputs with lists and dicts of them as tuples."""

    def one(atom: Atom) -> Value:
        if depth > 2:
            return atom
        items = items_of(m, atom, 0) if type(atom) is Items or (type(atom) is Object and atom.kind == "list") else None
        if items is None and type(atom) is Object and atom.kind == "dict":
            entries = entries_of(m, atom)
            items = [item for _, item in entries.entries] if entries is not None else None
        return Items(tuple(held_out(m, item, depth + 1) for item in items)) if items is not None else atom

    return m.each(value, one)


def add(m: Machine, model: Object, layer: Value, place: Place) -> None:
    """`model.add(layer)`."""
    before = m.read(model.id, "#output") or tensor(SINGLE)
    output = m.each(layer, lambda atom: called(m, atom, Args((before,), None, (0,)), place) if is_layer(m, atom) else before)
    m.write(model.id, "#output", output)
    m.emit("model made", place, model=model, outputs=output, policy=policy_held(m, model), name="Sequential")


# instances of project classes


def instance_made(m: Machine, made: Object, bases: Sequence[str], args: Args, place: Place) -> None:
    """An instance of a project's layer takes the global policy."""
    if not any(is_layer_name(name) for name in bases):
        return
    assert type(made.type) is Class
    dtype = args.named.get("dtype") if class_member(m, made.type, "__init__") is None else None
    m.write(made.id, "#policy", policy_of(m, dtype, place))
    m.emit("layer made", place, layer=made, name=made.type.name, policy=policy_held(m, made), dtype=dtype, args=args)
    if any(last_of(name) in MODELS for name in bases) and class_member(m, made.type, "__init__") is None:
        filled(m, made, any(last_of(name) == "Sequential" for name in bases), args, place)


vocabulary.made.append(instance_made)


def base_initialized(m: Machine, instance: Object, args: Args, place: Place) -> None:
    """`super().__init__(dtype=…)` of a layer, `super().__init__(inputs, outputs)` of a model."""
    names = [name for name in bases_of(m, instance) if is_layer_name(name)]
    if not names:
        return
    dtype = args.named.get("dtype")
    if dtype is not None and not (type(dtype) is Constant and dtype.value is None):
        open_policy = any(type(a) is State and a.data[0] == OPEN for a in atoms(m.state("policy")))  # type: ignore[index]
        if type(dtype) is Unknown and open_policy:
            m.write(instance.id, "#policy", State((OPEN, None)))
        else:
            m.write(instance.id, "#policy", policy_of(m, dtype, place))
    flag = args.named.get("autocast") or args.named.get("experimental_autocast")
    if type(flag) is Constant and flag.value is False:
        m.write(instance.id, "_autocast", FALSE)
    if any(last_of(name) in MODELS for name in names) and (args.get(1, "outputs") is not None or "outputs" in args.named):
        filled(m, instance, False, args, place)
    elif any(last_of(name) == "Sequential" for name in names):
        filled(m, instance, True, args, place)


vocabulary.initialized.append(base_initialized)


def opening(m: Machine, cls: Class) -> Callable[[Object, int], None] | None:
    """How Keras uses a layer that nobody makes in the project: it is built and called with tensors of its compute dtype."""
    if not is_layer_class(m, cls):
        return None
    member = class_member(m, cls, "call")
    if member is None:
        return (lambda given, position: trained_by_keras(m, given, m.here(position))) if own_step(m, cls) else None

    def use(given: Object, position: int) -> None:
        place = m.here(position)
        trained_by_keras(m, given, place)
        made = of_keras(m, given, cls, position)
        if not is_open(policy_held(m, made)) and any(type(a) is Function and a.code in m.called for a in atoms(member[0])):
            return  # a script has run it, under the policy that was in force there
        inputs = [(guards, tensor(letter_of(a), tags=frozenset({NEST, "given"}))) for guards, a in options(policy_held(m, made))]
        value = join(inputs)
        output = run_call(m, made, Args((value,), None, (position,), None, True), place)
        m.emit("layer used", place, layer=made, output=output, model=is_model(m, made))
        if is_model(m, made) and m.read(made.id, "#output") is None:
            m.emit("model made", place, model=made, outputs=held_out(m, output), policy=policy_held(m, made), name=cls.name)

    return use


vocabulary.openings.append(opening)


def own_step(m: Machine, cls: Class) -> bool:
    """Whether a model trains by a step of its own, with the optimizer that `compile()` has been given."""
    return class_member(m, cls, "train_step") is not None and class_member(m, cls, "compile") is None


def trained_by_keras(m: Machine, model: Object, place: Place) -> None:
    """Run the `train_step` of a model that nobody compiles in the project, with the optimizer that it finds then."""
    from mplint.frameworks.keras.loops import wrapped_by_compile
    from mplint.program.calls import call_method

    if type(model.type) is Class and own_step(m, model.type) and m.read(model.id, "optimizer") is None:
        given = Object(("keras optimizer", m.identity(place), "compile"), "keras optimizer", "compile", None)
        m.write(model.id, "optimizer", wrapped_by_compile(m, given, policy_held(m, model), Args(), place))
        data = Unknown(f"data{IDENTITY}{place.path}:{place.position}")
        call_method(m, model, "train_step", Args((data,), None, (place.position,)), place.position, place.position)


def of_keras(m: Machine, given: Object, cls: Class, position: int) -> Object:
    """An instance whose bases are those of Keras alone, where the project chooses between several backends."""

    def kept(base: Value) -> Value:
        found = [a for a in atoms(base) if (type(a) is External and is_layer_name(m.library.canonical(a.name))) or type(a) is Class]  # type: ignore[attr-defined]
        own = [a for a in found if type(a) is External or is_layer_class(m, a)]  # type: ignore[arg-type]
        return own[0] if own and len(options(base)) > 1 else base

    bases = tuple(kept(base) for base in cls.bases)
    if bases == cls.bases:
        return given
    made = instantiate(m, replace(cls, bases=bases), Args(opaque=True), position)
    return made if type(made) is Object else given


def is_open(policy: Value) -> bool:
    """Whether a policy is one that callers set, and no other."""
    return all(type(a) is State and isinstance(a.data, tuple) and a.data[0] == OPEN for a in atoms(policy))


def letter_of(policy: Atom) -> str:
    """The compute dtype's letter of a policy."""
    return compute_letter(str(policy.data[0])) if type(policy) is State else ANY  # type: ignore[index]


def run_call(m: Machine, layer: Object, args: Args, place: Place) -> Value:
    """Build an instance of a project's layer where it is not built yet, and run its `call`."""
    from mplint.program.calls import call_method

    assert type(layer.type) is Class
    if m.read(layer.id, "#built") is None:
        m.write(layer.id, "#built", Constant(True))
        if class_member(m, layer.type, "build") is not None:
            shape = Unknown(f"input_shape{IDENTITY}{place.path}:{place.position}")
            call_method(m, layer, "build", Args((shape,), None, (place.position,)), place.position, place.position)
    if class_member(m, layer.type, "call") is None:
        return Unknown(f"{layer.type.name}(){IDENTITY}{place.path}:{place.position}")
    return call_method(m, layer, "call", in_training(m, layer, args, place), place.position, place.position)


def in_training(m: Machine, layer: Object, args: Args, place: Place) -> Args:
    """The arguments of a layer's `call` with the `training` that Keras gives it: the caller's, that of the layer around, or what runs."""
    codes = calls_of(m, layer)
    at = [[p[0] for p in code.parameters].index("training") - 1 for code in codes if any(p[0] == "training" for p in code.parameters)]
    if not at or args.opaque or args.get(at[0], "training") is not None:
        return args
    around = next((frame for frame in reversed(m.frames) if frame.code is not None and frame.code.name == "call"), None)
    value = m.read(around.id, "training") if around is not None else None
    given = Unknown(f"training{IDENTITY}{place.path}:{place.position}") if value is None else value
    return Args(args.positional, {**args.named, "training": given}, args.places, args.named_places, args.opaque, args.holders)


def calls_of(m: Machine, layer: Object) -> list[Code]:
    """What a layer's `call` may be."""
    member = class_member(m, layer.type, "call") if type(layer.type) is Class else None
    return [atom.code for atom in atoms(member[0]) if type(atom) is Function] if member is not None else []


# calling layers


def cast_inputs(m: Machine, layer: Object, args: Args, place: Place) -> Args:
    """The arguments of a layer's `call` as autocast gives them: the first in the compute dtype, by its name as well; all in Keras 3."""
    off = m.read(layer.id, "_autocast") or m.read(layer.id, "autocast")
    name = "" if args.positional else first_argument(m, layer)
    given = args.positional[0] if args.positional else args.named.get(name)
    if given is None or (type(off) is Constant and off.value is False):
        return args
    letters = [(guards, letter_of(atom)) for guards, atom in options(policy_held(m, layer))]
    if keras_3(m, place):
        every = tuple(join((guards, cast_value(m, value, letter)) for guards, letter in letters) for value in args.positional)
        named = {key: join((guards, cast_value(m, value, letter)) for guards, letter in letters) for key, value in args.named.items()}
        return Args(every, named, args.places, args.named_places, args.opaque)
    first = join((guards, cast_value(m, given, letter)) for guards, letter in letters)
    if args.positional:
        return Args((first, *args.positional[1:]), args.named, args.places, args.named_places, args.opaque)
    return Args((), {**args.named, name: first}, args.places, args.named_places, args.opaque)


def first_argument(m: Machine, layer: Object) -> str:
    """The name of what a layer's `call` is given first."""
    codes = calls_of(m, layer)
    return str(codes[0].parameters[1][0]) if codes and len(codes[0].parameters) > 1 else "inputs"


def cast_value(m: Machine, value: Value, letter: str, depth: int = 0) -> Value:
    """A value with its floating tensors cast."""

    def one(atom: Atom) -> Value:
        if type(atom) is Tensor and TF in atom.tags:
            if atom.dtypes <= {INTEGER, "?b"} or letter == ANY:
                return atom
            kept = frozenset({TF}) | (atom.tags & {NEST, "symbolic"})
            if letter in LOW and is_island(atom):
                kept |= {TAKEN_BACK}
            return Tensor(frozenset({letter}), half=atom.half if letter in LOW else (), tags=kept, forward=atom.forward)
        entries = entries_of(m, atom) if depth < 3 and type(atom) is Object and atom.kind == "dict" else None
        if entries is not None:
            cast_entries = tuple((key, cast_value(m, item, letter, depth + 1)) for key, item in entries.entries)
            return new_dict(m, Entries(cast_entries, entries.rest), atom.made.position if type(atom) is Object and atom.made else 0)
        items = items_of(m, atom, 0) if depth < 3 and (type(atom) is Items or (type(atom) is Object and atom.kind == "list")) else None
        if items is not None:
            from mplint.program.expressions import new_list

            changed = Items(tuple(cast_value(m, item, letter, depth + 1) for item in items))
            return changed if type(atom) is Items else new_list(m, changed, (getattr(atom, "made", None) and atom.made.position) or 0)  # type: ignore[union-attr]
        return atom

    return m.each(value, one)


def is_island(atom: Atom) -> bool:
    """Whether something was computed in half, cast to float32 and left there."""
    return type(atom) is Tensor and atom.dtypes == {SINGLE} and ISLAND in atom.tags


def called(m: Machine, layer: Atom, args: Args, place: Place) -> Value:
    """What calling a layer gives."""
    if type(layer) is not Object:
        return Unknown(f"layer(){IDENTITY}{place.path}:{place.position}")
    given = [t for value in args.all() for t in gathered(m, value)]
    symbolic = any("symbolic" in t.tags for t in given)
    if type(layer.type) is Class:
        if m.read(layer.id, "#output") is not None and class_member(m, layer.type, "call") is None:
            return called_model(m, layer, given, place)
        noted(m, layer, given, place, model=is_model(m, layer))
        result = run_call(m, layer, computed(m, cast_inputs(m, layer, args, place)), place)
        if any(is_island(t) for t in given) and any(is_island(t) for t in gathered(m, result)):
            m.emit("float32 rounded between layers", place, layer=layer)
        if is_model(m, layer) and layer.made is not None and not is_open(policy_held(m, layer)) and not inside_layer(m):
            outputs, policy = held_out(m, result), policy_held(m, layer)
            m.emit("model made", layer.made, model=layer, outputs=outputs, policy=policy, name=layer.type.name, how="called")
        return marked(m, result) if symbolic else result
    if layer.kind == "keras model":
        return called_model(m, layer, given, place)
    output = output_of(m, layer, last_of(str(layer.type)), given, place, args)
    m.emit("layer called", place, layer=layer, symbolic=symbolic, model=False, given=tuple(given), output=output)
    return output


def noted(m: Machine, layer: Object, given: Sequence[Tensor], place: Place, model: bool) -> None:
    """Note that a layer is called. `inside`: by another layer, of which it is a part."""
    symbolic = any("symbolic" in t.tags for t in given)
    tape, inside = m.state("tape"), inside_layer(m)
    m.emit("layer called", place, layer=layer, symbolic=symbolic, model=model, given=tuple(given), tape=tape, inside=inside)


def inside_layer(m: Machine) -> bool:
    """Whether the `call` of a layer is running: what that calls is a part of it."""
    return any(f.code is not None and f.code.name == "call" and f.owner is not None and is_layer_class(m, f.owner) for f in m.frames)


def handed_on(m: Machine, callee: Atom, args: Args, place: Place) -> Value | None:
    """Models that are given to code that nobody sees, which may train them, and models of such code that are trained here."""
    if type(callee) is External and "." in callee.name:
        unknown_model(m, External(callee.name.rpartition(".")[0]), last_of(callee.name), args, place)
    if not (type(callee) is External and callee.name.startswith(("builtins.", "keras.", "tensorflow."))):
        for model in (atom for value in args.all() for atom in atoms(value) if is_model(m, atom)):
            m.emit("model handed on", place, model=model)
    return None


vocabulary.atom_calls.append(handed_on)

OF_FIT = frozenset({"epochs", "batch_size", "validation_data", "validation_split", "callbacks", "steps_per_epoch", "verbose"})
OF_COMPILE = frozenset({"optimizer", "loss", "metrics"})
OF_UNKNOWN = {"fit": OF_FIT, "fit_generator": OF_FIT, "compile": OF_COMPILE}


def unknown_model(m: Machine, model: Atom, name: str, args: Args, place: Place) -> None:
    """That something which nobody knows is trained as only a model of Keras is."""
    ir = m.project.ir(place.path)
    speaks = ir is not None and not ir[2].isdisjoint(("keras", "tensorflow"))
    if not speaks or name not in OF_UNKNOWN:
        return
    key = ("unknown model", model.symbol if type(model) is Unknown else model.name if type(model) is External else "")
    if not OF_UNKNOWN[name].isdisjoint(args.named) or m.read(key, "#compiled") is not None:
        m.write(key, "#compiled", NONE)
        m.emit("unknown model trained", place, model=model, how=name, args=args)


def of_unknown(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Methods of a model that nobody knows."""
    if type(atom) is Unknown:
        unknown_model(m, atom, name, args, place)
    return None


vocabulary.atom_methods.append(of_unknown)


def variables_read(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """The variables of a model that nobody knows: only models and layers of Keras call them so."""
    ir = m.project.ir(place.path) if type(atom) is Unknown and name in ("trainable_variables", "trainable_weights") else None
    if ir is not None and not ir[2].isdisjoint(("keras", "tensorflow")):
        m.emit("unknown model trained", place, model=atom, how=name, args=Args())
    return None


vocabulary.atom_attributes.append(variables_read)


def by(place: Place) -> str:
    """The tag of tensors that the layer made at a place gives."""
    return f"by:{place.path}:{place.position}"


def computed(m: Machine, args: Args) -> Args:
    """The arguments as a layer's own code sees them: tensors, even where a functional graph is built of the layer."""
    return Args([within(m, value) for value in args.positional], args.named, args.places, args.named_places, args.opaque)


def within(m: Machine, value: Value) -> Value:
    """A value with no tensor of a functional graph, as far as it holds some directly or in a tuple."""

    def one(atom: Atom) -> Value:
        if type(atom) is Items:
            return replace(atom, items=tuple(within(m, item) for item in atom.items))
        return atom.but(tags=atom.tags - {"symbolic"}) if is_tensor(atom) else atom  # type: ignore[union-attr]

    return m.each(value, one)


def marked(m: Machine, value: Value) -> Value:
    """A value whose tensors are part of a functional graph."""
    return m.each(value, lambda atom: atom.but(tags=atom.tags | {"symbolic"}) if is_tensor(atom) else atom)  # type: ignore[union-attr]


def called_model(m: Machine, model: Object, given: Sequence[Tensor], place: Place) -> Value:
    """What calling a functional or sequential model gives: its outputs."""
    noted(m, model, given, place, model=True)
    output = m.read(model.id, "#output")
    return output if output is not None else Unknown(f"model(){IDENTITY}{place.path}:{place.position}")


def output_of(m: Machine, layer: Object, last: str, given: Sequence[Tensor], place: Place, args: Args | None = None) -> Value:
    """The output of a layer of Keras, in its compute dtype."""
    inner = m.read(layer.id, "#layer")
    if last == "Lambda" and inner is not None and args is not None:
        return run_lambda(m, layer, inner, args, place)
    if last in ("TimeDistributed", "Bidirectional") and inner is not None:
        found = [a for a in atoms(inner) if is_layer(m, a)]
        if found:
            return called(m, found[0], args if args is not None else Args(), place)
    symbolic = frozenset({"symbolic"}) if any("symbolic" in t.tags for t in given) else frozenset()
    if last in INTEGER_OUTPUT:
        return tensor(INTEGER, tags=symbolic)
    if given and last in MIXES_INTEGERS and all(t.dtypes == {INTEGER} for t in given):
        return tensor(INTEGER, tags=symbolic)
    activation = activation_name(m, layer)
    below_made = frozenset(tag for t in given for tag in t.tags if tag.startswith("by:")) if last in PASSING else frozenset()
    found_options: list[tuple[Path, Value]] = []
    policies = options(policy_held(m, layer))
    every = given
    for guards, policy in policies:
        given = given_on(m, args, guards) if args is not None and len(policies) > 1 else every
        before: frozenset[str] = frozenset().union(*(t.forward for t in given))
        letter = letter_of(policy)
        if interpolates(m, layer, last, letter, place):
            letter = ANY
        tags = frozenset({TF, f"layer:{last}", *(("shape",) if last in SHAPES else ())}) | symbolic
        tags |= {by(layer.made)} if layer.made is not None else set()
        tags |= below_made
        if letter not in LOW:
            tags |= {f"activation:{activation[0]}"} if len(activation) == 1 and activation[0] else set()
            for low in given if last == "Activation" and activation == ["linear"] and letter == SINGLE else ():
                m.emit("cast", place, name="Activation", tensor=low, letter=letter, how="layer")
            found_options.append((guards, Tensor(frozenset({letter}), tags=tags, forward=before | {letter})))
            continue
        below = next((t for t in given if t.dtypes & frozenset(LOW) and t.half), None)
        if last in SHAPES and below is not None:
            kept = frozenset(t for t in below.tags if t.startswith(("activation:", "then:")))
            then = {f"then:{by(layer.made)}"} if layer.made is not None else set()
            found_options.append((guards, Tensor(frozenset({letter}), half=below.half, tags=tags | kept | then, forward=before | {letter})))
            continue
        above = next((t for t in given if t.dtypes == {SINGLE} and not t.tags.isdisjoint(PROBABLE)), None) if last in SHAPES else None
        if above is not None:
            tags |= {tag for tag in above.tags if tag.startswith("activation:")} | {"turned back"}
        where = policy.data[1] if type(policy) is State else None  # type: ignore[index]
        chain = chain_of(policy) if type(policy) is State and where != layer.made else ()
        if layer.made is not None:
            chain = (*chain, Step(layer.made, f"`{last}` computes in {WRITTEN[letter]}"))
        below_tags = (
            frozenset(t for t in below.tags if t.startswith("activation:"))
            if below is not None and last == "Activation" and activation == ["linear"]
            else frozenset()
        )
        for number, name in enumerate(activation):
            more = (
                guards if len(activation) == 1 else guards | {(("in", f"the activation{IDENTITY}{layer.id!r}", frozenset({number})), True)}
            )
            tagged = frozenset({f"activation:{name}"}) if name else frozenset()
            found_options.append(
                (more, Tensor(frozenset({letter}), half=chain, tags=tags | tagged | below_tags, forward=before | {letter}))
            )
    return join(found_options)


def given_on(m: Machine, args: Args, guards: Path) -> list[Tensor]:
    """The tensors that a layer is called with where some conditions hold."""
    path = extend(m.path, guards)
    return [t for value in args.all() for _, t in held_in(m, value, path)] if path is not None else []


def interpolates(m: Machine, layer: Object, last: str, letter: str, place: Place) -> bool:
    """Whether a layer resizes images between their pixels: before Keras 3 that gives float32 whatever its policy."""
    given = m.read(layer.id, "#interpolation") if last in RESIZES else None
    return given is not None and letter in LOW and not is_constant(given, "nearest") and not keras_3(m, place)


def is_constant(value: Value, text: str) -> bool:
    """Whether a value is a text."""
    return type(value) is Constant and value.value == text


def keras_3(m: Machine, place: Place) -> bool:
    """Whether a program is for Keras 3 alone, as far as its project says."""
    known = ((supported(m, place.path, package), version) for package, version in SINCE_KERAS_3)
    return any(versions is not None and versions.at_least(version) for versions, version in known)


def activation_name(m: Machine, layer: Object) -> list[str]:
    """The names of the activations that a layer may apply."""
    value = m.read(layer.id, "#activation")
    if value is None:
        top = m.read(layer.id, "#top")
        if top is not None:
            return ["softmax" if not (type(top) is Constant and top.value is False) else ""]
        return [""]
    found: list[str] = []
    for atom in atoms(value):
        if type(atom) is Constant and isinstance(atom.value, str):
            found.append(atom.value.lower())
        elif type(atom) is External:
            found.append(last_of(atom.name))
        elif type(atom) is Function:
            found.append(atom.code.name)
        else:
            found.append("")
    return list(dict.fromkeys(found))[:4]


def run_lambda(m: Machine, layer: Object, function: Value, args: Args, place: Place) -> Value:
    """A Lambda layer: its function on what autocast gives it."""
    from mplint.program.calls import call as run

    symbolic = any("symbolic" in t.tags for v in args.all() for t in gathered(m, v))
    given = computed(m, cast_inputs(m, layer, Args(args.positional[:1], None, args.places[:1]), place))
    if any(type(a) in (Function, Wrapped, External) for a in atoms(function)):
        result = run(m, function, given, place.position)
        if any(is_tensor(a) for a in atoms(result)):
            return marked(m, result) if symbolic else result
    low = [t for v in given.all() for t in gathered(m, v)]
    found = met(m, "Lambda", low, place, promotes=True)
    return found if found is not None else Unknown(f"Lambda(){IDENTITY}{place.path}:{place.position}")


def invoked(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value | None:
    """Calling a layer, a model, or an instance of a project's class that is one."""
    return called(m, receiver, args, place) if is_layer(m, receiver) else None


vocabulary.invoked |= {kind: invoked for kind in ("keras layer", "keras model", "instance")}


# methods and attributes of layers and models

WEIGHTS = ("add_weight", "add_variable")
RUNS = ("fit", "fit_generator", "train_on_batch")
SAVES = ("save", "save_weights", "export", "to_json", "get_config")


LOSSES = {"compiled_loss": 1, "compute_loss": 2}  # of a model that was compiled, with where each takes the predictions


def layer_method(m: Machine, receiver: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Methods that layers and models inherit from Keras."""
    if type(receiver) is not Object or not is_layer(m, receiver):
        return None
    if name in WEIGHTS:
        return weight(m, receiver, args, place)
    if name in ("call", "__call__"):
        if type(receiver.type) is Class:
            base = next((b for b in bases_of(m, receiver) if is_layer_name(b) and b not in BASES), None)
            given = [t for value in args.all() for t in gathered(m, value)]
            if name == "__call__" and class_member(m, receiver.type, name) is None:  # written out: `self.__call__(x)` is `self(x)`
                return called(m, receiver, args, place)
            if name == "__call__":
                return run_call(m, receiver, cast_inputs(m, receiver, args, place), place)
            if base is not None:
                return output_of(m, receiver, last_of(base), given, place, args)
            return m.read(receiver.id, "#output")
        return called(m, receiver, args, place)
    if name == "load_weights":
        m.emit("weights loaded", place, model=receiver)
        return NONE
    if name == "add_loss":
        m.emit("loss added", place, layer=receiver, ways=tuple(held_in(m, args.get(0, "loss") or NONE, m.path)))
        return NONE
    if name in ("build", "add_metric", "set_weights", "summary", "freeze", "unfreeze"):
        return NONE
    if name == "add" and args.positional and is_model(m, receiver):
        add(m, receiver, args.positional[0], place)
        return NONE
    if not is_model(m, receiver):
        return None
    if name == "compile":
        return compiled(m, receiver, args, place)
    if name in LOSSES:
        found = gathered(m, args.get(LOSSES[name], "y_pred"))
        return Tensor(frozenset({SINGLE}), forward=frozenset().union(*(t.forward for t in found)), tags=frozenset({TF}))
    if name in RUNS:
        return fitted(m, receiver, name, args, place)
    if name in ("evaluate", "predict", "predict_on_batch", "test_on_batch", "predict_generator"):
        m.emit("model run", place, model=receiver, how=name)
        return Unknown(f"model.{name}(){IDENTITY}{place.path}:{place.position}")
    if name in SAVES:
        saved(m, receiver, name, args.get(0, "filepath"), args, place)
        return Unknown(f"model.{name}(){IDENTITY}{place.path}:{place.position}")
    if name == "get_layer":
        return inner_layer(m, receiver, place) or Unknown(f"model.{name}(){IDENTITY}{receiver.id!r}{place.position}")
    return None


vocabulary.atom_methods.append(layer_method)


def inner_layer(m: Machine, model: Object, place: Place) -> Object | None:
    """A layer of a model of `keras.applications`: all of them follow the policy that was in force when it was made."""
    if not is_application(model):
        return None
    m.emit("inner layer taken", place, model=model)
    found = Object(("inner layer", model.id, m.identity(place)), "keras layer", str(model.type), place)
    m.write(found.id, "#policy", policy_held(m, model))
    return found


def is_application(model: Object) -> bool:
    """Whether a model is one of `keras.applications`."""
    return model.kind == "keras model" and str(model.type).startswith("keras.applications.")


@vocabulary.method("keras layer")
def of_layer(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    value = layer_method(m, receiver, name, args, place)
    return value if value is not None else Unknown(f"layer.{name}(){IDENTITY}{place.path}:{place.position}")


@vocabulary.method("keras model")
def of_model(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    value = layer_method(m, receiver, name, args, place)
    return value if value is not None else Unknown(f"model.{name}(){IDENTITY}{place.path}:{place.position}")


def saved(m: Machine, model: Value, how: str, path: Value | None, args: Args, place: Place) -> None:
    """Note that a model is written to a file."""
    m.emit("model saved", place, model=model, how=how, file=path, args=args, policy=m.state("policy"))


@call("keras.models.save_model", "keras.saving.save_model")
def save_model(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`save_model(model, path)`."""
    saved(m, args.get(0, "model") or NONE, "save_model", args.get(1, "filepath"), args, place)
    return NONE


@call("keras.callbacks.ModelCheckpoint")
def checkpoint(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A callback that saves the model as it is trained."""
    saved(m, NONE, "ModelCheckpoint", args.get(0, "filepath"), args, place)
    return Object(("callback", m.identity(place), m.round()), "keras callback", name, place)


def weight(m: Machine, layer: Object, args: Args, place: Place) -> Value:
    """`add_weight`: inside of `call` it reads in the compute dtype, whatever its own."""
    from mplint.frameworks.keras.policies import dtype_options

    given = args.get(2, "dtype")
    ways, where = written_dtypes(m, given), argument_place(place, args, 2, "dtype")
    if not any(type(a) is State and variable_letter(str(a.data[0])) in LOW for a in atoms(policy_held(m, layer))):  # type: ignore[index]
        ways += tuple((path, letter) for path, letter, how in dtype_options(m, given) if how == "followed" and letter == HALF)
    m.emit("weight made", place, ways=ways, dtype=where, trainable=args.named.get("trainable"), layer=layer)
    letter = next((letter for _, letter, _ in dtype_options(m, given)), None)
    if letter in (INTEGER, "?b"):
        return tensor(INTEGER)
    flag = args.named.get("autocast") or args.named.get("experimental_autocast")
    kept = type(flag) is Constant and flag.value is False  # it reads in its own dtype
    written = letter if kept and letter in (SINGLE, *LOW) else None
    letters = [(guards, written or held_letter(a) if kept else letter_of(a)) for guards, a in options(policy_held(m, layer))]
    return join((guards, tensor(letter, tags=frozenset({WEIGHT}))) for guards, letter in letters)


def held_letter(policy: Atom) -> str:
    """The variable dtype's letter of a policy: float32 of one that its users set, which is mixed if it is half."""
    if type(policy) is not State or policy.data[0] == OPEN:  # type: ignore[index]
        return SINGLE
    return variable_letter(str(policy.data[0]))  # type: ignore[index]


@vocabulary.follows("variable made")
def variable(m: Machine, event: Event) -> None:
    """A variable that a layer makes is a weight of it; one of anything else is trained where something trains."""
    running = (m.read(f.id, f.code.parameters[0][0]) for f in reversed(m.frames) if f.owner is not None and f.code and f.code.parameters)
    layer = next((atom for value in running if value is not None for atom in atoms(value) if is_layer(m, atom)), None)
    m.emit("weight made", event.place, **{**event.data, "layer": layer})


def compiled(m: Machine, model: Object, args: Args, place: Place) -> Value:
    """`compile()`: under a mixed_float16 policy of the model it wraps the optimizer."""
    from mplint.frameworks.keras.loops import wrapped_by_compile

    optimizer = args.get(0, "optimizer")
    policy = policy_held(m, model)
    use_model(m, model, place)
    m.emit("model compiled", place, model=model, optimizer=optimizer, policy=policy, loss=args.get(1, "loss"), args=args)
    if optimizer is not None:
        m.write(model.id, "optimizer", wrapped_by_compile(m, optimizer, policy, args, place))
    return NONE


def use_model(m: Machine, model: Object, place: Place) -> None:
    """Run the `call` of a subclassed model once, so that its outputs are known."""
    if type(model.type) is Class and m.read(model.id, "#used") is None and class_member(m, model.type, "call") is not None:
        m.write(model.id, "#used", Constant(True))
        given = join((guards, tensor(letter_of(a), tags=frozenset({NEST, "given"}))) for guards, a in options(policy_held(m, model)))
        output = run_call(m, model, Args((given,), None, (place.position,), None, True), place)
        made = model.made if model.made is not None else place
        m.emit("model made", made, model=model, outputs=held_out(m, output), policy=policy_held(m, model), name=model.type.name)


def fitted(m: Machine, model: Object, name: str, args: Args, place: Place) -> Value:
    """`fit()`: runs the model's own `train_step`, where it has one."""
    from mplint.program.calls import call_method

    use_model(m, model, place)
    m.emit("model fit", place, model=model, how=name, optimizer=m.read(model.id, "optimizer"), args=args, policy=policy_held(m, model))
    if type(model.type) is Class and class_member(m, model.type, "train_step") is not None and name != "train_on_batch":
        data = Unknown(f"data{IDENTITY}{place.path}:{place.position}")
        call_method(m, model, "train_step", Args((data,), None, (place.position,)), place.position, place.position)
    return Unknown(f"history{IDENTITY}{place.path}:{place.position}")


MULTIPLIES = re.compile(r"keras\.layers\.(?:(?:Einsum)?Dense|Conv[123]D(?:Transpose)?)$")  # whose weights read in the compute dtype


def layer_attribute(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """Dtypes of layers, and weights that the layer which a class extends makes for itself."""
    if type(atom) is not Object or not is_layer(m, atom):
        return None
    if name in ("compute_dtype", "_compute_dtype", "_compute_dtype_object"):
        return letters_of(m, policy_held(m, atom))
    if name in ("dtype", "variable_dtype", "_dtype"):
        if name == "dtype" and any(letter_of(a) in LOW for a in atoms(policy_held(m, atom))):
            made = Object(("variable dtype", place, m.round()), "variable dtype", "dtype", place)
            pure = all(letter_of(a) == variable_letter(str(a.data[0])) for a in atoms(policy_held(m, atom)) if type(a) is State)  # type: ignore[index]
            return letters_of(m, policy_held(m, atom), variable_letter) if pure else made
        return letters_of(m, policy_held(m, atom), variable_letter)
    if name in ("dtype_policy", "_dtype_policy"):
        return policy_object(m, policy_held(m, atom), place)
    if name in ("kernel", "bias") and any(MULTIPLIES.match(base) for base in bases_of(m, atom)):
        return join((guards, tensor(letter_of(a), tags=frozenset({WEIGHT}))) for guards, a in options(policy_held(m, atom)))
    if name == "optimizer" and is_model(m, atom):
        return Unknown(f"model.optimizer{IDENTITY}{atom.id!r}")
    if name in ("output", "outputs") and atom.kind == "keras model":
        m.emit("outputs read", place, model=atom)
        return m.read(atom.id, "#output")
    if name in ("input", "inputs") and atom.kind == "keras model":
        return tensor(SINGLE, tags=frozenset({"symbolic"}))
    if name == "layers" and is_application(atom):
        return Items((), inner_layer(m, atom, place))
    if name == "output" and str(atom.type).startswith("keras.applications."):
        return join((guards, tensor(letter_of(policy), tags=frozenset({"symbolic"}))) for guards, policy in options(policy_held(m, atom)))
    if atom.kind in ("keras layer", "keras model") and name in (
        "trainable_variables",
        "trainable_weights",
        "variables",
        "weights",
        "losses",
    ):
        return Unknown(f"model.{name}{IDENTITY}{atom.id!r}")
    return None


vocabulary.atom_attributes.append(layer_attribute)


def policy_assigned(m: Machine, receiver: Atom, name: str, value: Value, place: Place) -> None:
    """`layer.dtype_policy = …`."""
    if name in ("dtype_policy", "_dtype_policy") and type(receiver) is Object and is_layer(m, receiver):
        m.write(receiver.id, "#policy", policy_of(m, value, place))


vocabulary.attribute_assigned.append(policy_assigned)


@vocabulary.prefix("keras.losses.", "keras.metrics.", "tensorflow_addons.losses.", "tensorflow.losses.")
def loss(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """A loss as an object, or as a function of labels and predictions."""
    last = last_of(name)
    if last[:1].isupper():
        made = Object(("loss", m.identity(place), m.round()), "keras loss", name, place)
        m.emit("loss made", place, loss=made, name=name)
        return made
    given = next((v for v in map(args.named.get, ("logits", "predictions")) if v is not None), None)
    predictions = gathered(m, given if given is not None else args.get(1, "y_pred"))
    if not last.endswith("accuracy"):  # of which half precision keeps enough
        m.emit("loss taken", place, name=name, predictions=tuple(predictions), function=True, logits=args.named.get("from_logits"))
    taken = met(m, name, [t for v in args.all() for t in gathered(m, v)], place, promotes=True)
    return added_up_here(taken, place) if taken is not None else None


@vocabulary.invoke("keras loss")
def loss_called(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """A loss of labels and predictions."""
    found = gathered(m, args.get(1, "y_pred"))
    m.emit("loss taken", place, name=str(receiver.type), predictions=tuple(found), function=False, logits=None)
    forward: frozenset[str] = frozenset().union(*(t.forward for t in found))
    return Tensor(frozenset({SINGLE}), forward=forward, tags=frozenset({TF}))


@call("keras.models.load_model", "keras.saving.load_model", "keras.models.clone_model", "keras.models.model_from_json",
      "keras.models.model_from_config", "tensorflow.saved_model.load")  # fmt: skip
def loaded(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A model whose layers keep the policies that they were saved with."""
    made = Object(("model", m.identity(place), m.round()), "keras model", name, place)
    m.write(made.id, "#policy", m.state("policy"))
    m.emit("model loaded", place, model=made, name=name, policy=m.state("policy"), file=args.get(0, "filepath"), args=args)
    return made


__all__ = ["COMPUTE", "vocabulary"]
