"""The machine that runs lowered programs over abstract values: state, paths, frames, forks and events.

`expressions`, `statements` and `calls` say what each construct does with it; a `Library` says what the names of other packages mean.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol
from zlib import crc32

from mplint.program.conditions import EMPTY, Condition, Key, Path, excluded_by, extend, spelled
from mplint.program.event import Event
from mplint.program.imported import IMPORTERS, MAX_FRAMES, Exhausted, Given, Imports, Nested
from mplint.program.lower import IR
from mplint.program.project import Project
from mplint.program.store import Difference, Forked, Slot, Store, choose, join, under
from mplint.program.values import (
    NONE,
    Alternatives,
    Atom,
    Class,
    Code,
    Constant,
    Entries,
    Function,
    Module,
    Object,
    Place,
    Scope,
    State,
    Step,
    Unknown,
    Value,
    atoms,
)

MAX_DEPTH = 14  # of calls
MAX_GUARDS = 8  # literals that an arm's values carry
MAX_IMPORTERS = 40  # of a file with a table that others add to
STATE = "state"  # the owner of the interpreter's own slots
MAIN = Unknown("main")  # what stands for a module that runs as the main program
IDENTITY = "\0"  # separates what is shown of a symbol from what identifies it


class Frame(Scope):
    """A running scope: how it was left, its loops, and what it yields."""

    __slots__ = ("base", "depth", "exits", "loops", "on_yield", "outer_names", "yielded")

    def __init__(self, id: Hashable, path: str, parent: Scope | None, code: Code | None = None, owner: Class | None = None) -> None:
        super().__init__(id, path, parent, code, owner)
        self.base: Path = EMPTY  # on which it was entered
        self.depth = 0
        self.exits: list[Exit] = []
        self.loops: list[Loop] = []
        self.on_yield: Callable[[Value], Value] | None = None
        self.yielded: list[tuple[Path, Value]] = []
        self.outer_names: dict[str, str] = {}

    @classmethod
    def of(cls, scope: Scope) -> Frame:
        """A frame that runs in a scope that stands."""
        return cls(scope.id, scope.path, scope.parent, scope.code, scope.owner)


@dataclass(slots=True)
class Exit:
    """A return, break or continue: the path it happens on, what was written since the frame or loop began, and the value."""

    path: Path
    written: Difference
    value: Value
    direct: bool = False


@dataclass(slots=True)
class Loop:
    """A running loop: where its layers begin, its round and what that goes over, and how bodies left it."""

    place: Place
    depth: int
    round: int = 0
    round_depth: int = 0
    breaks: list[Exit] = field(default_factory=list)
    continues: list[Exit] = field(default_factory=list)
    over: Value | None = None
    start: Path = EMPTY  # where its round begins


class Cut(NamedTuple):
    """How a function was called that was cut off: the unknowns that it was given, the dicts of such, and which options exclude others."""

    given: Mapping[str, Unknown]
    dicts: Mapping[str, Entries]
    path: Path


class Switch(NamedTuple):
    """Something a user may turn: an option, a setting, a parameter with a default; conditions know it by its key in `Machine.switches`.

    `name` is what the user types; `default` None: nobody knows it. `choices`: the only values that it takes, where they are listed;
    `off`: what turns off an option that is on by default; `test`: the name is a comparison that holds or not.
    `offered`: what files of the project give for it, of which nobody knows whether they are used. `base`: the switch that it follows from,
    whose value `of` turns into its own.
    """

    name: str
    default: Value | None
    place: Place | None
    kind: str  # "option", "setting", "parameter", "entry" of a table that nobody knows; "machine", "card" and "release": what these decide
    choices: tuple[Hashable, ...] = ()
    off: str = ""
    test: bool = False
    offered: tuple[Hashable, ...] = ()
    base: str = ""
    of: Callable[[Any], object] | None = None


class Args:
    """Arguments of a call with their places; `holders`: what names one beside the call (a dict that is spread, a partial), by the name.

    `rest`: what further positional ones are, where an open sequence is spread whose items are known to be of a kind.
    """

    __slots__ = ("holders", "named", "named_places", "opaque", "places", "positional", "rest")

    def __init__(
        self,
        positional: Sequence[Value] = (),
        named: Mapping[str, Value] | None = None,
        places: Sequence[int] = (),
        named_places: Mapping[str, int] | None = None,
        opaque: bool = False,
        holders: Mapping[str, Place] | None = None,
        rest: Value | None = None,
    ) -> None:
        self.positional = tuple(positional)
        self.named = dict(named or {})
        self.places = tuple(places)
        self.named_places = dict(named_places or {})
        self.opaque = opaque  # there may be more: *args or **kwargs of unknown content
        self.holders = dict(holders or {})
        self.rest = rest

    def get(self, index: int, name: str = "") -> Value | None:
        """The argument at a position or of a name, or None where it is not given."""
        if name and name in self.named:
            return self.named[name]
        return self.positional[index] if 0 <= index < len(self.positional) else None

    def place(self, index: int, name: str = "") -> int | None:
        """Where the argument stands."""
        if name and name in self.named_places:
            return self.named_places[name]
        return self.places[index] if 0 <= index < len(self.places) else None

    def all(self) -> list[Value]:
        """Every value given."""
        return [*self.positional, *self.named.values()]

    def shifted(self, first: Value) -> Args:
        """The same arguments behind another first one."""
        return Args((first, *self.positional), self.named, (0, *self.places), self.named_places, self.opaque, self.holders)


class Library(Protocol):
    """What the names of other packages mean: frameworks, and Python's own library."""

    scoped: frozenset[str]  # states that a context sets, and that are what they were once it is left

    def call(self, m: Machine, name: str, args: Args, place: Place) -> Value:
        """Call the dotted name of another package."""
        ...

    def method(self, m: Machine, receiver: Atom, name: str, args: Args, place: Place) -> Value:
        """Call a method that the project does not define."""
        ...

    def invoke(self, m: Machine, receiver: Atom, args: Args, place: Place) -> Value:
        """Call an object or an unknown value."""
        ...

    def attribute(self, m: Machine, receiver: Atom, name: str, place: Place) -> Value | None:
        """Read an attribute that nobody has set; None where nothing is known."""
        ...

    def unbound(self, name: str, stars: Sequence[str], words: frozenset[str]) -> str | None:
        """The dotted name that a name means which nothing binds, in a program with these words that imports everything of `stars`."""
        ...

    def knows(self, name: str) -> bool:
        """Whether a dotted name of another package has a meaning of its own, or holds names that have one."""
        ...

    def external(self, m: Machine, name: str, place: Place) -> Value | None:
        """What a dotted name stands for, where that is a value (a dtype, a constant); None for the name itself."""
        ...

    def binary(self, m: Machine, op: str, left: Atom, right: Atom, place: Place, in_place: bool = False) -> Value | None:
        """An arithmetic operation or a comparison; None where no operand is the library's. `in_place`: `left op= right`."""
        ...

    def unary(self, m: Machine, op: str, operand: Atom, place: Place) -> Value | None:
        """A unary operation."""
        ...

    def subscript(self, m: Machine, receiver: Atom, index: Value, place: Place) -> Value | None:
        """Read an item."""
        ...

    def assign_item(self, m: Machine, receiver: Atom, index: Value, value: Value, place: Place) -> bool:
        """Write an item; False where nothing is known."""
        ...

    def assigned(self, m: Machine, receiver: Atom, name: str, value: Value, place: Place) -> None:
        """An attribute was set."""
        ...

    def named(self, m: Machine, name: str, value: Value, place: Place) -> None:
        """A variable of a module was set by a statement at its top."""
        ...

    def enter(self, m: Machine, context: Atom, place: Place) -> tuple[Value, tuple[Slot, Value] | None]:
        """Enter a context manager: what `as` binds, and a slot with the value that it has inside, restored on the way out."""
        ...

    def leave(self, m: Machine, context: Atom, place: Place) -> None:
        """The with-statement of a context manager has ended."""
        ...

    def raised(self, m: Machine, place: Place) -> None:
        """A function raises, under the conditions of the path."""
        ...

    def instantiated(self, m: Machine, made: Object, bases: Sequence[str], args: Args, place: Place) -> Value | None:
        """An instance of a project's class with bases of other packages was made, before its `__init__` runs."""
        ...

    def decorated(self, m: Machine, function: Value, decorator: Atom, place: Place) -> Value:
        """What a decorator of another package makes of a function or class."""
        ...

    def finished(self, m: Machine) -> None:
        """An entry has come to its end: its objects are still there."""
        ...

    def annotated(self, m: Machine, name: str, annotation: IR, frame: Frame, place: Place) -> Value | None:
        """A parameter that nobody gives a value, as its annotation tells; None where it tells nothing."""
        ...

    def elements(self, m: Machine, iterable: Atom, place: Place) -> Sequence[Value] | Value | None:
        """What iterating gives: the items, one value that stands for each, or None where nothing is known."""
        ...

    def default(self, m: Machine, slot: Slot) -> Value | None:
        """The value of a slot that was never written: a protocol's state, a setting of which nothing is known."""
        ...

    def begins(self, m: Machine, script: bool) -> None:
        """An entry begins: a script, or library code that nobody calls."""
        ...

    def runs_at_import(self, m: Machine, module: Module) -> bool:
        """Whether a module of the project has to run where it is imported, and not when it is first used."""
        ...

    def opening(self, m: Machine, cls: Class) -> Callable[[Object, int], None] | None:
        """How a framework uses an instance of a class that nobody uses in the project, or None where none does."""
        ...

    def computes(self, m: Machine, instance: Object, words: frozenset[str]) -> bool:
        """Whether a method with these words computes with something that makes it matter, and that an instance has got by now."""
        ...

    def initialized(self, m: Machine, instance: Object, args: Args, place: Place) -> None:
        """An instance calls the `__init__` of a base from another package."""
        ...

    def happened(self, m: Machine, event: Event) -> None:
        """Something was emitted: what follows from it in other vocabularies."""
        ...


