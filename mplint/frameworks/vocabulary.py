"""Tables of meanings: what a dotted name, a method of a kind of object, or an attribute does when it is called or read.

A module of `mplint.frameworks` fills a `Vocabulary`; `Frameworks` (library.py) asks all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from mplint.program.lower import IR
from mplint.program.machine import Args, Event, Frame, Machine
from mplint.program.store import Slot
from mplint.program.values import Atom, Class, Module, Object, Place, Value

CallHandler: TypeAlias = Callable[[Machine, str, Args, Place], Value]
MethodHandler: TypeAlias = Callable[[Machine, Object, str, Args, Place], Value]
Invoker: TypeAlias = Callable[[Machine, Object, str, Args, Place], Value | None]
AtomMethod: TypeAlias = Callable[[Machine, Atom, str, Args, Place], Value | None]
Reader: TypeAlias = Callable[[Machine, Atom, str, Place], Value | None]
Binary: TypeAlias = Callable[[Machine, str, Atom, Atom, Place, bool], Value | None]
Entered: TypeAlias = tuple[Value, tuple[Slot, Value] | None]


class Vocabulary:
    """Meanings by name. Handlers that return None leave the question to the next vocabulary."""

    def __init__(self) -> None:
        self.calls: dict[str, CallHandler] = {}
        self.prefixes: list[tuple[str, Callable[[Machine, str, Args, Place], Value | None]]] = []
        self.methods: dict[tuple[str, str], MethodHandler] = {}
        self.kinds: dict[str, MethodHandler] = {}
        self.invoked: dict[str, Invoker] = {}
        self.attributes: dict[str, Reader] = {}
        self.values: dict[str, Value] = {}
        self.aliases: dict[str, str] = {}
        self.members: dict[str, str] = {}  # of a module: what a member stands for whose name nobody knows
        self.excerpts: list[Callable[[str, frozenset[str]], str | None]] = []  # what unbound names mean, by a program's words
        self.atom_methods: list[AtomMethod] = []
        self.atom_attributes: list[Reader] = []
        self.atom_calls: list[Callable[[Machine, Atom, Args, Place], Value | None]] = []
        self.binaries: list[Binary] = []
        self.unaries: list[Callable[[Machine, str, Atom, Place], Value | None]] = []
        self.subscripts: list[Callable[[Machine, Atom, Value, Place], Value | None]] = []
        self.item_assigned: list[Callable[[Machine, Atom, Value, Value, Place], bool]] = []
        self.attribute_assigned: list[Callable[[Machine, Atom, str, Value, Place], None]] = []
        self.names_assigned: list[Callable[[Machine, str, Value, Place], None]] = []  # variables of modules
        self.contexts: list[Callable[[Machine, Atom, Place], Entered | None]] = []
        self.left: list[Callable[[Machine, Atom, Place], None]] = []
        self.raises: list[Callable[[Machine, Place], None]] = []
        self.made: list[Callable[[Machine, Object, Sequence[str], Args, Place], None]] = []
        self.decorators: list[Callable[[Machine, Value, Atom, Place], Value | None]] = []
        self.unset: list[Callable[[Machine, Hashable, str], Value | None]] = []
        self.elements: list[Callable[[Machine, Atom, Place], Sequence[Value] | Value | None]] = []
        self.followers: dict[str, list[Callable[[Machine, Event], None]]] = {}
        self.finished: list[Callable[[Machine], None]] = []
        self.annotations: list[Callable[[Machine, str, IR, Frame, Place], Value | None]] = []
        self.externals: list[Callable[[Machine, str, Place], Value | None]] = []
        self.defaults: dict[str, Value] = {}
        self.scoped: set[str] = set()  # states that a context sets, and that are what they were once it is left
        self.beginnings: list[Callable[[Machine, bool], None]] = []
        self.openings: list[Callable[[Machine, Class], Callable[[Object, int], None] | None]] = []
        self.computing: list[Callable[[Machine, Object, frozenset[str]], bool]] = []
        self.initialized: list[Callable[[Machine, Object, Args, Place], None]] = []
        self.ordered: list[Callable[[Machine, Module], bool]] = []

    def call(self, *names: str) -> Callable[[CallHandler], CallHandler]:
        """Register what calling dotted names does."""

        def register(handler: CallHandler) -> CallHandler:
            for name in names:
                self.calls[name] = handler
            return handler

        return register

    def prefix(
        self, *names: str
    ) -> Callable[[Callable[[Machine, str, Args, Place], Value | None]], Callable[[Machine, str, Args, Place], Value | None]]:
        """Register what calling any name that starts so does, where no table knows the name itself."""

        def register(handler: Callable[[Machine, str, Args, Place], Value | None]) -> Callable[[Machine, str, Args, Place], Value | None]:
            self.prefixes += [(name, handler) for name in names]
            return handler

        return register

    def method(self, kind: str, *names: str) -> Callable[[MethodHandler], MethodHandler]:
        """Register methods of a kind of object; without names: all that have no entry of their own."""

        def register(handler: MethodHandler) -> MethodHandler:
            for name in names:
                self.methods[(kind, name)] = handler
            if not names:
                self.kinds[kind] = handler
            return handler

        return register

    def invoke(self, *kinds: str) -> Callable[[MethodHandler], MethodHandler]:
        """Register what calling an object of a kind does."""

        def register(handler: MethodHandler) -> MethodHandler:
            for kind in kinds:
                self.invoked[kind] = handler
            return handler

        return register

    def follows(self, *kinds: str) -> Callable[[Callable[[Machine, Event], None]], Callable[[Machine, Event], None]]:
        """Register what follows from events of some kinds."""

        def register(handler: Callable[[Machine, Event], None]) -> Callable[[Machine, Event], None]:
            for kind in kinds:
                self.followers.setdefault(kind, []).append(handler)
            return handler

        return register

    def reads(self, *kinds: str) -> Callable[[Reader], Reader]:
        """Register what attributes of a kind of object, that nobody has set, are."""

        def register(handler: Reader) -> Reader:
            for kind in kinds:
                self.attributes[kind] = handler
            return handler

        return register
