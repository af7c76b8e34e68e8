"""Abstract values: what an expression may stand for while the interpreter runs.

A value is an atom or `Alternatives`: atoms with the conditions under which each is it. Atoms are immutable; what changes
(attributes, items, variables) stands in the store under the identity of an `Object`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar, dataclass_transform, final

from mplint.program.conditions import MAX_WEIGHT, add_way, either_way, extend

if TYPE_CHECKING:
    from mplint.program.conditions import Condition, Key
    from mplint.program.lower import IR

# dtypes of tensors: float16, bfloat16, float32, float64, float8, integers, bool; the compute dtype of a Keras layer; unknown
HALF, BFLOAT, SINGLE, DOUBLE, FLOAT8, INTEGER, BOOLEAN, COMPUTE, ANY = "h", "b", "f", "d", "8", "i", "?b", "c", "?"
DTYPE_NAMES = {
    HALF: "float16",
    BFLOAT: "bfloat16",
    SINGLE: "float32",
    DOUBLE: "float64",
    FLOAT8: "float8",
    INTEGER: "int64",
    BOOLEAN: "bool",
    COMPUTE: "the layer's compute dtype",
    ANY: "an unknown dtype",
}


T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def atom_type(cls: type[T]) -> type[T]:
    """A frozen, slotted dataclass that costs a third of one to make: that nobody writes its fields is for the type checker to see."""
    return dataclass(slots=True, unsafe_hash="__hash__" not in cls.__dict__)(cls)


class Place(NamedTuple):
    """A range of a file: its path and the packed position."""

    path: str
    position: int


class By(Enum):
    """What puts something in half precision, other than a region around it."""

    CAST = "a cast of it"
    PARAMETERS = "a cast of parameters"
    MODEL = "a cast of the model"
    ENGINE = "an engine that casts the model"
    LOADING = "the loading of a model"
    CALLER = "a caller that gives it"
    FEEDING = "what a placeholder is fed"
    APEX = "apex, which patches the functions of torch"


class Step(NamedTuple):
    """One link of a chain: a place and what happens there, in words; `by`: what puts something in half there, if it is no region."""

    place: Place
    words: str
    by: By | None = None


Chain: TypeAlias = tuple[Step, ...]


class Constant:
    """A Python constant."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Constant and type(other.value) is type(self.value) and other.value == self.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))

    def __repr__(self) -> str:
        return f"Constant({self.value!r})"


SIFTED = "left out"  # the symbol of what a dict does not have, that holds at most some known entries, begins so
MANY = "many\0"  # the symbol of what may be too many things to list begins so
SEVERAL = "#several"  # the slot of an object that stands for as many as a comprehension makes
NONE = Constant(None)
TRUE = Constant(True)
FALSE = Constant(False)


@atom_type
class Unknown:
    """Something unknown, but the same thing wherever its symbol stands. What precedes the NUL in a symbol is shown to people.

    `hint`: a dotted type that annotations or its making tell.
    """

    symbol: str
    hint: str = ""

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Unknown and other.symbol == self.symbol and other.hint == self.hint)

    def __hash__(self) -> int:
        return hash(self.symbol)


LEAVES = Unknown("\0leaves")  # what a call that ends the program gives


@atom_type
class Tensor:
    """An array of a framework. `dtypes`: what it may be in; `half`: how it came to be in half precision.

    `scaled`: the scaler that multiplied it (a loss); `forward`: dtypes of the autocast regions and models that computed it;
    `epsilon`: the lost or subnormal constant that it carries; `made`: where it was created with a dtype of its own;
    `range`: bounds of its values, as far as known; `tags`: what else is known of it (framework words).
    """

    dtypes: frozenset[str]
    half: Chain = ()
    scaled: Hashable = None
    forward: frozenset[str] = frozenset()
    epsilon: Step | None = None
    made: Step | None = None
    range: tuple[float, float] | None = None
    tags: frozenset[str] = frozenset()

    def __hash__(self) -> int:
        return hash((self.dtypes, self.scaled, self.made))

    def but(self, **changes: object) -> Tensor:
        """A copy with other fields."""
        return Tensor(**{name: changes[name] if name in changes else getattr(self, name) for name in Tensor.__slots__})  # type: ignore


