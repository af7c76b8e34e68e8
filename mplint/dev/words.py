"""Values, states and conditions of the interpreter in words, for people who want to see what it saw."""

from __future__ import annotations

import os
from collections.abc import Iterable

from mplint.program.conditions import Condition
from mplint.program.lower import line_of
from mplint.program.machine import Switch, shown
from mplint.program.trace import Trace
from mplint.program.values import (
    ANY,
    DTYPE_NAMES,
    Alternatives,
    Atom,
    Autocast,
    Chain,
    Class,
    Constant,
    Context,
    DType,
    DTypeOf,
    External,
    Function,
    Items,
    Method,
    Object,
    Partial,
    Place,
    State,
    Step,
    Tensor,
    Test,
    Unknown,
    Value,
    Wrapped,
    options,
)
from mplint.program.verdict import demands, words_of

CONTAINERS = frozenset({"list", "dict", "set", "range", "enumerate", "zip", "generator", "instance"})
MAX_CONDITIONS = 6


class Words:
    """What is said of values at the places of one file; places elsewhere are named with theirs."""

    def __init__(self, trace: Trace, path: str) -> None:
        self.trace = trace
        self.path = path

    def says_something(self, atom: Atom) -> bool:
        """Whether an atom is worth a line."""
        kind = type(atom)
        if kind is Tensor:
            return bool(atom.dtypes - {ANY} or atom.half or atom.scaled or atom.forward or atom.epsilon or atom.tags)  # type: ignore[union-attr]
        if kind is Object:
            return atom.kind not in CONTAINERS  # type: ignore[union-attr]
        if kind is Unknown:
            return atom.symbol in self.trace.switches  # type: ignore[union-attr]
        if kind is Items:
            return any(self.says_something(a) for v in atom.items for _, a in options(v))  # type: ignore[union-attr]
        return kind in (Autocast, DType, DTypeOf, Context, Test)

    def value(self, value: Value) -> str:
        """A value: each thing that it may be, with its conditions."""
        return "; or ".join(self.guarded(guards, atom) for guards, atom in options(value))

    def guarded(self, guards: Iterable[Condition], atom: Atom) -> str:
        """An atom with the conditions under which it stands there."""
        return f"{self.atom(atom)}{self.when(guards)}"

    def atom(self, atom: Atom) -> str:
        """One thing."""
        match atom:
            case Tensor():
                return self.tensor(atom)
            case Autocast():
                return self.autocast(atom)
            case Object():
                return self.thing(atom)
            case State():
                return self.state(atom)
            case Unknown():
                return self.unknown(atom)
            case Constant():
                return repr(atom.value)
            case DType():
                return f"the dtype {DTYPE_NAMES.get(atom.letter, atom.letter)}"
            case DTypeOf():
                return f"the dtype of a {self.tensor(atom.tensor)}"
            case Test():
                return f"a condition: {self.literal((atom.key, atom.sense)) or 'one without a name'}"
            case Items():
                parts = [self.value(v) for v in atom.items[:4]] + (["…"] if atom.rest is not None or len(atom.items) > 4 else [])
                return f"({', '.join(parts)})"
            case External() | Class():
                return f"`{atom.name}`"
            case Function():
                return f"the function `{atom.code.name}`"
            case Method():
                return f"the method `{atom.name}` of {self.value(atom.receiver)}"
            case Partial() | Wrapped():
                return self.value(atom.callee)
            case Context():
                return f"the context {atom.kind}"
            case _:
                return type(atom).__name__.lower()

    def tensor(self, tensor: Tensor) -> str:
        """A tensor: its dtypes, how it came to be half, and what else it carries."""
        names = " or ".join(sorted(DTYPE_NAMES.get(letter, letter) for letter in tensor.dtypes))
        said = [f"tensor in {names}{self.chain(tensor.half)}"]
        if tensor.scaled is not None:
            said.append("multiplied by the loss scale")
        if tensor.forward:
            said.append(f"of a forward in {' or '.join(sorted(DTYPE_NAMES.get(f, f) for f in tensor.forward))}")
        if tensor.epsilon is not None:
            said.append(f"carries the lost epsilon {tensor.epsilon.words} of {self.place(tensor.epsilon.place)}")
        if tensor.range is not None:
            low, high = tensor.range
            said.append(f"holds {low!r}" if low == high else f"holds {low!r} to {high!r}")
        tags = sorted(tag for tag in map(str, tensor.tags) if " at " not in tag)  # of those only the machine reads the places
        if tags:
            said.append(", ".join(tags))
        return ", ".join(said)

    def chain(self, chain: Chain) -> str:
        """Why, in brackets."""
        return f" ({'; then '.join(self.step(step) for step in chain)})" if chain else ""

    def step(self, step: Step) -> str:
        """One link of a chain."""
        return f"{self.place(step.place)}: {step.words}"

    def autocast(self, region: Autocast) -> str:
        """An autocast state."""
        if region.dtype is None:
            return "autocast off"
        device = f" on {region.device}" if region.device else ""
        cache = "" if region.cache else ", without its cache"
        name = "half precision" if region.dtype == ANY else DTYPE_NAMES.get(region.dtype, region.dtype)
        return f"autocast in {name}{device}{cache}{self.chain(region.chain)}"

    def thing(self, made: Object) -> str:
        """A scaler, an optimizer, a layer …"""
        name = made.type.name if type(made.type) is Class else str(made.type)
        where = f", made in {self.place(made.made)}" if made.made is not None else ""
        return f"{made.kind} `{name}`{where}"

    def state(self, state: State) -> str:
        """A state of a protocol: gradients, or an optimizer in the eyes of its scaler."""
        data = state.data
        if not isinstance(data, tuple):
            return "nothing known" if data is None else str(data)
        words = [str(data[0])]
        words += [f"since {self.place(part)}" for part in data[1:] if type(part) is Place]
        if len(data) == 4 and data[3]:
            words.append(f"unscaled since for {' and '.join(f'`{shown(str(key))}`' for key in data[3])}")
        return ", ".join(words)

    def unknown(self, unknown: Unknown) -> str:
        """Something unknown, or a switch."""
        switch = self.trace.switches.get(unknown.symbol)
        name = f"unknown `{shown(unknown.symbol)}`"
        return name if switch is None else f"the {self.switch(switch)}"

    def switch(self, switch: Switch) -> str:
        """What a user may turn."""
        default = f", default {self.value(switch.default)}" if switch.default is not None else ""
        return f"{switch.kind} `{switch.name}`{default}"

    def place(self, place: Place) -> str:
        """A line of this file, or of another with its path."""
        line = line_of(place.position)
        if place.path == self.path:
            return f"line {line}"
        return f"{os.path.relpath(place.path, os.path.dirname(self.path) or '.').replace(os.sep, '/')}:{line}"

    def when(self, path: Iterable[Condition]) -> str:
        """Conditions, as far as they have names: " when …", or ""."""
        words = self.conditions(path)
        return f" when {' and '.join(words)}" if words else ""

    def conditions(self, path: Iterable[Condition]) -> list[str]:
        """The conditions of a path that have names, sorted."""
        found = sorted({words for literal in path if (words := self.literal(literal))})
        return found if len(found) <= MAX_CONDITIONS else [*found[:MAX_CONDITIONS], "…"]

    def literal(self, literal: Condition) -> str:
        """One condition, or "" where it has no name."""
        (kind, *rest), sense = literal
        if kind in ("true", "in"):
            switch = self.trace.switches.get(rest[0]) or Switch(shown(str(rest[0])), None, None, "")
            if kind == "true" and not switch.kind:
                return f"`{switch.name}` is {str(sense).lower()}"
            return words_of(switch, *demands(frozenset({literal}), rest[0]))
        if kind == "all":
            parts = self.conditions(rest[0])
            negation = "" if sense else "not "
            return f"{negation}({' and '.join(parts)})" if parts else ""
        return ""

    def datum(self, value: object) -> str:
        """A datum of an event, or "" where there is nothing to say."""
        if isinstance(value, str):
            return f"`{shown(value)}`"
        if value is None or isinstance(value, bool | int | float):
            return repr(value)
        if isinstance(value, frozenset):
            return " or ".join(sorted(DTYPE_NAMES.get(str(part), str(part)) for part in value))
        if isinstance(value, tuple) and type(value) is tuple:
            return ", ".join(text for part in value if (text := self.datum(part)))
        if isinstance(value, dict):
            return "; ".join(text for part in value.values() if (text := self.datum(part)))
        if type(value) is Place:
            return self.place(value)
        if type(value) is Step:
            return self.step(value)
        if type(value) is Alternatives or type(value) in VALUES:
            return self.value(value)  # type: ignore[arg-type]
        return ""


SIMPLE = (Tensor, Autocast, Object, State, Unknown, Constant, DType, DTypeOf, Test, Items)
VALUES = (*SIMPLE, External, Class, Function, Method, Partial, Wrapped, Context)
