"""Trainers that bring the loop along: transformers' and trl's Trainer with its arguments, Lightning's Trainer."""

from __future__ import annotations

from collections.abc import Sequence

from mplint.configs.trainers.duties import configured, kind_of
from mplint.frameworks.trainers.loops import switched
from mplint.frameworks.trainers.settings import note
from mplint.frameworks.trainers.weights import note_half
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.conditions import Path
from mplint.program.expressions import attribute, truths
from mplint.program.machine import Args, Machine
from mplint.program.values import (
    BFLOAT,
    HALF,
    NONE,
    SINGLE,
    Atom,
    Constant,
    Object,
    Place,
    Unknown,
    Value,
    atoms,
)

vocabulary = Vocabulary()


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
    dtypes = flags(m, given, place) if given is not None else [(frozenset(), SINGLE)]
    m.write(made.id, "#model", model if model is not None else NONE)
    m.emit("trainer precision", place, trainer=made, title="transformers", precision=given, dtypes=tuple(dtypes), model=model, scales=True)
    chosen: list[tuple[Atom, str]] = [(a, "") for a in atoms(model) if type(a) in (Object, Unknown)] if model is not None else []
    note_half(m, chosen, made, place, "trainer made")
    return made


def flags(m: Machine, given: Value, place: Place) -> list[tuple[Path, str]]:
    """The dtypes that a trainer's arguments ask for; only those that the program itself sets."""
    found: list[tuple[Path, str]] = []
    for atom in atoms(given):
        if type(atom) is not Object:
            continue
        if not is_plain(m, atom, place):
            continue
        for flag, letter in (("fp16", HALF), ("bf16", BFLOAT)):
            value = attribute(m, atom, flag, place.position)
            found += [(literals, letter) for literals, on in truths(m, value) if on]
    return found


def is_plain(m: Machine, arguments: Object, place: Place) -> bool:
    """Whether no other engine (DeepSpeed, FSDP) holds the weights, as far as the arguments say."""
    for name in ("deepspeed", "fsdp"):
        value = m.read(arguments.id, name)
        if value is not None and not (type(value) is Constant and not value.value):
            return False
    return True


def of_base(m: Machine, made: Object, bases: Sequence[str], args: Args, place: Place) -> None:
    """Instances of a project's trainers."""
    for base in bases:
        kind = kind_of(base)
        if kind is not None and kind.key == "transformers" and kind.makes(base):
            trainer(m, made, args, place)
            return


vocabulary.made.append(of_base)