@atom_type
class Object:
    """Something with identity and state. `kind`: "instance" of a project's class, or a framework's or Python's word for it.

    `type` is the project's class (`Class`) or the dotted name of the framework's. `made`: where it was created.
    """

    id: Hashable
    kind: str
    type: Class | str
    made: Place | None = None

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not Object:
            return self is other
        return other.id == self.id and other.kind == self.kind and other.type == self.type and other.made == self.made

    def __hash__(self) -> int:
        return hash(self.id)


class Scope:
    """Where names stand: a function's, a class body's or a module's variables, in the store under `id`."""

    __slots__ = ("code", "id", "locals", "owner", "parent", "path")

    def __init__(self, id: Hashable, path: str, parent: Scope | None, code: Code | None = None, owner: Class | None = None) -> None:
        self.id = id
        self.path = path
        self.parent = parent
        self.code = code
        self.owner = owner
        self.locals: frozenset[str] | None = code.locals if code is not None else None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Scope) and other.id == self.id and other.path == self.path)

    def __hash__(self) -> int:
        return hash(self.id)


@atom_type
class Function:
    """A function of the project; `owner`: the class that it is defined in, `bound`: its first argument."""

    code: Code
    frame: Scope
    owner: Class | None = None
    bound: Value | None = None

    def __hash__(self) -> int:
        return self.code.hash


@dataclass(frozen=True, slots=True)
class Class:
    """A class of the project; members stand in the store under `id`."""

    id: Hashable
    name: str
    path: str
    bases: tuple[Value, ...]
    ir_words: frozenset[str] = frozenset()

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not Class:
            return self is other
        return other.id == self.id and (other.name, other.path, other.bases, other.ir_words) == (
            self.name,
            self.path,
            self.bases,
            self.ir_words,
        )

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the project, or a namespace package (`path` empty)."""

    name: str
    path: str


@atom_type
class External:
    """A name of another package, dotted."""

    name: str


@atom_type
class Method:
    """An attribute of a value that the project does not define: called, it is a method."""

    receiver: Value
    name: str


@dataclass(frozen=True, slots=True)
class Partial:
    """A callable with some arguments given, at `place`."""

    callee: Value
    positional: tuple[Value, ...]
    named: tuple[tuple[str, Value], ...]
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A callable that runs under a context or with a framework's behavior around it."""

    callee: Value
    context: Value
    how: str = "context"


@dataclass(frozen=True, slots=True)
class Super:
    """`super()` of an instance, from a class on."""

    instance: Value
    owner: Class


@dataclass(frozen=True, slots=True)
class Autocast:
    """A context manager that sets the autocast state: device, dtype letter (None: off), with the place that says so.

    `by`: what casts in its place, "apex", which patches the functions of torch by lists of its own, or "apex's cast" of the whole model.
    """

    device: str
    dtype: str | None
    chain: Chain = ()
    cache: bool = True
    identity: Hashable = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """Another context manager with a meaning: `kind` is the framework's word for it."""

    kind: str
    value: Value | None = None


@atom_type
class Test:
    """A boolean that is a condition on the path."""

    key: Key
    sense: bool


@dataclass(frozen=True, slots=True)
class DType:
    """A dtype as a value: a letter; `keras` where it is a dtype policy or its name."""

    letter: str


@dataclass(frozen=True, slots=True)
class DTypeOf:
    """The dtype of a tensor."""

    tensor: Tensor


@atom_type
class Items:
    """The items of a tuple, or of a list or set in the store; `rest`: what others there may be."""

    items: tuple[Value, ...]
    rest: Value | None = None

    def __hash__(self) -> int:
        return hash((len(self.items), self.items[:1]))


JOINED = "|"  # ends the symbol of an unknown that several were joined to
JOINED_OF = "\0…"  # what identifies one that several were joined to which have other names begins so
UNKNOWNS = 1
LARGE = 16  # entries, among which a key is looked up in a table


