"""Calls: project functions are run, classes instantiated, everything else is asked of the library."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mplint.limits import FLOAT16_MAX, FLOAT16_SMALLEST_NORMAL
from mplint.program.expressions import (
    FILLED,
    NOT_ENTERED,
    OF_INSTANCE,
    ancestors,
    at_home,
    attribute,
    attribute_of,
    attribute_of_object,
    bind,
    class_member,
    entries_of,
    external_bases,
    field_names,
    resolve_lazy,
)
from mplint.program.lower import GENERATOR, IR, NESTS
from mplint.program.machine import IDENTITY, MAX_DEPTH, Args, Frame, Machine, Switch, derived
from mplint.program.replaced import is_replaced
from mplint.program.store import join, under
from mplint.program.values import (
    MANY,
    NONE,
    Alternatives,
    Atom,
    Class,
    Code,
    Constant,
    DType,
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
    Super,
    Tensor,
    Unknown,
    Value,
    Wrapped,
    atoms,
)

MAX_SAME = 2  # times that a function may be on the stack


def call(m: Machine, callee: Value, args: Args, position: int) -> Value:
    """Call a value."""
    if type(callee) is Alternatives:
        found = [(path, atom) for path, atom in under(callee, m.path) if not (type(atom) is Constant and atom.value is None)]
        if len(found) == 1:
            return call_atom(m, found[0][1], args, position)
        base, written, spelled = m.path, m.written, m.spelled

        def one(atom: Value) -> tuple[bool, Value]:
            m.written, m.spelled = written, spelled
            return True, call_atom(m, atom, args, position)  # type: ignore[arg-type]

        return m.fork([(path - base, partial(one, atom)) for path, atom in found])[1] if found else NONE
    return call_atom(m, callee, args, position)


def call_atom(m: Machine, callee: Atom, args: Args, position: int) -> Value:
    """Call an atom."""
    place = m.here(position)
    kind = type(callee)
    if kind is Function:
        return call_function(m, callee, args, position)  # type: ignore[arg-type]
    if kind is Class:
        return instantiate(m, callee, args, position)  # type: ignore[arg-type]
    if kind is External:
        return m.library.call(m, callee.name, args, place)  # type: ignore[union-attr]
    if kind is Method:
        receiver = callee.receiver  # type: ignore[union-attr]
        if type(receiver) is Super:
            return call_super(m, receiver, callee.name, args, position)  # type: ignore[union-attr]
        return m.library.method(m, receiver, callee.name, args, place)  # type: ignore[union-attr, arg-type]
    if kind is Partial:
        named = {**dict(callee.named), **args.named}  # type: ignore[union-attr]
        given = callee.positional  # type: ignore[union-attr]
        holders = {name: callee.place for name, _ in callee.named if callee.place is not None and name not in args.named}  # type: ignore[union-attr]
        places = (position,) * len(given) + args.places
        merged = Args((*given, *args.positional), named, places, args.named_places, args.opaque, {**holders, **args.holders})
        return call(m, callee.callee, merged, position)  # type: ignore[union-attr]
    if kind is Wrapped:
        return call_wrapped(m, callee, args, position)  # type: ignore[arg-type]
    if kind is Object and type(callee.type) is Class:  # type: ignore[union-attr]
        return call_instance(m, callee, args, position)  # type: ignore[arg-type]
    if kind is Lazy:
        return call(m, resolve_lazy(m, callee), args, position)  # type: ignore[arg-type]
    if kind is Module:
        return Unknown(f"{callee.name}(){IDENTITY}")  # type: ignore[union-attr]
    return m.library.invoke(m, callee, args, place)


def named(value: Value, name: str) -> Value:
    """A value that may be too many things to list, called by the name under which it is kept."""
    if type(value) is Unknown and value.symbol.startswith(MANY):
        return Unknown(f"{name}{IDENTITY}{value.symbol}")
    return value


OF_CLASSES = (Constant, DType, Unknown, Alternatives)  # what an instance gets of its class, as long as it is given nothing else


def set_attribute(m: Machine, receiver: Value, name: str, value: Value, position: int) -> None:
    """Set an attribute of a value; of several, each under its conditions."""
    value = named(value, name)

    def one(atom: Atom) -> Value:
        if type(atom) is Object:
            if type(atom.type) is Class:
                member = class_member(m, atom.type, name)
                if member is not None and getattr(member[0], "how", "") == "property":
                    setter = m.read(member[1].id, name + ".setter")
                    if setter is not None:
                        m.call(bind(m, setter, atom, atom.type, member[1], position), Args((value,), places=(position,)), position)
                        return NONE
                if member is not None and type(member[0]) in OF_CLASSES and m.read(atom.id, name) is None:
                    m.store.slots[(atom.id, name)] = member[0]  # what it has on other branches
            m.write(atom.id, name, value)
        elif type(atom) is Class:
            m.write(atom.id, name, value)
        elif type(atom) is Module and atom.path:
            m.write(atom.path, name, value)
        elif type(atom) in (Unknown, Function):
            m.write(atom, name, value)
        m.library.assigned(m, atom, name, value, m.here(position))
        return NONE

    m.each(receiver, one)


def fill_attributes(m: Machine, instance: Value, args: Args, position: int) -> Value:
    """`self.__dict__.update(given)`: the entries become attributes."""
    given = args.positional[0] if args.positional else None
    held = entries_of(m, given) if given is not None else None
    if type(given) is Object and given.kind == "settings" and type(instance) is Object:
        m.write(instance.id, FILLED, given)
    for name, value in (*(held.entries if held is not None else ()), *args.named.items()):
        if isinstance(name, str):
            set_attribute(m, instance, name, value, position)
    return NONE


def own_attributes(m: Machine, instance: Object, position: int) -> Object:
    """`instance.__dict__`, to be read: what is set on it by now."""
    place = m.here(position)
    made = Object(("attributes", m.identity(place)), "dict", "builtins.dict", place)
    held = tuple((name, value) for name, value in m.store.slots.of(instance.id) if isinstance(name, str) and not name.startswith("#"))
    m.write(made.id, "#entries", Entries(held))
    return made


def call_wrapped(m: Machine, callee: Wrapped, args: Args, position: int) -> Value:
    """Call a function under the context that a decorator gives it."""
    if callee.how in ("staticmethod", "classmethod", "property"):
        return call(m, callee.callee, args, position)
    if callee.how == "contextmanager":
        return generator_context(m, callee.callee, args, position)
    results: list[Value] = []

    def body(_: Value) -> bool:
        results.append(call(m, callee.callee, args, position))
        return True

    m.enter(callee.context, position, body)
    return results[0] if results else NONE


def generator_context(m: Machine, function: Value, args: Args, position: int) -> Value:
    """The context manager that a call of a function with `@contextmanager` gives."""
    place = m.here(position)
    if type(function) is not Function:
        return Unknown(f"context{IDENTITY}{position}")
    made = Object(("context", m.identity(place), m.fresh()), "generator context", "contextlib.contextmanager", place)
    m.called.add(function.code)
    m.write(made.id, "#call", Items((function, *args.positional)))
    m.write(made.id, "#named", Entries(tuple(args.named.items())))
    return made


def call_method(m: Machine, receiver: Value, name: str, args: Args, position: int, callee_position: int) -> Value:
    """Call the method of a value; of several, as a fork."""
    if type(receiver) is not Alternatives:
        return call_method_of(m, receiver, name, args, position, callee_position)
    found = [(path, atom) for path, atom in under(receiver, m.path) if not (type(atom) is Constant and atom.value is None)]
    if len(found) == 1:
        return call_method_of(m, found[0][1], name, args, position, callee_position)
    base, written, spelled = m.path, m.written, m.spelled

    def one(atom: Value) -> tuple[bool, Value]:
        m.written, m.spelled = written, spelled
        return True, call_method_of(m, atom, name, args, position, callee_position)  # type: ignore[arg-type]

    return m.fork([(path - base, partial(one, atom)) for path, atom in found])[1] if found else NONE


def call_method_of(m: Machine, receiver: Atom, name: str, args: Args, position: int, callee_position: int) -> Value:
    """Call the method of an atom: what the project defines or has set, else what the library knows."""
    kind = type(receiver)
    if kind is Object:
        held = m.read(receiver.id, name)  # type: ignore[union-attr]
        if held is not None:
            m.written = name
            return call(m, held, args, position)
        if type(receiver.type) is Class:  # type: ignore[union-attr]
            member = class_member(m, receiver.type, name)  # type: ignore[union-attr]
            if member is not None:
                return call(m, bind(m, member[0], receiver, receiver.type, member[1], callee_position), args, position)  # type: ignore
            if name in ("items", "keys", "values") and not external_bases(m, receiver.type):  # type: ignore[union-attr]
                read = own_attributes(m, receiver, position)  # type: ignore[arg-type]  # of `vars(instance)`
                return m.library.method(m, read, name, args, m.here(position))
            forwarded = forwarded_by(m, receiver, name, callee_position)  # type: ignore[arg-type]
            if forwarded is not None:
                return call(m, forwarded, args, position)
        return m.library.method(m, receiver, name, args, m.here(position))
    if kind in (Module, External, Class, Super):
        return call(m, attribute_of(m, receiver, name, callee_position), args, position)
    if kind is Unknown:
        held = m.read(receiver, name)
        if held is not None:
            m.written = name
            return call(m, held, args, position)
    if kind is Lazy:
        return call(m, attribute(m, receiver, name, callee_position), args, position)
    if kind is Method and receiver.name == "__dict__" and name == "update":  # type: ignore[union-attr]
        return fill_attributes(m, receiver.receiver, args, position)  # type: ignore[union-attr]
    if kind is Method and receiver.name == "__dict__" and type(receiver.receiver) is Object:  # type: ignore[union-attr]
        return m.library.method(m, own_attributes(m, receiver.receiver, position), name, args, m.here(position))  # type: ignore[union-attr]
    return m.library.method(m, receiver, name, args, m.here(position))


def forwarded_by(m: Machine, instance: Object, name: str, position: int) -> Value | None:
    """The function that the `__getattr__` of a class of the project alone gives for the name of a method; None where it gives none."""
    if name.startswith("__") or class_member(m, instance.type, "__getattr__") is None or external_bases(m, instance.type):  # type: ignore[arg-type]
        return None
    given = attribute_of_object(m, instance, name, position)
    return given if any(type(atom) in (Function, Partial) for atom in atoms(given)) else None


def call_super(m: Machine, receiver: Super, name: str, args: Args, position: int) -> Value:
    """A method of a base from another package."""
    instance = receiver.instance
    if type(instance) is Object:
        if name == "__init__":
            m.library.initialized(m, instance, args, m.here(position))
            return NONE
        return m.library.method(m, instance, name, args, m.here(position))
    return Unknown(f"super().{name}{IDENTITY}{position}")


def call_instance(m: Machine, receiver: Object, args: Args, position: int) -> Value:
    """Call an instance of a project's class."""
    assert type(receiver.type) is Class
    member = class_member(m, receiver.type, "__call__")
    if member is not None:
        return call(m, bind(m, member[0], receiver, receiver.type, member[1], position), args, position)
    return m.library.invoke(m, receiver, args, m.here(position))


