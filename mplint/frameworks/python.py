"""Python's own library: builtins, functools, contextlib, itertools, copy, and the methods of its containers and strings."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence

from mplint.frameworks.options.classes import leave_open, takes_open_names
from mplint.frameworks.options.names import module_named, named_by, spelled
from mplint.frameworks.vocabulary import Entered, Vocabulary
from mplint.program.conditions import Condition, Path, extend
from mplint.program.expressions import (
    FILLED,
    MOST_NAMES,
    ancestors,
    attribute,
    class_member,
    combine,
    entries_of,
    external_bases,
    field_names,
    fields_held,
    item,
    items_of,
    longest,
    new_dict,
    new_list,
    registered,
    truths,
)
from mplint.program.machine import IDENTITY, Args, Machine, derived
from mplint.program.store import join, under
from mplint.program.values import (
    FALSE,
    LEAVES,
    NONE,
    TRUE,
    Alternatives,
    Atom,
    Class,
    Code,
    Constant,
    Context,
    DType,
    Entries,
    External,
    Function,
    Items,
    Method,
    Module,
    Object,
    Partial,
    Place,
    State,
    Super,
    Tensor,
    Test,
    Unknown,
    Value,
    Wrapped,
    atoms,
)

vocabulary = Vocabulary()
OF_FUNCTIONS = frozenset({"Callable", "FunctionType", "LambdaType", "MethodType", "Hashable", "object"})  # what functions are instances of
OPEN_PART = re.compile(r"\{[^{}]*\}")
call = vocabulary.call
method = vocabulary.method


@call("sys.exit", "builtins.exit", "builtins.quit", "os._exit", "os.abort")
def leaves(m: Machine, name: str, args: Args, place: Place) -> Value:
    return LEAVES


@call("builtins.isinstance", "builtins.issubclass")
def isinstance_(m: Machine, name: str, args: Args, place: Place) -> Value:
    value, wanted = args.get(0), args.get(1)
    if value is None or wanted is None:
        return FALSE
    kinds = list(wanted.items) if type(wanted) is Items else [wanted]

    def one(atom: Atom) -> Value:
        answers = [is_instance(m, atom, kind) for kind in kinds]
        if any(answer is True for answer in answers):
            return TRUE
        if all(answer is False for answer in answers):
            return FALSE
        names = ",".join(sorted(getattr(k, "name", "?") for k in kinds))
        if type(atom) is Unknown:
            return Test(("true", f"isinstance({atom.symbol}, {names})"), True)
        return Test(("place", "isinstance", place, m.round()), True)

    return m.each(value, one)


def is_text(m: Machine, unknown: Unknown) -> bool:
    """Whether an unknown is an option whose default is a text: what stands on a command line is one, too."""
    switch = m.switches.get(unknown.symbol)
    if switch is None or switch.kind != "option" or switch.base or type(switch.default) is not Constant:
        return False
    return isinstance(switch.default.value, str)


def is_single(m: Machine, unknown: Unknown) -> bool:
    """Whether an unknown is a setting to which files give one value, and no section of others; users may list several."""
    switch = m.switches.get(unknown.symbol)
    if switch is None or switch.kind != "setting" or switch.base or switch.test or type(switch.default) is not Constant:
        return False
    return isinstance(switch.default.value, (bool, int, float, str))


SECTIONS = frozenset({"builtins.dict", "omegaconf.DictConfig"})


def is_instance(m: Machine, atom: Atom, kind: Value) -> bool | None:
    """Whether an atom is an instance of a class; None where nobody knows."""
    wanted = kind.name if type(kind) in (External, Class) else None  # type: ignore[union-attr]
    if type(atom) is Constant:
        names = {type(atom.value).__name__, "object", *(("int",) if isinstance(atom.value, bool) else ())}
        return wanted.removeprefix("builtins.") in names if wanted else None
    if type(atom) is Unknown and wanted is not None and (atom.hint == wanted or (wanted == "builtins.str" and is_text(m, atom))):
        return True
    if type(atom) is Unknown and wanted in SECTIONS and is_single(m, atom):
        return False
    if type(atom) is Object and type(atom.type) is Class:
        if type(kind) is Class:
            from mplint.program.expressions import ancestors

            return kind in ancestors(m, atom.type)
        bases = external_bases(m, atom.type)
        if wanted in bases:
            return True
        return None if any(not base.startswith(("abc.", "typing.")) for base in bases) else False
    if type(atom) is Object and type(kind) is External and atom.kind in ("list", "dict", "set"):
        return kind.name == "builtins." + atom.kind or kind.name.endswith((".Iterable", ".Sequence", ".Mapping"))
    if type(atom) is Items and type(kind) is External:
        return kind.name in ("builtins.tuple", "collections.abc.Sequence", "collections.abc.Iterable", "typing.Sequence")
    if type(atom) is Function and wanted is not None:
        return wanted.rpartition(".")[2] in OF_FUNCTIONS
    if type(atom) is Object and isinstance(atom.type, str) and type(kind) is Class:
        return False
    if type(atom) is Object and isinstance(atom.type, str) and type(kind) is External:
        return True if atom.type == kind.name else None
    if type(atom) is Tensor and "nest" in atom.tags and wanted in ("builtins.list", "builtins.tuple", "builtins.dict"):
        return None
    if type(atom) is Tensor and type(kind) is External:
        if kind.name in ("torch.Tensor", "torch.FloatTensor", "torch.HalfTensor"):
            return True
        if kind.name in ("tensorflow.Tensor", "tf.Tensor") and "tf" in atom.tags:
            return True
        return False if kind.name.startswith("builtins.") or kind.name.startswith("numpy") else None
    if type(atom) is DType and type(kind) is External:
        return kind.name == "torch.dtype"
    return None


@call("builtins.super")
def super_(m: Machine, name: str, args: Args, place: Place) -> Value:
    frame = next((f for f in reversed(m.frames) if f.code is not None and f.owner is not None), None)
    if frame is None or frame.owner is None or frame.code is None:
        return Unknown(f"super(){IDENTITY}{place}")
    first = args.get(1)
    if first is None and frame.code.parameters:
        first = m.read(frame.id, frame.code.parameters[0][0])
    if first is None:
        return Unknown(f"super(){IDENTITY}{place}")
    owner = args.get(0)
    return Super(first, owner if type(owner) is Class else frame.owner)


@call("builtins.getattr")
def getattr_(m: Machine, name: str, args: Args, place: Place) -> Value:
    receiver, key, default = args.get(0), args.get(1), args.get(2)
    if receiver is None or key is None:
        return NONE
    if type(receiver) is Alternatives or type(key) is Alternatives:
        rest = args.positional[2:]
        return m.each(receiver, lambda a: m.each(key, lambda b: getattr_(m, name, Args((a, b, *rest)), place)))
    if type(key) is Constant and isinstance(key.value, str):
        lacks = type(receiver) is Object and type(receiver.type) is Class and not has_attribute(m, receiver, receiver.type, key.value)
        if default is not None and lacks:
            return default
        is_closed = type(receiver) is Object and receiver.kind == "settings" and m.read(receiver.id, "#rest") is None
        if default is not None and is_closed and type(receiver) is Object and m.read(receiver.id, key.value) is None:
            return default
        return attribute(m, receiver, key.value, place.position)
    if type(key) is Unknown and type(receiver) in (External, Module):
        return named_by_switch(m, receiver, key, place, member_of(m, receiver) if default is None else None)
    if type(key) is Unknown and type(receiver) is Object and (alike := named_alike(m, receiver, key)) is not None:
        return alike
    return Unknown(f"getattr(…){IDENTITY}{place.path}:{place.position}")


def pattern_of(key: Unknown) -> str:
    """The name that stands for all that a text with open parts may be, `scaler*` of `f"scaler{index}"`; "" where it says too little."""
    text = OPEN_PART.sub("*", key.symbol.partition(IDENTITY)[0])
    return text if "*" in text and len(text) > 3 and text.replace("*", "").isidentifier() else ""


def named_alike(m: Machine, receiver: Object, key: Unknown) -> Value | None:
    """An attribute of an object whose name is composed: what was set under a name composed alike, or under one of those it may be."""
    pattern = pattern_of(key)
    if not pattern:
        return None
    value = m.read(receiver.id, pattern)
    if value is not None:
        return value
    wanted = re.compile(pattern.replace("*", r"\w*"))
    names = sorted(n for owner, n in list(m.store.slots) if owner == receiver.id and isinstance(n, str) and wanted.fullmatch(n))
    return m.read(receiver.id, names[0]) if names else None


def has_attribute(m: Machine, receiver: Object, cls: Class, name: str) -> bool:
    """Whether an instance has, or may inherit from another package, an attribute."""
    return m.read(receiver.id, name) is not None or class_member(m, cls, name) is not None or bool(external_bases(m, cls))


def member_of(m: Machine, module: Value) -> Value | None:
    """What a member of another package's module stands for, whichever it is: `getattr(torch.optim, name)` is an optimizer's class."""
    if type(module) is not External:
        return None
    known = m.library.members.get(m.library.canonical(module.name))  # type: ignore[attr-defined]
    return External(known) if known is not None else None


def named_by_switch(m: Machine, receiver: Value, key: Unknown, place: Place, member: Value | None) -> Value:
    """An attribute whose name is an option: what each choice, or the default, names; else `member`, where it is known what that is."""
    unknown = Unknown(f"getattr(…, {shown_of(key)}){IDENTITY}{place.path}:{place.position}{key.symbol.partition(IDENTITY)[2]}")
    open_one = member or unknown
    switch = m.switches.get(key.symbol)
    if switch is None:
        return open_one
    names = named_by(switch)
    found: list[tuple[frozenset[Condition], Value]] = [
        (frozenset({(("in", key.symbol, frozenset({name})), True)}), attribute(m, receiver, name, place.position))
        for name in names[: Alternatives.LIMIT - 1]
    ]
    if not switch.choices:
        found.append((frozenset({(("in", key.symbol, frozenset(names)), False)}) if names else frozenset(), open_one))
    return join(found)


@call("importlib.import_module", "builtins.__import__")
def import_module(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The module of a name, relative ones from the running module's package on."""
    given, package = args.get(0, "name"), args.get(1, "package") if name == "importlib.import_module" else None

    def one(atom: Atom) -> Value:
        if type(atom) is not Constant or not isinstance(atom.value, str) or not atom.value.strip("."):
            return Unknown(f"import_module(…){IDENTITY}{place.path}:{place.position}")
        rest = atom.value.lstrip(".")
        level = len(atom.value) - len(rest)
        found = m.project.relative(place.path, level, rest) if level and package is not None else m.project.absolute(place.path, rest)
        if found is not None:
            return found
        if level:
            return Unknown(f"{atom.value}{IDENTITY}{place.path}")
        return module_named(m, rest, place)

    return m.each(spelled(m, given), one) if given is not None else NONE


