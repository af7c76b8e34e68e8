"""Checkpoints: what is written to disk, and whose state it holds; owners of scalers that save themselves.

Events: "checkpoint saved" (path, holds, keys, unknown, handed), "owner saved" (owner, scaler, holds, where and
by which method), and "state dropped" (owner, scaler): a `load_state_dict` that makes nothing of the scaler's state that it is given.
`holds` are `Held`; `keys` what the checkpoint has, None where it may have others; `unknown` says that it may hold more states;
`handed`: the objects themselves are given to something that nobody can read.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from mplint.frameworks.torch.protocol import base_names, is_optimizer_name, is_scaler
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.calls import call_method
from mplint.program.conditions import EMPTY, Path, extend
from mplint.program.expressions import ancestors, bind, class_member, entries_of
from mplint.program.machine import IDENTITY, Args, Exhausted, Machine
from mplint.program.statements import put
from mplint.program.values import (
    NONE,
    SIFTED,
    Atom,
    Class,
    Constant,
    Entries,
    External,
    Function,
    Items,
    Method,
    Object,
    Place,
    State,
    Unknown,
    Value,
    atoms,
    options,
)

vocabulary = Vocabulary()
MAX_DEPTH = 7
SAVERS = re.compile(r"(^|[._])(save|saver|saving|checkpoint|ckpt|snapshot|dump|persist)|save|checkpoint", re.I)
NO_SAVERS = re.compile(r"load|resum|restor|latest|find|exists|path|dir|name|clean|image|fig|plot|video|audio|text|log|json|csv", re.I)
READ = re.compile(r"checkpoint\['(\w+)'\]")
DETECTRON = ("fvcore.common.checkpoint.Checkpointer", "detectron2.checkpoint.Checkpointer", "detectron2.checkpoint.DetectionCheckpointer")
# trainers of packages whose `state_dict` holds the optimizer's state and no scaler's; their kin for mixed precision holds both
TRAINERS = frozenset({"detectron2.engine.SimpleTrainer", "detectron2.engine.train_loop.SimpleTrainer"})
SCALER_KEY = re.compile(r"scaler|(^|_)amp($|_)|loss_scale", re.I)
FLAG_KEY = re.compile(r"^(?:use|enable|is|has|with|no)_|(?:_|^)(?:enabled?|dtype|level|mode|backend|init_scale)$", re.I)  # of no state
TEXTS = frozenset({"json", "yaml", "toml", "tomli_w", "csv", "orjson", "ujson", "simplejson"})  # what no tensors are written as


class Held(NamedTuple):
    """A state within a checkpoint: what it is of ("optimizer", "scaler", "module" …), whose, when, and where it was taken."""

    what: str
    owner: Value
    path: Path
    place: Place | None


class Content:
    """What a structure holds, as far as it can be seen."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.held: list[Held] = []
        self.unknown = False  # what holds a state may hold more
        self.opaque = False  # it may be something else altogether
        self.seen: set[Hashable] = set()

    def add(self, value: Value, path: Path, key: str = "", depth: int = 0) -> None:
        """Look into a value that is there on a path, under a key of what holds it."""
        for guards, atom in options(value):
            both = extend(path, guards)
            if both is not None:
                self.add_atom(atom, both, key, depth)

    def add_atom(self, atom: Atom, path: Path, key: str, depth: int) -> None:
        """Look into an atom."""
        if depth > MAX_DEPTH:
            return
        if type(atom) is Items:
            for item in (*atom.items, *([atom.rest] if atom.rest is not None else [])):
                self.add(item, path, key, depth + 1)
        elif type(atom) is Entries:
            self.add_entries(atom, path, key, depth)
        elif type(atom) is Unknown:
            shown = atom.symbol.partition(IDENTITY)[0]
            if atom.symbol in self.m.switches:
                return  # an option, `use_amp` or whatever it is called
            if (SCALER_KEY.search(key) and not FLAG_KEY.search(key)) or "scaler" in shown.lower():
                self.held.append(Held("scaler", atom, path, None))
            elif depth == 0:
                self.opaque = True
            elif not key:
                self.unknown = True
        elif type(atom) is Object:
            if (atom.id, atom.made) in self.seen:
                return
            self.seen.add((atom.id, atom.made))
            self.add_object(atom, path, key, depth)

    def add_entries(self, entries: Entries, path: Path, key: str, depth: int) -> None:
        """Look into the entries of a dict; what else it may hold matters in the checkpoint itself, not in a part that has a name."""
        for name, value in entries.entries:
            self.add(value, path, str(name), depth + 1)
        if entries.rest is not None and not is_sifted(entries.rest):
            self.add(entries.rest, path, key, depth + 1)

    def add_object(self, atom: Object, path: Path, key: str, depth: int) -> None:
        """Look into an object."""
        m = self.m
        if atom.kind == "state_dict":
            owner = m.read(atom.id, "#of")
            self.held.append(Held(str(atom.type), owner if owner is not None else NONE, path, entered_at(m, owner, atom.made)))
            more = m.read(entries_key(atom), "#entries")
            if more is not None:
                self.add(more, path, key, depth + 1)
        elif is_scaler(m, atom):
            self.held.append(Held("scaler", atom, path, None))
        elif atom.kind in ("optimizer", "scheduler", "module"):
            self.held.append(Held(atom.kind, atom, path, None))
        elif atom.kind in ("list", "set", "tuple"):
            held = m.read(atom.id, "#items")
            if held is not None:
                self.add(held, path, key, depth + 1)
        elif atom.kind == "dict":
            held = m.read(atom.id, "#entries")
            if held is not None:
                self.add(held, path, key, depth + 1)
            elif (entries := entries_of(m, atom)) is not None:
                self.add_entries(entries, path, key, depth)
        elif atom.kind == "instance":
            names = base_names(m, atom)
            if any(is_optimizer_name(n) for n in names):
                self.held.append(Held("optimizer", atom, path, None))
            elif "torch.nn.Module" in names:
                self.held.append(Held("module", atom, path, None))
            else:
                for name, value in attributes_of(m, atom):
                    self.add(value, path, name, depth + 2)