@atom_type
class Entries:
    """The entries of a dict in the store: constant keys to values; `rest`: what other entries there may be, None for no others."""

    entries: tuple[tuple[Hashable, Value], ...] = ()
    rest: Value | None = None

    def __hash__(self) -> int:
        return hash((len(self.entries), self.entries[0][0] if self.entries else None))

    def get(self, key: Hashable) -> Value | None:
        """The value of a key, or None."""
        if len(self.entries) > LARGE and key not in dict(self.entries):
            return None
        for other, value in self.entries:
            if other == key and type(other) is type(key):
                return value
        return None

    def put(self, key: Hashable, value: Value) -> Entries:
        """A copy with an entry set."""
        if len(self.entries) > LARGE and key not in dict(self.entries):
            return Entries((*self.entries, (key, value)), self.rest)
        kept = tuple((k, v) for k, v in self.entries if not (k == key and type(k) is type(key)))
        return Entries((*kept, (key, value)), self.rest)


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice as an index."""

    start: Value
    stop: Value


@atom_type
class Lazy:
    """A name of a module that is imported once somebody reads it."""

    module: Module
    name: str


@dataclass(frozen=True, slots=True)
class State:
    """A value of the interpreter's own state (autocast, gradients, …); `data` is any hashable."""

    data: Hashable


@final
class Alternatives:
    """Up to `LIMIT` atoms, each under conditions; made by `alternatives`. `chosen`: what can hold on `path`, the last one asked for."""

    __slots__ = ("chosen", "options", "path")
    LIMIT = 6

    def __init__(self, options: tuple[tuple[frozenset[Condition], Atom], ...]) -> None:
        self.options = options
        self.path: frozenset[Condition] | None = None
        self.chosen: Value | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Alternatives and other.options == self.options)

    def __hash__(self) -> int:
        return hash(self.options)

    def __repr__(self) -> str:
        return f"Alternatives{self.options!r}"


Atom: TypeAlias = (
    Constant
    | Unknown
    | Tensor
    | Object
    | Function
    | Class
    | Module
    | External
    | Method
    | Partial
    | Wrapped
    | Super
    | Autocast
    | Context
    | Test
    | DType
    | DTypeOf
    | Items
    | Entries
    | Slice
    | Lazy
    | State
)
Value: TypeAlias = Atom | Alternatives


class Code:
    """A lowered function with its file; compared by identity of the place."""

    __slots__ = ("body", "decorators", "flags", "hash", "locals", "name", "parameters", "path", "place", "words")

    def __init__(self, path: str, ir: IR) -> None:
        _, self.place, self.name, self.parameters, self.body, self.locals, self.decorators, self.flags, self.words = ir
        self.path = path
        self.hash = hash((path, self.place))

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Code and other.place == self.place and other.path == self.path)

    def __hash__(self) -> int:
        return self.hash

    def __repr__(self) -> str:
        return f"Code({self.path}:{self.place & 0xFFFFF} {self.name})"


NO_GUARDS: frozenset[Condition] = frozenset()


def options(value: Value) -> tuple[tuple[frozenset[Condition], Atom], ...]:
    """The atoms of a value with their conditions."""
    return value.options if type(value) is Alternatives else ((NO_GUARDS, value),)


def atoms(value: Value) -> Iterable[Atom]:
    """The atoms of a value."""
    return [atom for _, atom in value.options] if type(value) is Alternatives else (value,)


def alternatives(found: Iterable[tuple[frozenset[Condition], Atom]]) -> Value:
    """One value of guarded atoms: equal atoms are joined, and too many become one. Of constants and dtypes each way to them is kept."""
    kept: dict[Atom, frozenset[Condition]] = {}
    ways: dict[Atom, list[frozenset[Condition]]] = {}
    several: dict[Atom, list[frozenset[Condition]]] = {}
    for guards, atom in found:
        if atom in kept:
            if type(atom) in CHOICES:
                add_way(ways[atom], guards)
            else:
                several.setdefault(atom, [kept[atom]]).append(guards)
            kept[atom] = kept[atom] & guards
        else:
            kept[atom] = guards
            if type(atom) in CHOICES:
                ways[atom] = [guards]
    if len(kept) > 1:
        for atom, all_of in several.items():
            kept[atom] = either_way(all_of, 0 if type(atom) is Tensor else MAX_WEIGHT)[0]
    if len(kept) < 2:
        for atom, guards in kept.items():
            return Alternatives(((guards, atom),)) if guards else atom
        return Unknown("nothing")
    if len(kept) > Alternatives.LIMIT:
        join_same(kept)
    if len(kept) > Alternatives.LIMIT and all(type(atom) is Entries for atom in kept):
        join_entries(kept)
    if len(kept) > Alternatives.LIMIT and all(type(atom) is Items for atom in kept):
        join_sequences(kept)
    for alike in ALIKE:
        if len(kept) > Alternatives.LIMIT:
            join_alike(kept, alike)
    unknown = [a for a in kept if type(a) is Unknown and not a.hint]
    if len(unknown) > 1 and len(kept) > UNKNOWNS:
        guards = frozenset.intersection(*(kept.pop(u) for u in unknown))
        hints = {u.hint for u in unknown}
        kept[Unknown(joined_symbol([u.symbol for u in unknown]), hints.pop() if len(hints) == 1 else "")] = guards
    if len(kept) > Alternatives.LIMIT * (2 if all(type(a) is State for a in kept) or are_states(kept) else 1):
        return Unknown(MANY + ",".join(sorted({type(a).__name__ for a in kept})))
    if len(kept) == 1:
        atom, guards = next(iter(kept.items()))
        return atom if not guards else Alternatives(((guards, atom),))
    if sum(len(ways.get(atom, ())) or 1 for atom in kept) <= Alternatives.LIMIT:
        return Alternatives(tuple((guards, atom) for atom, all_of in kept.items() for guards in ways.get(atom, (all_of,))))
    return Alternatives(tuple((either_way(ways[atom])[0] if atom in ways else guards, atom) for atom, guards in kept.items()))


