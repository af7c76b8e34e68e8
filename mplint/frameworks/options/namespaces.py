"""Settings as values: unknowns with a switch behind them, and the objects that hold them by attribute, item and `get`.

A namespace is an `Object` of the kind "settings". Its values stand in slots of their own names, `#keys` lists them, `#rest` is there
where it may hold more, `#name` is how its user calls it ("cfg.train"), and `#live` is there where what the program assigns is only
a default that a file or the command line replaces (yacs, ml_collections, OmegaConf).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeGuard

from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.expressions import entries_of, new_list
from mplint.program.machine import IDENTITY, Args, Machine, Switch, derived
from mplint.program.values import (
    NONE,
    TRUE,
    Alternatives,
    Atom,
    Class,
    Constant,
    DType,
    Entries,
    Items,
    Object,
    Place,
    Unknown,
    Value,
    atoms,
)

vocabulary = Vocabulary()
KIND = "settings"
PLAIN = (bool, int, float, str, type(None))

SAME = ("copy", "clone", "to_dict", "todict", "toDict", "dict", "model_dump", "asdict", "_asdict", "as_dict", "unlocked")

# names that programs give to what holds their options, where it comes from outside
COMMAND_LINE = frozenset(["args", "arg", "opt", "opts", "options", "flags", "arguments", "parsed_args", "cli_args", "cmd_args"])
CONFIGURATIONS = frozenset(
    ["cfg", "config", "conf", "configs", "configuration", "hparams", "hps", "hp", "hyperparams", "settings", "params", "self_cfg"]
)
HOLDERS = COMMAND_LINE | CONFIGURATIONS


def leaf(m: Machine, shown: str, identity: str, switch: Switch) -> Unknown:
    """What the user may choose: the same unknown wherever it is read."""
    symbol = f"{shown}{IDENTITY}{identity}"
    m.switches.setdefault(symbol, switch)
    return Unknown(symbol)


def declare(m: Machine, name: str, value: Value) -> None:
    """Note that the program has an option, by the name under which it reads it."""
    if type(value) is Unknown:
        m.declared.setdefault(name, {})[value.symbol] = None


def default_of(value: Value | None) -> Value | None:
    """A default as switches keep it: a constant or a dtype; None for what nobody knows."""
    if type(value) is Constant and isinstance(value.value, PLAIN):
        return value
    return value if type(value) is DType else None


def is_plain(value: Value | None) -> bool:
    """Whether a default is one that a user may replace by another such value (and no object that holds settings of its own)."""
    return value is None or all(type(a) in (Constant, DType, Unknown) for a in atoms(value))


# namespaces


def namespace(m: Machine, identity: Hashable, type_: str, place: Place, name: str = "", rest: bool = False) -> Object:
    """A new object that holds settings."""
    made = Object((KIND, identity), KIND, type_, place)
    m.write(made.id, "#keys", Items(()))
    m.write(made.id, "#name", Constant(name))
    if rest:
        m.write(made.id, "#rest", Unknown(f"{name or 'setting'}[]{IDENTITY}{identity!r}"))
    return made


def put(m: Machine, holder: Object, key: str, value: Value) -> None:
    """Set a value of a namespace."""
    m.write(holder.id, key, value)
    note_key(m, holder, key)


def note_key(m: Machine, holder: Object, key: str) -> None:
    """List the name of a value."""
    keys = m.read(holder.id, "#keys")
    held = dict.fromkeys(k for a in atoms(keys if keys is not None else NONE) if type(a) is Items for k in a.items)
    if Constant(key) not in held:
        m.write(holder.id, "#keys", Items((*held, Constant(key))))


def name_of(m: Machine, holder: Object) -> str:
    """How a user calls a namespace."""
    held = m.read(holder.id, "#name")
    return str(held.value) if type(held) is Constant else ""


def called(m: Machine, holder: Object) -> str:
    """How a user calls a namespace: by the variable that held it where a setting was first read, if nothing else gives it a name."""
    if m.read(holder.id, "#nameless") is None:
        return name_of(m, holder)
    if holder.id not in m.called_first:
        variables = m.store.slots.of(m.frames[-1].id) if m.frames else ()
        m.called_first[holder.id] = next((str(n) for n, v in variables if v == holder and str(n).isidentifier()), "") or name_of(m, holder)
    return m.called_first[holder.id]


def filled(m: Machine, holder: Object, entries: Entries) -> Object:
    """A namespace with the entries of a dict; dicts within become namespaces."""
    for key, value in entries.entries:
        if isinstance(key, str):
            put(m, holder, key, nested(m, holder, key, value))
    if entries.rest is not None:
        m.write(holder.id, "#rest", entries.rest)
    return holder


def nested(m: Machine, holder: Object, key: str, value: Value) -> Value:
    """A value of a namespace: a dict as a namespace of its own."""
    if type(value) is Object and value.kind == "dict":
        inner = entries_of(m, value)
        if inner is not None:
            place = value.made or Place("", 0)
            made = namespace(m, ("in", holder.id, key), str(holder.type), place, f"{name_of(m, holder)}.{key}".strip("."))
            if m.read(holder.id, "#live") is not None:
                m.write(made.id, "#live", TRUE)
            return filled(m, made, inner)
    return value


def opened(m: Machine, holder: Object, place: Place) -> Object:
    """Leave every plain value of a namespace to its user, with what it holds as the default."""
    found = entries_of(m, holder)
    for key, value in found.entries if found is not None else ():
        if type(value) is Object and value.kind == KIND:
            opened(m, value, place)
        elif type(value) is Constant and isinstance(key, str):
            m.write(holder.id, key, setting(m, holder, key, value, place))
    m.write(holder.id, "#live", TRUE)
    if m.read(holder.id, "#rest") is None:
        m.write(holder.id, "#rest", Unknown(f"{name_of(m, holder) or 'setting'}[]{IDENTITY}{holder.id!r}"))
    return holder


def setting(m: Machine, holder: Object, key: str, default: Value | None, place: Place) -> Unknown:
    """A value of a namespace that a file or the command line may replace."""
    prefix = name_of(m, holder)
    dotted = f"{prefix}.{key}" if prefix else key
    return leaf(m, dotted, f"setting:{place.path}:{place.position}:{dotted}", Switch(dotted, default_of(default), place, "setting"))


def renamed(m: Machine, holder: Object, name: str, depth: int = 0) -> None:
    """Give a namespace the name under which it is found in another."""
    m.write(holder.id, "#name", Constant(name))
    for key, value in values_held(m, holder) if depth < 5 else ():
        if is_tree(value, m):
            renamed(m, value, f"{name}.{key}", depth + 1)
        elif type(value) is Unknown and (switch := m.switches.get(value.symbol)) is not None and switch.kind == "setting":
            m.switches[value.symbol] = switch._replace(name=f"{name}.{key}")


def values_held(m: Machine, holder: Object) -> list[tuple[Hashable, Value]]:
    """The values of a namespace, or of an instance of the program's own kind of it, with their names."""
    if holder.kind != KIND:
        return [(name, value) for name, value in m.store.slots.of(holder.id) if not name.startswith("#")]
    found = entries_of(m, holder)
    return list(found.entries) if found is not None else []


