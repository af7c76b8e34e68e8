"""What each expression gives."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from types import NoneType
from typing import Any, NamedTuple

from mplint.program.conditions import COMPARISONS, MIRRORED, Bound, Condition, Path, either_way, extend
from mplint.program.lower import IR, filling
from mplint.program.machine import IDENTITY, Args, Frame, Machine, Switch, derived
from mplint.program.store import Forked, choose, join, under
from mplint.program.values import (
    FALSE,
    MANY,
    NONE,
    SEVERAL,
    SIFTED,
    TRUE,
    Alternatives,
    Atom,
    Autocast,
    Class,
    Code,
    Constant,
    Context,
    DType,
    DTypeOf,
    Entries,
    External,
    Function,
    Items,
    Lazy,
    Method,
    Module,
    Object,
    Partial,
    Place,
    Scope,
    Slice,
    State,
    Super,
    Tensor,
    Test,
    Unknown,
    Value,
    Wrapped,
    alternatives,
    atoms,
    is_sifted,
    one_sequence,
    only_under,
    options,
)
from mplint.python.folding import OPERATORS, NotConstant, fold, fold_unary

# what a class of another package gives: never None
INSTANCE = re.compile(rf"(?:(?:\w+\.)*[A-Z]\w*[a-z]\w*|torch\.device)\([^()]*\)(?:{IDENTITY}|$)")
FILLED = "#filled"  # where an instance keeps the settings of which it has taken all values as attributes
NOT_ENTERED = "not entered: "  # what the identities of functions begin with that were called and not entered
OF_INSTANCE = "of an instance: "  # what the identities of members begin with that nobody knows, of instances of a class that is known
MAX_ARMS = 6  # ways in which a condition can be true (or false) that are kept apart
TO_LOOK_UP = (Lazy, Alternatives, Forked)  # what a variable may hold and does not stand for as it is
BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)


def evaluate(m: Machine, ir: IR) -> Value:
    """The value of an expression."""
    m.left -= 1
    if m.left < 0:
        m.step()
    value = HANDLERS[ir[0]](m, ir)
    if type(value) is Alternatives:
        value = choose(value, m.path)
    if m.recorder is not None:
        m.recorder.saw(m, m.here(ir[1]), value)
    return value


def e_constant(m: Machine, ir: IR) -> Value:
    return Constant(ir[2])


def e_name(m: Machine, ir: IR) -> Value:
    frame, name = m.frames[-1], ir[2]
    if frame.locals is None or name in frame.locals:
        value = m.store.slots.get((frame.id, name))
        if value is not None and type(value) not in TO_LOOK_UP:
            return value  # type: ignore[return-value]
    return lookup(m, frame, name, ir[1])


def lookup(m: Machine, frame: Frame, name: str, position: int) -> Value:
    """What a name stands for in a frame."""
    scope: Scope | None = frame
    while scope is not None:
        if scope.locals is None or name in scope.locals:
            value = m.read(scope.id, name)
            if value is not None:
                if type(value) is Lazy:
                    value = resolve_lazy(m, value)
                    m.write(scope.id, name, value)
                elif type(value) is Alternatives and any(type(a) is Lazy for a in atoms(value)):
                    value = m.each(value, lambda a: resolve_lazy(m, a) if type(a) is Lazy else a)
                elif type(value) is Constant and value.value is None and scope.parent is None and name not in frame.outer_names:
                    return as_filled(m, Module(scope.path, scope.path), name, value)
                return value
        scope = scope.parent
    star = m.read(frame.path, "*")
    if type(star) is Items:
        for module in star.items:
            found = member_of_module(m, module, name) if type(module) is Module else None
            if found is not None:
                return found
    if name in BUILTINS:
        return External("builtins." + name)
    return unbound(m, name, frame.path, star)


def unbound(m: Machine, name: str, path: str, star: Value | None) -> Value:
    """What a name stands for that nothing binds, in a program that imports everything of some packages."""
    packages = [module.name for module in star.items if type(module) is External] if type(star) is Items else []
    ir = m.project.ir(path)
    meant = m.library.unbound(name, packages, ir[2] if ir is not None else frozenset())
    return External(meant) if meant is not None else Unknown(f"{name}{IDENTITY}{path}")


def resolve_lazy(m: Machine, value: Lazy) -> Value:
    """Import what a name waits for."""
    if not value.name:
        return value.module
    found = member_of_module(m, value.module, value.name)
    return found if found is not None else Unknown(f"{value.name}{IDENTITY}{value.module.name}")


def member_of_module(m: Machine, module: Module, name: str) -> Value | None:
    """A global or submodule of one of the project's modules; None where there is none."""
    if module.path:
        frame = m.enter_module(module)
        value = m.read(frame.id, name)
        if type(value) is Lazy and not (value.module.path == module.path and value.name == name):
            value = resolve_lazy(m, value)
            m.write(frame.id, name, value)
        if value is not None and type(value) is not Lazy:
            return as_filled(m, module, name, value)
    found = m.project.member(module, name)
    star = m.read(module.path, "*") if module.path else None
    if type(found) is Module and type(star) is Items and found in star.items:  # `from .launch import *`, where that defines `launch`
        return member_of_module(m, found, name) or found
    if found is not None:
        return found
    if module.path:
        if type(star) is Items:
            for other in star.items:
                if type(other) is Module and other.path != module.path:
                    found_in = member_of_module(m, other, name)
                    if found_in is not None:
                        return found_in
        return made_on_demand(m, module, name)
    return None


def as_filled(m: Machine, module: Module, name: str, value: Value) -> Value:
    """A module's variable as a function reads it: where it is None for want of what the project gives it before, something unknown."""
    if not (type(value) is Constant and value.value is None) or not m.frames or m.frames[-1].code is None:
        return value
    key = (as_filled, module.path, name)
    if key not in m.project.kept:
        word = filling(name)
        programs = (m.project.ir(path) for path in (module.path, *m.project.importers(module.path)))
        m.project.kept[key] = any(ir is not None and word in ir[2] for ir in programs)
    return Unknown(f"{name}{IDENTITY}{module.path}") if m.project.kept[key] else value


def made_on_demand(m: Machine, module: Module, name: str) -> Value | None:
    """What the `__getattr__` of a module gives for a name, or what type checkers are told that it holds."""
    getter = None if name.startswith("__") else m.read(module.path, "__getattr__")
    if type(getter) is Function:
        given = m.call(getter, Args((Constant(name),), places=(0,)), 0) if m.frames else None
        if given is not None and any(type(a) is not Unknown for a in atoms(given)):
            return given
    held = m.read(module.path, f"#told {name}")
    return resolve_lazy(m, held) if type(held) is Lazy else None


def e_attribute(m: Machine, ir: IR) -> Value:
    receiver = evaluate(m, ir[2])
    return attribute(m, receiver, ir[3], ir[1])


def attribute(m: Machine, receiver: Value, name: str, position: int) -> Value:
    """The attribute of a value."""
    if type(receiver) is Alternatives:
        found = []
        for path, atom in under(receiver, m.path):
            before, m.path = m.path, path
            if not (type(atom) is Constant and atom.value is None):
                found.append((path - before, attribute_of(m, atom, name, position)))
            m.path = before
        return choose(join(found), m.path) if found else NONE
    return attribute_of(m, receiver, name, position)


OWN_NAMES = ("__name__", "__qualname__")  # what classes and functions are called in their definitions


def attribute_of(m: Machine, receiver: Atom, name: str, position: int) -> Value:
    """The attribute of an atom."""
    kind = type(receiver)
    if kind is Lazy:
        return attribute(m, resolve_lazy(m, receiver), name, position)  # type: ignore[arg-type]
    if kind is Object:
        return attribute_of_object(m, receiver, name, position)  # type: ignore[arg-type]
    if kind is Module:
        if name == "__dict__":
            return Method(receiver, name)
        found = member_of_module(m, receiver, name)  # type: ignore[arg-type]
        return found if found is not None else Unknown(f"{receiver.name}.{name}{IDENTITY}")  # type: ignore[union-attr]
    if kind is External:
        dotted = f"{receiver.name}.{name}"  # type: ignore[union-attr]
        known = m.library.external(m, dotted, m.here(position))
        return known if known is not None else External(dotted)
    if kind is Class:
        member = class_member(m, receiver, name)  # type: ignore[arg-type]
        if member is not None:
            setting = m.library.attribute(m, receiver, name, m.here(position)) if type(member[0]) is Constant else None
            if setting is not None:
                return setting
            if type(member[0]) is Unknown and member[0].symbol.startswith("enum.auto"):
                return Unknown(f"{receiver.name}.{name}{IDENTITY}{receiver.id!r}"[:200])  # type: ignore[union-attr]
            return bind(m, member[0], None, receiver, member[1], position)  # type: ignore[arg-type]
        if name in OWN_NAMES:
            return Constant(receiver.name)  # type: ignore[union-attr]
        known = m.library.attribute(m, receiver, name, m.here(position))
        if known is not None:
            return known
        for base in external_bases(m, receiver):  # type: ignore[arg-type]
            return External(f"{base}.{name}")
        return Unknown(f"{receiver.name}.{name}{IDENTITY}")  # type: ignore[union-attr]
    if kind is Super:
        return attribute_of_super(m, receiver, name, position)  # type: ignore[arg-type]
    if kind is Unknown:
        value = m.read(receiver, name)
        if value is not None:
            return value
        known = m.library.attribute(m, receiver, name, m.here(position))
        return known if known is not None else derived(receiver, "." + name)  # type: ignore[arg-type]
    if kind is Constant and name == "value" and isinstance(receiver.value, (str, int, float)):  # type: ignore[union-attr]
        return receiver  # what an enumeration calls so: nothing else is a member of plain values by this name
    if kind is Function or kind is Partial:
        value = m.read(receiver, name)
        if value is None and kind is Function and name in OWN_NAMES:
            return Constant(receiver.code.name)  # type: ignore[union-attr]
        return value if value is not None else Method(receiver, name)
    known = m.library.attribute(m, receiver, name, m.here(position))
    return known if known is not None else Method(receiver, name)