def joined_symbol(symbols: Sequence[str]) -> str:
    """The symbol of an unknown that several were joined to: it stands for what is set only where all of them are called the same."""
    first = min(symbols)
    names = {re.split(r"[^\w-]+", symbol.partition("\0")[0].rstrip(")]'\""))[-1].casefold().replace("-", "_") for symbol in symbols}
    return first + JOINED if len(names) == 1 else first_joined(first).replace("\0", JOINED_OF, 1) + JOINED


def first_joined(symbol: str) -> str:
    """The symbol of the first of several unknowns that were joined to one."""
    return symbol.replace(JOINED_OF, "\0", 1).rstrip(JOINED)


def join_entries(kept: dict[Atom, frozenset[Condition]]) -> None:
    """Make one of the entries that a dict has in many ways: what all have, and what some have under their conditions."""
    ways = [(guards, atom) for atom, guards in kept.items() if type(atom) is Entries]
    entries: list[tuple[Hashable, Value]] = []
    sifted = False
    for key in dict.fromkeys(key for _, held in ways for key, _ in held.entries):
        found = [(guards, value) for guards, held in ways if (value := held.get(key)) is not None]
        sifted |= len(found) < len(ways)
        if len(found) == len(ways) and all(value == found[0][1] for _, value in found):
            entries.append((key, found[0][1]))
        else:
            arms = [(extend(guards, own), atom) for guards, value in found for own, atom in options(value)]
            entries.append((key, alternatives((both, atom) for both, atom in arms if both is not None)))
    rests = [held.rest for _, held in ways if held.rest is not None]
    missing = Unknown(f"{SIFTED}\0{[key for key, _ in entries]!r:.200}") if sifted else None
    rest = min(rests, key=is_sifted, default=missing)
    guards = either_way([guards for guards, _ in ways])[0]
    kept.clear()
    kept[Entries(tuple(entries), rest)] = guards


def is_sifted(rest: Value) -> bool:
    """Whether what stands for the other entries of a dict says only that some of those in sight may be missing."""
    return type(rest) is Unknown and rest.symbol.startswith(SIFTED)


MAX_JOINED = 16  # items of several sequences that are joined to one


def join_sequences(kept: dict[Atom, frozenset[Condition]]) -> None:
    """Make one of the sequences that conditions make longer, where there are too many of them."""
    ways = [(guards, atom) for atom, guards in kept.items() if type(atom) is Items]
    items = one_sequence(ways)
    if items is not None:
        kept.clear()
        kept[Items(items)] = either_way([guards for guards, _ in ways])[0]


