"""Flags for half precision that are off, and stand where users of a program edit them: in classes, instances, tables and constants."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mplint.frameworks.options.classes import NAMED, fields_of, holds_settings
from mplint.frameworks.options.namespaces import KIND, leaf
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.entries import words_in
from mplint.program.expressions import class_member, entries_of
from mplint.program.lower import IR
from mplint.program.machine import Args, Machine, Switch
from mplint.program.values import FALSE, Atom, Class, Entries, Object, Place, Unknown, Value

vocabulary = Vocabulary()
EDITED = re.compile(r"(?:^|_)(?:amp|fp16|half|float16|autocast|mixed)(?:_|$)|mixed_?precision", re.I)
PROBES = re.compile(
    r"(?:^|_)(?:is|has|have|can|no|not|without|disable|disabled|available|avail|found|supports?|supported|installed)(?:_|$)", re.I
)
DEEPEST = 3  # tables within tables


def is_edited(cls: Class, name: str, value: Value | None) -> bool:
    """Whether an attribute that is off is a flag for half precision that users of a program edit: in a class that is called settings."""
    return value == FALSE and NAMED.search(cls.name) is not None and EDITED.search(name) is not None


def flag_of_class(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """`CFG.amp`, of a class without fields: what is written there is to be edited."""
    member = class_member(m, atom, name) if type(atom) is Class and EDITED.search(name) else None
    if type(atom) is not Class or member is None or holds_settings(m, atom) or not is_edited(atom, name, member[0]):
        return None
    owner = member[1]
    return flag(m, f"{atom.name}.{name}", f"{owner.path}:{owner.name}", place)


vocabulary.atom_attributes.append(flag_of_class)


def flag(m: Machine, shown: str, identity: str, place: Place) -> Unknown:
    """What a user may switch on by editing the program."""
    return leaf(m, shown, f"edited:{identity}", Switch(shown, FALSE, place, "setting"))


def flag_of_instance(m: Machine, atom: Atom, name: str, value: Value, place: Place) -> None:
    """`self.amp = False` in the constructor of settings."""
    code = m.frames[-1].code
    owner = m.frames[-1].owner
    if type(atom) is not Object or type(atom.type) is not Class or owner is None or code is None or code.name != "__init__":
        return
    if is_edited(owner, name, value) and any(is_flag(statement, name) for statement in code.body):
        m.write(atom.id, name, flag(m, f"{atom.type.name}.{name}", f"{owner.path}:{owner.name}", place))


def is_flag(statement: IR, name: str) -> bool:
    """Whether a statement writes that a flag is off: `self.amp = False`."""
    if statement[0] != "assign" or statement[3][0] != "constant":
        return False
    return any(target[0] == "attribute" and target[3] == name for target in statement[2])


vocabulary.attribute_assigned.append(flag_of_instance)


def flags_of_fields(m: Machine, made: Object, bases: Sequence[str], args: Args, place: Place) -> None:
    """`TrainConfig()`, of a class of fields: those that are off by default, and that the program doesn't give."""
    cls = made.type
    if type(cls) is not Class or args.opaque or NAMED.search(cls.name) is None or not holds_settings(m, cls):
        return
    for index, (name, (owner, _)) in enumerate(fields_of(m, cls).items()):
        if index >= len(args.positional) and name not in args.named and is_edited(cls, name, m.read(owner.id, name)):
            m.write(made.id, name, flag(m, f"{cls.name}.{name}", f"{owner.path}:{owner.name}", place))


vocabulary.made.append(flags_of_fields)


def flag_of_module(m: Machine, name: str, value: Value, place: Place) -> None:
    """`USE_AMP = False` and `CFG = {"amp": False}` at the top of a file, which nothing in it sets again."""
    if value == FALSE:
        if EDITED.search(name) and not PROBES.search(name) and is_set_once(m, name, place):
            m.write(place.path, name, flag(m, name, f"{place.path}:", place))
    elif type(value) is Object and is_table(value) and NAMED.search(name):
        flags_of_table(m, value, name, place)


vocabulary.names_assigned.append(flag_of_module)


def is_table(made: Object) -> bool:
    """Whether a program writes settings out in an object, and has not parsed them."""
    parsed = isinstance(made.id, tuple) and made.id[1:] and isinstance(made.id[1], tuple) and made.id[1][:1] == ("parsed",)
    return made.kind in ("dict", KIND) and not parsed


def flags_of_table(m: Machine, table: Object, shown: str, place: Place, depth: int = 0) -> None:
    """Leave to the user what is off in a table, and in tables within it."""
    entries = entries_of(m, table)
    if entries is None:
        return
    for key, value in entries.entries:
        called = f"{shown}.{key}" if table.kind == KIND else f"{shown}[{key!r}]".replace("'", '"')
        if not isinstance(key, str):
            continue
        if value == FALSE and EDITED.search(key) and not PROBES.search(key):
            made = flag(m, called, f"{place.path}:{place.position}", place)
            if table.kind == KIND:
                m.write(table.id, key, made)
            else:
                held = m.read(table.id, "#entries")
                m.write(table.id, "#entries", (held if type(held) is Entries else entries).put(key, made))
        elif type(value) is Object and is_table(value) and depth < DEEPEST:
            flags_of_table(m, value, called, place, depth + 1)


def is_set_once(m: Machine, name: str, place: Place) -> bool:
    """Whether a file sets a variable of its own in one statement, at its top or that of its main program, and nowhere else."""
    ir = m.project.ir(place.path)
    if ir is None or sum(settings_of(statement, name) for statement in ir[1]) != 1:
        return False
    mains = (s for s in ir[1] if s[0] == "if" and "__name__" in words_in(s[2]))
    return any(sets(s, name) for s in (*ir[1], *(inner for main in mains for inner in main[3])))


def sets(ir: IR, name: str) -> bool:
    """Whether a statement is itself one that sets a variable."""
    if ir[0] == "assign":
        return any(target[0] == "name" and target[2] == name for target in ir[2])
    return ir[0] in ("annotated", "augmented") and ir[2][0] == "name" and ir[2][2] == name


def settings_of(ir: object, name: str) -> int:
    """How many statements of lowered code set a variable, without functions that have one of their own of the name."""
    if not isinstance(ir, tuple) or not ir:
        return 0
    if ir[0] == "function" and name in ir[5]:
        return 0
    if ir[0] in ("assign", "annotated", "augmented"):
        return int(sets(ir, name))
    if ir[0] == "for" and ir[2][:1] == ("name",) and ir[2][2] == name:
        return 2
    return sum(settings_of(part, name) for part in ir)