def is_sifted(rest: Value) -> bool:
    """Whether what else a dict may hold is nothing: it lacks some of its entries, perhaps."""
    return type(rest) is Unknown and rest.symbol.partition(IDENTITY)[0] == SIFTED


def entries_key(state: Object) -> Hashable:
    """Under what the entries stand that a program adds to what a `state_dict()` gave it."""
    return (state.id, state.made)


def entry_added(m: Machine, atom: Atom, index: Value, value: Value, place: Place) -> bool:
    """`state = optimizer.state_dict(); state["scaler"] = scaler.state_dict()`."""
    if type(atom) is not Object or atom.kind != "state_dict":
        return False
    held = m.read(entries_key(atom), "#entries")
    m.write(entries_key(atom), "#entries", m.each(held if held is not None else Entries(), lambda known: put(known, index, value)))
    return True


vocabulary.item_assigned.append(entry_added)


@vocabulary.method("state_dict", "update")
def entries_added(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """`state.update(scaler=scaler.state_dict())`."""
    given = [(key, value) for a in args.positional for key, value in (entries_of(m, a) or Entries()).entries]
    for key, value in (*given, *args.named.items()):
        if isinstance(key, str):
            entry_added(m, receiver, Constant(key), value, place)
    return NONE


def entered_at(m: Machine, owner: Value | None, taken: Place | None) -> Place | None:
    """Where an optimizer is put among the parts that are saved, if another file takes the state of any of these; else that place."""
    noted = m.read(owner.id, "#entered") if type(owner) is Object else None
    place = noted.data if type(noted) is State else None
    return place if isinstance(place, Place) and taken is not None and place.path != taken.path else taken


def enters_table(m: Machine, receiver: Atom, index: Value, value: Value, place: Place) -> bool:
    """`self.parts["optimizer"] = optimizer`: the table that holds it may be what is saved."""
    for atom in atoms(value):
        if type(atom) is Object and atom.kind == "optimizer":
            m.write(atom.id, "#entered", State(place))
    return False


vocabulary.item_assigned.append(enters_table)


def attributes_of(m: Machine, instance: Object) -> list[tuple[str, Value]]:
    """What is set on an instance, by name."""
    return [(name, value) for name, value in m.store.slots.of(instance.id) if not name.startswith("#")]


def save(m: Machine, value: Value | None, path: Value | None, place: Place, handed: bool = False) -> Content | None:
    """Note that a checkpoint is written, where it holds the state of anything."""
    if value is None:
        return None
    content = Content(m)
    content.add(value, m.path)
    if content.held or ((content.unknown or content.opaque) and not handed):
        held = tuple(content.held)
        m.emit("checkpoint saved", place, path=path, holds=held, keys=keys_written(m, value), unknown=content.unknown, handed=handed)
    return content


def keys_written(m: Machine, value: Value) -> frozenset[str] | None:
    """The keys that a checkpoint may have; None where it may have any."""
    found: set[str] = set()
    for atom in atoms(value):
        held = m.read(atom.id, "#entries") if type(atom) is Object and atom.kind == "dict" else None
        for entries in atoms(held) if held is not None else (NONE,):
            if type(entries) is not Entries or entries.rest is not None:
                return None
            found.update(str(key) for key, _ in entries.entries)
    return frozenset(found)


def key_read(state: Value | None) -> tuple[str, str] | None:
    """The key under which a state was taken from a checkpoint that was loaded, and what tells the checkpoint."""
    if type(state) is not Unknown:
        return None
    shown, _, identity = state.symbol.partition(IDENTITY)
    found = READ.fullmatch(shown)
    return (found.group(1), identity) if found is not None else None


@vocabulary.call(
    "torch.save",
    "torch_xla.core.xla_model.save",
    "pickle.dump",
    "dill.dump",
    "cloudpickle.dump",
    "joblib.dump",
    "paddle.save",
    "torch.distributed.checkpoint.save",
    "torch.distributed.checkpoint.async_save",
    "torch.distributed.checkpoint.save_state_dict",
    "torch.distributed.checkpoint.state_dict_saver.save",
    "mmcv.runner.save_checkpoint",
    "accelerate.utils.save",
    "flax.training.checkpoints.save_checkpoint",
)
def torch_save(m: Machine, name: str, args: Args, place: Place) -> Value:
    save(m, args.get(0, "state_dict") or args.named.get("obj"), args.get(1, "f"), place)
    return NONE


@vocabulary.call("torch.load", "torch.distributed.checkpoint.load", "torch_xla.core.xla_model.load")
def torch_load(m: Machine, name: str, args: Args, place: Place) -> Value:
    return Unknown(f"checkpoint{IDENTITY}{place.path}:{place.position}")


SHARDED = "torch.distributed.checkpoint.state_dict."


@vocabulary.call(f"{SHARDED}get_optimizer_state_dict", f"{SHARDED}get_state_dict", f"{SHARDED}get_model_state_dict")
def sharded_state(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`get_optimizer_state_dict(model, optimizer)`: the states of what is given, whole or of one rank."""
    model = call_method(m, args.get(0, "model") or NONE, "state_dict", Args(), place.position, place.position)
    if name.endswith("get_model_state_dict"):
        return model
    optimizers = call_method(m, args.get(1, "optimizers") or NONE, "state_dict", Args(), place.position, place.position)
    return optimizers if name.endswith("get_optimizer_state_dict") else Items((model, optimizers))


@vocabulary.call(f"{SHARDED}set_optimizer_state_dict", f"{SHARDED}set_state_dict")
def sharded_state_loaded(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`set_optimizer_state_dict(model, optimizer, optim_state_dict=…)`."""
    state = args.get(2, "optim_state_dict")
    given = Args((state,), places=(place.position,)) if state is not None else Args()
    call_method(m, args.get(1, "optimizers") or NONE, "load_state_dict", given, place.position, place.position)
    return NONE


def save_states(m: Machine, objects: Entries, path: Value | None, place: Place) -> None:
    """Note that a checkpoint of the states of objects is written, each by its `state_dict()`."""
    states = Object(("states", m.identity(place)), "dict", "builtins.dict", place)
    held = tuple((key, call_method(m, value, "state_dict", Args(), place.position, place.position)) for key, value in objects.entries)
    m.write(states.id, "#entries", Entries(held, objects.rest))
    save(m, states, path, place)


@vocabulary.call(*DETECTRON)
def checkpointer(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`DetectionCheckpointer(model, folder, optimizer=optimizer, …)` saves and restores the states of what it is given."""
    kept = {key: value for key, value in args.named.items() if key not in ("model", "save_dir", "save_to_disk")}
    model = args.get(0, "model")
    objects = {**({"model": model} if model is not None else {}), **kept}
    if kept:
        unknown = Unknown(f"states{IDENTITY}{place.path}:{place.position}") if args.opaque else None
        save_states(m, Entries(tuple(objects.items()), unknown), args.get(1, "save_dir"), place)
    return Unknown(f"Checkpointer(){IDENTITY}{place.path}:{place.position}")


@vocabulary.call("dataclasses.asdict", "attr.asdict", "attrs.asdict", "dataclasses.astuple")
def as_dict(m: Machine, name: str, args: Args, place: Place) -> Value:
    first = args.get(0)
    if type(first) is not Object or first.kind != "instance":
        return first if first is not None else NONE
    made = Object(("dict", m.identity(place)), "dict", "builtins.dict", place)
    m.write(made.id, "#entries", Entries(tuple(attributes_of(m, first))))
    return made


fallback = Vocabulary()


def state_of_unknown(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`state_dict()` and `load_state_dict()` of what nobody knows: it may be an optimizer by what else is done with it."""
    if type(atom) is not Unknown:
        return None
    if name == "state_dict":
        made = Object(("state", atom), "state_dict", "unknown", place)
        m.write(made.id, "#of", atom)
        return made
    if name == "load_state_dict":
        m.emit("state loaded", place, object=atom, what="unknown", state=args.get(0))
        return NONE
    return None


fallback.atom_methods.append(state_of_unknown)

# savers that nobody can read


def saver_called(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """Something that is called as if it saved: `save_on_master(state, path)`, `CheckpointSaver(model=…, optimizer=…)`."""
    name = name_of(atom)
    last = name.rpartition(".")[2]
    home = name.partition(".")[0] if type(atom) is External else ""
    if not SAVERS.search(last) or NO_SAVERS.search(last) or home == "torch":
        return None
    if home in TEXTS and not any(holds_scaler(m, value) for value in args.all()):
        return None
    for value in args.all():
        for inner in atoms(value):
            if type(inner) is Object and inner.kind == "instance" and gathers(m, inner):
                continue  # it is asked for what is to be saved
            if type(inner) is Object and inner.kind in ("dict", "state_dict", "instance", "list"):
                save(m, inner, None, place)
            elif type(inner) is Object and (inner.kind == "optimizer" or is_scaler(m, inner)):
                save(m, inner, None, place, handed=True)
            elif type(inner) is Unknown and "scaler" in inner.symbol.partition(IDENTITY)[0].lower():
                save(m, Items((inner,)), None, place, handed=True)
    for key, value in args.named.items():
        if SCALER_KEY.search(key) and type(value) is Unknown:
            m.emit("checkpoint saved", place, path=None, holds=(Held("scaler", value, m.path, None),), keys=None, unknown=True, handed=True)
    return None


vocabulary.atom_calls.append(saver_called)


def holds_scaler(m: Machine, value: Value) -> bool:
    """Whether a value holds the state of a scaler that is known."""
    content = Content(m)
    content.add(value, m.path)
    return any(held.what == "scaler" and held.owner != NONE and type(held.owner) is not Unknown for held in content.held)


def saver_inherited(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`self.save(state, path)` that a base of another package has."""
    return saver_called(m, Method(atom, name), args, place) if type(atom) is Object and atom.kind == "instance" else None


vocabulary.atom_methods.append(saver_inherited)


def name_of(atom: Atom) -> str:
    """The name by which something unknown is called."""
    if type(atom) is External:
        return atom.name
    if type(atom) is Unknown:
        return atom.symbol.partition(IDENTITY)[0]
    if type(atom) is Method:
        return atom.name
    return ""


def state_on_attribute(m: Machine, atom: Atom, name: str, value: Value, place: Place) -> None:
    """`model.optimizer_state = optimizer.state_dict()`: what is saved with the model. And the owner of a scaler."""
    if "optim" in name and "state" in name and type(value) is Object and value.kind == "state_dict":
        save(m, value, None, place)
    if type(atom) is Object and type(atom.type) is Class:
        scaler = next((a for a in atoms(value) if is_scaler(m, a)), None)
        if type(scaler) is Object and not is_scaler(m, atom):
            held = m.store.get("scalers' owners", "#items")
            known = held.items if type(held) is Items else ()
            pair = Items((atom, scaler, State(place)))
            if pair not in known and len(known) < 8:
                m.write("scalers' owners", "#items", Items((*known, pair)))


vocabulary.attribute_assigned.append(state_on_attribute)

# owners of scalers

MAX_GATHERING = 3  # methods of an owner that are asked what they give
SAVES_ITSELF = ("state_dict", "__getstate__", "get_state", "get_state_dict", "dump_state", "save_state")


def owners(m: Machine) -> None:
    """At the end of an entry: what each owner of a scaler saves of itself."""
    held = m.store.get("scalers' owners", "#items")
    pairs = {pair for a in atoms(held) for pair in (a.items if type(a) is Items else ())} if held is not None else set()
    for pair in sorted(pairs, key=repr):
        owner, scaler, where = pair.items if type(pair) is Items else (NONE, NONE, NONE)
        if type(owner) is Object and type(owner.type) is Class and type(where) is State and isinstance(where.data, Place):
            owner_saved(m, owner, owner.type, scaler, where.data)
            state_dropped(m, owner, owner.type, scaler)
            if all(class_member(m, owner.type, name) is None for name in SAVES_ITSELF):
                gathered_by_owner(m, owner, owner.type, scaler)


def state_dropped(m: Machine, owner: Object, cls: Class, scaler: Value) -> None:
    """Note an owner that gives its scaler's state to whoever saves it, and makes nothing of one that it is given."""
    given, taken = class_member(m, cls, "state_dict"), class_member(m, cls, "load_state_dict")
    if given is None or taken is None or type(given[0]) is not Function or type(taken[0]) is not Function or not ignores(taken[0]):
        return
    content = given_by(m, owner, cls, given[1], given[0])
    if content is not None and any(held.what == "scaler" for held in content.held):
        m.frames = m.frames or [m.module_frame(cls.path)]
        m.emit("state dropped", Place(taken[0].code.path, taken[0].code.place), owner=owner, scaler=scaler)


def ignores(function: Function) -> bool:
    """Whether a method returns without a look at what it is given."""
    names = {p[0] for p in function.code.parameters[1:]}
    pending: list[object] = [function.code.body]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            if node[:1] == ("raise",) or (node[:1] == ("name",) and node[-1] in names):
                return False
            pending += [part for part in node if isinstance(part, tuple)]
    return bool(names)


def gathered_by_owner(m: Machine, owner: Object, cls: Class, scaler: Value) -> None:
    """What an owner's methods give that gather states for others to save: `def _states(self)`, which a trainer of a package calls."""
    for home, function in gathering(m, cls)[:MAX_GATHERING]:
        content = given_by(m, owner, cls, home, function)
        first = next((held for held in content.held if held.what in ("optimizer", "scaler") and held.place), None) if content else None
        if content is not None and first is not None and first.place is not None:
            saves = Place(function.code.path, function.code.place)
            note_owner(m, owner, scaler, tuple(content.held), first.place, saves, cls, inherited=False, by=function.code.name)


def gathering(m: Machine, cls: Class) -> list[tuple[Class, Function]]:
    """The methods of a class that give states and need nothing for it, each with the class that has it."""
    classes = [c for c in ancestors(m, cls) if type(c) is Class]
    members = [(c, value) for c in classes for _, value in m.store.slots.of(c.id) if type(value) is Function]
    found = [(c, f) for c, f in members if "state_dict" in f.code.words and needs_nothing(f)]
    return [(c, f) for c, f in found if class_member(m, cls, f.code.name) == (f, c)]


def gathers(m: Machine, instance: Object) -> bool:
    """Whether an instance has a method of its own that gives its optimizer's state to whoever saves it."""
    own = gathering(m, instance.type) if type(instance.type) is Class else ()
    return any(any("optim" in word for word in function.code.words) for _, function in own)


def needs_nothing(function: Function) -> bool:
    """Whether a method may be called with its instance alone, and gives something."""
    required = [p for p in function.code.parameters if p[1] in ("positional", "keyword") and p[2] is None]
    return len(required) == 1 and any(part[0] == "return" and part[2] is not None for part in function.code.body)


def given_by(m: Machine, owner: Object, cls: Class, home: Class, function: Function) -> Content | None:
    """What a method of an owner gives, if that can be seen as a whole."""
    m.left = 3000
    m.path, m.calls, m.loops = EMPTY, [], []
    m.frames = [m.module_frame(cls.path)]
    content = Content(m)
    try:
        content.add(m.call(bind(m, function, owner, cls, home, function.code.place), Args(), function.code.place), EMPTY)
    except (Exhausted, RecursionError):
        return None
    return None if content.unknown or content.opaque else content


def owner_saved(m: Machine, owner: Object, cls: Class, scaler: Value, made: Place) -> None:
    """What an owner's own state holds."""
    member = next((found for name in SAVES_ITSELF[:1] if (found := class_member(m, cls, name)) is not None), None)
    if member is None and not TRAINERS.isdisjoint(base_names(m, owner)):
        note_owner(m, owner, scaler, (), made, made, cls, inherited=True)
        return
    if member is None:
        if any(class_member(m, cls, name) is not None for name in SAVES_ITSELF) or class_member(m, cls, "step") is None:
            return
        names = base_names(m, owner)
        if any(name.endswith("Optimizer") for name in names) and not any(is_optimizer_name(n) for n in names):
            note_owner(m, owner, scaler, (), made, made, cls, inherited=True)
        return
    if type(member[0]) is not Function:
        return
    content = given_by(m, owner, cls, member[1], member[0])
    if content is None:
        return
    own = member[1] == cls or member[1].path == cls.path
    place = Place(member[0].code.path, member[0].code.place)
    note_owner(m, owner, scaler, tuple(content.held), place if own else made, place, cls, inherited=not own)


def note_owner(
    m: Machine,
    owner: Object,
    scaler: Value,
    holds: Iterable[Held],
    place: Place,
    saves: Place,
    cls: Class,
    inherited: bool,
    by: str = "state_dict",
) -> None:
    """Note what an owner saves of itself."""
    m.frames = m.frames or [m.module_frame(cls.path)]
    m.emit(
        "owner saved",
        place,
        owner=owner,
        scaler=scaler,
        holds=tuple(holds),
        saves=saves,
        name=cls.name,
        by=by,
        inherited=inherited,
    )


vocabulary.finished.append(owners)

# apex


@vocabulary.call("apex.amp.state_dict")
def apex_state(m: Machine, name: str, args: Args, place: Place) -> Value:
    made = Object(("state", "apex amp"), "state_dict", "scaler", place)
    m.write(made.id, "#of", Object("apex amp", "scaler", "apex.amp"))
    return made


@vocabulary.call("apex.amp.load_state_dict")
def apex_loaded(m: Machine, name: str, args: Args, place: Place) -> Value:
    m.emit("state loaded", place, object=Object("apex amp", "scaler", "apex.amp"), what="scaler", state=args.get(0))
    return NONE


__all__ = ["Held", "vocabulary"]