def instantiate(m: Machine, cls: Class, args: Args, position: int) -> Value:
    """A new instance: what the library adds for its bases, then `__init__`."""
    place = m.here(position)
    made = Object(("instance", cls.id, m.identity(place)), "instance", cls, place)
    forget(m, made)
    bases = external_bases(m, cls)
    if is_enumeration(bases):
        return Unknown(f"{cls.name}(){IDENTITY}{position}") if not args.positional else args.positional[0]
    if type(given := args.get(0)) is Unknown and is_view(m, cls, bases):
        return given
    m.library.instantiated(m, made, bases, args, place)
    if m.closed is not None and m.calls and m.closed(bases):
        return made
    member = class_member(m, cls, "__new__")
    if member is not None and type(member[0]) is Function and not bases:
        given = call(m, member[0], args.shifted(cls), position)
        if type(given) is Object and type(given.type) is Class:
            made = given
    init = class_member(m, cls, "__init__")
    if init is not None:
        call(m, bind(m, init[0], made, cls, init[1], position), args, position)
    else:
        set_fields(m, made, cls, args)
        after = after_fields(m, cls)
        if after is not None:
            call(m, bind(m, after[0], made, cls, after[1], position), Args(), position)
    return made


def is_view(m: Machine, cls: Class, bases: list[str]) -> bool:
    """Whether a class only lets the items of a dict be read as attributes, so that one of something unknown is no more than that."""
    if not {"builtins.dict", "collections.OrderedDict"}.issuperset(bases) or not bases:
        return False
    names = {name for ancestor in ancestors(m, cls) if type(ancestor) is Class for name in m.store.slots.names_of(ancestor.id)}
    return (
        "__getattr__" in names and "__init__" not in names and not any(name.isidentifier() and not name.startswith("__") for name in names)
    )