def name_in_module(m: Machine, receiver: Atom, index: Value, place: Place) -> Value | None:
    """A name in the `__dict__` of a module."""
    if type(receiver) is Module:  # `vars(module)[name]`
        return getattr_(m, "builtins.getattr", Args((receiver, index)), place)
    if type(receiver) is External and receiver.name.endswith(".__dict__"):
        return getattr_(m, "builtins.getattr", Args((External(receiver.name.removesuffix(".__dict__")), index)), place)
    if type(receiver) is not Method or receiver.name != "__dict__" or type(receiver.receiver) is not Module:
        return None
    return getattr_(m, "builtins.getattr", Args((receiver.receiver, index)), place)


vocabulary.subscripts.append(name_in_module)


@call("numpy.spacing")
def spacing(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The distance from a number to the next."""
    first = args.get(0)
    if type(first) is Constant and isinstance(first.value, (int, float)):
        try:
            return Constant(math.ulp(first.value))
        except OverflowError:
            pass
    return Unknown(f"numpy.spacing(){IDENTITY}{place.path}:{place.position}")


@call("builtins.globals")
def globals_(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The names of the running module."""
    return Method(Module(place.path, place.path), "__dict__")


STATEFUL = frozenset({"optimizer", "scaler", "scheduler"})  # kinds of objects whose state can be saved


@call("builtins.hasattr")
def hasattr_(m: Machine, name: str, args: Args, place: Place) -> Value:
    receiver, key = args.get(0), args.get(1)
    if type(receiver) is Object and type(key) is Constant and isinstance(key.value, str):
        if m.read(receiver.id, key.value) is not None:
            return TRUE
        if type(receiver.type) is Class:
            if class_member(m, receiver.type, key.value) is not None:
                return TRUE
            if not external_bases(m, receiver.type):
                return FALSE
        if receiver.kind in STATEFUL and key.value in ("state_dict", "load_state_dict"):
            return TRUE
    if takes_open_names(m, receiver, key):
        return TRUE  # of the names from outside those matter that the settings have
    shown = getattr(receiver, "symbol", "") or getattr(receiver, "name", "")
    return Test(("true", f"hasattr({shown}, {getattr(key, 'value', '')!r})"), True)


@call("builtins.setattr")
def setattr_(m: Machine, name: str, args: Args, place: Place) -> Value:
    from mplint.program.calls import set_attribute

    receiver, key, value = args.get(0), args.get(1), args.get(2)
    if receiver is not None and value is not None and type(key) is Constant and isinstance(key.value, str):
        set_attribute(m, receiver, key.value, value, place.position)
    elif type(receiver) is Object and value is not None and type(key) is Unknown and (pattern := pattern_of(key)):
        set_attribute(m, receiver, pattern, value, place.position)
    elif type(receiver) is Object and takes_open_names(m, receiver, key):
        leave_open(m, receiver, place)
    elif type(receiver) is Object and type(key) is Unknown and type(held := m.read(key, "#names")) is Object:
        m.write(receiver.id, FILLED, held)
    return NONE


@call("builtins.callable")
def callable_(m: Machine, name: str, args: Args, place: Place) -> Value:
    if type(args.get(0)) in (Function, Class, Partial, Wrapped, Method):
        return TRUE
    return FALSE if type(args.get(0)) is Constant else Test(("place", place), True)


@call("builtins.type")
def type_(m: Machine, name: str, args: Args, place: Place) -> Value:
    value = args.get(0)
    if type(value) is Object:
        return value.type if type(value.type) is Class else External(str(value.type))
    if type(value) is Constant:
        return External("builtins." + type(value.value).__name__)
    return Unknown(f"type(…){IDENTITY}{place}")


@call("builtins.len")
def len_(m: Machine, name: str, args: Args, place: Place) -> Value:
    value = args.get(0)
    items = items_of(m, value, place.position) if value is not None else None
    if items is not None and not m.loops and not any(type(i) is Alternatives and len(i.options) == 1 for i in items):
        return Constant(len(items))
    if type(value) is Constant and isinstance(value.value, (str, bytes)):
        return Constant(len(value.value))
    return Unknown(f"len({shown_of(value)}){IDENTITY}{place.path}:{place.position}")


def shown_of(value: Value | None) -> str:
    """A value's name within a symbol."""
    return value.symbol.partition(IDENTITY)[0] if type(value) is Unknown else "…"


@call("builtins.range")
def range_(m: Machine, name: str, args: Args, place: Place) -> Value:
    values = [a.value for a in args.positional if type(a) is Constant and isinstance(a.value, int)]
    if values and len(values) == len(args.positional):
        numbers = range(*values)
        if len(numbers) <= 4:
            return Items(tuple(Constant(n) for n in numbers))
    return Object(("range", m.identity(place)), "range", "builtins.range", place)


@call("builtins.enumerate")
def enumerate_(m: Machine, name: str, args: Args, place: Place) -> Value:
    value = args.get(0)
    items = items_of(m, value, place.position) if value is not None else None
    if items is not None and len(items) <= 4:
        return Items(tuple(Items((Constant(n), v)) for n, v in enumerate(items)))
    return Object(("enumerate", m.identity(place), wrap(m, args, place)), "enumerate", "builtins.enumerate", place)


@call("builtins.zip")
def zip_(m: Machine, name: str, args: Args, place: Place) -> Value:
    parts = [items_of(m, v, place.position) for v in args.positional]
    if parts and all(p is not None and len(p) <= 4 for p in parts):
        return Items(tuple(Items(row) for row in zip(*(p for p in parts if p is not None), strict=False)))
    return Object(("zip", m.identity(place), wrap(m, args, place)), "zip", "builtins.zip", place)


def wrap(m: Machine, args: Args, place: Place) -> int:
    """Keep the arguments of an iterator in the store under a number."""
    number = m.fresh()
    m.write(("arguments", number), "#items", Items(args.positional))
    return number


@call("builtins.map", "builtins.filter")
def map_(m: Machine, name: str, args: Args, place: Place) -> Value:
    from mplint.program.calls import call as run

    function, iterable = args.get(0), args.get(1)
    if function is None or iterable is None:
        return NONE
    exact = items_of(m, iterable, place.position)
    elements = m.iterate(iterable, place.position, 1)
    results = [run(m, function, Args((e,), places=(place.position,)), place.position) for e in elements]
    if name.endswith("filter"):
        none = type(function) is Constant and function.value is None
        results = [e for e, kept in zip(elements, results, strict=True) if none or any(truth for _, truth in truths(m, kept))]
    if exact is not None and len(exact) <= 4 and name.endswith("map"):
        return new_list(m, Items(tuple(results)), place.position)
    return new_list(m, Items((), any_of(results, place)), place.position)


def any_of(values: Sequence[Value], place: Place) -> Value:
    """One value that stands for each of several."""
    return join((frozenset(), value) for value in dict.fromkeys(values)) if values else Unknown(f"item{IDENTITY}{place}")


@call(
    "builtins.list",
    "builtins.tuple",
    "builtins.set",
    "builtins.frozenset",
    "builtins.sorted",
    "builtins.reversed",
    "collections.deque",
    "torch.nn.ModuleList.items",
)
def list_(m: Machine, name: str, args: Args, place: Place) -> Value:

    value = args.get(0)
    if value is None:
        return Items(()) if name.endswith("tuple") else new_list(m, Items(()), place.position)
    items = items_of(m, value, place.position)
    held = Items(tuple(items)) if items is not None else None
    if held is None:
        held = Items((), any_of(m.iterate(value, place.position, 1), place))
    if name.endswith("reversed"):
        held = Items(tuple(reversed(held.items)), held.rest)
    return held if name.endswith("tuple") else new_list(m, held, place.position, "set" if "set" in name else "list")


@call(
    "builtins.dict",
    "collections.OrderedDict",
    "collections.defaultdict",
    "easydict.EasyDict",
    "argparse.Namespace",
    "types.SimpleNamespace",
)
def dict_(m: Machine, name: str, args: Args, place: Place) -> Value:
    entries = Entries(rest=Unknown(f"item{IDENTITY}{place}") if args.opaque or name.endswith("defaultdict") else None)
    first = args.get(0) if not name.endswith("defaultdict") else args.get(1)
    if first is not None:
        other = entries_of(m, first)
        pairs = items_of(m, first, place.position)
        if other is not None:
            entries = other
        elif pairs is not None and all(type(p) is Items and len(p.items) == 2 for p in pairs):
            for pair in pairs:
                key, value = pair.items  # type: ignore[union-attr]
                entries = entries.put(key.value, value) if type(key) is Constant else Entries(entries.entries, value)
        else:
            entries = Entries(rest=Unknown(f"item{IDENTITY}{place}"))
    for key, value in args.named.items():
        entries = entries.put(key, value)
    made = new_dict(m, entries, place.position)
    if entries.rest is not None and (type(first) is Unknown or (type(first) is Object and first.kind == "settings")):
        m.write(made.id, "#copy of", first)
    if name.endswith(("EasyDict", "Namespace")):
        for key, value in args.named.items():
            m.write(made.id, key, value)
    return made


@call("builtins.bool")
def bool_(m: Machine, name: str, args: Args, place: Place) -> Value:
    value = args.get(0)
    if value is None:
        return FALSE
    found = truths(m, value)
    if found and all(truth is found[0][1] for _, truth in found):
        return TRUE if found[0][1] else FALSE
    if type(value) is Unknown:
        return Test(("true", value.symbol), True)
    return value


FEW = "few in number"  # of whole numbers that stay small, as those along the sides of an image do: a tag, and what such an int is called


@call(
    "builtins.int",
    "builtins.float",
    "builtins.str",
    "builtins.abs",
    "builtins.round",
    "builtins.min",
    "builtins.max",
    "builtins.sum",
    "builtins.pow",
)
def numbers(m: Machine, name: str, args: Args, place: Place) -> Value:
    values = args.positional
    if name == "builtins.str" and len(values) == 1 and type(values[0]) is Object and values[0].kind == "path":
        return values[0]
    if len(values) == 1 and type(values[0]) is Alternatives and not args.named:
        return m.each(values[0], lambda atom: numbers(m, name, Args((atom,), places=args.places), place))
    short = name.removeprefix("builtins.")
    if values and all(type(v) is Constant for v in values):
        function = {"int": int, "float": float, "str": str, "abs": abs, "round": round, "min": min, "max": max, "pow": pow}.get(short)
        try:
            if function is not None and not (short == "pow" and abs(values[1].value) > 400):  # type: ignore
                return Constant(function(*(v.value for v in values if type(v) is Constant)))  # type: ignore[operator]
        except Exception:
            pass
    if short in ("sum", "max", "min") and values:
        items = items_of(m, values[0], place.position) if len(values) == 1 else list(values)
        first = items[0] if items else element(m, values[0], place)
        if short == "sum" and items:
            from mplint.program.expressions import combine

            total = items[0]
            for other in items[1:]:
                total = combine(m, "+", total, other, place.position)
            return total
        if any(type(a) is Tensor for a in atoms(first)):
            return first
    if short == "int" and values and type(values[0]) is Tensor and FEW in values[0].tags:
        return Unknown(f"{FEW}{IDENTITY}{place.path}:{place.position}{m.round()}")
    if short in ("abs", "round", "float") and values and type(values[0]) is Tensor:
        return values[0] if short == "abs" else Unknown(f"{short}(tensor){IDENTITY}{place.path}:{place.position}{m.round()}")
    symbols = [a.symbol for v in values for a in atoms(v) if type(a) is Unknown]
    if len(values) == 1 and type(values[0]) is Unknown:
        switch = m.switches.get(values[0].symbol)
        default = switch.default if switch is not None else None
        if short in ("int", "float") and type(default) is Constant and isinstance(default.value, str):
            made = derived(values[0], "", "|" + short)
            m.follow(made.symbol, values[0].symbol, "{}", float if short == "float" else int)
            return made
        if short in ("str", "int", "float"):
            return Unknown(values[0].symbol, "str" if short == "str" else "")
        return derived(values[0], "", "|" + short)
    return Unknown(f"{short}(…){IDENTITY}{''.join(symbols)}{place.position}"[:200])


def element(m: Machine, value: Value, place: Place) -> Value:
    """One item of an iterable."""

    return any_of(m.iterate(value, place.position, 1), place)


@call("builtins.any", "builtins.all")
def any_(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Whether one of several holds (or all do): decided where each of them is, and known to be otherwise where none of them does."""
    wanted = name.endswith("any")
    given = args.get(0)
    items = items_of(m, given, place.position) if given is not None else None
    others: Path | None = frozenset() if items and len(items) <= MOST_NAMES else None
    for one in items or ():
        ways = truths(m, one)
        left = [literals for literals, truth in ways if truth is not wanted]
        if not left and others is not None:
            return Constant(wanted)
        others = extend(others, left[0]) if others is not None and len(left) == 1 else None
    if others is None:
        return Test(("place", place, m.round()), True)
    if not others:
        return Constant(not wanted)
    some = frozenset({(("all", others), False)} if len(others) > 1 else {(key, not sense) for key, sense in others})
    return join([(others, Constant(not wanted)), (some, Constant(wanted))])


@call("builtins.next", "builtins.iter")
def next_(m: Machine, name: str, args: Args, place: Place) -> Value:
    value = args.get(0)
    if value is None:
        return NONE
    return value if name.endswith("iter") else element(m, value, place)


@call(
    "builtins.print",
    "builtins.open",
    "builtins.input",
    "builtins.id",
    "builtins.repr",
    "builtins.vars",
    "builtins.locals",
)
def ignored(m: Machine, name: str, args: Args, place: Place) -> Value:
    m.emit("shown", place, values=tuple(args.all())) if name.endswith("print") else None
    if name.endswith("vars") and args.positional:
        return args.positional[0]
    return Unknown(f"{name.rpartition('.')[2]}(){IDENTITY}{place.path}:{place.position}")


@call("builtins.property", "functools.cached_property", "abc.abstractproperty")
def property_(m: Machine, name: str, args: Args, place: Place) -> Value:
    return Wrapped(args.positional[0], NONE, "property") if args.positional else NONE


@call("functools.partial", "functools.partialmethod")
def partial(m: Machine, name: str, args: Args, place: Place) -> Value:
    if not args.positional:
        return NONE
    return Partial(args.positional[0], args.positional[1:], tuple(args.named.items()), place)


@call("types.MethodType")
def bound(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A function as a method of an object."""
    return Partial(args.positional[0], args.positional[1:2], (), place) if len(args.positional) > 1 else NONE


@call("functools.wraps", "functools.lru_cache", "typing.overload", "abc.abstractmethod", "functools.update_wrapper")
def same(m: Machine, name: str, args: Args, place: Place) -> Value:
    if name.endswith(("lru_cache",)) and args.positional and type(args.positional[0]) is Function:
        return args.positional[0]
    if name.endswith("update_wrapper"):
        return args.positional[0] if args.positional else NONE
    return External("builtins.identity")


@call("weakref.ref", "weakref.WeakMethod")
def referred(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What gives an object when it is called, as long as something else keeps it."""
    return Partial(External("builtins.identity"), args.positional[:1], (), place) if args.positional else NONE


@call(
    *("builtins.identity", "copy.copy", "copy.deepcopy", "typing.cast", "functools.cache", "atexit.register", "warnings.catch_warnings"),
    "weakref.proxy",
)
def identity(m: Machine, name: str, args: Args, place: Place) -> Value:
    if name == "typing.cast":
        return args.get(1) or NONE
    return args.positional[0] if args.positional else NONE


@call("functools.reduce")
def reduce_(m: Machine, name: str, args: Args, place: Place) -> Value:
    function, iterable = args.get(0, "function"), args.get(1, "iterable")
    if function is None or iterable is None:
        return NONE
    found = items_of(m, iterable, place.position)
    elements = found if found is not None and len(found) <= 4 else m.iterate(iterable, place.position, 2)
    start = args.get(2, "initial")
    values = [*([start] if start is not None else []), *elements]
    total = values[0] if values else NONE
    for value in values[1:]:
        total = m.call(function, Args((total, value), places=(place.position,) * 2), place.position)
    return total


OPERATIONS = {
    "add": "+", "iadd": "+", "concat": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "matmul": "@", "and_": "&", "or_": "|", "xor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


@call(*(f"operator.{name}" for name in OPERATIONS))
def operation(m: Machine, name: str, args: Args, place: Place) -> Value:
    if len(args.positional) != 2:
        return NONE
    return combine(m, OPERATIONS[name.removeprefix("operator.")], *args.positional, place.position)


@call("collections.namedtuple", "typing.NamedTuple")
def named_tuple(m: Machine, name: str, args: Args, place: Place) -> Value:
    fields = args.get(1, "field_names")
    names: list[Value] = []
    if type(fields) is Constant and isinstance(fields.value, str):
        names = [Constant(field) for field in fields.value.replace(",", " ").split()]
    elif fields is not None:
        parts = items_of(m, fields, place.position) or []
        names = [part.items[0] if type(part) is Items and part.items else part for part in parts]
    return Partial(External("collections.namedtuple.new"), (Items(tuple(names)),), ())


@call("collections.namedtuple.new")
def of_named_tuple(m: Machine, name: str, args: Args, place: Place) -> Value:
    fields, *given = args.positional
    names = [str(field.value) for field in fields.items if type(field) is Constant] if type(fields) is Items else []
    values = dict(zip(names, given, strict=False))
    values.update(args.named)
    unknown = Unknown(f"field{IDENTITY}{place.path}:{place.position}")
    made = new_list(m, Items(tuple(values.get(field, unknown) for field in names), unknown if args.opaque else None), place.position)
    for field, value in values.items():
        m.write(made.id, field, value)
    m.write(made.id, "#fields", Items(tuple(Constant(name) for name in names)))
    return made


def as_dict(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`state._asdict()`: the fields of a named tuple as a dict."""
    if name != "_asdict" or type(atom) is not Object:
        return None
    if type(atom.type) is Class:
        given = fields_held(m, atom)
        names = field_names(m, atom.type) if given is not None else []
    else:
        fields = m.read(atom.id, "#fields")
        names = [str(field.value) for field in fields.items if type(field) is Constant] if type(fields) is Items else []
        given = [m.read(atom.id, field) or Unknown(f"{field}{IDENTITY}{atom.id!r}"[:200]) for field in names]
    return new_dict(m, Entries(tuple(zip(names, given, strict=False))), place.position) if names and given else None


vocabulary.atom_methods.append(as_dict)


@call("dataclasses.field", "attr.ib", "attrs.field")
def field_default(m: Machine, name: str, args: Args, place: Place) -> Value:
    factory = args.get(-1, "default_factory") or args.get(-1, "factory")
    if factory is not None:
        return m.call(factory, Args(), place.position)
    default = args.get(-1, "default")
    return default if default is not None else Unknown(f"field{IDENTITY}{place.path}:{place.position}")


@call("dataclasses.fields", "attr.fields", "attrs.fields")
def fields_of(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What describes the fields of a class, each with its name."""
    first = next(iter(atoms(args.get(0, "class_or_instance") or args.get(0, "cls") or NONE)))
    cls = first.type if type(first) is Object else first
    if type(cls) is not Class:
        return Items((), Unknown(f"field{IDENTITY}{place.path}:{place.position}"))
    found: list[Value] = []
    for field in field_names(m, cls):
        made = Object(("field", cls.id, field), "field", name, place)
        m.write(made.id, "name", Constant(field))
        default = class_member(m, cls, field)
        m.write(made.id, "default", default[0] if default is not None else External("dataclasses.MISSING"))
        m.write(made.id, "default_factory", External("dataclasses.MISSING"))  # what it makes is the default already
        m.write(made.id, "type", type_of_field(m, cls, field))
        found.append(made)
    return Items(tuple(found))


def type_of_field(m: Machine, cls: Class, field: str) -> Value:
    """The plain type that a field of a class is annotated with; unknown for anything else."""
    for ancestor in ancestors(m, cls):
        noted = m.read(ancestor.id, f"#annotation:{field}") if type(ancestor) is Class else None
        ir = noted.data if type(noted) is State else None
        if isinstance(ir, tuple) and ir[0] == "name" and ir[2] in PLAIN_TYPES:
            return External(f"builtins.{ir[2]}")
    return Unknown(f"{cls.name}.{field}.type{IDENTITY}{cls.path}")


@call("typing.get_origin")
def origin_of(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Of a plain type, none."""
    first = args.get(0, "tp")
    plain = type(first) is External and first.name.removeprefix("builtins.") in PLAIN_TYPES
    return NONE if plain else Unknown(f"origin{IDENTITY}{place.path}:{place.position}")


PLAIN_TYPES = frozenset({"bool", "int", "float", "str", "list", "dict", "tuple"})


@call("typing.get_type_hints", "inspect.get_annotations")
def type_hints(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The types of a class's fields by their names."""
    first = next(iter(atoms(args.get(0, "obj") or NONE)))
    cls = first.type if type(first) is Object else first
    if type(cls) is not Class:
        return Unknown(f"hints{IDENTITY}{place.path}:{place.position}")
    made = Object(("hints", cls.id), "dict", "builtins.dict", place)
    m.write(made.id, "#entries", Entries(tuple((field, type_of_field(m, cls, field)) for field in field_names(m, cls))))
    return made


RUN = (Function, Wrapped, Partial, External)
POOLS = frozenset({"submit", "apply_async", "run_in_executor", "call_soon_threadsafe"})


def handed_to_a_pool(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`pool.submit(write, state, path)`: what threads and processes run, where it is handed to them."""
    if name not in POOLS or type(atom) is not Unknown:
        return None
    if name == "apply_async":
        target, given = args.get(0, "func"), items_of(m, args.get(1, "args") or Items(()), place.position)
        named = entries_of(m, args.get(2, "kwds") or NONE)
    else:
        target, *others = args.positional[1 if name == "run_in_executor" else 0 :] or (NONE,)
        given, named = others, Entries(tuple(args.named.items()))
    if type(target) not in RUN or given is None or named is None:
        return None
    m.call(target, Args(tuple(given), {str(k): v for k, v in named.entries}, opaque=args.opaque), place.position)  # type: ignore[arg-type]
    return derived(atom, f".{name}()", f"{place.path}:{place.position}")


vocabulary.atom_methods.append(handed_to_a_pool)


@call("threading.Thread", "multiprocessing.Process", "torch.multiprocessing.Process", "multiprocessing.context.Process")
def started(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What a thread or process runs, where it is made."""
    target = args.get(-1, "target")
    if type(target) in RUN:
        given = items_of(m, args.named["args"], place.position) if "args" in args.named else []
        others = entries_of(m, args.named["kwargs"]) if "kwargs" in args.named else Entries()
        named = {str(k): v for k, v in others.entries} if others is not None else {}
        m.call(target, Args(given or (), named, opaque=given is None or others is None), place.position)  # type: ignore[arg-type]
    return Unknown(f"{name.rpartition('.')[2]}(){IDENTITY}{place.path}:{place.position}")


@call("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes", "torch_xla.distributed.xla_multiprocessing.spawn")
def spawned(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What each process runs, with its rank before the arguments."""
    function, given = args.get(0, "fn"), args.get(1, "args")
    if type(function) in (Function, Wrapped, Partial):
        items = items_of(m, given, place.position) if given is not None else []
        rank = Unknown(f"rank{IDENTITY}{place.path}:{place.position}")
        m.call(function, Args((rank, *(items or ())), opaque=items is None), place.position)  # type: ignore[arg-type]
    return NONE


@call("accelerate.notebook_launcher", "accelerate.debug_launcher", "detectron2.engine.launch")
def launched(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A function that a launcher runs with a tuple of arguments."""
    function = args.get(0, "function") or args.get(0, "main_func")
    given = args.named.get("args") or (args.get(1) if name.startswith("accelerate.") else None)
    if type(function) in (Function, Wrapped, Partial):
        items = items_of(m, given, place.position) if given is not None else []
        m.call(function, Args(items or (), opaque=items is None), place.position)  # type: ignore[arg-type]
    return NONE


FOLDED = frozenset(
    ["sqrt", "log", "log2", "log10", "log1p", "exp", "expm1", "pow", "floor", "ceil", "trunc", "fabs", "prod", "gcd", "sin", "cos", "tan",
     "tanh", "atan", "asin", "acos", "atan2", "hypot", "degrees", "radians", "isclose", "copysign", "fmod", "isqrt"]
)  # fmt: skip


@vocabulary.prefix("math.", "numpy.")
def of_numbers(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """Functions of numbers that are known; of others they are unknown."""
    function = getattr(math, name.rpartition(".")[2], None) if name.count(".") == 1 and name.rpartition(".")[2] in FOLDED else None
    values = [a.value for a in args.positional if type(a) is Constant and isinstance(a.value, (int, float))]
    if function is None or not values or len(values) != len(args.positional) or args.named or max(map(abs, values)) > 1e15:
        return None
    try:
        return Constant(function(*values))
    except (ArithmeticError, ValueError, TypeError):
        return None


@call("itertools.zip_longest")
def zip_longest(m: Machine, name: str, args: Args, place: Place) -> Value:
    return zip_(m, name, args, place)


@call("itertools.count")
def count(m: Machine, name: str, args: Args, place: Place) -> Value:
    return Object(("range", m.identity(place)), "range", "builtins.range", place)


@call(
    "itertools.accumulate",
    "itertools.takewhile",
    "itertools.dropwhile",
    "itertools.filterfalse",
    "itertools.compress",
    "itertools.groupby",
    "itertools.product",
    "itertools.permutations",
    "itertools.combinations",
    "itertools.combinations_with_replacement",
    "itertools.batched",
    "itertools.pairwise",
    "itertools.chain.from_iterable",
)
def iterator(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Iterators whose items are those of what they are given, or are made of them."""
    last = name.removeprefix("itertools.")
    given = args.get(1 if last in ("takewhile", "dropwhile", "filterfalse") else 0)
    if given is None:
        return new_list(m, Items((), Unknown(f"item{IDENTITY}{place}")), place.position)
    one = element(m, given, place)
    if last == "chain.from_iterable":
        one = element(m, one, place)
    elif last == "product":
        one = Items(tuple(element(m, value, place) for value in args.positional))
    elif last in ("permutations", "combinations", "combinations_with_replacement", "batched", "pairwise"):
        one = Items((one, one), one)
    elif last == "groupby":
        key = Unknown(f"key{IDENTITY}{place.path}:{place.position}")
        one = Items((key, new_list(m, Items((), one), place.position)))
    return new_list(m, Items((), one), place.position)


@call("contextlib.nullcontext", "contextlib.suppress", "contextlib.closing", "contextlib.redirect_stdout")
def nullcontext(m: Machine, name: str, args: Args, place: Place) -> Value:
    return Context("null", args.get(0))


@call("contextlib.ExitStack", "contextlib.AsyncExitStack")
def exit_stack(m: Machine, name: str, args: Args, place: Place) -> Value:
    return Object(("stack", m.identity(place)), "exit stack", "contextlib.ExitStack", place)


@method("exit stack", "enter_context")
def enter_context(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    context = args.get(0)
    if context is None:
        return NONE

    def one(atom: Atom) -> Value:
        held, change = m.library.enter(m, atom, place)
        if change is not None:
            m.write(*change[0], change[1])
        return held

    return m.each(context, one)


@call(
    "itertools.chain",
    "itertools.cycle",
    "itertools.islice",
    "itertools.repeat",
    "itertools.tee",
    "itertools.starmap",
    "tqdm.tqdm",
    "tqdm.auto.tqdm",
    "tqdm.autonotebook.tqdm",
    "tqdm.notebook.tqdm",
    "tqdm.trange",
    "rich.progress.track",
    "alive_progress.alive_it",
)
def chain(m: Machine, name: str, args: Args, place: Place) -> Value:
    if name == "tqdm.trange":
        return range_(m, name, args, place)
    first = args.get(0, "iterable")
    if name == "itertools.chain" and len(args.positional) > 1:
        parts = [items_of(m, v, place.position) for v in args.positional]
        if all(p is not None for p in parts):
            return new_list(m, Items(tuple(v for p in parts for v in (p or ()))), place.position)
        return new_list(m, Items((), any_of([element(m, v, place) for v in args.positional], place)), place.position)
    return first if first is not None else Object(("range", m.identity(place)), "range", "builtins.range", place)


def of_iterator(m: Machine, atom: Atom, place: Place) -> Sequence[Value] | Value | None:
    """What iterating over enumerate, zip and range gives."""

    if type(atom) is not Object:
        return None
    if atom.kind == "range":
        return Unknown(f"i{IDENTITY}{place.path}:{place.position}{m.round()}")
    if atom.kind in ("enumerate", "zip") and isinstance(atom.id, tuple):
        held = m.read(("arguments", atom.id[2]), "#items")
        if type(held) is not Items:
            return None
        parts = [(m.iterate(v, place.position, 2) or [NONE]) for v in held.items]
        index = [Unknown(f"i{IDENTITY}{place.path}:{place.position}{m.round()}#{n}") for n in range(2)]
        rounds = []
        for n in range(2):
            row = tuple(part[min(n, len(part) - 1)] for part in parts)
            rounds.append(Items((index[n], row[0] if row else index[n])) if atom.kind == "enumerate" else Items(row))
        return rounds
    return None


vocabulary.elements.append(of_iterator)


GROWING = ("append", "add", "extend", "update")


def grow_each(m: Machine, receiver: Object, name: str, held: Alternatives, args: Args, place: Place) -> Value:
    """A list that conditions have made longer grows on: each of what it may be."""
    ways = []
    for path, atom in under(held, m.path):
        m.write(receiver.id, "#items", atom)
        list_method(m, receiver, name, args, place)
        grown = m.read(receiver.id, "#items")
        ways.append((path - m.path, grown if grown is not None else atom))
    m.write(receiver.id, "#items", join(ways))
    return NONE


@method("list")
def list_method(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    named = as_dict(m, receiver, name, args, place)
    if named is not None:
        return named
    held = m.read(receiver.id, "#items")
    value = args.get(0)
    if name in GROWING and type(held) is Alternatives and all(type(a) is Items for a in atoms(held)):
        return grow_each(m, receiver, name, held, args, place)
    items = held if type(held) is Items else Items((), Unknown(f"item{IDENTITY}{receiver.id!r}"))
    if name in ("append", "add", "appendleft") and value is not None:
        if len(items.items) < 8 and not (m.loops and items.items and items.items[-1] == value):
            m.write(receiver.id, "#items", Items((*items.items, value), items.rest))
    elif name in ("extend", "update") and value is not None:
        more = longest(m, value, place.position)
        if more is not None and len(items.items) + len(more) <= 16:
            m.write(receiver.id, "#items", Items((*items.items, *more), items.rest))
        else:
            others = [items.rest] if items.rest is not None else []
            m.write(receiver.id, "#items", Items(items.items, any_of([*others, element(m, value, place)], place)))
    elif name == "insert" and args.get(1) is not None:
        m.write(receiver.id, "#items", Items((args.positional[1], *items.items), items.rest))
    elif name in ("pop", "popleft"):
        index = args.get(0) or Constant(-1 if name == "pop" else 0)
        taken = item(m, items, index, place.position)
        if type(index) is Constant and isinstance(index.value, int) and items.rest is None and not m.loops:
            left = [value for n, value in enumerate(items.items) if n not in (index.value, index.value + len(items.items))]
            m.write(receiver.id, "#items", Items(tuple(left)))
        return taken
    elif name == "copy":
        return new_list(m, items, place.position)
    elif name == "clear":
        m.write(receiver.id, "#items", Items(()))
    return NONE


@method("set")
def set_method(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    return list_method(m, receiver, name, args, place)


@method("dict")
def dict_method(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    held = m.read(receiver.id, "#entries")
    if type(held) is Alternatives:
        held = next((a for a in atoms(held) if type(a) is Entries), None)
    entries = held if type(held) is Entries else Entries(rest=Unknown(f"item{IDENTITY}{receiver.id!r}"))
    key, default = args.get(0), args.get(1)
    if name in ("get", "pop", "setdefault") and key is not None:
        found = entries.get(key.value) if type(key) is Constant else None
        if found is None and type(key) is Constant and entries.rest is None and name != "setdefault":
            entries = registered(m, receiver) or entries
            found = entries.get(key.value)
        if found is not None:
            if name == "pop":
                m.write(receiver.id, "#entries", Entries(tuple(e for e in entries.entries if e[0] != key.value), entries.rest))  # type: ignore[union-attr]
            return found
        if type(key) is Constant and entries.rest is None:
            if name == "setdefault" and default is not None:
                m.write(receiver.id, "#entries", entries.put(key.value, default))
            return default if default is not None else NONE
        return item(m, receiver, key, place.position)
    if name == "update":
        for value in args.positional:
            other = entries_of(m, value)
            if other is None:
                entries = Entries(entries.entries, entries.rest or Unknown(f"item{IDENTITY}{receiver.id!r}"))
            else:
                for k, v in other.entries:
                    entries = entries.put(k, v)
        for k, v in args.named.items():
            entries = entries.put(k, v)
        m.write(receiver.id, "#entries", entries)
        return NONE
    if name == "items":
        return new_list(
            m,
            Items(
                tuple(Items((key_value(k), v)) for k, v in entries.entries),
                entries.rest and Items((Unknown(f"key{IDENTITY}{place}"), entries.rest)),
            ),
            place.position,
        )
    if name == "values":
        return new_list(m, Items(tuple(v for _, v in entries.entries), entries.rest), place.position)
    if name == "keys":
        return new_list(
            m, Items(tuple(key_value(k) for k, _ in entries.entries), entries.rest and Unknown(f"key{IDENTITY}{place}")), place.position
        )
    if name == "copy":
        return new_dict(m, entries, place.position)
    called = entries.get(name)  # as an attribute, where those stand for keys
    return m.call(called, args, place.position) if called is not None else NONE


def key_value(key: object) -> Value:
    """The key of an entry as a value."""
    return key if isinstance(key, (External, Class, DType)) else Constant(key)


def of_dict(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """Attributes of dicts that allow reading keys so."""
    if type(atom) is Object and atom.kind == "dict":
        held = m.read(atom.id, "#entries")
        if type(held) is Entries:
            return held.get(name)
    return None


vocabulary.atom_attributes.append(of_dict)


def is_table(value: Value) -> bool:
    """Whether a value is a dict that the program has put together."""
    return type(value) is Object and value.kind == "dict"


def of_string(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Methods of strings and numbers."""
    if type(atom) is Constant and isinstance(atom.value, str):
        if all(type(a) is Constant for a in args.all()) and name in STRING_METHODS:
            try:
                value = getattr(atom.value, name)(*(a.value for a in args.positional if type(a) is Constant))
            except Exception:
                return None
            if isinstance(value, (list, tuple)):
                return new_list(m, Items(tuple(Constant(v) for v in value)), place.position)
            return Constant(value)
        return Unknown(f"{atom.value[:40]!r}.{name}(){IDENTITY}{place.path}:{place.position}")
    if type(atom) is Items and name in ("index", "count"):
        return Unknown(f"index(){IDENTITY}{place}")
    if type(atom) is Unknown and name in ("lower", "strip", "upper", "casefold") and not args.all():
        made = derived(atom, "", "." + name)
        m.follow(made.symbol, atom.symbol, "{}", lambda value: getattr(value, name)())
        return made
    if type(atom) is Unknown and name in PARTING and type(parted := spelled(m, atom)) is not Unknown:
        return m.each(parted, lambda a: of_string(m, a, name, args, place) or Unknown(f"{name}(){IDENTITY}{place.path}:{place.position}"))
    if type(atom) is Unknown and name in STRING_METHODS and atom.symbol in m.switches and all(type(a) is Constant for a in args.all()):
        given = [a.value for a in args.positional if type(a) is Constant]
        text = f".{name}({', '.join(map(repr, given))})"
        made = derived(atom, text)
        test = name.endswith("with") or name.startswith("is")
        m.follow(made.symbol, atom.symbol, "{}" + text, lambda value: getattr(value, name)(*given), test)
        return made
    if type(atom) is Unknown and name == "update" and args.all() and all(map(is_table, args.positional)):
        given_entries = [e for a in args.positional for e in (entries_of(m, a) or Entries()).entries]
        for key, value in (*given_entries, *args.named.items()):
            m.write(atom, f"[{key!r}]", value)  # as one that is set
        return NONE
    if type(atom) is Unknown and name == "get" and args.positional and type(args.positional[0]) is Constant:
        held = m.read(atom, f"[{args.positional[0].value!r}]")
        if held is not None:
            return held
        return derived(atom, f".get({args.positional[0].value!r})")
    if type(atom) is Unknown and name in ("items", "values", "keys") and not args.all():
        return derived(atom, f".{name}()")
    return None


PARTING = frozenset({"split", "rsplit", "partition", "rpartition"})
STRING_METHODS = frozenset(
    [
        "lower",
        "upper",
        "strip",
        "lstrip",
        "rstrip",
        "split",
        "rsplit",
        "startswith",
        "endswith",
        "replace",
        "title",
        "format",
        "join",
        "removeprefix",
        "removesuffix",
        "capitalize",
        "isdigit",
        "partition",
        "rpartition",
    ]
)
vocabulary.atom_methods.append(of_string)


def of_context(m: Machine, atom: Atom, place: Place) -> Entered | None:
    """Contexts that change nothing."""
    if type(atom) is Context and atom.kind == "null":
        return (atom.value if atom.value is not None else NONE), None
    if type(atom) is Constant:
        return NONE, None
    return None


vocabulary.contexts.append(of_context)


def of_decorator(m: Machine, function: Value, decorator: Atom, place: Place) -> Value | None:
    """Python's own decorators."""
    if type(decorator) is not External:
        return None
    name = decorator.name.rpartition(".")[2]
    if decorator.name.startswith(("builtins.", "functools.", "abc.")) or name in ("cached_property",):
        if name in ("staticmethod", "classmethod", "property"):
            return Wrapped(function, NONE, name)
        if name in ("cached_property", "abstractproperty"):
            return Wrapped(function, NONE, "property")
        return function
    if decorator.name in ("contextlib.contextmanager", "contextlib.asynccontextmanager"):
        return Wrapped(function, NONE, "contextmanager")
    return None


vocabulary.decorators.append(of_decorator)
vocabulary.values.update(
    {
        "math.inf": Constant(float("inf")),
        "numpy.inf": Constant(float("inf")),
        "math.pi": Constant(3.141592653589793),
        "numpy.pi": Constant(3.141592653589793),
        "typing.TYPE_CHECKING": FALSE,
        "builtins.NotImplemented": Unknown("NotImplemented"),
        "math.nan": Constant(float("nan")),
        "sys.float_info.epsilon": Constant(sys.float_info.epsilon),
    }
)

__all__ = ["Code", "Module", "Super", "join", "vocabulary"]
