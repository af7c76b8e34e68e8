"""Pretrained models of transformers, diffusers and peft: in which dtype they are loaded, adapters, quantized loading, pipelines."""

from __future__ import annotations

import re
from itertools import product
from typing import NamedTuple

from mplint.frameworks.options.names import spelled
from mplint.frameworks.releases import pinned_below
from mplint.frameworks.torch.protocol import dtype_of, map_value
from mplint.frameworks.trainers.weights import (
    CLASS,
    OWN,
    Group,
    add_group,
    cast,
    change,
    freeze,
    groups_of,
    is_model,
    owner_of,
    weights,
)
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.conditions import Path, extend
from mplint.program.expressions import external_bases, longest
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.store import join
from mplint.program.values import (
    ANY,
    FALSE,
    HALF,
    INTEGER,
    NONE,
    SINGLE,
    Atom,
    By,
    Class,
    Constant,
    DType,
    Items,
    Method,
    Object,
    Place,
    State,
    Step,
    Unknown,
    Value,
    atoms,
    options,
)

vocabulary = Vocabulary()
call = vocabulary.call
method = vocabulary.method

HOMES = ("transformers.", "diffusers.", "peft.", "sentence_transformers.", "timm.", "open_clip.", "trl.")
LOADERS = frozenset({"from_pretrained", "from_single_file", "from_config", "from_pipe"})
# ends of the names of classes that are no models
NOT_MODELS = (
    "Tokenizer",
    "TokenizerFast",
    "Scheduler",
    "Processor",
    "Config",
    "FeatureExtractor",
    "ImageProcessor",
    "Arguments",
    "Trainer",
    "Callback",
    "Collator",
    "DataCollator",
    "Dataset",
    "Criteria",
    "CriteriaList",
    "LogitsProcessor",
    "Streamer",
    "Parser",
    "EMAModel",
    "AttnProcessor",
    "AttnProcsLayers",
    "Output",
)
# attributes of pipelines that hold models
COMPONENTS = frozenset(
    [
        "unet",
        "vae",
        "text_encoder",
        "text_encoder_2",
        "text_encoder_3",
        "transformer",
        "transformer_2",
        "prior",
        "controlnet",
        "image_encoder",
        "prior_prior",
        "decoder",
        "vqgan",
        "vqvae",
        "safety_checker",
        "adapter",
        "motion_adapter",
    ]
)
ITSELF = frozenset({"module", "base_model", "model", "_orig_mod"})
WORDS = {HALF: "loaded in float16 here"}


def is_class_of_models(name: str) -> bool:
    """Whether a dotted name of these packages is a class of models."""
    last = name.rpartition(".")[2]
    return last[:1].isupper() and not last.endswith(NOT_MODELS) and "Tokenizer" not in last and "Config" not in last