def after_fields(m: Machine, cls: Class) -> tuple[Value, Class] | None:
    """The method of a class that the constructor made for it calls last, by dataclasses or attrs."""
    return class_member(m, cls, "__post_init__") or class_member(m, cls, "__attrs_post_init__")


def is_enumeration(bases: list[str]) -> bool:
    """Whether a class is an enumeration, whose call looks a member up."""
    return any(base.startswith("enum.") for base in bases)


def forget(m: Machine, made: Object) -> None:
    """An object that is made again at its place has none of its old attributes."""
    names = m.read(made.id, "#set")
    if names is not None:
        for name in m.store.slots.names_of(made.id):
            m.store.drop(made.id, name)
    m.write(made.id, "#set", NONE)


def set_fields(m: Machine, made: Object, cls: Class, args: Args) -> None:
    """Fields of a dataclass (or any class without `__init__`) from the arguments."""
    for name, value in zip(field_names(m, cls), args.positional, strict=False):
        m.write(made.id, name, value)
    for name, value in args.named.items():
        m.write(made.id, name, value)


def call_function(m: Machine, function: Function, args: Args, position: int) -> Value:
    """Run a project's function."""
    code = function.code
    if len(m.calls) >= MAX_DEPTH or m.running.get(code, 0) >= MAX_SAME:
        return out_of_reach(m, function, args, position)
    if lacks_argument(function, args):
        return out_of_reach(m, function, args, position)
    m.called.add(code)
    if code.flags & GENERATOR:
        return generator(m, function, args, position)
    if m.leads_away(function, args):
        found = m.within(m.left // 3, lambda: run_function(m, function, args, position))
        return found if found is not None else out_of_reach(m, function, args, position)
    return run_function(m, function, args, position)


def lacks_argument(function: Function, args: Args) -> bool:
    """Whether a call that a program writes leaves out what a function must be given: it raises, and the rest may be in wrong places."""
    code = function.code
    if args.opaque or args.rest is not None or len(args.places) != len(args.positional) or code.decorators or code.name.startswith("__"):
        return False
    left = len(args.positional) + (function.bound is not None)
    if not args.positional:  # who gives nothing may not be the program
        return False
    for name, kind, default, _ in code.parameters:
        if kind == "positional":
            left -= 1
            if left < 0 and default is None and name not in args.named:
                return True
        elif kind in ("*", "**"):
            left = 0
    return False


def out_of_reach(m: Machine, function: Function, args: Args, position: int) -> Value:
    """What a call that is not entered gives: something unknown made of its arguments."""
    home = (at_home(function.bound) if type(function.bound) is Object else "") or f"{OF_INSTANCE}{function.code.path}:"
    return m.library.invoke(m, Unknown(f"{function.code.name}{IDENTITY}{NOT_ENTERED}{home}{function.code.place}"), args, m.here(position))


def generator(m: Machine, function: Function, args: Args, position: int) -> Value:
    """A generator: its body runs at once, and one value stands for all that it yields."""
    place = m.here(position)
    made = Object(("generator", m.identity(place)), "generator", "builtins.generator", place)
    yielded: list[tuple[frozenset[object], Value]] = []
    run_function(m, function, args, position, yielded=yielded)
    value = join(yielded) if yielded else Unknown(f"{function.code.name}()[]{IDENTITY}{position}")  # type: ignore[arg-type]
    m.write(made.id, "#items", Items((), value))
    return made


def run_function(
    m: Machine,
    function: Function,
    args: Args,
    position: int,
    *,
    on_yield: Callable[[Value], Value] | None = None,
    yielded: list[tuple[frozenset[object], Value]] | None = None,
) -> Value:
    """Run the body of a function with arguments, and give what it returns."""
    code = function.code
    caller = m.here(position)
    m.step(2)
    if function.bound is not None:
        args = args.shifted(function.bound)
    frame = Frame(m.fresh(), code.path, function.frame, code, function.owner)
    frame.on_yield = on_yield
    base = frame.base = m.path
    frame.depth = m.store.begin()
    bind_parameters(m, frame, function, args, caller)
    m.frames.append(frame)
    m.calls.append(caller)
    m.running[code] = m.running.get(code, 0) + 1
    try:
        alive = m.block(code.body)
    finally:
        m.running[code] -= 1
        if not m.running[code]:
            del m.running[code]
        m.calls.pop()
        m.frames.pop()
    if yielded is not None:
        yielded += [(path - base, value) for path, value in frame.yielded]
    exits = frame.exits
    if alive and not exits:
        leave(m, frame, code)
        return NONE
    if not alive and len(exits) == 1 and exits[0].direct:
        leave(m, frame, code)
        m.path = exits[0].path if len(exits[0].path) - len(base) <= 4 else base
        return exits[0].value
    ends = [(exit.path, exit.written, exit.value) for exit in exits]
    if alive:
        ends.append((m.path, m.store.since(frame.depth), NONE))
    m.store.undo()
    m.path = base
    if not ends:  # every way raises: an abstract method, whose overrides give something
        return Unknown(f"{code.name}(){IDENTITY}{code.path}:{code.place}")
    _, value = m.rejoin(base, [(p, {k: v for k, v in w.items() if k[0] != frame.id}, v) for p, w, v in ends])
    if len(ends) > 1 or len(m.path) - len(base) > 4:
        m.path = base
    return value


def leave(m: Machine, frame: Frame, code: Code) -> None:
    """Keep what a call has written; its variables only where a function inside may read them."""
    if code.flags & NESTS:
        m.store.keep()
    else:
        m.store.leave(frame.id, code.locals)


def bind_parameters(m: Machine, frame: Frame, function: Function, args: Args, caller: Place) -> None:
    """Bind the parameters of a function to arguments and defaults."""
    given = list(args.positional)
    named = dict(args.named)
    write = m.store.put
    begins = args.opaque and not m.calls  # nobody calls: the entry itself
    if not begins:
        m.callers.add(function.code)
    for name, kind, default, annotation in function.code.parameters:
        if kind == "positional":
            if given:
                value = given.pop(0)
                write(frame.id, name, value)
                named.pop(name, None)
                if default is not None and not begins:
                    note_given(m, function, name, default, value)
                continue
        elif kind == "*":
            write(frame.id, name, Items(tuple(given), (args.rest or Unknown(f"{name}[]{IDENTITY}{frame.id}")) if args.opaque else None))
            given = []
            continue
        elif kind == "**":
            place = Place(function.code.path, function.code.place)
            made = Object(("kwargs", frame.id), "dict", "builtins.dict", place)
            rest = Unknown(f"{name}[]{IDENTITY}{frame.id}") if args.opaque else None
            write(made.id, "#entries", Entries(tuple(named.items()), rest))
            write(frame.id, name, made)
            named = {}
            continue
        if name in named:
            value = named.pop(name)
            write(frame.id, name, value)
            if default is not None and not begins:
                note_given(m, function, name, default, value)
        elif default is not None and not args.opaque:
            write(frame.id, name, default_value(m, function, default))
            if is_none(default):
                m.left_at_none.add((function.code, name))
        elif default is not None:
            write(frame.id, name, optional(m, function, name, default))
            if not begins:
                symbol, passing = symbol_of_parameter(function, name), passing_on(m)
                m.given.add(symbol if passing is None else (passing, symbol))
        else:
            write(frame.id, name, parameter(m, function, name, annotation, str(frame.id)))


def passing_on(m: Machine) -> Code | None:
    """The function that is running, where it was given keywords that nobody knows, `**kwargs`, so that it may pass them on; or None."""
    frame = m.frames[-1] if m.frames else None
    code = frame.code if frame is not None else None
    if frame is None or code is None:
        return None
    for name, kind, _, _ in code.parameters:
        held = m.read(frame.id, name) if kind == "**" else None
        entries = m.read(held.id, "#entries") if type(held) is Object else None
        if type(entries) is Entries and entries.rest == Unknown(f"{name}[]{IDENTITY}{frame.id}"):
            return code
    return None


def default_value(m: Machine, function: Function, default: IR) -> Value:
    """A parameter's default, evaluated where the function is defined."""
    if default[0] == "constant":
        return Constant(default[2])
    m.frames.append(Frame.of(function.frame))
    try:
        return m.evaluate(default)
    finally:
        m.frames.pop()


def optional(m: Machine, function: Function, name: str, default: IR) -> Value:
    """A parameter with a default that somebody unknown may give: flags, names, None, 0 and {} stay open, the rest is the default.

    One that every call of the project gives a value is open as well.
    """
    if default[0] == "dict" and not default[2]:
        symbol = symbol_of_parameter(function, name)
        made = Object(("given", symbol), "dict", "builtins.dict", Place(function.code.path, default[1]))
        m.write(made.id, "#entries", Entries((), Unknown(f"{name}[]{IDENTITY}{symbol}")))
        return made
    value = default_value(m, function, default)
    if type(value) is Constant and (not value.value or isinstance(value.value, (bool, str))):
        symbol = symbol_of_parameter(function, name)
        m.switches.setdefault(symbol, Switch(name, value, Place(function.code.path, default[1]), "parameter"))
        m.parameters.setdefault(symbol, function.code)
        return Unknown(symbol)
    if matters(value) and is_replaced(m.project, function, name):
        return Unknown(symbol_of_parameter(function, name))
    return value


def matters(value: Value) -> bool:
    """Whether a default is a dtype, or a number that half precision loses or does not hold: what mistakes are told by."""
    if type(value) is Constant and type(value.value) is float:
        return not FLOAT16_SMALLEST_NORMAL <= abs(value.value) <= FLOAT16_MAX
    return type(value) in (DType, External)


def symbol_of_parameter(function: Function, name: str) -> str:
    """The symbol of a parameter with a default that is left open."""
    return f"{name}{IDENTITY}{function.code.path}:{function.code.place}"


def is_none(default: IR) -> bool:
    """Whether a parameter's default is None."""
    return default[0] == "constant" and default[2] is None


def note_given(m: Machine, function: Function, name: str, default: IR, value: Value) -> None:
    """That a call gives a parameter something else than its default, or the parameter of another function as it came."""
    if is_none(default):
        (m.surely_given if all(type(atom) in (Object, Function, Class) for atom in atoms(value)) else m.left_at_none).add(
            (function.code, name)
        )
    if default[0] != "constant" or (type(value) is Constant and value.value == default[2]):
        return
    symbol = symbol_of_parameter(function, name)
    if type(value) is Unknown and value.symbol in m.parameters and m.switches[value.symbol].default == Constant(default[2]):
        m.given.add((value.symbol, symbol))
    else:
        m.given.add(symbol)


def parameter(m: Machine, function: Function, name: str, annotation: IR | None, identity: str = "") -> Value:
    """A parameter that nobody gives a value; its annotation may say what it is."""
    hint = ""
    if annotation is not None:
        known = m.library.annotated(m, name, annotation, Frame.of(function.frame), Place(function.code.path, function.code.place))
        if known is not None:
            return known
        hint = hint_of(m, function, annotation)
    return Unknown(f"{name}{IDENTITY}{function.code.path}:{function.code.place}{identity}", hint)


def hint_of(m: Machine, function: Function, annotation: IR) -> str:
    """The dotted type that an annotation names, or ""."""
    node = annotation
    if node[0] == "subscript":
        node = node[3] if node[2][-1] in ("Optional", "Annotated") else node[2]
    if node[0] == "binary" and node[2] == "|":
        node = node[3]
    if node[0] == "constant" and isinstance(node[2], str):
        return str(node[2])
    parts: list[str] = []
    while node[0] == "attribute":
        parts.append(node[3])
        node = node[2]
    if node[0] != "name":
        return ""
    frame: Scope | None = function.frame
    while frame is not None:
        value = m.read(frame.id, node[2])
        if value is not None:
            atom = next(iter(atoms(value)))
            if type(atom) is External:
                return ".".join([atom.name, *reversed(parts)])
            if type(atom) is Class:
                return atom.name
            if type(atom) is Lazy:
                return atom.name
            return ""
        frame = frame.parent
    return ".".join([node[2], *reversed(parts)])


__all__ = ["Tensor", "call", "call_method", "derived"]
