"""What importing modules leaves, kept for the next entry that imports them: the same, where everything that they have read is the same.

An import is kept in parts, between which other modules are imported: those are imports of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol
from zlib import crc32

from mplint.program.event import Event
from mplint.program.store import Difference, Held, Slot, Slots, Store, settled
from mplint.program.values import Alternatives, Code, Entries, Items, Value, alternatives

# the switch of a parameter that a call gives a value; or the one that it gives it, or the function that passes keywords on, and its own
Given = str | tuple[str | Code, str]


class Exhausted(Exception):
    """An entry, or the import of a module, has used up its steps; what it has done stands."""


MAX_FRAMES = 28  # on the stack: with more, a module is not imported any more
KEPT = 4  # ways in which one module is imported
MAX_SLOTS = 200_000  # that all of them hold
MODULE_STEPS = 30_000  # of the body of one module; what it calls counts, what it imports does not
PROJECT_STEPS = 1_000_000  # of all of them; then each has
LEAST_STEPS = 1_000
CONTENTS = ("#entries", "#items")
RUN = "#run"  # the slot of a module that has been run,
IMPORTERS = "#importers"  # and of one whose importers have been run: what counts is whether they are there
FLAGS = (RUN, IMPORTERS)


class Part(NamedTuple):
    """A part of an import: what it read before it wrote it (None: absent), what it wrote and removed, what it emitted and called.

    `run`: modules, and whether they (or those that import them) had been run;  `scanned`: owners of which it asked for every slot, with
    those that it found.
    """

    run: tuple[tuple[Slot, bool], ...]
    reads: tuple[tuple[Slot, Held | None], ...]
    scanned: dict[Hashable, list[tuple[str, Value]]]
    written: dict[Slot, Held]
    removed: tuple[Slot, ...]
    events: tuple[Event, ...]
    called: frozenset[Code]
    callers: frozenset[Code]
    given: frozenset[Given]


class Nested(NamedTuple):
    """Other modules that are imported in between: one, or those that import it (and whether there were any)."""

    path: str
    importers: bool
    any: bool = True


class Import(NamedTuple):
    """An import of a module, and how many frames it needs."""

    parts: tuple[Part | Nested, ...]
    frames: int

    @property
    def size(self) -> int:
        """How many slots it holds."""
        return sum(len(part.reads) + len(part.written) for part in self.parts if type(part) is Part)


class Recording(Slots):
    """Slots over others: what is written stays here, and what is read of the others is noted."""

    __slots__ = ("below", "reads", "removed", "scanned", "whole")

    def __init__(self, below: Slots) -> None:
        super().__init__()
        self.below = below
        self.reads: dict[Slot, Held | None] = {}
        self.removed: dict[Slot, None] = {}
        self.scanned: dict[Hashable, list[tuple[str, Value]]] = {}
        self.whole = False  # somebody looked through everything

    def get(self, slot: Slot, default: Held | None = None) -> Held | None:  # type: ignore[override]
        """The value of a slot."""
        value = dict.get(self, slot)
        if value is None and slot not in self.removed:
            value = self.before(slot)
        return default if value is None else value

    def before(self, slot: Slot) -> Held | None:
        """What a slot held when the recording began."""
        reads = self.reads
        if slot in reads:
            return reads[slot]
        value = reads[slot] = self.below.get(slot)
        return value

    def __contains__(self, slot: object) -> bool:
        return self.get(slot) is not None  # type: ignore[arg-type]

    def __getitem__(self, slot: Slot) -> Held:
        value = self.get(slot)
        if value is None:
            raise KeyError(slot)
        return value

    def __setitem__(self, slot: Slot, value: Held) -> None:
        super().__setitem__(slot, value)
        if slot in self.removed:
            del self.removed[slot]

    def __delitem__(self, slot: Slot) -> None:
        self.pop(slot)

    def pop(self, slot: Slot, default: Held | None = None) -> Held | None:  # type: ignore[override]
        """Remove a slot."""
        value = self.peek(slot)
        super().pop(slot)
        if self.below.peek(slot) is not None:
            self.removed[slot] = None
        return default if value is None else value

    def restore(self, layer: Difference) -> None:
        """Put back what slots held."""
        for slot, old in layer.items():
            if old is None:
                self.pop(slot)
            else:
                self[slot] = old

    def peek(self, slot: Slot) -> Held | None:
        """What a slot holds, for whoever puts it back as it was: that makes no difference to what is recorded."""
        value = dict.get(self, slot)
        return value if value is not None or slot in self.removed else self.below.peek(slot)

    def written(self) -> dict[Slot, Held]:
        """What was written, but for what was only put back."""
        reads, peek = self.reads, self.below.peek
        return {slot: value for slot, value in self.items() if slot in reads or peek(slot) is not value}

    def of(self, owner: Hashable) -> list[tuple[str, Value]]:
        """Every slot of an owner, by name."""
        if owner not in self.scanned:
            self.scanned[owner] = self.below.of(owner)
        found = {name: value for name, value in self.scanned[owner] if (owner, name) not in self.removed}
        return list((found | dict(super().of(owner))).items())

    def names_of(self, owner: Hashable) -> list[str]:
        """The names of every slot of an owner."""
        return [name for name, _ in self.of(owner)]

    def every(self) -> Iterator[Slot]:
        """Every slot."""
        self.whole = True
        yield from [slot for slot in self.below.every() if slot not in self.removed and not dict.__contains__(self, slot)]
        yield from list(dict.keys(self))


class Importing(Protocol):
    """What imports need of the machine that runs them."""

    store: Store
    events: list[Event]
    called: set[Code]
    callers: set[Code]
    given: set[Given]
    running: dict[Code, int]
    counter: int
    left: int
    deepest: int

    @property
    def frames(self) -> Sequence[object]:
        """The running scopes."""

    def run_importers(self, path: str) -> bool:
        """Run the modules that import a file; whether any has run."""

    def import_path(self, path: str) -> None:
        """Import the module of a path."""


class Notes:
    """What an import does, noted part by part."""

    def __init__(self, m: Importing) -> None:
        self.parts: list[Part | Nested] = []
        self.sound = True
        self.busy = {code for code, count in m.running.items() if count > 1}  # a call of these is not entered
        self.begin(m)

    def begin(self, m: Importing) -> None:
        """A part begins."""
        self.slots = Recording(m.store.slots)
        self.start = (len(m.events), m.counter)
        self.before = (m.called, m.callers, m.given)
        m.store.slots = self.slots
        m.called, m.callers, m.given = set(), set(), set()

    def end(self, m: Importing, imports: Imports) -> None:
        """A part ends: what it wrote is written below."""
        slots, (events, counter) = self.slots, self.start
        m.store.slots = slots.below
        written = slots.written()
        imports.write(m, written, slots.removed)
        called, callers, given = m.called, m.callers, m.given
        m.called, m.callers, m.given = self.before
        m.called |= called
        m.callers |= callers
        m.given |= given
        self.sound = self.sound and not slots.whole and self.busy.isdisjoint(called)
        if not self.sound:
            return
        last = m.counter
        reads = [(slot, value) for slot, value in slots.reads.items() if type(slot[0]) is not int or not counter < slot[0] <= last]
        part = Part(
            tuple((slot, value is not None) for slot, value in reads if slot[1] in FLAGS),
            tuple((slot, value) for slot, value in reads if slot[1] not in FLAGS),
            slots.scanned,
            written,
            tuple(slots.removed),
            tuple(m.events[events:]),
            frozenset(called),
            frozenset(callers),
            frozenset(given),
        )
        self.parts.append(part)


class Imports:
    """The imports of a machine, by the path of the module; the last ones are kept."""

    def __init__(self) -> None:
        self.kept: OrderedDict[str, list[Import]] = OrderedDict()
        self.size = 0
        self.noting: list[Notes | None] = []
        self.journal: list[tuple[Slot, Held | None]] = []  # what imports that are tried have overwritten
        self.trials = 0
        self.left = PROJECT_STEPS

    def run(self, m: Importing, path: str, execute: Callable[[], None]) -> None:
        """Import a module: as before where that is known, else by `execute`."""
        self.beside(m, Nested(path, False), lambda: self.import_once(m, path, execute))

    def beside(self, m: Importing, nested: Nested, run: Callable[[], bool]) -> bool:
        """Run something that is no part of the import that is being recorded."""
        notes = self.noting[-1] if self.noting else None
        if notes is None:
            return run()
        if not nested.importers:
            notes.slots.reads.pop((nested.path, RUN), None)  # that it had not been run is no condition: it is run if need be
        notes.end(m, self)
        self.noting.append(None)
        try:
            found = run()
        finally:
            self.noting.pop()
            notes.parts.append(nested)
            notes.begin(m)
        notes.parts[-1] = nested._replace(any=found)
        return found

    def import_once(self, m: Importing, path: str, execute: Callable[[], None]) -> bool:
        """The same, outside of other imports."""
        ways = self.kept.get(path, [])
        for number, known in enumerate(ways):
            if self.replay(m, known):
                if path in self.kept:  # what it imports may have taken its room
                    if number:
                        ways.insert(0, ways.pop(number))
                    self.kept.move_to_end(path)
                return True
        found = self.record(m, path, execute)
        if found is not None:
            self.keep(path, found)
        return True

    def keep(self, path: str, found: Import) -> None:
        """Keep an import, and forget the oldest ones where they are too many."""
        ways = self.kept.setdefault(path, [])
        self.kept.move_to_end(path)
        ways.insert(0, found)
        self.size += found.size
        if len(ways) > KEPT:
            self.size -= ways.pop().size
        while self.size > MAX_SLOTS and len(self.kept) > 1:
            _, gone = self.kept.popitem(last=False)
            self.size -= sum(known.size for known in gone)

    def overwrites(self, m: Importing, slot: Slot) -> None:
        """Note that a slot is about to be written beside the parts of imports."""
        if self.trials:
            self.journal.append((slot, m.store.slots.get(slot)))

    def write(self, m: Importing, written: dict[Slot, Held], removed: Iterable[Slot]) -> None:
        """Write what a part of an import leaves."""
        slots = m.store.slots
        if self.trials:
            self.journal += [(slot, slots.get(slot)) for slot in (*removed, *written)]
        for slot in removed:
            slots.pop(slot, None)
        slots.update(written)

    def replay(self, m: Importing, known: Import) -> bool:
        """Do what an import has done before; False, and nothing done, where it would do something else now."""
        if len(m.frames) + known.frames > MAX_FRAMES:
            return False
        mark, events, layers = len(self.journal), len(m.events), m.store.layers
        self.trials += 1
        m.store.layers = []
        try:
            done = all(self.redo(m, part) for part in known.parts)
        finally:
            m.store.layers = layers
            self.trials -= 1
        if done:
            m.deepest = max(m.deepest, len(m.frames) + known.frames)
        else:
            slots = m.store.slots
            for slot, value in reversed(self.journal[mark:]):
                if value is None:
                    slots.pop(slot, None)
                else:
                    slots[slot] = value
            del m.events[events:]
        if not self.trials:
            self.journal.clear()
        return done

    def redo(self, m: Importing, part: Part | Nested) -> bool:
        """A part of an import again; False where it would be another one."""
        if isinstance(part, Nested):
            if part.importers:
                return m.run_importers(part.path) == part.any
            m.import_path(part.path)
            return True
        changed = differences(m, part)
        if changed is None:
            return False
        self.write(m, part.written | changed if changed else part.written, part.removed)
        m.events += part.events
        m.called |= part.called
        m.callers |= part.callers
        m.given |= part.given
        return True

    def record(self, m: Importing, path: str, execute: Callable[[], None]) -> Import | None:
        """Import a module; None where what it leaves depends on more than what is noted."""
        depth, deepest, m.deepest = len(m.frames), m.deepest, len(m.frames)
        counter, m.counter = m.counter, (crc32(path.encode("utf-8", "surrogateescape")) + 1) << 32  # what it numbers is the same every time
        left, m.left = m.left, max(min(MODULE_STEPS, self.left), LEAST_STEPS)
        self.left -= m.left
        notes = Notes(m)
        self.noting.append(notes)
        try:
            with suppress(Exhausted):
                execute()
        finally:
            self.noting.pop()
            notes.end(m, self)
            self.left += max(m.left, 0)
            m.counter, m.left = counter, left
            needed = m.deepest - depth
            m.deepest = max(deepest, m.deepest)
        return Import(tuple(notes.parts), needed) if notes.sound and depth + needed <= MAX_FRAMES else None


def differences(m: Importing, part: Part) -> dict[Slot, Held] | None:
    """What a part of an import would write now that it has not written before; None where it would do something else altogether.

    What it has added to a table or a list it adds to what these hold now; what they hold is no reason to do otherwise.
    """
    get = m.store.slots.get
    if any((get(slot) is not None) is not run for slot, run in part.run):
        return None
    changed: dict[Slot, Held] = {}
    for slot, held in part.reads:
        now = get(slot)
        if now is held:
            continue
        old, value = settled(held), settled(now)
        if value is not old and value != old:
            if old is None or value is None or slot[1] not in CONTENTS:
                return None
            changed[slot] = grown(old, settled(part.written.get(slot)) or old, value) or value
    return changed if all(m.store.slots.of(owner) == found for owner, found in part.scanned.items()) else None


def grown(old: Value, new: Value, now: Value) -> Value | None:
    """What a table or list becomes that was `old` when it became `new`, and holds something else now; None where it is neither."""
    if type(old) is Entries and type(new) is Entries and type(now) is Entries:
        before = dict(old.entries)
        found = now
        for key, value in new.entries:
            if before.get(key) != value:
                found = found.put(key, value)
        return Entries(found.entries, now.rest if new.rest == old.rest else new.rest)
    if type(old) is Items and type(new) is Items and type(now) is Items and new.items[: len(old.items)] == old.items:
        return Items(now.items + new.items[len(old.items) :], now.rest if new.rest == old.rest else new.rest)
    if type(old) is Alternatives and type(new) is Alternatives and type(now) is Alternatives:
        ways = list(zip(old.options, new.options, now.options, strict=False))
        if len({len(old.options), len(new.options), len(now.options)}) > 1 or any(len({g for g, _ in way}) > 1 for way in ways):
            return None
        found_ways = [(way[0][0], grown(*(atom for _, atom in way))) for way in ways]
        return alternatives((guards, atom) for guards, atom in found_ways if atom is not None) if all(a for _, a in found_ways) else None  # type: ignore[misc]
    return None
