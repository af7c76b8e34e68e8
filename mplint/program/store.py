"""The interpreter's mutable state: one flat dictionary with a journal, so that a branch is undone and merged by what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, final

from mplint.program.conditions import EMPTY, Path, extend
from mplint.program.values import NONE, Alternatives, Atom, Value, alternatives

Slot: TypeAlias = tuple[Hashable, str]
Default: TypeAlias = Callable[[Slot], Value | None]


@final
class Forked:
    """What the arms of a fork leave in a slot: joined once somebody asks for it, which of most slots nobody does."""

    __slots__ = ("arms", "found")

    def __init__(self, arms: list[tuple[Path, Held | None]]) -> None:
        self.arms = arms
        self.found: Value | None = None

    def value(self) -> Value:
        """The value that the arms make."""
        if self.found is not None:
            return self.found
        arms = [(literals, held.value() if type(held) is Forked else held) for literals, held in self.arms]
        first = arms[0][1]
        if first is not None and all(value is first or value == first for _, value in arms):
            self.found = first
        else:
            self.found = join(arms)
        self.arms = []
        return self.found


Held: TypeAlias = Value | Forked


def settled(held: Held | None) -> Value | None:
    """What a slot holds, joined where a fork has left it."""
    return held.value() if type(held) is Forked else held


def unjoined(held: Held | None) -> Iterator[Value]:
    """The values that the arms of forks have left in a slot, for whoever asks whether any of them matters before they are joined."""
    pending, seen = [held], set[int]()
    while pending:
        part = pending.pop()
        if type(part) is Forked and part.found is None:
            if id(part) not in seen:
                seen.add(id(part))
                pending += [arm for _, arm in part.arms]
        elif (value := settled(part)) is not None:
            yield value


Difference: TypeAlias = dict[Slot, Held | None]
put, take = dict.__setitem__, dict.pop


class Slots(dict[Slot, Held]):
    """Values by slot, and the names that each owner holds, but for the variables of calls, whose owners are numbers.

    What a fork has left is joined by who reads it: see `Store.get`.
    """

    __slots__ = ("names",)

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[Hashable, dict[str, None]] = {}

    def __setitem__(self, slot: Slot, value: Held) -> None:
        owner, name = slot
        if type(owner) is not int and slot not in self.keys():
            held = self.names.get(owner)
            if held is None:
                self.names[owner] = {name: None}
            else:
                held[name] = None
        dict.__setitem__(self, slot, value)

    def __delitem__(self, slot: Slot) -> None:
        self.pop(slot)

    def pop(self, slot: Slot, default: Held | None = None) -> Held | None:  # type: ignore[override]
        """Remove a slot."""
        value = dict.pop(self, slot, None)
        if value is None:
            return default
        owner, name = slot
        if type(owner) is not int:
            held = self.names[owner]
            del held[name]
            if not held:
                del self.names[owner]
        return value

    def update(self, written: Mapping[Slot, Held]) -> None:  # type: ignore[override]
        """Write several slots."""
        for slot, value in written.items():
            self[slot] = value

    def restore(self, layer: Difference) -> None:
        """Put back what slots held."""
        get = self.get
        for slot, old in layer.items():
            if old is None:
                if type(slot[0]) is int:
                    take(self, slot, None)
                else:
                    self.pop(slot)
            elif get(slot) is not None:
                put(self, slot, old)
            else:
                self[slot] = old

    def peek(self, slot: Slot) -> Held | None:
        """What a slot holds, for whoever puts it back as it was."""
        return self.get(slot)

    def of(self, owner: Hashable) -> list[tuple[str, Value]]:
        """Every slot of an owner, by name."""
        names = self.names.get(owner, ()) if type(owner) is not int else [slot[1] for slot in self.keys() if slot[0] == owner]
        return [(name, settled(dict.__getitem__(self, (owner, name)))) for name in names]  # type: ignore[misc]

    def names_of(self, owner: Hashable) -> list[str]:
        """The names of every slot of an owner but a call, in the same order."""
        return list(self.names.get(owner, ()))

    def every(self) -> Iterator[Slot]:
        """Every slot."""
        return iter(self)


class Store:
    """Slots `(owner, name)` to values, with layers that remember what was overwritten."""

    def __init__(self) -> None:
        self.slots = Slots()
        self.layers: list[Difference] = []

    def get(self, owner: Hashable, name: str) -> Value | None:
        """The value of a slot, or None."""
        return settled(self.slots.get((owner, name)))

    def put(self, owner: Hashable, name: str, value: Held) -> None:
        """Set a slot."""
        slot = (owner, name)
        slots = self.slots
        if type(slots) is not Slots:
            if self.layers and slot not in self.layers[-1]:
                self.layers[-1][slot] = slots.peek(slot)
            slots[slot] = value
            return
        if self.layers and slot not in (layer := self.layers[-1]):
            layer[slot] = slots.get(slot)
        if type(owner) is int:
            put(slots, slot, value)
        else:
            slots[slot] = value

    def drop(self, owner: Hashable, name: str) -> None:
        """Remove a slot."""
        slot = (owner, name)
        if slot in self.slots:
            if self.layers and slot not in self.layers[-1]:
                self.layers[-1][slot] = self.slots[slot]
            del self.slots[slot]

    def begin(self) -> int:
        """Open a layer; returns its depth for `since`."""
        self.layers.append({})
        return len(self.layers) - 1

    def since(self, depth: int) -> Difference:
        """What has been written in the layers from `depth` on, as it stands now."""
        slots = self.slots
        return {slot: slots.get(slot) for layer in self.layers[depth:] for slot in layer}

    def undo(self) -> Difference:
        """Close the last layer and take its writes back; returns them."""
        layer = self.layers.pop()
        get = self.slots.get
        written = {slot: get(slot) for slot in layer}
        self.slots.restore(layer)
        return written

    def keep(self) -> None:
        """Close the last layer and keep its writes."""
        layer = self.layers.pop()
        if self.layers:
            below = self.layers[-1]
            for slot, old in layer.items():
                below.setdefault(slot, old)

    def leave(self, owner: Hashable, names: Iterable[str]) -> None:
        """Close the last layer and keep its writes, but forget the variables of an owner that nobody can read any more."""
        layer, slots = self.layers[-1], self.slots
        for name in names:
            slot = (owner, name)
            if slot in layer:
                del layer[slot]
                slots.pop(slot, None)
        self.keep()

    def apply(self, written: Difference) -> None:
        """Write a difference as it is."""
        for (owner, name), value in written.items():
            if value is None:
                self.drop(owner, name)
            else:
                self.put(owner, name, value)

    def merge(self, arms: Sequence[tuple[Path, Difference]], default: Default) -> None:
        """Write what the arms of a fork leave: each slot as alternatives under the literals of the arms.

        `default` gives the value of a slot that an arm and the store lack (protocol states, settings); None where there is none.
        """
        if len(arms) == 1:
            self.apply(arms[0][1])
            return
        slots: dict[Slot, None] = {}
        for _, written in arms:
            slots.update(dict.fromkeys(written))
        for slot in slots:
            before = self.slots.get(slot)
            values = [(literals, written.get(slot, before) if slot in written else before) for literals, written in arms]
            first = values[0][1]
            if any(value is not first for _, value in values):
                self.put(*slot, Forked([(literals, default(slot) if value is None else value) for literals, value in values]))
            elif first is None:
                self.drop(*slot)
            else:
                self.put(*slot, first)


def join(arms: Iterable[tuple[Path, Value | None]]) -> Value:
    """One value of what arms give, each under its literals; an arm that gives nothing is left out."""
    flat = []
    for literals, value in arms:
        if value is None:
            continue
        if type(value) is not Alternatives:
            flat.append((literals, value))
            continue
        for guards, atom in value.options:
            both = extend(guards, literals) if guards else literals
            if both is not None:
                flat.append((both, atom))
    return alternatives(flat) if flat else NONE


def choose(value: Value, path: Path) -> Value:
    """The alternatives of a value that can hold on a path."""
    if type(value) is not Alternatives:
        return value
    if not path:
        return value.options[0][1] if len(value.options) == 1 else value
    if value.path is path:
        return value.chosen  # type: ignore[return-value]
    found = chosen(value, path)
    value.path, value.chosen = path, found
    return found


def chosen(value: Alternatives, path: Path) -> Value:
    """The same, worked out."""
    kept = [(guards, atom) for guards, atom in value.options if not guards or extend(path, guards) is not None]
    if len(kept) == 1:
        return kept[0][1]
    if len(kept) == len(value.options):
        return value
    return alternatives((guards - path, atom) for guards, atom in kept) if kept else value.options[0][1]


def under(value: Value, path: Path) -> list[tuple[Path, Atom]]:
    """The atoms of a value that can hold on a path, each with the path that it holds on."""
    if type(value) is not Alternatives:
        return [(path, value)]
    found: list[tuple[Path, Atom]] = []
    for guards, atom in value.options:
        both = extend(path, guards) if guards else path
        if both is not None:
            found.append((both, atom))
    return found or [(path, value.options[0][1])]


__all__ = ["EMPTY", "Difference", "Forked", "Held", "Slot", "Store", "choose", "join", "settled", "under", "unjoined"]