def is_tree(value: object, m: Machine) -> TypeGuard[Object]:
    """Whether a value holds settings: a namespace, or an instance of the program's own kind of what files replace."""
    return type(value) is Object and (value.kind == KIND or (value.kind == "instance" and m.read(value.id, "#live") is not None))


# reading and writing


@vocabulary.method(KIND)
def of_namespace(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    key = args.get(0)
    if name in ("get", "pop", "setdefault", "getattr") and type(key) is Constant and isinstance(key.value, str):
        return value_of(m, receiver, key.value, place, args.get(1, "default") or NONE)
    if name in ("items", "keys", "values"):
        entries = entries_of(m, receiver) or Entries()
        pairs: dict[str, tuple[Value, ...]] = {
            "items": tuple(Items((Constant(k), v)) for k, v in entries.entries),
            "keys": tuple(Constant(k) for k, _ in entries.entries),
            "values": tuple(v for _, v in entries.entries),
        }
        rest = Items((key_of(m, receiver), entries.rest)) if entries.rest is not None and name == "items" else entries.rest
        listed = new_list(m, Items(pairs[name], rest), place.position)
        if name != "values":
            m.write(listed.id, "#section", receiver)
        return listed
    if name in ("update", "merge_update", "__setitem__", "__setattr__"):
        if len(args.positional) == 2 and type(key) is Constant and isinstance(key.value, str):
            put(m, receiver, key.value, args.positional[1])
            return NONE
        for other in args.positional:
            entries_or_none = entries_of(m, other)
            if entries_or_none is None:
                opened(m, receiver, place)
            else:
                filled(m, receiver, entries_or_none)
        for given, value in args.named.items():
            put(m, receiver, given, value)
        return NONE
    if name in SAME:
        return receiver
    return Unknown(f"{name_of(m, receiver) or 'settings'}.{name}(){IDENTITY}{place.path}:{place.position}")


def key_of(m: Machine, holder: Object) -> Unknown:
    """The name of any value of a namespace, for those who set attributes by it."""
    key = Unknown(f"key{IDENTITY}of:{holder.id!r}")
    m.write(key, "#names", holder)
    return key


def value_of(m: Machine, holder: Object, key: str, place: Place, default: Value | None = None) -> Value:
    """A value of a namespace by name, or `default` where it can't have it."""
    value = m.read(holder.id, key)
    if value is not None:
        return value
    if m.read(holder.id, "#rest") is not None:
        return missing(m, holder, key, place, default)
    return default if default is not None else missing(m, holder, key, place, None)


def missing(m: Machine, holder: Object, key: str, place: Place, default: Value | None) -> Value:
    """A value that nobody has set, of a namespace that may hold more than is known."""
    prefix = called(m, holder)
    dotted = f"{prefix}.{key}" if prefix and not prefix.startswith("-") else prefix + key
    kind = "option" if dotted.startswith("--") else "setting"
    return leaf(m, dotted, f"rest:{holder.id!r}"[:160], Switch(dotted, default_of(default), place, kind))


def unset(m: Machine, owner: Hashable, name: str) -> Value | None:
    """What a namespace holds where one arm of a branch has set a value and the other has not."""
    is_setting = type(owner) is tuple and owner[0] == KIND and not name.startswith("#")
    if not is_setting or m.read(owner, "#rest") is None:
        return None
    return missing(m, Object(owner, KIND, "", None), name, Place("", 0), None)


@vocabulary.reads(KIND)
def attribute_of_namespace(m: Machine, receiver: Atom, name: str, place: Place) -> Value | None:
    if type(receiver) is not Object:
        return None
    if name in ("__dict__", "_content"):
        return receiver
    return missing(m, receiver, name, place, None)


def item_of_namespace(m: Machine, receiver: Atom, index: Value, place: Place) -> Value | None:
    """`cfg["amp"]` of a namespace, or of what comes from outside under a name that such things have."""
    if type(index) is not Constant or not isinstance(index.value, str):
        return None
    if type(receiver) is Object and receiver.kind == KIND:
        return value_of(m, receiver, index.value, place)
    if type(receiver) is Unknown and m.read(receiver, f"[{index.value!r}]") is None:
        return of_open(m, receiver, index.value, place)
    return None


def set_item(m: Machine, receiver: Atom, index: Value, value: Value, place: Place) -> bool:
    """`cfg["amp"] = True`."""
    if type(receiver) is not Object or receiver.kind != KIND:
        return False
    if type(index) is Constant and isinstance(index.value, str):
        m.write(receiver.id, index.value, value)
        assigned(m, receiver, index.value, value, place)
    else:
        opened(m, receiver, place)
    return True


def assigned(m: Machine, receiver: Atom, name: str, value: Value, place: Place) -> None:
    """`cfg.amp = True`: listed, and only a default where the namespace is replaced from outside."""
    if type(receiver) is not Object:
        return
    if receiver.kind == KIND:
        note_key(m, receiver, name)
    elif m.read(receiver.id, "#live") is None:
        return
    if is_tree(value, m):
        prefix = name_of(m, receiver)
        renamed(m, value, f"{prefix}.{name}" if prefix else name)
    elif m.read(receiver.id, "#live") is not None and type(value) is Constant and isinstance(value.value, PLAIN):
        m.write(receiver.id, name, setting(m, receiver, name, value, place))


def elements(m: Machine, atom: Atom, place: Place) -> list[Value] | None:
    """The names of the values, as iterating gives them."""
    if type(atom) is Object and atom.kind == KIND:
        entries = entries_of(m, atom)
        if entries is not None and entries.rest is None:
            return [Constant(k) for k, _ in entries.entries]
    return None


# what comes from outside


def of_open(m: Machine, receiver: Atom, name: str, place: Place) -> Value | None:
    """An option read from something unknown that is called `args` or `cfg`, or from an unknown section of settings."""
    if type(receiver) is not Unknown or name.startswith("__"):
        return None
    shown = receiver.symbol.partition(IDENTITY)[0]
    outer = m.switches.get(receiver.symbol)
    last = shown.rpartition(".")[2]
    if outer is not None and not (outer.kind == "parameter" and last in HOLDERS):
        if outer.test or outer.default is not None or outer.kind == "parameter":
            return None
        dotted = f"{outer.name}.{name}"
    elif last in HOLDERS:
        known = list(m.declared.get(name, ())) if last in COMMAND_LINE else []
        if len(known) == 1:
            return Unknown(known[0])
        dotted = f"{shown}.{name}"
    else:
        return None
    made = derived(receiver, "." + name)
    m.switches.setdefault(made.symbol, Switch(dotted, None, place, "setting"))
    return made


def get_of_open(m: Machine, receiver: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`cfg.get("amp", False)` of something unknown."""
    key = args.get(0)
    if type(receiver) is not Unknown or name != "get" or type(key) is not Constant or not isinstance(key.value, str):
        return None
    held = m.read(receiver, f"[{key.value!r}]")
    if held is not None:
        return held
    made = of_open(m, receiver, key.value, place)
    default = args.get(1, "default") or NONE
    if made is None and type(default) is DType:  # who reads a dtype by its name, and says which it is else, reads a setting
        made = derived(receiver, "." + key.value)
        m.switches.setdefault(made.symbol, Switch(key.value, None, place, "setting"))
    if type(made) is Unknown and (switch := m.switches.get(made.symbol)) is not None and switch.default is None:
        m.switches[made.symbol] = switch._replace(default=default_of(default))
    return made


def keys_of(values: Iterable[Value]) -> tuple[Hashable, ...]:
    """The constants among values, as a switch's choices."""
    return tuple(v.value for v in values if type(v) is Constant and isinstance(v.value, Hashable))


vocabulary.subscripts.append(item_of_namespace)
vocabulary.item_assigned.append(set_item)
vocabulary.attribute_assigned.append(assigned)
vocabulary.elements.append(elements)
vocabulary.unset.append(unset)
vocabulary.atom_attributes.append(of_open)
vocabulary.atom_methods.append(get_of_open)

__all__ = ["Alternatives", "Class", "vocabulary"]