def attribute_of_object(m: Machine, receiver: Object, name: str, position: int) -> Value:
    """The attribute of an object: its own, its class's, or the framework's."""
    value = m.read(receiver.id, name)
    if value is not None:
        return value
    if type(receiver.type) is Class:
        member = class_member(m, receiver.type, name)
        if member is not None:
            return bind(m, member[0], receiver, receiver.type, member[1], position)
        if name == "__class__":
            return receiver.type
        if name == "__dict__":
            return Method(receiver, name)
        known = m.library.attribute(m, receiver, name, m.here(position))
        if known is not None:
            return known
        filled = m.read(receiver.id, FILLED)
        if type(filled) is Object and not name.startswith("__"):
            return attribute_of_object(m, filled, name, position)
        getter = class_member(m, receiver.type, "__getattr__")
        if getter is not None and type(getter[0]) is Function:
            function = bind(m, getter[0], receiver, receiver.type, getter[1], position)
            given = m.call(function, Args((Constant(name),), places=(position,)), position)
            if not (type(given) is Unknown and given.symbol.startswith(f"__getattr__(){IDENTITY}")):
                return given  # else it raises for all that is known of the instance: each name stands for something of its own
        if external_bases(m, receiver.type):
            return Method(receiver, name)
        return Unknown(f"{receiver.type.name}.{name}{IDENTITY}{at_home(receiver)}{receiver.id!r}")
    known = m.library.attribute(m, receiver, name, m.here(position))
    return known if known is not None else Method(receiver, name)


def at_home(instance: Object) -> str:
    """What the identity of something unknown begins with that is a member of an instance of a project's class."""
    return f"{OF_INSTANCE}{instance.type.path}:" if type(instance.type) is Class else ""


def is_not_entered(atom: Unknown) -> bool:
    """Whether something unknown is a function of the project that was called and not entered."""
    return atom.symbol.partition(IDENTITY)[2].startswith(NOT_ENTERED)


def home_of_instance(atom: Unknown) -> str:
    """The file of the class of whose instances something unknown is a member, or ""."""
    identity = atom.symbol.partition(IDENTITY)[2].removeprefix(NOT_ENTERED)
    return identity.removeprefix(OF_INSTANCE).partition(":")[0] if identity.startswith(OF_INSTANCE) else ""


def bind(m: Machine, member: Value, instance: Object | None, cls: Class, owner: Class, position: int) -> Value:
    """A class's member as its instance (or the class) gives it: methods bound, properties read."""
    if type(member) is Alternatives:
        return m.each(member, lambda a: bind(m, a, instance, cls, owner, position))
    if type(member) is Wrapped:
        if member.how == "staticmethod":
            return member.callee
        if member.how == "classmethod":
            return bind(m, member.callee, None, cls, owner, position) if type(member.callee) is not Function else bound(member.callee, cls)
        if member.how == "property":
            if instance is None:
                return member
            return m.call(bind(m, member.callee, instance, cls, owner, position), Args(), position)
        if instance is not None:
            return Wrapped(bind(m, member.callee, instance, cls, owner, position), member.context, member.how)
        return member
    if type(member) is Function and instance is not None and member.bound is None:
        return bound(member, instance)
    if type(member) is Partial and instance is not None and type(member.callee) is Function:
        return member
    return member


def bound(function: Function, first: Value) -> Function:
    """A function with its first argument."""
    return Function(function.code, function.frame, function.owner, first)


def ancestors(m: Machine, cls: Class) -> list[Class | str]:
    """A class and its bases in the order in which members are looked up; bases of other packages by dotted name."""
    known = m.lines.get(cls.id)
    if known is not None and known[0] is cls:
        return known[1]
    found: list[Class | str] = []
    linearize(cls, found, 0)
    m.lines[cls.id] = (cls, found)
    return found


def linearize(cls: Class, found: list[Class | str], depth: int) -> None:
    """Depth first; a base that occurs twice keeps its last place."""
    if cls in found:
        found.remove(cls)
    found.append(cls)
    if depth > 10:
        return
    for base in cls.bases:
        for atom in of_one_package(base):
            if type(atom) is Class and atom is not cls:
                linearize(atom, found, depth + 1)
            elif type(atom) is External:
                if atom.name in found:
                    found.remove(atom.name)
                found.append(atom.name)
            elif type(atom) is Unknown:
                name = "?" + atom.symbol.partition(IDENTITY)[0]
                if name not in found:
                    found.append(name)


def of_one_package(base: Value) -> list[Atom]:
    """What a base can be; of classes of several packages, between which a program chooses, those of the first."""
    found = list(atoms(base))
    packages = [package_of(atom) for atom in found] if len(found) > 1 else []
    first = next((package for package in packages if package), "")
    return [atom for atom, package in zip(found, packages, strict=True) if package in ("", first)] if first else found


def package_of(base: Atom) -> str:
    """The package that a class comes from, or derives from; "" where it is only the project's own, or nobody knows."""
    names: list[Class | str] = []
    if type(base) is External:
        names.append(base.name)
    elif type(base) is Class:
        linearize(base, names, 0)
    packages = (name.partition(".")[0] for name in names if isinstance(name, str) and not name.startswith("?"))
    return next((package for package in packages if package != "builtins"), "")


def external_bases(m: Machine, cls: Class) -> list[str]:
    """The dotted names of bases from other packages; a base that nobody knows starts with "?"."""
    return [name for name in ancestors(m, cls) if type(name) is str]


def class_member(m: Machine, cls: Class, name: str) -> tuple[Value, Class] | None:
    """A member of a class or its project bases, with the class that holds it."""
    for ancestor in ancestors(m, cls):
        if type(ancestor) is Class:
            value = m.read(ancestor.id, name)
            if value is not None:
                return (resolve_lazy(m, value) if type(value) is Lazy else value), ancestor
    return None


def attribute_of_super(m: Machine, receiver: Super, name: str, position: int) -> Value:
    """A member that stands behind a class in the order of its instance's bases."""
    instance = receiver.instance
    cls = instance.type if type(instance) is Object else instance
    if type(cls) is not Class:
        return Unknown(f"super().{name}{IDENTITY}")
    line = ancestors(m, cls)
    start = line.index(receiver.owner) + 1 if receiver.owner in line else 1
    for ancestor in line[start:]:
        if type(ancestor) is Class:
            value = m.read(ancestor.id, name)
            if value is not None:
                held = instance if type(instance) is Object else None
                return bind(m, value, held, cls, ancestor, position)
    for ancestor in line[start:]:
        if isinstance(ancestor, str):
            return Method(receiver, name)
    return External("builtins.object." + name)


def e_call(m: Machine, ir: IR) -> Value:
    _, position, callee, positional, named = ir
    if callee[0] == "attribute":
        receiver = evaluate(m, callee[2])
        args = arguments(m, positional, named)
        if m.recorder is not None:
            m.recorder.called(m, m.here(position), receiver, callee[3], args)
        m.written = callee[2][2] if callee[2][0] == "name" else callee[2][3] if callee[2][0] == "attribute" else ""
        m.spelled = (position, callee[3])
        return m.call_method(receiver, callee[3], args, position, callee[1])
    function = evaluate(m, callee)
    args = arguments(m, positional, named)
    if m.recorder is not None:
        m.recorder.called(m, m.here(position), function, "", args)
    m.written = callee[2] if callee[0] == "name" else ""
    m.spelled = (position, m.written)
    return m.call(function, args, position)


