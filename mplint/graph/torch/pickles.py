"""Pickles read as data: a machine that follows the opcodes and builds descriptions only.

`pickle` calls whatever a file names. Here a name stays a name: a call is followed where it rebuilds a tensor or a container, and refused
otherwise; an object of an unknown class becomes an `Instance` with the state that the file gives it. Nothing of the file runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import unpack

from mplint.graph.model import GraphError

MAX_STEPS = 5_000_000  # opcodes in one pickle
MAX_TEXT = 1 << 27


@dataclass(slots=True, eq=False)
class Name:
    """Something that the pickle names: "torch.float16", "collections.OrderedDict"."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """The dotted path."""
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Instance:
    """An object of a class that is not looked into: its class, what it was made with, and its state."""

    kind: str
    arguments: tuple[object, ...] = ()
    state: dict[object, object] = field(default_factory=dict)
    items: list[object] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Storage:
    """Where the bytes of tensors are: the storage's class or dtype, its key in the file, and its number of elements."""

    kind: str
    key: str
    count: int


Build = Callable[[tuple[object, ...]], object]
Persistent = Callable[[object], object]
MARK = object()


def read_pickle(
    data: bytes | memoryview, known: dict[str, Build], persistent: Persistent | None = None, start: int = 0
) -> tuple[object, int]:
    """The object in a pickle, and the place after it. `known` maps the functions that may be followed to what they build from arguments.

    Dicts, lists, tuples and sets come as they are (a set as a list). Raises GraphError for a call to anything else.
    """
    machine = _Machine(memoryview(data), known, persistent, start)
    return machine.run(), machine.place


class _Machine:
    def __init__(self, data: memoryview, known: dict[str, Build], persistent: Persistent | None, start: int) -> None:
        self.data, self.known, self.persistent, self.place = data, known, persistent, start
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}

    def run(self) -> object:
        handlers, stack, data = _HANDLERS, self.stack, self.data
        for _ in range(MAX_STEPS):
            if self.place >= len(data):
                raise GraphError("the pickle is cut off")
            code = data[self.place]
            self.place += 1
            if code == 0x2E:  # STOP
                if not stack:
                    raise GraphError("damaged pickle: it ends with nothing")
                return stack.pop()
            handler = handlers.get(code)
            if handler is None:
                raise GraphError(f"damaged pickle: unknown instruction {code:#04x}")
            handler(self)
        raise GraphError("a pickle with more instructions than any checkpoint needs")

    # Reading

    def take(self, size: int) -> memoryview:
        end = self.place + size
        if size < 0 or end > len(self.data):
            raise GraphError("the pickle is cut off, or claims more than the file holds")
        piece = self.data[self.place : end]
        self.place = end
        return piece

    def number(self, size: int, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "little", signed=signed)

    def line(self) -> str:
        window = bytes(self.data[self.place : self.place + 65536])
        end = window.find(b"\n")
        if end < 0:
            raise GraphError("damaged pickle: a line without an end")
        self.place += end + 1
        return window[:end].decode("utf-8", "replace")

    def text(self, size: int) -> str:
        if size > MAX_TEXT:
            raise GraphError("a pickle with a text larger than any checkpoint's")
        return bytes(self.take(size)).decode("utf-8", "surrogatepass")

    # The stack

    def pop(self) -> object:
        if not self.stack or self.stack[-1] is MARK:
            raise GraphError("damaged pickle: it takes what it never put")
        return self.stack.pop()

    def top(self) -> object:
        if not self.stack or self.stack[-1] is MARK:
            raise GraphError("damaged pickle: it takes what it never put")
        return self.stack[-1]

    def marked(self) -> list[object]:
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is MARK:
                found = self.stack[at + 1 :]
                del self.stack[at:]
                return found
        raise GraphError("damaged pickle: a mark is missing")

    def remember(self, index: int) -> None:
        self.memo[index] = self.top()

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise GraphError("damaged pickle: it recalls what it never remembered")
        self.stack.append(self.memo[index])

    # What pickles do

    def call(self) -> None:
        arguments, target = self.pop(), self.pop()
        if not isinstance(arguments, tuple):
            raise GraphError("damaged pickle: a call without arguments")
        if not isinstance(target, Name):
            raise GraphError("the pickle calls something that is no plain name; it is not read any further, and nothing was run")
        build = self.known.get(target.path)
        if build is None:
            raise GraphError(f"the pickle calls {target.path[:100]} when it is loaded; it is not read any further, and nothing was run")
        self.stack.append(build(arguments))

    def make(self, arguments: object, kind: object) -> None:
        if not isinstance(kind, Name) or not isinstance(arguments, tuple):
            raise GraphError("damaged pickle: an object of no class")
        build = self.known.get(kind.path)
        self.stack.append(build(arguments) if build is not None else Instance(kind.path, arguments))

    def build(self) -> None:
        state, target = self.pop(), self.top()
        if not isinstance(target, Instance):
            return
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                target.state.update(part)
        if not any(isinstance(part, dict) for part in parts):
            target.state["__state__"] = state

    def extend(self, values: list[object]) -> None:
        match self.top():
            case list() as target:
                target += values
            case Instance() as target:
                target.items += values
            case _:
                raise GraphError("damaged pickle: it appends to what is no list")

    def update(self, values: list[object]) -> None:
        match self.top():
            case dict() as target:
                target.update(_pairs(values))
            case Instance() as target:
                target.state.update(_pairs(values))
            case _:
                raise GraphError("damaged pickle: it sets items of what is no dict")

    def find(self, module: str, name: str) -> None:
        self.stack.append(Name(module, name))

    def named(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise GraphError("damaged pickle: a name that is no text")
        self.find(module, name)

    def resolve(self, key: object) -> None:
        if self.persistent is None:
            raise GraphError("damaged pickle: it refers to storage that the file does not have")
        self.stack.append(self.persistent(key))


def _pairs(values: list[object]) -> dict[object, object]:
    """A dict of keys and values that alternate; keys that can't be hashed are left out."""
    if len(values) % 2:
        raise GraphError("damaged pickle: a key without a value")
    return {key: value for key, value in zip(values[::2], values[1::2], strict=True) if key.__hash__ is not None and _hashable(key)}


def _hashable(key: object) -> bool:
    return isinstance(key, str | int | float | bytes | bool | Name | Instance | Storage | type(None)) or (
        isinstance(key, tuple) and len(key) < 64 and all(isinstance(part, str | int | float | bytes | type(None)) for part in key)
    )


def _integer(text: str) -> int | bool:
    if text in ("00", "01"):
        return text == "01"
    if len(text) > 1000:
        raise GraphError("damaged pickle: a number of endless length")
    return int(text.rstrip("L"))


def _quoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] in "'\"" else text


