"""Trainers that bring the loop along: transformers' and trl's Trainer with its arguments, Lightning's Trainer."""

from __future__ import annotations

from collections.abc import Sequence

from mplint.configs.trainers.duties import configured, kind_of
from mplint.configs.trainers.duties import trainer as trainer_kind
from mplint.frameworks.releases import supported
from mplint.frameworks.trainers.loops import switched
from mplint.frameworks.trainers.models import adapted
from mplint.frameworks.trainers.optimizers import Chosen, note_half
from mplint.frameworks.trainers.running import keep, train
from mplint.frameworks.trainers.settings import note
from mplint.frameworks.trainers.weights import weights
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.conditions import EMPTY, Path, extend
from mplint.program.expressions import attribute, truths
from mplint.program.machine import IDENTITY, Args, Machine, Switch
from mplint.program.store import join
from mplint.program.values import (
    BFLOAT,
    HALF,
    NONE,
    SINGLE,
    Atom,
    Class,
    Constant,
    DType,
    Object,
    Place,
    Unknown,
    Value,
    atoms,
    options,
)

vocabulary = Vocabulary()
TRANSFORMERS = trainer_kind("transformers")


@vocabulary.prefix("transformers.", "trl.", "sentence_transformers.")
def arguments(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """`TrainingArguments(…)`, with its flags, and `Trainer(model, args)`."""
    kind = configured(name)
    if kind is not None:
        note(m, name, args, place)
        made = Object(("arguments", m.identity(place)), "training arguments", name, place)
        for key, value in args.named.items():
            m.write(made.id, key, value)
        if not args.opaque:
            for flag, _ in kind.switch:
                if flag not in args.named:
                    m.write(made.id, flag, Constant(False))
        dtypes = tuple(switched(m, kind, args))
        m.emit("trainer precision", place, trainer=made, title=kind.title, precision=None, dtypes=dtypes, model=None, scales=False)
        return made
    kind = kind_of(name)
    if kind is not None and kind.makes(name):
        return trainer(m, Object(("trainer", m.identity(place)), "trainer", name, place), args, place)
    return None


def trainer(m: Machine, made: Object, args: Args, place: Place) -> Object:
    """A trainer that is given a model and its arguments."""
    model, given = args.get(0, "model"), args.get(1, "args")
    if model is not None and "peft_config" in args.named:
        m.each(args.named["peft_config"], lambda config: model if config == NONE else adapted(m, model, Args(), place))
    dtypes = [*flags(m, given, place), *alike(m, given, model, place)] if given is not None else [(frozenset(), SINGLE)]
    m.write(made.id, "#model", model if model is not None else NONE)
    m.write(made.id, "#dtypes", join((guards, DType(letter)) for guards, letter in dtypes))
    keep(m, made, TRANSFORMERS, args)
    m.emit("trainer precision", place, trainer=made, title="transformers", precision=given, dtypes=tuple(dtypes), model=model, scales=True)
    chosen = [Chosen(a, "") for a in atoms(model) if type(a) in (Object, Unknown)] if model is not None else []
    from_outside = given is not None and not all(type(a) is Object and a.kind == "training arguments" for a in atoms(given))
    ir = m.project.ir(place.path)
    if not from_outside or ir is None or "deepspeed" not in ir[2]:  # the arguments may choose that engine, which keeps masters of all
        engine = from_outside and supported(m, place.path, "deepspeed") is not None  # it keeps masters of a whole model
        note_half(m, chosen, made, place, "trainer made", only_added=engine)
    return made


def flags(m: Machine, given: Value, place: Place) -> list[tuple[Path, str]]:
    """The dtypes that a trainer's arguments ask for; only those that the program itself sets."""
    found: list[tuple[Path, str]] = []
    for guards, atom in options(given):
        plain = plain_ways(m, atom) if type(atom) is Object else []
        for flag, letter in (("fp16", HALF), ("bf16", BFLOAT)) if plain else ():
            value = attribute(m, atom, flag, place.position)
            register(m, value, place)
            found += [(guards | way | literals, letter) for literals, on in truths(m, value) if on for way in plain]
    return found


def alike(m: Machine, given: Value, model: Value | None, place: Place) -> list[tuple[Path, str]]:
    """float16 by the flag of arguments that nobody knows, where the same flag decides in which dtype the program loads the model."""
    found: list[tuple[Path, str]] = []
    for atom in atoms(given):
        value = attribute(m, atom, "fp16", place.position) if type(atom) is Unknown else None
        on: Path = frozenset({(("true", value.symbol), True)}) if type(value) is Unknown else frozenset()
        held = [guards for a in atoms(model or NONE) if type(a) is Object for guards, _ in options(weights(m, a))]
        if type(value) is Unknown and any(on <= guards for guards in held):
            register(m, value, place)
            found.append((on, HALF))
    return found


def register(m: Machine, value: Value, place: Place) -> None:
    """That a flag is a setting, which findings name."""
    for atom in atoms(value):
        if type(atom) is Unknown:
            shown = atom.symbol.partition(IDENTITY)[0]
            m.switches.setdefault(atom.symbol, Switch(shown, None, place, "option" if shown.startswith("--") else "setting"))


def plain_ways(m: Machine, arguments: Object) -> list[Path]:
    """The conditions under which no other engine (DeepSpeed, FSDP) holds the weights, as far as the arguments say."""
    found: list[Path] = [EMPTY]
    for name in ("deepspeed", "fsdp"):
        value = m.read(arguments.id, name)
        if value is not None:
            off = [literals for literals, on in truths(m, value) if not on] if may_be_off(m, value) else []
            found = [both for way in found for literals in off if (both := extend(way, literals)) is not None]
    return found


def may_be_off(m: Machine, value: Value) -> bool:
    """Whether what names an engine is empty, or an option that names none by default."""
    for atom in atoms(value):
        switch = m.switches.get(atom.symbol) if type(atom) is Unknown else None
        default = switch.default if switch is not None else atom
        if type(default) is Constant and not default.value:
            return True
    return False


def of_base(m: Machine, made: Object, bases: Sequence[str], args: Args, place: Place) -> None:
    """Instances of a project's trainers."""
    for base in bases:
        kind = kind_of(base)
        if kind is not None and kind.key == "transformers" and kind.makes(base):
            trainer(m, made, args, place)
            return


vocabulary.made.append(of_base)


def told_to_train(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`trainer.train()` of a project's trainer."""
    if name in TRANSFORMERS.run and type(atom) is Object and type(atom.type) is Class and m.read(atom.id, "#dtypes") is not None:
        train(m, atom, TRANSFORMERS, args, place)
    return None


vocabulary.atom_methods.append(told_to_train)