def arguments(m: Machine, positional: Sequence[IR], named: Sequence[tuple[str | None, IR]]) -> Args:
    """The arguments of a call; stars of known content are unpacked."""
    values: list[Value] = []
    places: list[int] = []
    opaque, rest = False, None
    for part in positional:
        if part[0] == "star":
            given = evaluate(m, part[2])
            items = items_of(m, given, part[1])
            if items is None:
                held = open_items(m, given)
                items = list(held.items) if held is not None and not opaque else []  # those before the open rest
                rest = held.rest if held is not None else None
                opaque = True
            values += items
            places += [part[1]] * len(items)
        else:
            values.append(evaluate(m, part))
            places.append(part[1])
    by_name: dict[str, Value] = {}
    by_place: dict[str, int] = {}
    holders: dict[str, Place] = {}
    for name, part in named:
        value = evaluate(m, part)
        if name is not None:
            by_name[name] = value
            by_place[name] = part[1]
            continue
        others = spread(m, value)
        opaque = opaque or others.opaque
        by_name.update(others.named)
        by_place |= {key: part[1] for key in others.named}
        holders.update(others.holders)
    return Args(values, by_name, places, by_place, opaque, holders, rest)


def open_items(m: Machine, value: Value) -> Items | None:
    """The items of a sequence that may be longer."""
    held = m.read(value.id, "#items") if type(value) is Object and value.kind == "list" else value
    return held if type(held) is Items else None


def spread(m: Machine, value: Value) -> Args:
    """The entries of a dict as the keywords of a call; of one of several dicts, what each name stands for in those that have it."""
    if type(value) is Alternatives:
        ways = [(path - m.path, spread(m, atom)) for path, atom in under(value, m.path)]
        names = dict.fromkeys(name for _, args in ways for name in args.named)
        joined = {name: join((guards, args.named[name]) for guards, args in ways if name in args.named) for name in names}
        return Args(named=joined, opaque=any(args.opaque for _, args in ways))
    entries = entries_of(m, value)
    if entries is None:
        return Args(opaque=True)
    named = {key: item for key, item in entries.entries if isinstance(key, str)}
    holder = value.made if type(value) is Object else None
    opaque = entries.rest is not None and not is_sifted(entries.rest)
    return Args(named=named, opaque=opaque, holders=dict.fromkeys(named, holder) if holder is not None else {})


def items_of(m: Machine, value: Value, position: int) -> list[Value] | None:
    """The items of a tuple, list or other sequence of known content."""
    found = under(value, m.path)
    if len(found) > 1:
        return None
    atom = found[0][1]
    if type(atom) is Items:
        return list(atom.items) if atom.rest is None else None
    if type(atom) is Object and atom.kind in ("list", "set"):
        held = m.read(atom.id, "#items")
        return list(held.items) if type(held) is Items and held.rest is None else None
    return fields_held(m, atom) if type(atom) is Object and type(atom.type) is Class else None


def fields_held(m: Machine, instance: Object) -> list[Value] | None:
    """The items of a tuple of the project's own class, `class Output(NamedTuple)`; None for any other instance."""
    cls = instance.type
    held = m.read(cls.id, "#fields") if type(cls) is Class else None
    if type(cls) is not Class or type(held) is not Items or "typing.NamedTuple" not in external_bases(m, cls):
        return None
    names = [str(name.value) for name in held.items if type(name) is Constant]
    return [m.read(instance.id, name) or Unknown(f"{name}{IDENTITY}{instance.id!r}"[:200]) for name in names]


def field_names(m: Machine, cls: Class) -> list[str]:
    """The names of a class's fields, those of its bases first."""
    found: dict[str, None] = {}
    for ancestor in reversed([a for a in ancestors(m, cls) if type(a) is Class]):
        held = m.read(ancestor.id, "#fields")
        if type(held) is Items:
            found.update(dict.fromkeys(str(f.value) for f in held.items if type(f) is Constant))
    return list(found)


def longest(m: Machine, value: Value, position: int) -> list[Value] | None:
    """The items of a sequence that conditions make longer: all that there may be."""
    items = items_of(m, value, position)
    if items is not None or type(value) is not Object or value.kind not in ("list", "set"):
        return items
    held = m.read(value.id, "#items")
    found = [a.items for a in atoms(held) if type(a) is Items and a.rest is None] if held is not None else []
    if not found or len(found) != len(list(atoms(held))):  # type: ignore[arg-type]
        return None
    most = max(found, key=len)
    if all(most[: len(other)] == other for other in found):
        return list(most)
    joined = one_sequence([(path - m.path, a) for path, a in under(held, m.path) if type(a) is Items])  # type: ignore[arg-type]
    return list(joined) if joined is not None else None


def entries_of(m: Machine, value: Value) -> Entries | None:
    """The entries of a dict (or of a namespace of settings), as far as known."""
    if type(value) is Object and value.kind == "settings":
        keys = m.read(value.id, "#keys")
        found = dict.fromkeys(str(k.value) for a in atoms(keys or NONE) if type(a) is Items for k in a.items if type(k) is Constant)
        held_values = [(name, m.read(value.id, name)) for name in found]
        return Entries(tuple((n, v) for n, v in held_values if v is not None), m.read(value.id, "#rest"))
    if type(value) is Object and value.kind == "dict":
        held = m.read(value.id, "#entries")
        if type(held) is Alternatives:
            held = next((a for a in atoms(held) if type(a) is Entries), None)
        return held if type(held) is Entries else None
    if type(value) is Constant and value.value is None:
        return Entries()
    return None


def e_binary(m: Machine, ir: IR) -> Value:
    _, position, op, left, right = ir
    return combine(m, op, evaluate(m, left), evaluate(m, right), position)


def combine(m: Machine, op: str, left: Value, right: Value, position: int, in_place: bool = False) -> Value:
    """A binary operation or comparison of two values."""
    if type(left) is not Alternatives and type(right) is not Alternatives:
        return combine_atoms(m, op, left, right, position, in_place)
    found: list[tuple[Path, Value]] = []
    base = m.path
    for (first, a), (second, b) in product(under(left, base), under(right, base)):
        path = extend(first, second)
        if path is None:
            continue
        m.path = path
        found.append((path - base, combine_atoms(m, op, a, b, position, in_place)))
        m.path = base
    return choose(join(found), base) if found else Unknown(f"{op}{IDENTITY}{position}")


def combine_atoms(m: Machine, op: str, left: Atom, right: Atom, position: int, in_place: bool = False) -> Value:
    """A binary operation or comparison of two atoms."""
    if type(left) is Constant and type(right) is Constant:
        try:
            return Constant(fold(op, left.value, right.value))
        except NotConstant:
            pass
    known = m.library.binary(m, op, left, right, m.here(position), in_place)
    if known is not None:
        return known
    if op in LOGICAL and (is_truth(left) or is_truth(right)):
        both = of_truths(m, op, left, right)
        if both is not None:
            return both
    if op == "+" and type(left) is Items and type(right) is Items and left.rest is None and right.rest is None:
        return Items((*left.items, *right.items))
    if op == "|" and type(left) is Object and left.kind == "dict" and type(right) is Object and right.kind == "dict":
        return merged(m, left, right, position)
    if op == "*" and type(left) is Object and left.kind == "list" and type(right) is Constant and isinstance(right.value, int):
        held = m.read(left.id, "#items")
        if type(held) is Items and 0 < right.value * len(held.items) <= 16:
            return new_list(m, Items(held.items * right.value, held.rest), position)
    if op == "+" and type(left) is Object and left.kind == "list" and type(right) is Object and right.kind == "list":
        one, other = m.read(left.id, "#items"), m.read(right.id, "#items")
        if type(one) is Items and type(other) is Items:
            made = Object(m.identity(m.here(position)), "list", "builtins.list", m.here(position))
            m.write(made.id, "#items", Items((*one.items, *other.items), either(one.rest, other.rest)))
            return made
    joined = Unknown(f"({symbol_of(left)} {op} {symbol_of(right)}){IDENTITY}{identity_of(left)}{identity_of(right)}"[:240])
    if op == "+":
        follow_text(m, joined, left, right)
    elif op == "%" and type(right) is Unknown:
        m.follow(joined.symbol, right.symbol, f"{symbol_of(left)} % {{}}", of_each)
    return joined


def of_each(divisor: Any) -> int:
    """What a count leaves over, divided by one: nothing. By anything else it is not known."""
    if divisor != 1:
        raise ValueError("the count decides")
    return 0


LOGICAL = ("&", "|")
MOST_NAMES = 24  # constant texts that a loop runs one by one which refuses some
UNROLLED = 4  # items of a literal sequence that a loop runs one by one
FEW = 12
RARE = frozenset({"optimizer", "scaler"})


def merged(m: Machine, left: Object, right: Object, position: int) -> Value:
    """`left | right` of dicts."""
    one, other = entries_of(m, left), entries_of(m, right)
    both = (
        Entries(rest=Unknown(f"item{IDENTITY}{position}")) if one is None or other is None else Entries(rest=either(one.rest, other.rest))
    )
    for key, value in (*(one or Entries()).entries, *(other or Entries()).entries):
        both = both.put(key, value)
    return new_dict(m, both, position)


