"""Registries of other packages: objects that classes and functions are added to by decorators, and looked up or built in by name.

A registry is an object of the kind "registry", its slot "#entries" what it holds by name.
"""

from __future__ import annotations

from mplint.frameworks.options.names import spelled
from mplint.frameworks.options.namespaces import KIND
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.expressions import entries_of, entry, registered
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.values import (
    NONE,
    Alternatives,
    Atom,
    Class,
    Constant,
    Entries,
    External,
    Function,
    Method,
    Object,
    Place,
    Unknown,
    Value,
)

vocabulary = Vocabulary()
ADDING = ("register_module", "register", "register_class", "register_obj", "add")
TYPE_KEYS = ("type", "name", "NAME", "_target_", "target")


def new_registry(m: Machine, callee: Atom, args: Args, place: Place) -> Value | None:
    """`Registry("models")` of whatever package."""
    if type(callee) is not External or callee.name.rpartition(".")[2] != "Registry":
        return None
    made = Object(m.identity(place), "registry", callee.name, place)
    m.write(made.id, "#entries", Entries())
    return made


vocabulary.atom_calls.append(new_registry)


def held(m: Machine, registry: Object) -> Entries:
    """What a registry holds by now."""
    found = m.read(registry.id, "#entries")
    return found if type(found) is Entries else Entries()


def add(m: Machine, registry: Object, name: Value | None, value: Value) -> Value:
    """Add a class or function under a name, or under its own."""
    own = value.name if type(value) is Class else value.code.name if type(value) is Function else ""
    key = name.value if type(name) is Constant and isinstance(name.value, str) else own
    if key:
        m.write(registry.id, "#entries", held(m, registry).put(key, value))
    return value


@vocabulary.method("registry", *ADDING)
def register(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """Add something at once, or give the decorator that does."""
    given = [value for value in args.all() if type(value) in (Class, Function)]
    title = args.named.get("name", next((value for value in args.positional if type(value) is Constant), None))
    if given:
        return add(m, receiver, title, given[0])
    made = Object(("registration", receiver.id, m.identity(place)), "registration", "registration", place)
    m.write(made.id, "#registry", receiver)
    m.write(made.id, "#name", title if title is not None else NONE)
    return made


def decorated(m: Machine, function: Value, decorator: Atom, place: Place) -> Value | None:
    """A class or function under `@MODELS.register_module()` or `@MODELS.register`."""
    if type(decorator) is Object and decorator.kind == "registration":
        registry = m.read(decorator.id, "#registry")
        return add(m, registry, m.read(decorator.id, "#name"), function) if type(registry) is Object else None
    if type(decorator) is Method and type(decorator.receiver) is Object and decorator.receiver.kind == "registry":
        return add(m, decorator.receiver, None, function)
    return None


vocabulary.decorators.append(decorated)


def found(m: Machine, registry: Object, key: Value) -> Value:
    """What a registry holds under a name; the modules that import its file have added theirs."""
    entries = registered(m, registry) or held(m, registry)
    return entry(m, entries, key, registry)


@vocabulary.method("registry", "get", "__getitem__")
def get(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    key = args.get(0)
    return found(m, receiver, key) if key is not None else NONE


def subscript(m: Machine, receiver: Atom, index: Value, place: Place) -> Value | None:
    """`MODELS[name]`."""
    return found(m, receiver, index) if type(receiver) is Object and receiver.kind == "registry" else None


vocabulary.subscripts.append(subscript)


@vocabulary.method("registry", "build", "create")
def build(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """`MODELS.build(dict(type="Net", depth=3))`: an instance of what the entry of the type says, with the other entries."""
    settings = args.get(0, "cfg")
    if type(settings) is Alternatives:
        rest = args.positional[1:]
        return m.each(settings, lambda atom: build(m, receiver, name, Args((atom, *rest), args.named), place))
    entries = entries_of(m, settings) if settings is not None else None
    if entries is None:
        if type(settings) is Constant:
            return m.call(found(m, receiver, settings), Args((), args.named), place.position)
        return Unknown(f"{name}(…){IDENTITY}{place.path}:{place.position}")
    key = next((held for word in TYPE_KEYS if (held := entries.get(word)) is not None), None)
    if key is None:
        return Unknown(f"{name}(…){IDENTITY}{place.path}:{place.position}")
    named = {str(k): v for k, v in entries.entries if v is not key and isinstance(k, str)} | args.named
    whole = Args(args.positional[1:], named, opaque=entries.rest is not None and getattr(settings, "kind", "") != KIND)
    return m.each(spelled(m, key), lambda a: m.call(a if type(a) is Class else found(m, receiver, a), whole, place.position))
