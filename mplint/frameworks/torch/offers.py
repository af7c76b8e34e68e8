"""Float16 that a program offers to models without a region of its own: flags of trainers' arguments, and optimizer wrappers by name.

Events: "float16 offered", with the conditions under which a model is run in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache

from mplint.configs.trainers.duties import kinds
from mplint.frameworks.texts import asked
from mplint.frameworks.vocabulary import Vocabulary
from mplint.precisions import spellings
from mplint.program.conditions import Path
from mplint.program.expressions import class_member
from mplint.program.machine import IDENTITY, Args, Machine, Switch
from mplint.program.values import FALSE, Atom, Class, Constant, Function, Object, Place, Unknown, Value, options

vocabulary = Vocabulary()

FLAGS = ("Arguments", "Config", "Trainer")  # ends of the names of calls that take `fp16=True`
TRAINERS = ("Trainer", "Fabric")  # and `precision="16-mixed"`
DETECTRON = frozenset({"detectron2.engine.DefaultTrainer", "detectron2.engine.defaults.DefaultTrainer"})
SWITCH = "SOLVER.AMP.ENABLED"  # by which it trains in float16
REGISTRY = "META_ARCH_REGISTRY"  # which holds the models that it builds
WRAPPERS = frozenset({"AmpOptimWrapper", "Fp16OptimizerHook"})


def offer(m: Machine, words: str, title: str, args: Args, place: Place) -> None:
    """Note a call that offers float16."""
    for name, takers in (("fp16", FLAGS), ("precision", TRAINERS)):
        value = args.named.get(name)
        if value is None or not words.endswith(takers):
            continue
        for guards, atom in options(value):
            path = guards | flag_on(atom) if name == "fp16" else guards | mixed(atom)
            if path is not None and wanted(atom, name):
                where = Place(place.path, args.named_places.get(name, place.position))
                m.emit("float16 offered", where, title=title, guards=path)


def wanted(atom: Atom, name: str) -> bool:
    """Whether a setting asks for float16, or may be told to."""
    if type(atom) is Constant:
        return atom.value is True if name == "fp16" else atom.value in mixed_modes() and atom.value is not True
    return type(atom) is Unknown


def flag_on(atom: Atom) -> Path:
    """The condition that a flag is set."""
    return frozenset({(("true", atom.symbol), True)}) if type(atom) is Unknown else frozenset()


def mixed(atom: Atom) -> Path:
    """The condition that a precision is float16's."""
    return frozenset({(("in", atom.symbol, mixed_modes()), True)}) if type(atom) is Unknown else frozenset()


@cache
def mixed_modes() -> frozenset[Hashable]:
    """What trainers call a precision in which models run in float16, and no parameters are cast."""
    named = {value for kind in kinds() for value, dtype in kind.modes if dtype == "float16"} & spellings("float16")
    return frozenset({*named, *(int(value) for value in named if value.isdigit())})


def offer_by_files(m: Machine, place: Place) -> None:
    """Note a trainer of detectron2 whose float16 a file of the project, or a command in its instructions, turns on."""
    given = asked(m.project, ("given", "ENABLED"))
    told = any((held.dotted, held.value) == (SWITCH, True) for held in given)  # type: ignore[attr-defined]
    if not told and not any(asked(m.project, ("word", f"{SWITCH}{mark}{on}")) for mark in " =" for on in ("True", "true")):
        return
    symbol = f"cfg.{SWITCH}{IDENTITY}detectron2"
    m.switches.setdefault(symbol, Switch(f"cfg.{SWITCH}", FALSE, place, "setting"))
    m.emit("float16 offered", place, title="`DefaultTrainer`", guards=frozenset({(("true", symbol), True)}), registry=REGISTRY)


def makes_its_own(m: Machine, instance: Object) -> bool:
    """Whether a class that extends a trainer has a constructor that leaves the trainer's out."""
    found = class_member(m, instance.type, "__init__") if type(instance.type) is Class else None
    return found is not None and type(found[0]) is Function and "super" not in found[1].ir_words


@vocabulary.prefix("")
def called(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """Any call of another package's name."""
    if name in DETECTRON:
        offer_by_files(m, place)
    if args.named:
        last = name.removesuffix(".from_argparse_args").rpartition(".")[2]
        offer(m, last, f"`{last}`", args, place)
    return None


def made(m: Machine, instance: Object, bases: Sequence[str], args: Args, place: Place) -> None:
    """An instance of a project's class that extends a trainer or its arguments."""
    if not DETECTRON.isdisjoint(bases) and not makes_its_own(m, instance):
        offer_by_files(m, place)
    for base in bases:
        offer(m, base, f"`{base.rpartition('.')[2]}`", args, place)


vocabulary.made.append(made)


def assigned(m: Machine, receiver: Atom, name: str, value: Value, place: Place) -> None:
    """A setting that names an optimizer wrapper."""
    for guards, atom in options(value):
        if type(atom) is Constant and isinstance(atom.value, str) and atom.value in WRAPPERS:
            m.emit("float16 offered", place, title=f"`{atom.value}`", guards=guards)


vocabulary.attribute_assigned.append(assigned)