def is_truth(atom: Atom) -> bool:
    """Whether an atom is one truth and no array of them: a boolean, or the comparison of something with names."""
    if type(atom) is Test and atom.key[0] == "in":
        return all(isinstance(name, (str, bool, NoneType)) for name in atom.key[2])
    return type(atom) is Constant and isinstance(atom.value, bool)


def of_truths(m: Machine, op: str, left: Atom, right: Atom) -> Value | None:
    """`left & right` or `left | right` of truths, which is `and` or `or`; None where one of them is something else."""
    if type(left) not in TRUTHS or type(right) not in TRUTHS:
        return None
    first, second = (left, right) if is_truth(left) else (right, left)
    decided = op == "|"
    return join((literals, (TRUE if decided else FALSE) if truth is decided else second) for literals, truth in truths(m, first))


TRUTHS = (Constant, Test, Unknown)


def follow_text(m: Machine, joined: Unknown, left: Atom, right: Atom) -> None:
    """Note that a text with something unknown before or behind it follows from that."""
    if type(left) is Constant and isinstance(left.value, str) and type(right) is Unknown:
        before = left.value
        m.follow(joined.symbol, right.symbol, "{}", lambda value: f"{before}{value}")
    elif type(right) is Constant and isinstance(right.value, str) and type(left) is Unknown:
        behind = right.value
        m.follow(joined.symbol, left.symbol, "{}", lambda value: f"{value}{behind}")


def symbol_of(atom: Atom) -> str:
    """How an atom is shown within a symbol."""
    if type(atom) is Unknown:
        return atom.symbol.partition(IDENTITY)[0]
    if type(atom) is Constant:
        return repr(atom.value)
    if type(atom) is External:
        return atom.name
    if type(atom) is Object and isinstance(atom.type, str):
        return atom.type.rpartition(".")[2]
    return type(atom).__name__.lower()


def identity_of(atom: Atom) -> str:
    """What identifies an atom within a symbol."""
    if type(atom) is Unknown:
        return atom.symbol.partition(IDENTITY)[2]
    return "" if type(atom) is Constant else repr(getattr(atom, "id", ""))


def e_unary(m: Machine, ir: IR) -> Value:
    _, position, op, operand = ir
    value = evaluate(m, operand)
    if op == "not":
        return negate(m, value)
    return m.each(value, lambda atom: unary_of(m, op, atom, position)) if type(value) is Alternatives else unary_of(m, op, value, position)


def unary_of(m: Machine, op: str, atom: Atom, position: int) -> Value:
    """A unary operation on an atom."""
    if type(atom) is Constant:
        try:
            return Constant(fold_unary(op, atom.value))
        except NotConstant:
            pass
    known = m.library.unary(m, op, atom, m.here(position))
    if known is not None:
        return known
    return Unknown(f"{op}{symbol_of(atom)}{IDENTITY}{identity_of(atom)}")


def negate(m: Machine, value: Value) -> Value:
    """`not value`."""
    found = truths(m, value)
    if found and all(truth is found[0][1] for _, truth in found):
        return FALSE if found[0][1] else TRUE
    if len(found) == 2 and type(value) in (Test, Unknown):
        if type(value) is Test:
            return Test(value.key, not value.sense)
        return Test(("true", value.symbol), False)  # type: ignore[union-attr]
    return join((literals, FALSE if truth else TRUE) for literals, truth in found)


def truths(m: Machine, value: Value, asked: Hashable = None) -> list[tuple[Path, bool]]:
    """The ways in which a value can be true or false: literals to add to the path, and the truth.

    `asked` tells tensors apart, which have no identity: where they are tested, or by which name.
    """
    found: list[tuple[Path, bool]] = []
    base = m.path
    for path, atom in under(value, base):
        guards = path - base
        kind = type(atom)
        if kind is Constant:
            try:
                found.append((guards, bool(atom.value)))  # type: ignore[union-attr]
            except Exception:
                found.append((guards, True))
        elif kind is Test:
            split(found, path, guards, (atom.key, atom.sense))  # type: ignore[union-attr]
        elif kind is Unknown:
            split(found, path, guards, (("true", atom.symbol), True))  # type: ignore[union-attr]
        elif kind is Items:
            if atom.rest is None or atom.items:  # type: ignore[union-attr]
                found.append((guards, bool(atom.items)))  # type: ignore[union-attr]
            else:
                split(found, path, guards, (("place", repr(atom)), True))
        elif kind is Object and atom.kind in ("list", "dict", "set"):  # type: ignore[union-attr]
            held = m.read(atom.id, "#entries" if atom.kind == "dict" else "#items")  # type: ignore[union-attr]
            for own, content in under(held if held is not None else NONE, path):
                if getattr(content, "entries", None) or getattr(content, "items", None):
                    found.append((own - base, True))
                elif type(content) in (Items, Entries) and content.rest is None and not m.loops:  # type: ignore[union-attr]
                    found.append((own - base, False))
                else:
                    split(found, own, own - base, (("place", repr(atom.id)), True))  # type: ignore[union-attr]
        elif kind is Method and type(atom.receiver) is Object and type(atom.receiver.type) is Class:  # type: ignore[union-attr]
            symbol = f"{atom.receiver.type.name}.{atom.name}{IDENTITY}{atom.receiver.id!r}"  # type: ignore[union-attr]
            split(found, path, guards, (("true", symbol), True))  # what a base of another package holds: the same wherever it is asked for
        elif kind is External and is_open(m, atom.name):  # type: ignore[union-attr]
            split(found, path, guards, (("true", atom.name), True))  # type: ignore[union-attr]
        elif kind is Tensor or kind is DTypeOf or kind is Method:
            split(found, path, guards, (("place", "tensor", asked or repr(atom)[:80], m.round()), True))
        else:
            found.append((guards, True))
    return found


def is_open(m: Machine, name: str) -> bool:
    """Whether nobody knows what a dotted name holds: one of a module that is nowhere to be found, and no class of it, may be a flag."""
    head, dot, last = name.partition(".")[0], "." in name, name.rpartition(".")[2].lstrip("_")
    if not dot or head in m.project.foreign or head in sys.stdlib_module_names or (last[:1].isupper() and not last.isupper()):
        return False
    return not m.library.knows(name)


def split(found: list[tuple[Path, bool]], path: Path, guards: Path, literal: Condition) -> None:
    """Add both truths of a literal, as far as the path allows them."""
    key, sense = literal
    for truth, told in ((True, frozenset((literal,))), (False, frozenset(((key, not sense),)))):  # the arms of the fork ask the same
        if extend(path, told) is not None:
            found.append((guards | told if guards else told, truth))


def branches(m: Machine, ir: IR) -> list[tuple[Path, bool]]:
    """The ways in which a test can come out: literals to add to the path, and the truth; at most one way a truth.

    Where the ways to a truth are too many to be told by literals, the test itself is one: it comes out the same when it is asked again.
    """
    before, m.left_out = m.left_out, False
    found = ways(m, ir)
    whole, m.left_out = not m.left_out, before
    if len(found) == 1:
        return found
    if len(found) == 2 and found[0][1] is not found[1][1]:
        return found if found[0][1] else found[::-1]
    both = {truth: [literals for literals, t in found if t is truth] for truth in (True, False)}
    told = {truth: one_way(arms) for truth, arms in both.items() if arms}
    if len(told) < 2 or (whole and all(exact for _, exact in told.values()) and excluded(told[True][0], told[False][0])):
        return [(literals, truth) for truth, (literals, _) in told.items()]
    asked = question(m, ir)
    key = ("place", "test", m.number_of(asked if asked is not None else frozenset(found)))
    parts = parts_told(m, ir)
    return [(literals | {(key, truth)} | denied(both[not truth]) | parts[truth], truth) for truth, (literals, _) in told.items()]


def parts_told(m: Machine, ir: IR) -> Mapping[bool, Path]:
    """What a test of several parts says of each of them, by how it comes out: they are asked again alone, or beside others."""
    if ir[0] not in ("and", "or") or len(ir[2]) > MAX_PARTS or not all(is_plain(part) for part in ir[2]):
        return NOTHING_TOLD
    literals = [literal for part in ir[2] for literal in part_told(m, part)]
    if len(literals) != len(ir[2]):
        return NOTHING_TOLD
    if ir[0] == "and":
        return {True: frozenset(literals), False: frozenset({(("all", frozenset(literals)), False)})}
    negated = frozenset((key, not sense) for key, sense in literals)
    return {True: frozenset({(("all", negated), False)}), False: negated}


NOTHING_TOLD: Mapping[bool, Path] = {True: frozenset(), False: frozenset()}
MAX_PARTS = 4


def is_plain(ir: IR) -> bool:
    """Whether nothing is called where an expression is worked out."""
    return ir[0] in ("name", "constant") or (ir[0] in ("attribute", "compare", "unary") and all(is_plain(part) for part in operands(ir)))