class Constructs(NamedTuple):
    """What the constructs of the language do; made of the modules that say so (see `mplint.program.interpreter`)."""

    evaluate: Callable[[Machine, IR], Value]
    block: Callable[[Machine, Sequence[IR]], bool]
    assign: Callable[[Machine, IR, Value], None]
    iterate: Callable[[Machine, Value, int, int], list[Value]]
    enter: Callable[[Machine, Value, int, Callable[[Value], bool]], bool]
    call: Callable[[Machine, Value, Args, int], Value]
    call_method: Callable[[Machine, Value, str, Args, int, int], Value]


class Recorder(Protocol):
    """Somebody who looks on: for reports on what the interpreter understands. Rules ask the trace instead."""

    def begin(self, path: str, name: str, script: bool) -> None:
        """An entry begins."""
        ...

    def saw(self, m: Machine, place: Place, value: Value) -> None:
        """An expression gave a value."""
        ...

    def called(self, m: Machine, place: Place, callee: Value, name: str, args: Args) -> None:
        """A call in the source is about to be made: of a value, or of the method `name` of a receiver."""
        ...

    def assumed(self, m: Machine, place: Place, callee: Atom, how: str) -> None:
        """A call was taken for what it may be: a "model" whose class nobody knows, or "other" for what a table calls of no effect."""
        ...

    def unknown(self, m: Machine, place: Place, callee: Atom) -> None:
        """Nobody knew what a call does."""
        ...

    def computed(self, m: Machine, place: Place, name: str, kind: str) -> None:
        """Tensors are computed: by an operation, and what a framework does with it; or by a "model" that nobody knows."""
        ...