def _dispatch() -> dict[int, Callable[[_Machine], None]]:
    def push(value: Callable[[_Machine], object]) -> Callable[[_Machine], None]:
        return lambda m: m.stack.append(value(m))

    def duplicate(m: _Machine) -> None:
        m.stack.append(m.top())

    def discard(m: _Machine) -> None:
        if not m.stack:
            raise GraphError("damaged pickle: it takes what it never put")
        m.stack.pop()

    def discard_marked(m: _Machine) -> None:
        m.marked()

    def skip(size: int) -> Callable[[_Machine], None]:
        def handler(m: _Machine) -> None:
            m.take(size)

        return handler

    def instance(m: _Machine) -> None:
        module, name = m.line(), m.line()
        m.make(tuple(m.marked()), Name(module, name))

    def marked_object(m: _Machine) -> None:
        kind, *arguments = m.marked() or [None]
        m.make(tuple(arguments), kind)

    def new_with_keywords(m: _Machine) -> None:
        m.pop()
        m.make(m.pop(), m.pop())

    def tuples(count: int) -> Callable[[_Machine], None]:
        def handler(m: _Machine) -> None:
            m.stack.append(tuple([m.pop() for _ in range(count)][::-1]))

        return handler

    return {
        0x80: skip(1),  # PROTO
        0x95: skip(8),  # FRAME
        0x28: lambda m: m.stack.append(MARK),
        0x30: discard,
        0x31: discard_marked,
        0x32: duplicate,
        0x4E: push(lambda m: None),
        0x88: push(lambda m: True),
        0x89: push(lambda m: False),
        0x49: push(lambda m: _integer(m.line())),
        0x4C: push(lambda m: _integer(m.line())),
        0x4A: push(lambda m: m.number(4, signed=True)),
        0x4B: push(lambda m: m.number(1)),
        0x4D: push(lambda m: m.number(2)),
        0x8A: push(lambda m: m.number(m.number(1), signed=True)),
        0x8B: push(lambda m: m.number(min(m.number(4), 4096), signed=True)),
        0x46: push(lambda m: float(m.line())),
        0x47: push(lambda m: unpack(">d", m.take(8))[0]),
        0x53: push(lambda m: _quoted(m.line())),  # STRING
        0x56: push(lambda m: m.line()),  # UNICODE
        0x54: push(lambda m: m.text(m.number(4))),  # BINSTRING
        0x55: push(lambda m: bytes(m.take(m.number(1))).decode("latin-1")),  # SHORT_BINSTRING
        0x58: push(lambda m: m.text(m.number(4))),
        0x8C: push(lambda m: m.text(m.number(1))),
        0x8D: push(lambda m: m.text(m.number(8))),
        0x42: push(lambda m: bytes(m.take(m.number(4)))),
        0x43: push(lambda m: bytes(m.take(m.number(1)))),
        0x8E: push(lambda m: bytes(m.take(m.number(8)))),
        0x96: push(lambda m: bytes(m.take(m.number(8)))),  # BYTEARRAY8
        0x5D: push(lambda m: []),
        0x7D: push(lambda m: {}),
        0x8F: push(lambda m: []),  # EMPTY_SET
        0x29: push(lambda m: ()),
        0x6C: push(lambda m: m.marked()),
        0x74: push(lambda m: tuple(m.marked())),
        0x64: push(lambda m: _pairs(m.marked())),
        0x91: push(lambda m: m.marked()),  # FROZENSET
        0x85: tuples(1),
        0x86: tuples(2),
        0x87: tuples(3),
        0x61: lambda m: m.extend([m.pop()]),
        0x65: lambda m: m.extend(m.marked()),
        0x90: lambda m: m.extend(m.marked()),  # ADDITEMS
        0x73: lambda m: m.update([m.pop(), m.pop()][::-1]),
        0x75: lambda m: m.update(m.marked()),
        0x67: lambda m: m.recall(_integer(m.line())),
        0x68: lambda m: m.recall(m.number(1)),
        0x6A: lambda m: m.recall(m.number(4)),
        0x70: lambda m: m.remember(_integer(m.line())),
        0x71: lambda m: m.remember(m.number(1)),
        0x72: lambda m: m.remember(m.number(4)),
        0x94: lambda m: m.remember(len(m.memo)),
        0x63: lambda m: m.find(m.line(), m.line()),
        0x93: lambda m: m.named(),
        0x52: lambda m: m.call(),
        0x81: lambda m: m.make(m.pop(), m.pop()),
        0x92: new_with_keywords,
        0x69: instance,
        0x6F: marked_object,
        0x62: lambda m: m.build(),
        0x51: lambda m: m.resolve(m.pop()),
        0x50: lambda m: m.resolve(m.line()),
    }


_HANDLERS = _dispatch()