def operands(ir: IR) -> list[IR]:
    """What an attribute, a comparison or a unary operation is of."""
    if ir[0] == "compare":
        return [ir[2], *ir[4]]
    return [ir[2] if ir[0] == "attribute" else ir[3]]


def part_told(m: Machine, ir: IR) -> list[Condition]:
    """A part of a test as a literal: its own, or that of the test that it is where it is asked alone; none where it is decided."""
    found = ways(m, ir)
    if len(found) == 2 and found[0][1] is not found[1][1]:
        literals = next(literals for literals, truth in found if truth)
        if len(literals) == 1:
            return list(literals)
    if len({truth for _, truth in found}) < 2:
        return []
    asked = question(m, ir)
    return [(("place", "test", m.number_of(asked if asked is not None else frozenset(found))), True)]


def excluded(one: Path, other: Path) -> bool:
    """Whether literals exclude others."""
    return extend(one, other) is None


def denied(arms: list[Path]) -> Path:
    """That none of the shorter ways to the other truth was taken."""
    return frozenset((("place", "test", arm), False) for arm in sorted(arms, key=len)[:MAX_DENIED] if 1 < len(arm) <= MAX_DENIED)


MAX_DENIED = 5


def question(m: Machine, ir: IR) -> tuple[Hashable, ...] | None:
    """What a test asks, wherever it is written: its operators, constants and what its variables hold; None where it asks more."""
    kind = ir[0]
    if kind == "constant":
        return (repr(ir[2]),)
    if kind == "name":
        value = held_by(m, ir[2])
        return (value,) if value is not None and all(type(a) in (Constant, Unknown, DType) for a in atoms(value)) else None
    if kind == "compare" and len(ir[3]) == 1:
        sides = question(m, ir[2]), question(m, ir[4][0])
        return (ir[3][0], *sides) if None not in sides else None
    if kind == "unary" and ir[2] == "not":
        asked = question(m, ir[3])
        return ("not", asked) if asked is not None else None
    return None


def held_by(m: Machine, name: str) -> Value | None:
    """All that a variable may be, whatever the path says; None where no function or module around binds it."""
    scope: Scope | None = m.frames[-1]
    while scope is not None:
        if scope.locals is None or name in scope.locals:
            value = m.store.get(scope.id, name)
            if value is not None:
                return value
        scope = scope.parent
    return None


def one_way(arms: list[Path]) -> tuple[Path, bool]:
    """Several ways to one truth as a single set of literals, and whether that tells all of them."""
    shared, exact = either_way(arms)
    if not exact and all(rest := [arm - shared for arm in arms]):
        chosen = by_choice(rest)
        if chosen is not None:
            return shared | chosen, True
    return shared, exact


def by_choice(arms: list[Path]) -> Path | None:
    """The clauses of ways of which some need a literal and the others its negation: what follows from either. All of them have names."""
    if any(key[0] not in ("true", "in") for arm in arms for key, _ in arm):
        return None
    common = frozenset.intersection(*(frozenset(key for key, _ in arm) for arm in arms))
    for key in sorted(common, key=repr):
        told: set[Condition] = set()
        for sense in (True, False):
            literal = (key, sense)
            inner, exact = one_way([arm - {literal} for arm in arms if literal in arm] or [frozenset()])
            if not exact or not inner:
                break
            for follows, truth in inner:
                denied = follows[1] if follows[0] == "all" and not truth else frozenset({(follows, not truth)})
                told.add((("all", denied | {literal}), False))
        else:
            if len(told) <= MAX_CLAUSES:
                return frozenset(told)
    return None


MAX_CLAUSES = 4


def ways(m: Machine, ir: IR) -> list[tuple[Path, bool]]:
    """The ways of a test, with `and`, `or` and `not` taken apart."""
    kind = ir[0]
    if kind in ("and", "or"):
        stop = kind == "or"
        base = m.path
        open_ways: list[Path] = [frozenset()]
        done: list[tuple[Path, bool]] = []
        for part in ir[2]:
            following: list[Path] = []
            m.left_out = m.left_out or len(open_ways) > MAX_ARMS
            for way in open_ways[:MAX_ARMS]:
                path = extend(base, way)
                if path is None:
                    continue
                m.path = path
                for literals, truth in ways(m, part):
                    if truth is stop:
                        done.append((way | literals, stop))
                    else:
                        following.append(way | literals)
                m.path = base
            open_ways = following
        m.left_out = m.left_out or len(done) > 2 * MAX_ARMS
        return [*done[: 2 * MAX_ARMS], *((way, not stop) for way in open_ways)]
    if kind == "unary" and ir[2] == "not":
        return [(literals, not truth) for literals, truth in ways(m, ir[3])]
    return truths(m, evaluate(m, ir), (m.frames[-1].id, ir[2]) if kind == "name" else m.here(ir[1]))


def e_and_or(m: Machine, ir: IR) -> Value:
    kind, position, parts = ir
    stop = kind == "or"
    base = m.path
    found: list[tuple[Path, Value]] = []
    open_ways: list[Path] = [frozenset()]
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        following: list[Path] = []
        for way in open_ways[:MAX_ARMS]:
            path = extend(base, way)
            if path is None:
                continue
            m.path = path
            value = evaluate(m, part)
            if last:
                found.append((way, m.each(value, lambda atom: truth_of(m, atom))))
            elif stop and number == len(parts) - 2 and type(value) is Unknown and is_empty_dict(parts[-1]):
                found.append((way, value))  # `settings or {}`: what it lacks has its default, either way
            else:
                for literals, truth in truths(m, value):
                    if truth is stop:
                        decided = truth_of(m, choose(value, extend(path, literals) or path))
                        found.append((way | literals, decided if type(decided) is not Test else (TRUE if stop else FALSE)))
                    else:
                        following.append(way | literals)
            m.path = base
        open_ways = following
    return choose(join(found), base) if found else Unknown(f"{kind}{IDENTITY}{position}")


def is_empty_dict(ir: IR) -> bool:
    """Whether an expression is `{}`, or `dict()`."""
    return (ir[0] == "dict" and not ir[2]) or (ir[0] == "call" and ir[2][0] == "name" and ir[2][2] == "dict" and not (ir[3] or ir[4]))


def truth_of(m: Machine, value: Value) -> Value:
    """A switch that is on or off as the condition that it is: two of them, joined, are told apart."""
    switch = m.switches.get(value.symbol) if type(value) is Unknown else None
    is_on_or_off = switch is not None and type(switch.default) is Constant and isinstance(switch.default.value, bool)
    return Test(("true", value.symbol), True) if type(value) is Unknown and is_on_or_off else value


def e_compare(m: Machine, ir: IR) -> Value:
    _, position, left, ops, comparators = ir
    if len(ops) > 1:
        one: IR = ("compare", position, left, ops[:1], comparators[:1])
        other: IR = ("compare", position | 1 << 62, comparators[0], ops[1:], comparators[1:])
        return e_and_or(m, ("and", position, (one, other)))
    first, second = evaluate(m, left), evaluate(m, comparators[0])
    return compare(m, ops[0], first, second, position)


def compare(m: Machine, op: str, left: Value, right: Value, position: int) -> Value:
    """A comparison as a constant or a condition."""
    if type(left) is Alternatives or type(right) is Alternatives:
        base = m.path
        found: list[tuple[Path, Value]] = []
        for (one, a), (other, b) in product(under(left, base), under(right, base)):
            path = extend(one, other)
            if path is not None:
                m.path = path
                found.append((path - base, compare(m, op, a, b, position)))
                m.path = base
        return choose(join(found), base) if found else Test(("place", m.here(position), m.round()), True)
    negative = op in ("!=", "is not", "not in")
    if op in ("==", "!=", "is", "is not"):
        same = equal(m, left, right)
        if same is not None:
            return same if not negative else negate(m, same)
    elif op in ("in", "not in"):
        same = contained(m, left, right)
        if same is not None:
            return same if not negative else negate(m, same)
    elif type(left) is Constant and type(right) is Constant:
        try:
            return Constant(fold(op, left.value, right.value))
        except NotConstant:
            pass
    known = m.library.binary(m, op, left, right, m.here(position))
    if known is not None:
        return known
    if op in ("<", "<=", ">", ">=", "==", "!=", "is", "is not") and (type(left) in NAMED or type(right) in NAMED):
        text = f"{symbol_of(left)} {op} {symbol_of(right)}{IDENTITY}{identity_of(left)}{identity_of(right)}"[:240]
        if type(left) is Unknown and type(right) is Constant:
            m.follow(text, left.symbol, f"{{}} {op} {right.value!r}", lambda value: OPERATORS[op](value, right.value), True)
        elif type(left) is Constant and type(right) is Unknown:
            m.follow(text, right.symbol, f"{left.value!r} {op} {{}}", lambda value: OPERATORS[op](left.value, value), True)
        bound = bound_of(op, left, right)
        return Test(("true", text) if bound is None else ("true", text, bound), True)
    return Test(("place", m.here(position), m.round()), True)


