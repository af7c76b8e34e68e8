"""All vocabularies as the one library that the interpreter asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from mplint.frameworks.names import PACKAGES, home_first
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.lower import IR
from mplint.program.machine import IDENTITY, Args, Event, Frame, Machine, derived
from mplint.program.store import Slot
from mplint.program.values import (
    Atom,
    Autocast,
    Class,
    Constant,
    Context,
    External,
    Method,
    Module,
    Object,
    Place,
    State,
    Unknown,
    Value,
    Wrapped,
    atoms,
)

MAX_NAMES = 50_000  # canonical ones that are kept


def above(names: Iterable[str]) -> Iterator[str]:
    """Dotted names, and the packages and modules that hold them."""
    for name in names:
        yield name
        while "." in name:
            name = name.rpartition(".")[0]
            yield name


class Frameworks:
    """The meanings of every vocabulary, in order; what none of them knows is unknown and carries its arguments along."""

    def __init__(self, vocabularies: Sequence[Vocabulary]) -> None:
        self.vocabularies = vocabularies
        self.calls = {name: h for v in reversed(vocabularies) for name, h in v.calls.items()}
        self.methods = {key: h for v in reversed(vocabularies) for key, h in v.methods.items()}
        self.kinds = {kind: h for v in reversed(vocabularies) for kind, h in v.kinds.items()}
        self.invoked = {kind: [v.invoked[kind] for v in vocabularies if kind in v.invoked] for v in vocabularies for kind in v.invoked}
        self.attributes = {kind: h for v in reversed(vocabularies) for kind, h in v.attributes.items()}
        self.values = {name: value for v in reversed(vocabularies) for name, value in v.values.items()}
        self.aliases = {name: other for v in reversed(vocabularies) for name, other in v.aliases.items()}
        self.members = {name: other for v in reversed(vocabularies) for name, other in v.members.items()}
        self.canonicals: dict[str, str] = {}
        self.prefixes = [p for v in vocabularies for p in v.prefixes]
        self.begun: dict[str, list[Callable[[Machine, str, Args, Place], Value | None]]] = {}  # by names: what their prefixes mean
        self.atom_methods = [h for v in vocabularies for h in v.atom_methods]
        self.atom_attributes = [h for v in vocabularies for h in v.atom_attributes]
        self.atom_calls = [h for v in vocabularies for h in v.atom_calls]
        self.binaries = [h for v in vocabularies for h in v.binaries]
        self.unaries = [h for v in vocabularies for h in v.unaries]
        self.subscripts = [h for v in vocabularies for h in v.subscripts]
        self.item_assigned = [h for v in vocabularies for h in v.item_assigned]
        self.attribute_assigned = [h for v in vocabularies for h in v.attribute_assigned]
        self.names_assigned = [h for v in vocabularies for h in v.names_assigned]
        self.contexts = [h for v in vocabularies for h in v.contexts]
        self.left = [h for v in vocabularies for h in v.left]
        self.raises = [h for v in vocabularies for h in v.raises]
        self.made = [h for v in vocabularies for h in v.made]
        self.decorators = [h for v in vocabularies for h in v.decorators]
        self.iterables = [h for v in vocabularies for h in v.elements]
        self.beginnings = [h for v in vocabularies for h in v.beginnings]
        self.openings = [h for v in vocabularies for h in v.openings]
        self.computing = [h for v in vocabularies for h in v.computing]
        self.ordered = [h for v in vocabularies for h in v.ordered]
        self.bases_initialized = [h for v in vocabularies for h in v.initialized]
        self.followers = {kind: [h for v in vocabularies for h in v.followers.get(kind, ())] for v in vocabularies for kind in v.followers}
        self.finishing = [h for v in vocabularies for h in v.finished]
        self.annotations = [h for v in vocabularies for h in v.annotations]
        self.externals = [h for v in vocabularies for h in v.externals]
        self.scoped = frozenset[str]().union(*(v.scoped for v in vocabularies))
        self.defaults = {name: value for v in reversed(vocabularies) for name, value in v.defaults.items()}
        self.unset = [h for v in vocabularies for h in v.unset]
        self.excerpts = [h for v in vocabularies for h in v.excerpts]
        self.known = frozenset(above(name for name in (*self.calls, *self.values)))

    def canonical(self, name: str) -> str:
        """A dotted name under which the tables know it: aliases of packages and modules resolved."""
        found = self.canonicals.get(name)
        if found is None:
            if len(self.canonicals) > MAX_NAMES:
                self.canonicals.clear()
            found = self.canonicals[name] = self.resolved(name)
        return found

    def resolved(self, name: str) -> str:
        """The same, worked out."""
        found = self.aliases.get(name)
        if found is not None:
            return found
        head, _, tail = name.rpartition(".")
        while head:
            other = self.aliases.get(head)
            if other is not None:
                return self.canonical(f"{other}.{tail}")
            head, _, part = head.rpartition(".")
            tail = f"{part}.{tail}"
        return name

    def knows(self, name: str) -> bool:
        """Whether a dotted name of another package has a meaning of its own, or holds names that have one."""
        return self.canonical(name) in self.known

    def unbound(self, name: str, stars: Sequence[str], words: frozenset[str]) -> str | None:
        """What a name means that nothing binds: what a star import brings, a package, or what the program speaks of."""
        if name in PACKAGES:
            return PACKAGES[name]
        brought = [f"{module}.{name}" for module in home_first(name, stars)]
        for dotted in brought:
            if self.canonical(dotted) in self.known:
                return dotted
        if name[:1].isupper():
            for dotted in brought:
                if any(prefix and self.canonical(dotted).startswith(prefix) for prefix, _ in self.prefixes):
                    return dotted
        return next((found for h in self.excerpts if (found := h(name, words)) is not None), None)

    def call(self, m: Machine, name: str, args: Args, place: Place) -> Value:
        """Call the dotted name of another package."""
        name = self.canonical(name)
        handler = self.calls.get(name)
        if handler is not None:
            return handler(m, name, args, place)
        return self.by_prefix(m, name, args, place)

    def by_prefix(self, m: Machine, name: str, args: Args, place: Place) -> Value:
        """Call a canonical name as what its prefix says, where no table has the name itself."""
        known = self.begun.get(name)
        if known is None:
            known = self.begun[name] = [other for prefix, other in self.prefixes if name.startswith(prefix)]
        for handler in known:
            value = handler(m, name, args, place)
            if value is not None:
                return value
        return self.invoke(m, External(name), args, place)

    def method(self, m: Machine, receiver: Atom, name: str, args: Args, place: Place) -> Value:
        """Call a method that the project does not define."""
        if type(receiver) is Method and type(receiver.receiver) is Object and type(receiver.receiver.type) is Class:
            receiver = kept_attribute(receiver.receiver, receiver.name)
        if type(receiver) is Object:
            handler = self.methods.get((receiver.kind, name)) or self.kinds.get(receiver.kind)
            if handler is not None:
                return handler(m, receiver, name, args, place)
        for other in self.atom_methods:
            value = other(m, receiver, name, args, place)
            if value is not None:
                return value
        target = derived(receiver, "." + name) if type(receiver) is Unknown else Method(receiver, name)
        return self.invoke(m, target, args, place)

    def invoke(self, m: Machine, receiver: Atom, args: Args, place: Place) -> Value:
        """Call an object or an unknown value."""
        if type(receiver) is Object:
            for handler in self.invoked.get(receiver.kind, ()):
                called: Value | None = handler(m, receiver, "__call__", args, place)
                if called is not None:
                    return called
        for other in self.atom_calls:
            value = other(m, receiver, args, place)
            if value is not None:
                return value
        if type(receiver) in (Autocast, Context) and len(args.positional) == 1 and not args.named:
            return m.each(args.positional[0], lambda given: self.decorated(m, given, receiver, place))  # `no_grad()(function)`
        return unknown_result(m, receiver, args, place)

    def attribute(self, m: Machine, receiver: Atom, name: str, place: Place) -> Value | None:
        """Read an attribute that nobody has set."""
        if type(receiver) is Object:
            reader = self.attributes.get(receiver.kind)
            if reader is not None:
                value = reader(m, receiver, name, place)
                if value is not None:
                    return value
        for other in self.atom_attributes:
            value = other(m, receiver, name, place)
            if value is not None:
                return value
        return None

    def external(self, m: Machine, name: str, place: Place) -> Value | None:
        """What a dotted name stands for, where that is a value."""
        canonical = self.canonical(name)
        value = self.values.get(canonical)
        if value is not None:
            return value
        for handler in self.externals:
            value = handler(m, canonical, place)
            if value is not None:
                return value
        return External(canonical) if canonical != name else None

    def binary(self, m: Machine, op: str, left: Atom, right: Atom, place: Place, in_place: bool = False) -> Value | None:
        """An arithmetic operation or a comparison."""
        for handler in self.binaries:
            value = handler(m, op, left, right, place, in_place)
            if value is not None:
                return value
        return None

    def unary(self, m: Machine, op: str, operand: Atom, place: Place) -> Value | None:
        """A unary operation."""
        for handler in self.unaries:
            value = handler(m, op, operand, place)
            if value is not None:
                return value
        return None

    def subscript(self, m: Machine, receiver: Atom, index: Value, place: Place) -> Value | None:
        """Read an item."""
        for handler in self.subscripts:
            value = handler(m, receiver, index, place)
            if value is not None:
                return value
        return None

    def assign_item(self, m: Machine, receiver: Atom, index: Value, value: Value, place: Place) -> bool:
        """Write an item."""
        return any(handler(m, receiver, index, value, place) for handler in self.item_assigned)

    def assigned(self, m: Machine, receiver: Atom, name: str, value: Value, place: Place) -> None:
        """An attribute was set."""
        for handler in self.attribute_assigned:
            handler(m, receiver, name, value, place)

    def named(self, m: Machine, name: str, value: Value, place: Place) -> None:
        """A variable of a module was set by a statement at its top."""
        for handler in self.names_assigned:
            handler(m, name, value, place)

    def enter(self, m: Machine, context: Atom, place: Place) -> tuple[Value, tuple[Slot, Value] | None]:
        """Enter a context manager."""
        for handler in self.contexts:
            entered = handler(m, context, place)
            if entered is not None:
                return entered
        return context, None

    def leave(self, m: Machine, context: Atom, place: Place) -> None:
        """A with-statement has ended."""
        for handler in self.left:
            handler(m, context, place)

    def raised(self, m: Machine, place: Place) -> None:
        """A function raises, under the conditions of the path."""
        for handler in self.raises:
            handler(m, place)

    def instantiated(self, m: Machine, made: Object, bases: Sequence[str], args: Args, place: Place) -> Value | None:
        """An instance of a project's class with bases of other packages was made."""
        names = [self.canonical(base) for base in bases]
        for handler in self.made:
            handler(m, made, names, args, place)
        return None

    def decorated(self, m: Machine, function: Value, decorator: Atom, place: Place) -> Value:
        """What a decorator of another package makes of a function or class."""
        for handler in self.decorators:
            value = handler(m, function, decorator, place)
            if value is not None:
                return value
        if type(decorator) in (Autocast, Context):
            return Wrapped(function, decorator) if not isinstance(function, (Class,)) else function
        return function

    def finished(self, m: Machine) -> None:
        """An entry has come to its end."""
        for handler in self.finishing:
            handler(m)

    def annotated(self, m: Machine, name: str, annotation: IR, frame: Frame, place: Place) -> Value | None:
        """A parameter that nobody gives a value, as its annotation tells."""
        for handler in self.annotations:
            value = handler(m, name, annotation, frame, place)
            if value is not None:
                return value
        return None

    def elements(self, m: Machine, iterable: Atom, place: Place) -> Sequence[Value] | Value | None:
        """What iterating gives."""
        for handler in self.iterables:
            value = handler(m, iterable, place)
            if value is not None:
                return value
        return None

    def happened(self, m: Machine, event: Event) -> None:
        """Something was emitted."""
        for handler in self.followers.get(event.kind, ()):
            handler(m, event)

    def default(self, m: Machine, slot: Slot) -> Value | None:
        """The value of a protocol's slot that was never written, or of what something unknown or open holds."""
        owner, name = slot
        if owner == "state" or name.startswith("@"):
            return self.defaults.get(name.partition(":")[0], State(None))
        if type(owner) is Unknown and (name.startswith("[") or name.isidentifier()):
            return derived(owner, name if name.startswith("[") else f".{name}")
        return next((value for handler in self.unset if (value := handler(m, owner, name)) is not None), None)

    def begins(self, m: Machine, script: bool) -> None:
        """An entry begins."""
        for handler in self.beginnings:
            handler(m, script)

    def runs_at_import(self, m: Machine, module: Module) -> bool:
        """Whether a module of the project has to run where it is imported, and not when it is first used."""
        return any(handler(m, module) for handler in self.ordered)

    def opening(self, m: Machine, cls: Class) -> Callable[[Object, int], None] | None:
        """How a framework uses an instance of a class that nobody uses in the project."""
        for handler in self.openings:
            found = handler(m, cls)
            if found is not None:
                return found
        return None

    def computes(self, m: Machine, instance: Object, words: frozenset[str]) -> bool:
        """Whether a method computes with something that makes it matter, and that an instance has got by now."""
        return any(handler(m, instance, words) for handler in self.computing)

    def initialized(self, m: Machine, instance: Object, args: Args, place: Place) -> None:
        """An instance calls the `__init__` of a base from another package."""
        for handler in self.bases_initialized:
            handler(m, instance, args, place)


def kept_attribute(owner: Object, name: str) -> Unknown:
    """What an instance holds that a base from another package has given it: something unknown, but always the same."""
    return Unknown(f"{name}{IDENTITY}{owner.id!r}"[:200])


def unknown_result(m: Machine, receiver: Atom, args: Args, place: Place) -> Value:
    """What a call gives that nobody knows."""
    m.missed(receiver, place)
    return opaque_result(m, receiver, args, place)


def opaque_result(m: Machine, receiver: Atom, args: Args, place: Place) -> Value:
    """What a call gives of which no more is said: the same for the same constant arguments."""
    if type(receiver) is External:
        base = Unknown(receiver.name)
    elif type(receiver) is Unknown:
        base = receiver
    else:
        base = Unknown(f"{type(receiver).__name__.lower()}{IDENTITY}{place.path}:{place.position}")
    given = args.all()
    constants = [v.value for v in given if type(v) is Constant]
    text = ", ".join(map(repr, constants)) if len(constants) == len(given) else "…"
    others = [a.symbol for v in given for a in atoms(v) if type(a) is Unknown]
    extra = "" if len(constants) == len(given) else f"{place.path}:{place.position}{m.round()}{''.join(others)[:60]}"
    return derived(base, f"({text[:60]})", extra)