def home_of(atom: Atom) -> str:
    """The file of a function, a class or an instance of one; "" of anything else."""
    if type(atom) is Object:
        return atom.type.path if type(atom.type) is Class else ""
    if type(atom) is Function:
        return atom.code.path
    return atom.path if type(atom) is Class else ""


class Machine:
    """One run over a project: entries are run one after the other, each undone at its end."""

    def __init__(self, project: Project, library: Library, constructs: Constructs, steps: int = 60_000) -> None:
        # the value of an expression; run statements, and whether control goes on behind them; bind a target; the items that a loop over a
        # value sees; run a body inside a context manager; call a value, or its method
        self.evaluate: Callable[[IR], Value] = partial(constructs.evaluate, self)
        self.block: Callable[[Sequence[IR]], bool] = partial(constructs.block, self)
        self.assign: Callable[[IR, Value], None] = partial(constructs.assign, self)
        self.iterate: Callable[[Value, int, int], list[Value]] = partial(constructs.iterate, self)
        self.enter: Callable[[Value, int, Callable[[Value], bool]], bool] = partial(constructs.enter, self)
        self.call: Callable[[Value, Args, int], Value] = partial(constructs.call, self)
        self.call_method: Callable[[Value, str, Args, int, int], Value] = partial(constructs.call_method, self)
        self.project = project
        self.library = library
        self.store = Store()
        self.path: Path = EMPTY
        self.frames: list[Frame] = []
        self.calls: list[Place] = []
        self.loops: list[tuple[Place, int]] = []
        self.events: list[Event] = []
        self.switches: dict[str, Switch] = {}
        self.called_first: dict[Hashable, str] = {}  # the variables that settings were first read by which nothing else names
        self.declared: dict[str, dict[str, None]] = {}  # options by the name under which the program reads them: their symbols
        self.parameters: dict[str, Code] = {}  # whose default stands behind a switch
        self.callers: set[Code] = set()  # functions that the project itself calls
        self.left_at_none: set[tuple[Code, str]] = set()  # parameters that some call leaves at None, or may, and
        self.surely_given: set[tuple[Code, str]] = set()  # those that some call gives a thing
        self.given: set[Given] = set()  # switches of parameters that some call gives another value, or that of another switch
        self.log: list[Exit] = []
        self.written = ""  # the name by which the source calls the receiver of the method call that is being made, or what it calls
        self.spelled = (-1, "")  # the call that is being made, by its position, and the last name of what the source calls there
        self.dropped = -1  # the call that is a statement by itself, by its position: nobody takes what it gives
        self.limit = steps
        self.home = ""
        self.left = steps
        self.broken_off = False  # the entry went deeper than Python's stack holds
        self.unfinished: list[Event] = []  # what happened in calls that were cut off: nobody saw what followed there
        self.counter = 0
        self.tests: dict[Hashable, int] = {}  # numbers of tests that literals can't tell
        self.left_out = False  # whether a test has more ways than are told
        self.called: set[Code] = set()
        self.recorder: Recorder | None = None  # who wants to see what expressions give and what calls mean
        self.lines: dict[Hashable, tuple[Class, list[Class | str]]] = {}  # of classes: themselves and their bases
        self.running: dict[Code, int] = {}  # how often each function is on the stack
        self.deepest = 0  # frames
        self.own: set[Hashable] = set()  # what identifies the objects that calls of the running entry have made, but for imports
        self.places: dict[str, dict[int, Place]] = {}  # of what has run: each is made once
        self.imports = Imports()
        self.relevant: Callable[[frozenset[str]], bool] = bool  # whether words speak of what matters
        self.bounds = 0  # calls on the stack that have a part of the steps
        # whether what an object makes of classes with some bases of other packages is neither set up nor entered; None: of none
        self.closed: Callable[[Sequence[str]], bool] | None = None
        self.matters: dict[Code | str, bool] = {}  # functions and files
        self.spine: frozenset[str] = frozenset()  # the files that train, and those that lead to them by their imports
        self.cut: dict[Code, Cut] = {}  # functions that were cut off, as they were called

    # budget and identity

    def step(self, cost: int = 1) -> None:
        """Spend steps; raises Exhausted where none are left."""
        self.left -= cost
        if self.left < 0:
            self.called.difference_update(code for code, depth in self.running.items() if depth)  # what is cut off begins by itself
            for frame in self.frames:
                if frame.code is not None:
                    self.cut[frame.code] = cut_off(self, frame, frame.code)
            raise Exhausted

    def within(self, steps: int, run: Callable[[], Value]) -> Value | None:
        """Run with a part of the steps; None where that was not enough: what it wrote is taken back, and all but it goes on."""
        total = self.left
        if total <= steps:
            return run()
        layers, path, running = len(self.store.layers), self.path, self.called & self.running.keys()
        frames, calls, loops = list(self.frames), list(self.calls), list(self.loops)
        happened = len(self.events)
        self.left = steps
        self.bounds += 1
        self.store.begin()
        try:
            result = run()
        except Exhausted:
            while len(self.store.layers) > layers:
                self.store.undo()
            self.frames[:], self.calls[:], self.loops[:] = frames, calls, loops
            self.path = path
            self.called |= running
            self.unfinished += self.events[happened:]
            self.left = total - steps
            return None
        finally:
            self.bounds -= 1
        self.store.keep()
        self.left += total - steps
        return result

    def leads_away(self, function: Function, args: Args) -> bool:
        """Whether a call leads into a function of another file that does not speak of the matter: from a file that does, or from one that
        leads to training into one that does not, and that is given nothing of what does.
        """
        path, code = self.frames[-1].path, function.code
        if path == code.path or self.is_of_matter(code):
            return False
        if self.is_of_matter(path):
            return True
        if path not in self.spine or code.path in self.spine:
            return False
        given = [function.bound, *args.all()] if function.bound is not None else args.all()
        return all(home_of(atom) not in self.spine for value in given for atom in atoms(value))

    def is_of_matter(self, part: Code | str) -> bool:
        """Whether a function, or the file of a path, speaks of what matters."""
        known = self.matters.get(part)
        if known is None:
            ir = self.project.ir(part) if isinstance(part, str) else None
            words = part.words if isinstance(part, Code) else ir[2] if ir is not None else frozenset()
            known = self.matters[part] = self.relevant(words)
        return known

    def fresh(self) -> int:
        """A new number."""
        self.counter += 1
        return self.counter

    def number_of(self, tested: Hashable) -> int:
        """The number of a test, told by what it asks or how it comes out: the same whenever it is asked."""
        return self.tests.setdefault(tested, len(self.tests))

    def here(self, position: int) -> Place:
        """A place of the running file."""
        path = self.frames[-1].path
        held = self.places.get(path)
        if held is None:
            held = self.places[path] = {}
        place = held.get(position)
        if place is None:
            place = held[position] = Place(path, position)
        return place

    def identity(self, place: Place) -> Hashable:
        """What identifies an object made here: the place and the calls above it, those before the last two as a checksum."""
        before = 0
        for call in self.calls[:-2]:
            before = crc32(b"%s:%d" % (call.path.encode(), call.position), before)
        found = (place, tuple(self.calls[-2:]), tuple(self.loops[-1:]), before)
        if self.calls and not self.imports.noting:
            self.own.add(found)
        return found

    def is_own(self, identity: Hashable) -> bool:
        """Whether an object was made by a call of the running entry: no other module gets hold of it by an import."""
        return type(identity) is tuple and not self.own.isdisjoint(identity)

    def round(self) -> str:
        """The rounds of the running loops, as a suffix of symbols."""
        return "".join(f"#{number}" for _, number in self.loops) if self.loops else ""

    # switches

    def follow(self, symbol: str, base: str, name: str, of: Callable[[Any], object], test: bool = False) -> None:
        """Note that an unknown (or a test) follows from what a switch holds; `name` shows it, with the switch's own name for `{}`."""
        switch = self.switches.get(base)
        if switch is None or symbol in self.switches:
            return
        default: Value | None = None
        if type(switch.default) is Constant:
            try:
                default = Constant(of(switch.default.value))
            except Exception:
                default = None
        shown = name.replace("{}", switch.name)
        others = each_of(of, switch.offered)
        made = switch._replace(name=shown, default=default, choices=(), off="", test=test, offered=others)
        self.switches[symbol] = made._replace(base=base, of=of)

    # slots

    def read(self, owner: Hashable, name: str) -> Value | None:
        """A slot, as far as it can hold on this path."""
        value = self.store.slots.get((owner, name))
        if type(value) is Forked:
            value = value.value()
        return value if type(value) is not Alternatives else choose(value, self.path)

    def write(self, owner: Hashable, name: str, value: Value) -> None:
        """Set a slot."""
        self.store.put(owner, name, value)

    def state(self, name: str) -> Value:
        """A slot of the interpreter's own state."""
        value = self.store.get(STATE, name)
        if value is None:
            value = self.library.default(self, (STATE, name)) or State(None)
        return choose(value, self.path)

    def set_state(self, name: str, value: Value) -> None:
        """Set a slot of the interpreter's own state."""
        self.store.put(STATE, name, value)

    # events

    def emit(self, kind: str, place: Place, **data: object) -> None:
        """Note that something happened."""
        frame = self.frames[-1]
        name = frame.code.name if frame.code is not None else ""
        event = Event(kind, place, self.path, tuple(self.calls), tuple(self.loops), frame.id, name, data)
        self.events.append(event)
        self.library.happened(self, event)

    def missed(self, callee: Atom, place: Place) -> None:
        """Note that nobody knew what a call does."""
        if self.recorder is not None:
            self.recorder.unknown(self, place, callee)

    # paths

    def fork(self, arms: Sequence[tuple[Iterable[Condition], Callable[[], tuple[bool, Value]]]]) -> tuple[bool, Value]:
        """Run arms, each under its literals, and merge what they leave: whether any goes on, and the value."""
        base = self.path
        results: list[tuple[Path, Difference, Value]] = []
        asked: list[Condition] = []
        for literals, run in arms:
            path = extend(base, literals)
            if path is None:
                continue
            self.path = path
            self.store.begin()
            alive, value = run()
            written = self.store.undo()
            if alive:
                results.append((self.path, written, value))
                if self.path is not path:
                    asked += required(path - base, self.path - path)
        self.path = base
        found = self.rejoin(base, results)
        if asked and len(results) > 1:
            self.path = extend(self.path, asked) or self.path
        return found

    def rejoin(self, base: Path, results: Sequence[tuple[Path, Difference, Value]]) -> tuple[bool, Value]:
        """Go on behind several arms that were undone."""
        if not results:
            return False, NONE
        if len(results) == 1:
            path, written, value = results[0]
            self.path = path
            self.store.apply(written)
            return True, value
        guards = self.apart(telling([path - base for path, _, _ in results]))
        self.store.merge([(g, written) for g, (_, written, _) in zip(guards, results, strict=True)], partial(self.library.default, self))
        self.path = frozenset.intersection(*(path for path, _, _ in results)) | base
        first = results[0][2]
        if type(first) is Constant and all(value is first for _, _, value in results):
            shared = frozenset.intersection(*guards)
            return True, Alternatives(((shared, first),)) if shared else first
        return True, join((g, value) for g, (_, _, value) in zip(guards, results, strict=True))

    def apart(self, guards: Sequence[Path]) -> list[Path]:
        """The conditions of a fork's arms; those of an arm that has none are that no other was taken."""
        unnamed = [i for i, literals in enumerate(guards) if not literals]
        if not unnamed:
            return list(guards)
        number = self.fresh()
        keys = unnamed if len(unnamed) < len(guards) else unnamed[:-1]
        return [literals | {(("place", number, key), i == key) for key in keys} for i, literals in enumerate(guards)]

    def each(self, value: Value, run: Callable[[Atom], Value]) -> Value:
        """`run` for each atom that a value may be, as a fork where there are several."""
        if type(value) is not Alternatives:
            return run(value)
        found = under(value, self.path)
        if len(found) == 1:
            return run(found[0][1])
        base = self.path

        def arm(atom: Value) -> Callable[[], tuple[bool, Value]]:
            return lambda: (True, run(atom))  # type: ignore[arg-type]

        return self.fork([(path - base, arm(atom)) for path, atom in found])[1]

    def scoped(self, slot: Slot, value: Value, run: Callable[[], bool]) -> bool:
        """Run with a slot set, and restore it on every way out."""
        before = self.store.slots.get(slot)
        start = len(self.log)
        self.store.put(*slot, value)
        alive = run()
        for exit in self.log[start:]:
            exit.written[slot] = before
        if before is None:
            self.store.drop(*slot)
        else:
            self.store.put(*slot, before)
        return alive

    # frames

    def enter_module(self, module: Module) -> Frame:
        """The frame of a module, whose body has been run once."""
        frame = self.module_frame(module.path)
        if (module.path, "#run") not in self.store.slots:
            self.imports.run(self, module.path, partial(self.import_module, frame))
        return frame

    def import_path(self, path: str) -> None:
        """Import the module of a path."""
        self.enter_module(Module(path, path))

    def import_module(self, frame: Frame) -> None:
        """Run the body of a module that nobody has imported yet."""
        path = frame.path
        self.store.slots[(path, "#run")] = NONE  # not taken back with a branch: a module runs once
        self.run_package(path)
        ir = self.project.ir(path)
        self.deepest = max(self.deepest, len(self.frames) + 1)
        if ir is not None and len(self.frames) < MAX_FRAMES:
            self.run_module(frame, ir)

    def run_package(self, path: str) -> None:
        """Run the package that holds a module before it, as Python does."""
        folder, _, base = path.rpartition("/")
        folder = folder.rpartition("/")[0] if base == "__init__.py" else folder
        init = f"{folder}/__init__.py"
        if folder and init in self.project.files and (init, "#run") not in self.store.slots:
            self.import_path(init)

    def run_importers(self, path: str) -> bool:
        """Run the modules that import a file, once: what they register there counts, what else they do does not; whether any has run."""
        slot = (path, IMPORTERS)
        if slot in self.store.slots:
            return False
        return self.imports.beside(self, Nested(path, True), partial(self.run_waiting, path))

    def run_waiting(self, path: str) -> bool:
        """The same, for the first time."""
        self.imports.overwrites(self, (path, IMPORTERS))
        self.store.put(path, IMPORTERS, NONE)
        waiting = [p for p in self.project.importers(path) if (p, "#run") not in self.store.slots]
        states, seen = dict(self.store.slots.of(STATE)), len(self.events)
        for other in waiting[:MAX_IMPORTERS]:
            self.import_path(other)
        del self.events[seen:]
        for name, _ in self.store.slots.of(STATE):
            if self.store.get(STATE, name) is not states.get(name):
                self.imports.overwrites(self, (STATE, name))
                self.store.drop(STATE, name)
        for name, value in states.items():
            if self.store.get(STATE, name) is not value:
                self.store.put(STATE, name, value)
        return bool(waiting)

    def module_frame(self, path: str) -> Frame:
        """A frame for the names of a module."""
        return Frame(path, path, None)

    def run_module(self, frame: Frame, ir: IR, main: bool = False) -> None:
        """Run a module's body in its frame, on no path."""
        self.store.slots[(frame.id, "__name__")] = Constant("__main__" if main else self.project.name_of(frame.path))
        path, calls, loops, layers = self.path, self.calls, self.loops, self.store.layers
        if not main:  # what an import leaves stands whichever branch asked for it first
            self.path, self.calls, self.loops, self.store.layers = EMPTY, [], [], []
        self.frames.append(frame)
        try:
            self.block(ir[1])
        finally:
            self.frames.pop()
            self.path, self.calls, self.loops, self.store.layers = path, calls, loops, layers

    # entries

    def run(self, entry: Callable[[], None], home: str = "") -> list[Event]:
        """Run an entry on an empty store, and give its events; entries of one home in a row share what they import."""
        if not home or home != self.home:
            self.store = Store()
            gc.collect(0)  # what the last entry has left in circles, and nothing older
        while self.store.layers:
            self.store.undo()
        if home:
            self.store.begin()
        self.home = home
        self.path = EMPTY
        self.frames, self.calls, self.loops, self.log = [], [], [], []
        self.events = []
        self.left = self.limit
        self.broken_off = False
        self.unfinished = []
        self.running = {}
        self.bounds = 0
        self.own = set()
        self.places.clear()
        try:
            entry()
        except Exhausted:
            pass
        except RecursionError:
            self.broken_off = True
        left = self.left
        with suppress(Exhausted, RecursionError):
            self.library.finished(self)
        self.left = left
        return self.events


