"""What a program sets for a trainer: by calls, partials, dicts and the fields of classes, as it stands where the trainer is made.

The event "trainer configured" holds it as a `Section`; `written.py` reads that for rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from mplint.configs.trainers.duties import configured
from mplint.frameworks.torch.protocol import base_names
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.conditions import Path
from mplint.program.expressions import ancestors, attribute_of_object, external_bases
from mplint.program.machine import Args, Machine, shown
from mplint.program.store import under, unjoined
from mplint.program.values import (
    NONE,
    Atom,
    Class,
    Constant,
    Entries,
    External,
    Function,
    Items,
    Object,
    Place,
    Test,
    Unknown,
    Value,
    Wrapped,
    atoms,
    options,
)

vocabulary = Vocabulary()
MAX_NESTED = 4
HOMES = ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric")
DEEPSPEED_SECTIONS = frozenset({"fp16", "bf16", "bfloat16", "amp", "torch_autocast"})
# arguments that take a DeepSpeed configuration
DEEPSPEED_ARGUMENTS = {"TrainingArguments": "deepspeed", "DeepSpeedStrategy": "config", "DeepSpeedPlugin": "hf_ds_config"}


class Made(NamedTuple):
    """Instances of classes of these names: one, or the items of a list."""

    names: tuple[str, ...]
    listed: bool = False


class Section(NamedTuple):
    """Settings that stand together. `holder`: the call, dict or class that gives them; `complete`: all of them are known."""

    settings: tuple[Setting, ...]
    holder: Place
    complete: bool = True

    def get(self, name: str) -> Setting | None:
        """The setting of a name: the last one counts."""
        return next((s for s in reversed(self.settings) if s.name == name), None)


Held: TypeAlias = Constant | Unknown | Test | Made | Section


class Setting(NamedTuple):
    """One setting: what it may be, each under conditions, and the call, dict or class in which it is written."""

    name: str
    ways: tuple[tuple[Path, Held], ...]
    holder: Place


def setting(m: Machine, name: str, value: Value, holder: Place, depth: int = 0) -> Setting:
    """A setting as it stands now."""
    ways = [(guards | path, held) for guards, atom in options(value) for path, held in held_by(m, atom, depth)]
    return Setting(name, tuple(ways), holder)


def held_by(m: Machine, atom: Atom, depth: int) -> list[tuple[Path, Held]]:
    """What a value is to rules, with the conditions where its content has some."""
    if isinstance(atom, Unknown) and made_by(atom)[:1].isupper():
        return [(frozenset(), Made((made_by(atom),)))]
    if isinstance(atom, Constant | Unknown | Test):
        return [(frozenset(), atom)]
    if isinstance(atom, Items):
        return [(frozenset(), Made(tuple(made_by(item) for item in atom.items), True))]
    if type(atom) is Object and atom.kind == "list":
        items = m.read(atom.id, "#items")
        return [(g, Made(tuple(made_by(item) for item in a.items), True)) for g, a in options(items or NONE) if type(a) is Items]
    if type(atom) is Object and atom.kind == "dict" and depth < MAX_NESTED:
        return [(path, held) for path, held in sections(m, atom, depth)]
    name = made_by(atom)
    return [(frozenset(), Made((name,)) if name else Unknown("value"))]


def sections(m: Machine, atom: Object, depth: int = 0) -> list[tuple[Path, Section]]:
    """The entries of a dict, in each state that it may be in."""
    held = m.read(atom.id, "#entries")
    found: list[tuple[Path, Section]] = []
    for guards, entries in options(held) if held is not None else ():
        if type(entries) is Entries and atom.made is not None:
            given = tuple(setting(m, str(k), v, atom.made, depth + 1) for k, v in entries.entries if isinstance(k, str))
            found.append((guards, Section(given, atom.made, entries.rest is None)))
    return found


def made_by(value: Value) -> str:
    """The last name of the class that a value is an instance of, or ""."""
    for atom in atoms(value):
        if type(atom) is Object:
            return atom.type.name if type(atom.type) is Class else str(atom.type).rpartition(".")[2]
        if type(atom) is Unknown and shown(atom.symbol).endswith((")", "…")):
            return shown(atom.symbol).partition("(")[0].rpartition(".")[2]
    return ""


def section_of(m: Machine, args: Args, place: Place) -> Section:
    """The keywords of a call."""
    given = tuple(setting(m, name, value, args.holders.get(name, place)) for name, value in args.named.items())
    return Section(given, place, not args.opaque)


def note(m: Machine, name: str, args: Args, place: Place, title: str = "") -> None:
    """Note what a call sets for the trainer whose precision is among its arguments."""
    kind = configured(name)
    if kind is None:
        return
    last = name.rpartition(".")[2]
    m.emit("trainer configured", place, trainer=kind.key, title=title or last, settings=section_of(m, args, place), told=True)
    note_deepspeed(m, args.named.get(DEEPSPEED_ARGUMENTS.get(last.removeprefix("Seq2Seq"), "")), place)


def note_dict(m: Machine, value: Value | None, trainer: str, title: str, place: Place) -> None:
    """Note what a dict sets for a trainer that is given it."""
    for path, atom in under(value, m.path) if value is not None else ():
        if type(atom) is Object and atom.kind == "dict":
            for guards, section in sections(m, atom):
                if section.settings:
                    m.emit("trainer configured", place, trainer=trainer, title=title, settings=section, told=True, guards=path | guards)


def note_deepspeed(m: Machine, value: Value | None, place: Place) -> None:
    """Note the DeepSpeed configuration that something is given."""
    note_dict(m, value, "deepspeed", "DeepSpeed", place)


@vocabulary.prefix("accelerate.DeepSpeedPlugin", "accelerate.utils.DeepSpeedPlugin", *(f"{h}.strategies.DeepSpeedStrategy" for h in HOMES))
def plugin(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """Plugins that are given a DeepSpeed configuration."""
    note_deepspeed(m, args.named.get(DEEPSPEED_ARGUMENTS.get(name.rpartition(".")[2], "")), place)
    return None


@vocabulary.prefix(*(f"{home}.{part}LightningCLI" for home in HOMES for part in ("cli.", "utilities.cli.", "")))
def command_line(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """`LightningCLI(trainer_defaults={…})`."""
    note_dict(m, args.named.get("trainer_defaults"), "lightning", "Trainer", place)
    return None


@vocabulary.prefix("lightning.", "pytorch_lightning.", "lightning_fabric.")
def precision_plugin(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """`MixedPrecision("bf16-mixed", "cuda", scaler)`."""
    if name.rpartition(".")[2] in ("MixedPrecision", "MixedPrecisionPlugin"):
        m.emit("precision plugin made", place, precision=args.get(0, "precision"), scaler=args.get(2, "scaler"))
    return None


def of_made(m: Machine, made: Object, bases: Sequence[str], args: Args, place: Place) -> None:
    """An instance of a project's class of arguments: its fields' defaults, and what the call gives in their place."""
    kind = next((kind for base in bases if (kind := configured(base)) is not None), None)
    if kind is None or kind.key != "transformers" or type(made.type) is not Class:
        return
    fields = fields_of(m, made, made.type)
    given = {s.name: s for s in section_of(m, args, place).settings}
    held = tuple(given.pop(s.name, s) for s in fields)
    section = Section((*held, *given.values()), place, not args.opaque)
    m.emit("trainer configured", place, trainer=kind.key, title=made.type.name, settings=section, told=True)


def fields_of(m: Machine, made: Object, cls: Class) -> list[Setting]:
    """The fields of a class of the project and of its bases in the project, with their defaults."""
    found: dict[str, Setting] = {}
    for ancestor in reversed([a for a in ancestors(m, cls) if type(a) is Class]):
        place = ancestor.id[1]  # type: ignore[index]
        for name, value in m.store.slots.of(ancestor.id):
            if name.startswith(("#", "_")) or any(isinstance(a, Function | Wrapped | External | Class) for a in atoms(value)):
                continue
            found[name] = setting(m, name, attribute_of_object(m, made, name, place.position), place)
    return list(found.values())


def initialized(m: Machine, instance: Object, args: Args, place: Place) -> None:
    """An instance of a project's class hands arguments on to the class of arguments that it extends."""
    base = next((base for base in base_names(m, instance) if configured(base) is not None), None)
    if base is not None and args.named:
        note(m, base, args, place)