NAMED = (Unknown, External)  # what has a name of its own by which comparisons of it are the same wherever they stand


def bound_of(op: str, left: Value, right: Value) -> Bound | None:
    """What a comparison of an unknown with a number says."""
    if type(left) is Constant:
        left, right, op = right, left, MIRRORED.get(op, "")
    if op not in COMPARISONS or type(left) not in NAMED or type(right) is not Constant or type(right.value) not in (int, float):
        return None
    return Bound(left.symbol if type(left) is Unknown else left.name, op, right.value)  # type: ignore[union-attr, arg-type]


def equal(m: Machine, left: Value, right: Value) -> Value | None:
    """Whether two atoms are equal: a constant, a condition, or None where nothing can be told."""
    if type(left) is Constant and type(right) is Constant:
        try:
            return TRUE if left.value == right.value else FALSE
        except Exception:
            return None
    if type(left) is Constant:
        left, right = right, left
    if type(right) is Constant:
        if type(left) is Unknown:
            if right.value is None and INSTANCE.match(left.symbol):
                return FALSE
            switch = m.switches.get(left.symbol)
            if switch is not None:
                if switch.choices and right.value is not None and right.value not in switch.choices:
                    return FALSE
                if isinstance(right.value, bool) and type(switch.default) is Constant and isinstance(switch.default.value, bool):
                    return Test(("true", left.symbol), right.value)
            try:
                return Test(("in", left.symbol, frozenset({right.value})), True)
            except TypeError:
                return None
        if right.value is None and type(left) not in (Method, Alternatives, Lazy):
            return FALSE
        if isinstance(right.value, bool) and type(left) is Test:
            return Test(left.key, left.sense is right.value)
    if type(left) in (DType, External, Class, Module) and type(left) is type(right):
        return TRUE if left == right else FALSE
    if MISSING in (left, right) and not any(type(side) in (External, Unknown, Method, Lazy) for side in (left, right) if side != MISSING):
        return FALSE
    if (type(left) is Unknown and type(right) is DType) or (type(left) is DType and type(right) is Unknown):
        unknown, dtype = (left, right) if type(left) is Unknown else (right, left)
        return Test(("in", unknown.symbol, frozenset({"dtype:" + dtype.letter})), True)  # type: ignore[union-attr]
    if type(left) is Unknown and left == right:
        return TRUE
    return None


MISSING = External("dataclasses.MISSING")  # what stands for no default


def contained(m: Machine, item: Value, container: Value) -> Value | None:
    """Whether an atom is in a container of constants."""
    items: list[Value] | None = None
    if type(container) is Items and container.rest is None:
        items = list(container.items)
    elif type(container) is Object and container.kind in ("list", "set"):
        held = m.read(container.id, "#items")
        items = list(held.items) if type(held) is Items and held.rest is None else None
    elif type(container) is Object and container.kind == "dict":
        held = m.read(container.id, "#entries")
        if type(held) is Entries and type(item) is Constant:
            if held.get(item.value) is not None:
                return TRUE
            if held.rest is None:
                return FALSE
        return None
    elif type(container) is Object and container.kind == "settings" and type(item) is Constant and isinstance(item.value, str):
        if m.read(container.id, item.value) is not None:
            return TRUE
        return FALSE if m.read(container.id, "#rest") is None else Test(("true", f"{item.value!r} in {container.id!r}"), True)
    elif type(container) is Constant and isinstance(container.value, str) and type(item) is Constant and isinstance(item.value, str):
        return TRUE if item.value in container.value else FALSE
    elif type(container) is Unknown and type(item) is Constant:
        symbol = f"{item.value!r} in {container.symbol}"
        wanted = item.value
        m.follow(symbol, container.symbol, f"{{}} contains {wanted!r}", lambda value: wanted in value, True)
        return Test(("true", symbol), True)
    if items is None:
        return None
    if type(item) is Constant and all(type(i) is Constant for i in items):
        return TRUE if any(type(i) is Constant and i.value == item.value for i in items) else FALSE
    if type(item) is Unknown and all(type(i) is Constant for i in items):
        try:
            return Test(("in", item.symbol, frozenset(i.value for i in items if type(i) is Constant)), True)
        except TypeError:
            return None
    if type(item) is Unknown and items and all(type(i) is DType for i in items):
        return Test(("in", item.symbol, frozenset("dtype:" + i.letter for i in items if type(i) is DType)), True)
    if type(item) is DType and all(type(i) is DType for i in items):
        return TRUE if item in items else FALSE
    return None


def e_conditional(m: Machine, ir: IR) -> Value:
    test, body, orelse = ir[2:]

    def arm(truth: bool) -> tuple[bool, Value]:
        narrow_subjects(m, test, truth)
        return True, evaluate(m, body if truth else orelse)

    return m.fork([(literals, partial(arm, truth)) for literals, truth in branches(m, test)])[1]


def narrow_subjects(m: Machine, test: IR, truth: bool) -> None:
    """Leave of a variable, whose dtype or class a test asks for, what it can be where the test comes out so."""
    frame = m.frames[-1]
    for name, part, sense in subjects(test, truth):
        if part[0] == "name":
            narrow_by_name(m, frame, name, sense)
            continue
        value = m.store.get(frame.id, name) if frame.locals is None or name in frame.locals else None
        if type(value) is not Alternatives or not any(type(atom) is Tensor for atom in atoms(value)):
            continue
        base = m.path
        kept = []
        for guards, atom in value.options:
            path = extend(base, guards)
            if path is None:
                continue
            m.path = path
            m.store.begin()
            m.write(frame.id, name, atom)
            if any(t is sense for _, t in truths(m, evaluate(m, part))):
                kept.append((guards, atom))
            m.store.undo()
            m.path = base
        if 0 < len(kept) < len(value.options):
            m.write(frame.id, name, alternatives(kept))


class KeptTest(NamedTuple):
    """The test that a variable was told by: what it gave, and the variables that it asked of with their values at the time."""

    test: IR
    outcome: Value
    asked: tuple[tuple[str, Value | None], ...]


def narrow_by_name(m: Machine, frame: Frame, name: str, truth: bool) -> None:
    """The same by a test that a variable keeps, as long as it asks of the same values."""
    held = m.store.get(frame.id, f"#test {name}")
    kept = held.data if type(held) is State else None
    if not isinstance(kept, KeptTest) or m.store.get(frame.id, name) != kept.outcome:
        return
    if all(m.store.get(frame.id, subject) == value for subject, value in kept.asked):
        narrow_subjects(m, kept.test, truth)


def keep_test(m: Machine, name: str, test: IR, outcome: Value) -> None:
    """Remember what a variable was told by, where that asks for the dtype or class of other variables."""
    frame = m.frames[-1]
    asked = [subject for subject, part, _ in (*subjects(test, True), *subjects(test, False)) if part[0] != "name"]
    if asked:
        values = tuple((subject, m.store.get(frame.id, subject)) for subject in asked)
        m.write(frame.id, f"#test {name}", State(KeptTest(test, outcome, values)))


def subjects(test: IR, truth: bool) -> Iterator[tuple[str, IR, bool]]:
    """The variables that a test which comes out so tells something of: each with the part that asks, and what it answers."""
    kind = test[0]
    if kind == "unary" and test[2] == "not":
        yield from subjects(test[3], not truth)
    elif kind in ("and", "or") and truth is (kind == "and"):
        for part in test[2]:
            yield from subjects(part, truth)
    elif kind == "name":
        yield test[2], test, truth
    elif kind == "compare" and len(test[3]) == 1:
        for side in (test[2], test[4][0]):
            if side[0] == "attribute" and side[3] == "dtype" and side[2][0] == "name":
                yield side[2][2], test, truth
    elif kind == "call" and test[2][0] == "name" and test[2][2] == "isinstance" and test[3] and test[3][0][0] == "name":
        yield test[3][0][2], test, truth


def e_subscript(m: Machine, ir: IR) -> Value:
    _, position, receiver, index = ir
    held, key = evaluate(m, receiver), evaluate(m, index)
    if type(held) is Alternatives or type(key) is Alternatives:
        found = m.each(held, lambda a: m.each(key, lambda b: item(m, a, b, position)))
        return an_item(found, position)
    return an_item(item(m, held, key, position), position)


def an_item(value: Value, position: int) -> Value:
    """An item that may be too many things to list: which one it is, its index decides."""
    return Unknown(f"item{IDENTITY}{position}") if type(value) is Unknown and value.symbol.startswith(MANY) else value