def one_sequence(ways: Sequence[tuple[frozenset[Condition], Items]]) -> tuple[Value, ...] | None:
    """The items that one of several sequences has, in their order: those that only some have under the conditions of these."""
    if any(held.rest is not None for _, held in ways):
        return None
    order: list[Value] = []
    for items in sorted((held.items for _, held in ways), key=len, reverse=True):
        at = 0
        for item in items:
            if item not in order[at:]:
                order.insert(at, item)
            at = order.index(item, at) + 1
    if len(order) > MAX_JOINED:
        return None
    having: list[list[frozenset[Condition]]] = [[] for _ in order]
    for guards, held in ways:
        at = 0
        for item in held.items:
            if item not in order[at:]:
                return None  # another order
            at = order.index(item, at) + 1
            having[at - 1].append(guards)
    return tuple(item if len(found) == len(ways) else only_under(found, item) for item, found in zip(order, having, strict=True))


def only_under(ways: Sequence[frozenset[Condition]], value: Value) -> Value:
    """A value that is there in some ways alone."""
    guards = either_way(ways)[0]
    both = [(extend(guards, own), atom) for own, atom in options(value)]
    return alternatives((path, atom) for path, atom in both if path is not None) if guards else value


def are_states(kept: Iterable[Atom]) -> bool:
    """Whether all of some values are what optimizers and models gave of their state, whole or put together anew."""
    kinds = {a.kind if type(a) is Object else "" for a in kept}
    return "state_dict" in kinds and kinds <= {"state_dict", "dict"}


def join_same(kept: dict[Atom, frozenset[Condition]]) -> None:
    """Make one of all that is the same object, and was taken at several places: an optimizer's state in either arm of a fork."""
    groups: dict[Hashable, list[Object]] = {}
    for atom in kept:
        if type(atom) is Object:
            groups.setdefault((atom.kind, atom.id), []).append(atom)
    for same in groups.values():
        if len(same) > 1:
            kept[same[0]] = either_way([kept.pop(atom) for atom in same])[0]


def join_alike(kept: dict[Atom, frozenset[Condition]], of: Callable[[Tensor], Hashable]) -> None:
    """Make one of all tensors of which something is the same; a literal of their own tells them apart where nothing else does any more."""
    groups: dict[Hashable, list[Tensor]] = {}
    for atom in kept:
        if type(atom) is Tensor:
            groups.setdefault(of(atom), []).append(atom)
    if all(len(tensors) < 2 for tensors in groups.values()):
        return
    symbol = f"one of several\0{sorted(told_by(tensor) for tensors in groups.values() for tensor in tensors)}"
    for number, tensors in enumerate(groups.values()):
        guards, _ = either_way([kept.pop(t) for t in tensors], 0)
        if len(groups) > 1:
            guards |= {(("in", symbol, frozenset([number])), True)}
        joined = join_tensors(tensors)
        if all(in_half(t) is None for t in tensors):  # the ways to the rest are lost: nothing shows that it was in no region
            joined = joined.but(forward=joined.forward.union(*(t.forward for alike in groups.values() for t in alike)))
        kept[joined] = guards


def told_by(tensor: Tensor) -> str:
    """What tells one of several tensors apart: its dtypes, and where it became half or was made."""
    place = tensor.half[-1].place if tensor.half else tensor.made.place if tensor.made is not None else None
    return f"{''.join(sorted(tensor.dtypes))} {''.join(sorted(tensor.forward))} {place.position if place is not None else 0}"


def in_half(tensor: Tensor) -> Hashable:
    """What tensors share that are in half, or are what a region in half gave; None for the rest."""
    if tensor.half or (ANY in tensor.dtypes and tensor.forward):
        return (tensor.forward, tensor.dtypes)
    return None


# What tensors share that are made one where they are too many: what is in half is told from the rest as long as that is enough, and a loss
# that was scaled from one that was not.
ALIKE: tuple[Callable[[Tensor], Hashable], ...] = (
    lambda t: (t.scaled, in_half(t)),
    lambda t: t.scaled,
    lambda t: None,
)
CHOICES = (Constant, DType)


def join_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """One tensor that may be any of several."""
    found = list(tensors)
    first = found[0]
    dtypes = frozenset().union(*(t.dtypes for t in found))
    scaled = {t.scaled for t in found}
    return Tensor(
        dtypes,
        next((t.half for t in found if t.half), ()),
        scaled.pop() if len(scaled) == 1 else None,
        frozenset().union(*(t.forward for t in found)),
        next((t.epsilon for t in found if t.epsilon is not None), None) if all(t.epsilon for t in found) else None,
        first.made if all(t.made == first.made for t in found) else None,
        None,
        frozenset.intersection(*(t.tags for t in found)),
    )