def cut_off(m: Machine, frame: Frame, code: Code) -> Cut:
    """What a function that begins by itself later knows of the call that is cut off."""
    held = {name: m.read(frame.id, name) for name, kind, _, _ in code.parameters if kind in ("positional", "keyword")}
    given = {name: value for name, value in held.items() if type(value) is Unknown}
    dicts: dict[str, Entries] = {}
    for name, value in held.items():
        entries = m.read(value.id, "#entries") if type(value) is Object and value.kind == "dict" else None
        if type(entries) is Entries and (entries.rest is None or type(entries.rest) is Unknown):
            own = tuple(pair for pair in entries.entries if type(pair[1]) is Unknown)
            whole = entries.rest is not None or len(own) == len(entries.entries)
            dicts[name] = Entries(own, entries.rest if whole else Unknown(f"{name}[]"))
    told = frozenset(literal for literal in frame.base if literal[0][0] == "all" and all(key[0] in TELLING for key, _ in literal[0][1]))
    return Cut(given, dicts, told)


def each_of(of: Callable[[object], object], values: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """The texts that a function gives for values."""
    found: list[Hashable] = []
    for value in values:
        with suppress(Exception):
            made = of(value)
            found += [made] if isinstance(made, str) else []
    return tuple(found)


def required(arm: Path, behind: Path) -> list[Condition]:
    """What an arm asks for, as clauses that hold behind its fork: it went on only where this holds, since all else has ended."""
    if len(arm) != 1 or not 0 < len(behind) <= MAX_REQUIRED or not all(is_asked_again(key) for key, _ in arm):
        return []
    told = sorted(((key, sense) for key, sense in behind if key[0] in TELLING or key[1] == "import"), key=repr)
    return [(("all", arm | {(key, not sense)}), False) for key, sense in told]


def is_asked_again(key: Key) -> bool:
    """Whether a condition comes out the same wherever it is met: that of something with a name, or of a `try` that has been left."""
    return key[0] in TELLING or (key[0] == "place" and key[2:3] == ("try",))


MAX_REQUIRED = 2
TELLING = ("true", "in")  # kinds of conditions that have a name


def telling(arms: Sequence[Path]) -> list[Path]:
    """What tells the arms of a fork apart, of each at most `MAX_GUARDS` literals: those first that another arm denies."""
    if all(len(arm) <= MAX_GUARDS for arm in arms):
        return list(arms)
    shared = frozenset.intersection(*arms)
    own = [arm - shared for arm in arms]
    found = []
    for arm in own:
        found.append(
            short(arm, frozenset().union(*(excluded_by(other) for other in own if other is not arm))) if len(arm) > MAX_GUARDS else arm
        )
    return found


def short(guards: Path, denied: Container[Condition]) -> Path:
    """At most `MAX_GUARDS` literals: those first that tell most."""
    if len(guards) <= MAX_GUARDS:
        return guards
    ordered = sorted(guards, key=lambda literal: (literal not in denied, rank(literal[0]), spelled(literal)))
    return frozenset(ordered[:MAX_GUARDS])


def rank(key: Key) -> int:
    """How much a condition of its kind tells, the most first."""
    if key[0] == "place":
        return 0 if key[1] == "ways" else 3
    return 2 if key[0] == "all" else 1


def derived(unknown: Unknown, text: str, extra: str = "") -> Unknown:
    """An unknown that follows from another: `text` is shown behind its name."""
    shown, _, identity = unknown.symbol.partition(IDENTITY)
    if len(shown) + len(text) > 120:
        shown, identity = "…", f"{identity}{crc32(shown.encode())}"
    return Unknown(f"{shown}{text}{IDENTITY}{identity}{extra}")


def shown(symbol: str) -> str:
    """What people are shown of a symbol."""
    return symbol.partition(IDENTITY)[0]


__all__ = [
    "Args",
    "Event",
    "Exhausted",
    "Exit",
    "Frame",
    "Function",
    "Library",
    "Loop",
    "Machine",
    "Recorder",
    "Step",
    "Switch",
    "derived",
    "shown",
]