@vocabulary.prefix(*HOMES)
def loaded(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """A model that is loaded or built."""
    home, _, last = name.rpartition(".")
    if last in LOADERS:
        if not is_class_of_models(home):
            return None
        return made_model(m, home, args, place)
    if last.endswith("Pipeline") or not is_class_of_models(name) or not home:
        return None
    if any(word in last for word in ("Model", "ForCausalLM", "ForConditional", "Transformer", "AutoencoderKL", "Prior")):
        return made_model(m, name, args, place)
    return None


def made_model(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A model (or a pipeline of models) in the dtype that its loading asks for."""
    last = name.rpartition(".")[2]
    pipeline = "Pipeline" in last
    made = Object(("model", m.identity(place)), "pipeline" if pipeline else "model", name, place)
    asked = args.named.get("torch_dtype", args.named.get("dtype"))
    asked = spelled(m, asked) if asked is not None else None
    m.write(made.id, "@weights", loaded_weights(asked, quantized(args), args.opaque, place))
    m.emit("model loaded", place, model=made, name=name, dtype=asked, args=args)
    if pipeline:
        for part, value in args.named.items():
            if part in COMPONENTS:
                m.write(made.id, part, value)
    if name.endswith("PeftModel") or "PeftModel" in last:
        base = args.get(0, "model")
        return adapted(m, base, args, place) if base is not None else made
    return made


class Ways(NamedTuple):
    """The conditions under which weights are loaded in the dtype that is asked for, and those under which in fewer bits."""

    whole: list[Path]
    few: list[Path]


def quantized(args: Args) -> Ways:
    """When the weights are loaded in fewer bits."""
    ways = Ways([frozenset()], [])
    for name in ("load_in_8bit", "load_in_4bit", "quantization_config"):
        value = args.named.get(name)
        if value is not None:
            kept: list[Path] = []
            for way, (guards, atom) in product(ways.whole, options(value)):
                both = extend(way, guards)
                if both is not None:
                    (kept if type(atom) is Constant and not atom.value else ways.few).append(both)
            ways = Ways(kept, ways.few)
    return ways


def loaded_weights(asked: Value | None, ways: Ways, opaque: bool, place: Place) -> Value:
    """The groups of a model that was just loaded."""
    held = options(loaded_in(asked, opaque, place)) if ways.whole else ()
    whole = [(both, state) for way in ways.whole for guards, state in held if (both := extend(way, guards)) is not None]
    return join([*whole, *((way, State((Group(OWN, INTEGER, False),))) for way in ways.few)])


def loaded_in(asked: Value | None, opaque: bool, place: Place) -> Value:
    """The groups of a model that is loaded in some dtype."""
    if asked is None:
        return State((Group(OWN, ANY if opaque else SINGLE),))
    found = []
    for guards, letter in dtype_of(asked):
        chosen = SINGLE if letter is None else letter
        chain = (Step(place, WORDS[chosen], By.LOADING),) if chosen in WORDS else ()
        found.append((guards, State((Group(OWN, chosen, True, chain),))))
    return join(found)  # type: ignore[arg-type]


# what makes loaders of models, and loaders by name: `load_model = ModelLoader[Model, Config](…)`, `load_model(card, dtype=…)`
LOADER_MAKERS = ("ModelLoader", "StandardModelLoader", "DelegatingModelLoader")
LOADER = re.compile(r"load_(\w+_)?model")


@vocabulary.prefix("fairseq2.models.")
def loader_of_models(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """A model that is loaded by name, in float32 unless a dtype is given, or an object that loads such models."""
    last = name.rpartition(".")[2]
    if LOADER.fullmatch(last):
        return made_model(m, name, args, place)
    return Object(("loader", m.identity(place)), "loader of models", name, place) if last in LOADER_MAKERS else None


@vocabulary.invoke("loader of models")
def load(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    return made_model(m, str(receiver.type), args, place)


def unknown_loader(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`model_class.from_pretrained(…)`, where nobody knows the class."""
    if type(atom) is not Unknown or name != "from_pretrained":
        return None
    last = atom.symbol.partition(IDENTITY)[0].lower()
    if any(word in last for word in ("tokenizer", "processor", "scheduler", "config", "extractor")):
        return None
    return made_model(m, "transformers.PreTrainedModel", args, place)


vocabulary.atom_methods.append(unknown_loader)


def loader_of_class(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """`Net.from_pretrained`, where the project's class `Net` extends one of such a package's."""
    if type(atom) is not Class or name not in LOADERS:
        return None
    return Method(atom, name) if home_of(m, atom) else None


vocabulary.atom_attributes.append(loader_of_class)


def home_of(m: Machine, cls: Class) -> str:
    """The class of models of another package that a class of the project extends, or ""."""
    bases = (m.library.canonical(base) for base in external_bases(m, cls))  # type: ignore[attr-defined]
    return next((base for base in bases if base.startswith(HOMES) and is_class_of_models(base)), "")


def loaded_by_class(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """A model that a class of the project loads: it is one of that class, built with what nobody knows."""
    home = home_of(m, atom) if type(atom) is Class and name in LOADERS else ""
    if not home:
        return None
    made = made_model(m, home, args, place)
    if type(made) is Object:
        m.write(made.id, CLASS, atom)
    return made


vocabulary.atom_methods.append(loaded_by_class)


# attributes and methods of models


def read(m: Machine, receiver: Atom, name: str, place: Place) -> Value | None:
    """Attributes of pretrained models and of pipelines."""
    assert type(receiver) is Object
    if name == "dtype":
        return map_value(weights(m, receiver), lambda s: DType(next((g.dtype for g in groups_of(s) if g.name == OWN), ANY)))
    if receiver.kind == "model" and name in ITSELF:
        return receiver
    if receiver.kind == "pipeline" and name in COMPONENTS:
        part = Object(("component", receiver.id, name), "model", f"diffusers.{name}", receiver.made)
        m.write(part.id, "@weights", weights(m, receiver))
        m.write(receiver.id, name, part)
        return part
    return Unknown(f"{name}{IDENTITY}{receiver.id!r}"[:200], "torch.device" if name == "device" else "")


vocabulary.attributes.update({"model": read, "pipeline": read})


@method("model", "add_adapter")
def add_adapter(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """Adapters get the dtype of the model, whose own parameters they freeze."""
    add_group(m, receiver, "adapter", place, words="the adapter's parameters take the model's float16 here")
    return NONE


@method("model", "get_base_model", "merge_and_unload", "to_bettertransformer", "train", "eval")
@method("pipeline", "enable_model_cpu_offload")
def same(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    return receiver


@method(
    "model", "enable_input_require_grads", "gradient_checkpointing_enable", "enable_gradient_checkpointing", "print_trainable_parameters"
)
def nothing(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    return NONE


@call("peft.get_peft_model")
def get_peft_model(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Adapters around a model: float32 even where the model is in half, unless that is switched off."""
    base = args.get(0, "model")
    return adapted(m, base, args, place) if base is not None else Unknown(f"get_peft_model(){IDENTITY}{place}")


def adapted(m: Machine, base: Value, args: Args, place: Place) -> Value:
    """A model with adapters of peft, which come in the model's dtype where it says so, and in all versions before 0.12."""
    casts = args.named.get("autocast_adapter_dtype")
    keeps = (type(casts) is Constant and casts.value is False) or pinned_below(m, "peft", "0.12", place)
    for atom in atoms(base):
        if type(atom) in (Object, Unknown):
            add_group(
                m,
                atom,
                "adapter",
                place,
                dtype="" if keeps else SINGLE,
                words="the adapter's parameters keep the model's float16 here",
            )
    return base


@call("peft.inject_adapter_in_model")
def inject(m: Machine, name: str, args: Args, place: Place) -> Value:
    base = args.get(1, "model")
    for atom in atoms(base) if base is not None else ():
        if type(atom) is Object:
            add_group(m, atom, "adapter", place, words="the adapter's parameters take the model's float16 here")
    return base if base is not None else NONE


@call("peft.prepare_model_for_kbit_training", "peft.prepare_model_for_int8_training", "peft.utils.prepare_model_for_kbit_training")
def prepare_quantized(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Freezes the model, and casts what is in half to float32."""
    base = args.get(0, "model")
    for atom in atoms(base) if base is not None else ():
        if type(atom) in (Object, Unknown):
            change(m, atom, lambda g: g._replace(trained=False, dtype=SINGLE if g.dtype != INTEGER else INTEGER, chain=()))
    return base if base is not None else NONE


@call("diffusers.training_utils.cast_training_params")
def cast_training_params(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The trained parameters of models in another dtype, float32 by default."""
    models, dtype = args.get(0, "model"), args.get(1, "dtype")
    letters = [letter for _, letter in dtype_of(dtype)] if dtype is not None else [SINGLE]
    letter = letters[0] if len(letters) == 1 and letters[0] else ANY
    for model in flattened(m, models, place):
        change(m, model, lambda g: g._replace(dtype=letter, chain=()) if g.trained is not False else g)
    return NONE


def flattened(m: Machine, value: Value | None, place: Place) -> list[Atom]:
    """The models in a value or a list of values."""
    found: list[Atom] = []
    for _, atom in options(value) if value is not None else ():
        items = longest(m, atom, place.position)
        if items is not None:
            found += [a for v in items for a in atoms(v)]
        elif type(atom) in (Object, Unknown):
            found.append(atom)
    return [a for a in found if type(a) in (Object, Unknown)]


__all__ = ["FALSE", "Items", "cast", "freeze", "is_model", "owner_of", "vocabulary"]
