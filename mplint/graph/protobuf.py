"""The wire format of protocol buffers, for the few messages that are read without their definitions.

TensorFlow's definitions come with TensorFlow alone, 500 MB that no linter should ask for; the wire format takes one page.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from

from mplint.graph.model import GraphError

MAX_FIELDS = 6_000_000


class Message:
    """A message in a buffer: the stretch of bytes it takes, from `start` to `end`."""

    __slots__ = ("budget", "data", "end", "start")

    def __init__(self, data: memoryview, start: int, end: int, budget: list[int] | None = None) -> None:
        self.data, self.start, self.end = data, start, end
        self.budget = budget if budget is not None else [MAX_FIELDS]

    def __iter__(self) -> Iterator[tuple[int, int, Message]]:
        """(number, value, message) of every field: the value of a number, the message of bytes. Raises GraphError."""
        data, place, end = self.data, self.start, self.end
        empty = self
        while place < end:
            self.budget[0] -= 1
            if self.budget[0] < 0:
                raise GraphError("more fields than any model has")
            tag, place = varint(data, place, end)
            number, wire = tag >> 3, tag & 7
            if wire == 0:
                value, place = varint(data, place, end)
                yield number, value, empty
            elif wire == 2:
                size, place = varint(data, place, end)
                if place + size > end:
                    raise GraphError("cut off in the middle of an entry")
                yield number, size, Message(data, place, place + size, self.budget)
                place += size
            elif wire in (1, 5):
                size = 8 if wire == 1 else 4
                if place + size > end:
                    raise GraphError("cut off in the middle of an entry")
                yield number, int.from_bytes(data[place : place + size], "little"), Message(data, place, place + size, self.budget)
                place += size
            else:
                raise GraphError("an entry of a kind that there is not")

    def bytes(self) -> bytes:
        """The bytes of the message."""
        return bytes(self.data[self.start : self.end])

    def text(self) -> str:
        """The bytes of the message as text."""
        return self.bytes().decode("utf-8", "replace")

    def each(self, wanted: int) -> Iterator[Message]:
        """The messages in the fields of one number."""
        return (message for number, _, message in self if number == wanted)

    def first(self, wanted: int) -> Message | None:
        """The last message in the fields of one number, as the format has it, None without one."""
        found = None
        for message in self.each(wanted):
            found = message
        return found

    def number(self, wanted: int, default: int = 0) -> int:
        """The number in a field."""
        for number, value, _ in self:
            if number == wanted:
                default = value
        return default

    def string(self, wanted: int) -> str:
        """The text in a field."""
        found = self.first(wanted)
        return found.text() if found is not None else ""

    def numbers(self, wanted: int) -> list[int]:
        """The numbers in a repeated field, packed or not."""
        found: list[int] = []
        for number, value, message in self:
            if number != wanted:
                continue
            if message is self:
                found.append(value)
                continue
            place = message.start
            while place < message.end:
                item, place = varint(self.data, place, message.end)
                found.append(item)
                self.budget[0] -= 1
                if self.budget[0] < 0:
                    raise GraphError("more fields than any model has")
        return found

    def float(self) -> float:
        """The 32-bit float that the message is."""
        if self.end - self.start != 4:
            raise GraphError("a number of the wrong size")
        value: float = unpack_from("<f", self.data, self.start)[0]
        return value


def varint(data: memoryview, place: int, end: int) -> tuple[int, int]:
    """A number and the place after it."""
    value = shift = 0
    while place < end and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise GraphError("cut off in the middle of a number")


def signed(value: int) -> int:
    """A 64-bit number that may be negative."""
    return value - (1 << 64) if value >= 1 << 63 else value