def opening(m: Machine, cls: Class) -> object:
    """Classes of arguments are made, by parsers as a rule."""
    bases = external_bases(m, cls)
    return (lambda made, position: None) if any((k := configured(b)) is not None and k.key == "transformers" for b in bases) else None


def dicts(m: Machine) -> None:
    """Dicts that look like a DeepSpeed configuration, as the entry leaves them: they are written to files, or read by others."""
    seen: set[object] = set()
    for owner, name in list(m.store.slots.every()):
        if name != "#entries" or owner in seen or not (isinstance(owner, tuple) and owner and owner[0] == "dict"):
            continue
        seen.add(owner)
        if not any(configures(value) for value in unjoined(m.store.slots.peek((owner, name)))):
            continue
        held = m.read(owner, name)
        if held is None or not configures(held):
            continue
        place = owner[1][0]
        m.frames = m.frames or [m.module_frame(place.path)]
        for guards, section in sections(m, Object(owner, "dict", "builtins.dict", place)):
            m.emit("trainer configured", place, trainer="deepspeed", title="DeepSpeed", settings=section, told=False, guards=guards)


def configures(held: Value) -> bool:
    """Whether the entries of a dict may be a DeepSpeed configuration."""
    return any(type(a) is Entries and any(k in DEEPSPEED_SECTIONS for k, _ in a.entries) for a in atoms(held))


vocabulary.made.append(of_made)
vocabulary.initialized.append(initialized)
vocabulary.openings.append(opening)  # type: ignore[arg-type]
vocabulary.finished.append(dicts)

__all__ = ["Held", "Made", "Section", "Setting", "note", "note_deepspeed", "vocabulary"]