def item(m: Machine, receiver: Atom, index: Value, position: int) -> Value:
    """An item of an atom."""
    place = m.here(position)
    if type(receiver) is Object and receiver.kind in ("list", "set"):
        held = m.read(receiver.id, "#items")
        if type(held) is Alternatives:
            return m.each(held, lambda a: item(m, a, index, position) if type(a) is Items else Unknown(f"item{IDENTITY}{receiver.id!r}"))
        if type(held) is Items:
            return item(m, held, index, position)
    if type(receiver) is Items:
        return item_of_items(m, receiver, index, position)
    if type(receiver) is Object and receiver.kind == "dict":
        held = m.read(receiver.id, "#entries")
        if type(held) is Alternatives:
            return m.each(held, lambda a: entry(m, a, index, receiver) if type(a) is Entries else Unknown(f"item{IDENTITY}{receiver.id!r}"))
        if type(held) is Entries:
            copied = m.read(receiver.id, "#copy of") if type(index) is Constant and held.get(index.value) is None else None
            return entry(m, held, index, receiver) if copied is None else m.each(copied, lambda a: item(m, a, index, position))
    if type(receiver) is Object and type(receiver.type) is Class:
        member = class_member(m, receiver.type, "__getitem__")
        if member is not None:
            return m.call(bind(m, member[0], receiver, receiver.type, member[1], position), Args((index,), places=(position,)), position)
    known = m.library.subscript(m, receiver, index, place)
    if known is not None:
        return known
    if type(receiver) is Constant and isinstance(receiver.value, (str, tuple)) and type(index) is Constant and isinstance(index.value, int):
        try:
            return Constant(receiver.value[index.value])
        except (IndexError, TypeError):
            return NONE
    if type(receiver) is Unknown:
        text = f"[{symbol_of(index)}]" if type(index) is not Alternatives else "[…]"
        extra = "" if type(index) in (Constant, Alternatives) else identity_of(index)  # type: ignore[arg-type]
        value = m.read(receiver, text)
        return value if value is not None else derived(receiver, text, extra)
    if type(receiver) in (Class, External):
        return receiver  # list[int], Optional[Tensor]
    if type(receiver) is Object and type(receiver.type) is Class and type(index) is Constant:
        return Unknown(f"[{index.value!r}]{IDENTITY}{at_home(receiver)}{receiver.id!r}")  # the same wherever a class reads it for others
    return Unknown(f"item{IDENTITY}{identity_of(receiver)}{position}")


def item_of_items(m: Machine, receiver: Items, index: Value, position: int) -> Value:
    """An item of a sequence of known items."""
    if type(index) is Constant and isinstance(index.value, int):
        try:
            if receiver.rest is None or 0 <= index.value < len(receiver.items):
                return receiver.items[index.value]
        except IndexError:
            pass
        return receiver.rest if receiver.rest is not None else Unknown(f"item{IDENTITY}{position}")
    if type(index) is Slice:
        start = index.start.value if type(index.start) is Constant else 0
        stop = index.stop.value if type(index.stop) is Constant else None
        if (start is None or isinstance(start, int)) and (stop is None or isinstance(stop, int)):
            return Items(receiver.items[start:stop], receiver.rest)
    candidates = [*receiver.items, *([receiver.rest] if receiver.rest is not None else [])]
    if not candidates:
        return Unknown(f"item{IDENTITY}{position}")
    if len(candidates) == 1 or all(c == candidates[0] for c in candidates):
        return candidates[0]
    key = symbol_of(index) + identity_of(index) if type(index) is not Alternatives else str(position)
    return join((frozenset({(("in", f"[{key}]", frozenset({n})), True)}), c) for n, c in enumerate(candidates[: Alternatives.LIMIT]))


def keyword(rest: Value, key: object) -> Value:
    """What may stand under a key beside the known ones: of what nobody knows, each is something else."""
    if type(rest) is not Unknown:
        return rest
    shown, _, identity = rest.symbol.partition(IDENTITY)
    return Unknown(f"{shown.removesuffix('[]')}[{key!r}]{IDENTITY}{identity}", rest.hint) if identity else rest


def entry(m: Machine, held: Entries, index: Value, receiver: Object) -> Value:
    """The value of a key."""
    if type(index) is Constant:
        try:
            value = held.get(index.value)
        except TypeError:
            value = None
        if value is not None:
            return value
        more = registered(m, receiver) if held.rest is None else None
        if more is not None:
            return entry(m, more, index, receiver)
        if held.rest is None:
            return Unknown(f"[{index.value!r}]{IDENTITY}{receiver.id!r}")
        value = keyword(held.rest, index.value)
        if type(value) is Unknown and value != held.rest and isinstance(index.value, str):
            m.switches.setdefault(value.symbol, Switch(index.value, None, None, "entry"))
        return value
    if type(index) is Unknown:
        held = registered(m, receiver) or held
    candidates = [(k, v) for k, v in held.entries]
    if type(index) is Unknown and candidates:
        found: list[tuple[Path, Value]] = []
        for key, value in candidates[: Alternatives.LIMIT]:
            found.append((frozenset({(("in", index.symbol, frozenset({key})), True)}), value))
        return choose(join(found), m.path)
    if candidates and all(v == candidates[0][1] for _, v in candidates):
        return candidates[0][1]
    return held.rest if held.rest is not None else Unknown(f"item{IDENTITY}{receiver.id!r}")


def registered(m: Machine, receiver: Object) -> Entries | None:
    """The entries of a table once the modules have run that may add to it: those that import its file; None where none had to."""
    home = home_of(receiver.id)
    if home is None or m.is_own(receiver.id) or not m.run_importers(home):
        return None
    held = m.read(receiver.id, "#entries")
    return held if type(held) is Entries else None


def home_of(identity: Hashable) -> str | None:
    """The file in which an object is made: where the call stands that led to its making, if there is one."""
    if type(identity) is not tuple:
        return None
    match identity:
        case (Place(path=path), tuple(calls), *_):
            return calls[-1].path if calls else path
    return next((home for part in identity if (home := home_of(part)) is not None), None)


def e_slice(m: Machine, ir: IR) -> Value:
    start = evaluate(m, ir[2]) if ir[2] is not None else NONE
    stop = evaluate(m, ir[3]) if ir[3] is not None else NONE
    return Slice(start, stop)


def e_tuple(m: Machine, ir: IR) -> Value:
    return sequence(m, ir[2])


def sequence(m: Machine, parts: Sequence[IR]) -> Items:
    """Items with stars unpacked."""
    values: list[Value] = []
    rest: Value | None = None
    for part in parts:
        if part[0] == "star":
            value = evaluate(m, part[2])
            items = items_of(m, value, part[1])
            if items is None:
                rest = either(rest, join((frozenset(), element) for element in m.iterate(value, part[1], 1)))
            else:
                values += items
        else:
            values.append(evaluate(m, part))
    return Items(tuple(values), rest)


def either(one: Value | None, other: Value | None) -> Value | None:
    """What may be the one or the other."""
    if one is None or other is None or one == other:
        return other if one is None else one
    return join((frozenset(), value) for value in (one, other))


def e_list(m: Machine, ir: IR) -> Value:
    items = sequence(m, ir[2])
    return new_list(m, items, ir[1], "set" if ir[0] == "set" else "list")


def new_list(m: Machine, items: Items, position: int, kind: str = "list") -> Object:
    """A list (or set) with items."""
    place = m.here(position)
    made = Object(("list", m.identity(place)), kind, "builtins." + kind, place)
    m.write(made.id, "#items", items)
    return made


def e_dict(m: Machine, ir: IR) -> Value:
    entries = Entries()
    for key, value in ir[2]:
        held = evaluate(m, value)
        if key is None:
            others = entries_of(m, held)
            if others is None:
                other = Unknown(f"item{IDENTITY}{ir[1]}")
                given = (("place", m.here(ir[1]), "given"), True)  # what is spread here may replace what stands before it
                kept = tuple((k, join([(frozenset({(given[0], False)}), v), (frozenset({given}), other)])) for k, v in entries.entries)
                entries = Entries(kept, other)
            else:
                for k, v in others.entries:
                    entries = entries.put(k, v)
                if others.rest is not None:
                    entries = Entries(entries.entries, others.rest)
            continue
        name = evaluate(m, key)
        if type(name) is Constant:
            entries = entries.put(name.value, held)
        elif type(name) in (External, Class, DType):
            entries = entries.put(name, held)
        elif len(keys := [atom for _, atom in options(name)]) > 1 and all(type(atom) is Constant for atom in keys):
            for one in dict.fromkeys(keys):  # a setting chooses the key: where it chooses another, there is none of this
                before = entries.get(one.value)  # type: ignore[union-attr]
                otherwise = NONE if before is None else before
                ways = [(guards, held if atom == one else otherwise) for guards, atom in options(name)]
                entries = entries.put(one.value, join(ways))  # type: ignore[union-attr]
        else:
            entries = Entries(entries.entries, held)
    return new_dict(m, entries, ir[1])


def new_dict(m: Machine, entries: Entries, position: int) -> Object:
    """A dict with entries."""
    place = m.here(position)
    made = Object(("dict", m.identity(place)), "dict", "builtins.dict", place)
    m.write(made.id, "#entries", entries)
    return made


def e_lambda(m: Machine, ir: IR) -> Value:
    frame = m.frames[-1]
    code = Code(frame.path, ir[2])
    return Function(code, round_scope(m, code, frame), None)


def round_scope(m: Machine, code: Code, scope: Scope) -> Scope:
    """The scope of a function that is defined in a loop: what its defaults name is what that stands for in this round."""
    named = [default for _, _, default, _ in code.parameters if default is not None and default[0] == "name"]
    if not named or not m.frames[-1].loops:
        return scope
    around = Scope(("round", Place(code.path, code.place), scope.id, m.loops[-1]), code.path, scope)
    for default in named:
        m.write(around.id, default[2], e_name(m, default))
    return around


def e_comprehension(m: Machine, ir: IR) -> Value:
    _, position, kind, generators, elements = ir
    collected: list[Value] = []
    undecided: list[bool] = []  # of each condition that may hold, whether it may fail, too
    left_out: list[Path] = []  # how each of the items is left out that may be

    def inner(depth: int) -> None:
        if depth == len(generators):
            if kind == "dict":
                collected.append(Items((evaluate(m, elements[0]), evaluate(m, elements[1]))))
            else:
                collected.append(evaluate(m, elements[0]))
            return
        target, items, conditions = generators[depth]
        over = evaluate(m, items)
        for element in (names_in(m, over, items[1]) if conditions else None) or m.iterate(over, items[1], 1):
            m.assign(target, element)
            path, before = m.path, len(collected)
            for condition in conditions:
                ways = branches(m, condition)
                true = [literals for literals, truth in ways if truth]
                if not true:
                    break
                undecided.append(len(true) < len(ways))
                left_out.extend(literals for literals, truth in ways if not truth)
                m.path = extend(m.path, true[0]) or m.path
            else:
                inner(depth + 1)
            if m.path != path and kind != "dict":
                collected[before:] = [only_under([m.path - path], value) for value in collected[before:]]
            m.path = path

    inner(0)
    each = len(generators) == 1 and is_exact(m, generators[0][1])
    many = kind != "dict" and len({part for value in collected for part in atoms(value)}) > Alternatives.LIMIT
    exact = each and (many or not any(undecided))
    held = [pair.items[1] if kind == "dict" else pair for pair in collected]  # type: ignore[union-attr]
    stand_for_several(m, [value for n, value in enumerate(held) if not each or value in held[:n]])  # what one line makes has one identity
    if kind == "dict":
        entries = Entries(rest=None if exact else Unknown(f"{SIFTED if each else 'item'}{IDENTITY}{position}"))
        for pair in collected:
            key, value = pair.items  # type: ignore[union-attr]
            entries = entries.put(key.value, value) if type(key) is Constant else Entries(entries.entries, value)
        return new_dict(m, entries, position)
    if exact:
        return new_list(m, Items(tuple(collected)), position)
    rest = (
        join((frozenset({(("place", position, n), True)}) if n else frozenset(), v) for n, v in enumerate(collected)) if collected else None
    )
    made = new_list(m, Items((), rest if rest is not None else Unknown(f"item{IDENTITY}{position}")), position)
    if len(generators) == 1 and collected and all(undecided) and len(left_out) == len(collected) == len(undecided):
        sifted(m, made, generators[0], left_out)
    return made


def sifted(m: Machine, made: Object, generator: IR, left_out: Sequence[Path]) -> None:
    """Note when a list is empty that is sifted out of names: where each of them is left out."""
    if names_in(m, evaluate(m, generator[1]), generator[1][1]) is None:
        return
    none: Path | None = frozenset()
    for literals in left_out:
        none = extend(none, literals) if none is not None else None
    held = m.read(made.id, "#items")
    if none and type(held) is Items and held.rest is not None:
        some = frozenset({(("all", none), False)} if len(none) > 1 else {(key, not sense) for key, sense in none})
        m.write(made.id, "#items", join([(none, Items(())), (some, Items((held.rest,), held.rest))]))


def names_in(m: Machine, value: Value, position: int) -> list[Value] | None:
    """The items of a sequence of constant texts, or of pairs that begin with one, as far as programs write such; None for any other."""
    items = items_of(m, value, position)
    if items is None and type(value) is Object and value.kind == "dict":
        held = m.read(value.id, "#entries")
        items = [Constant(key) for key, _ in held.entries] if type(held) is Entries and held.rest is None else None
    if items is None or not 0 < len(items) <= MOST_NAMES:
        return None
    heads = [item.items[0] if type(item) is Items and item.items else item for item in items]
    return items if all(type(head) is Constant and isinstance(head.value, str) for head in heads) else None


def stand_for_several(m: Machine, values: Iterable[Value]) -> None:
    """Note of objects that they stand for as many as a comprehension makes."""
    for value in values:
        for atom in atoms(value):
            if type(atom) is Object:
                m.write(atom.id, SEVERAL, TRUE)
            elif type(atom) is Items:
                stand_for_several(m, atom.items)


def is_exact(m: Machine, ir: IR) -> bool:
    """Whether an iterable has a small, known number of items."""
    items = longest(m, evaluate(m, ir), ir[1])
    return items is not None and len(items) <= most_items(m, items)


def most_items(m: Machine, items: Sequence[Value]) -> int:
    """How many items of a literal sequence are seen one by one: more, where there are things among them of which programs have few."""
    parts = [atom for item in items for part in atoms(item) for atom in (part.items if type(part) is Items else (part,))]
    if any(type(atom) is Object and atom.kind in RARE for atom in parts):
        return FEW
    classes = {atom.type for atom in parts if type(atom) is Object and atom.kind == "instance"}
    return FEW if sum(type(cls) is Class and not is_model(m, cls) for cls in classes) > 1 else UNROLLED


def is_model(m: Machine, cls: Class) -> bool:
    """Whether a class of the project extends those of models and layers: of others, hooks and the like, programs have few in a list."""
    return any(name.startswith(("torch.nn.", "keras.", "tensorflow.")) for name in external_bases(m, cls))


def e_format(m: Machine, ir: IR) -> Value:
    parts = [evaluate(m, part) for part in ir[2]]
    if any(type(atom) is Tensor for part in parts for atom in atoms(part)):
        m.emit("shown", m.here(ir[1]), values=tuple(parts))
    if all(type(part) is Constant for part in parts):
        return Constant("".join(str(part.value) for part in parts if type(part) is Constant))
    text = "".join(str(p.value) if type(p) is Constant else "{" + symbol_of(p) + "}" for p in parts if type(p) is not Alternatives)
    made = Unknown(f"{text[:80]}{IDENTITY}{''.join(identity_of(p) for p in parts if type(p) not in (Constant, Alternatives))}"[:200])  # type: ignore[arg-type]
    open_ones = [p for p in parts if type(p) is not Constant]
    if len(open_ones) == 1 and type(open_ones[0]) is Unknown:
        texts = [p.value if type(p) is Constant else None for p in parts]
        m.follow(made.symbol, open_ones[0].symbol, "{}", lambda value: "".join(str(value if t is None else t) for t in texts))
    return made


def e_yield(m: Machine, ir: IR) -> Value:
    value = evaluate(m, ir[2]) if ir[2] is not None else NONE
    frame = m.frames[-1]
    if frame.on_yield is not None:
        return frame.on_yield(value)
    frame.yielded.append((m.path, value))
    return Unknown(f"sent{IDENTITY}{ir[1]}")


def e_yield_from(m: Machine, ir: IR) -> Value:
    value = evaluate(m, ir[2])
    frame = m.frames[-1]
    for element in m.iterate(value, ir[1], 1):
        frame.yielded.append((m.path, element))
    return NONE


def e_walrus(m: Machine, ir: IR) -> Value:
    value = evaluate(m, ir[3])
    m.assign(ir[2], value)
    return value


def e_star(m: Machine, ir: IR) -> Value:
    return evaluate(m, ir[2])


def e_unknown(m: Machine, ir: IR) -> Value:
    for part in ir[2]:
        evaluate(m, part)
    return Unknown(f"?{IDENTITY}{m.frames[-1].path}:{ir[1]}")


HANDLERS: dict[str, Callable[[Machine, IR], Value]] = {
    "constant": e_constant,
    "name": e_name,
    "attribute": e_attribute,
    "call": e_call,
    "binary": e_binary,
    "unary": e_unary,
    "compare": e_compare,
    "and": e_and_or,
    "or": e_and_or,
    "conditional": e_conditional,
    "subscript": e_subscript,
    "slice": e_slice,
    "tuple": e_tuple,
    "list": e_list,
    "set": e_list,
    "dict": e_dict,
    "lambda": e_lambda,
    "comprehension": e_comprehension,
    "format": e_format,
    "yield": e_yield,
    "yield from": e_yield_from,
    "walrus": e_walrus,
    "star": e_star,
    "unknown": e_unknown,
}

__all__ = ["Autocast", "Context", "evaluate"]
