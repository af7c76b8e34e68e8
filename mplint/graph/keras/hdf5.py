"""A reader for the part of HDF5 in which Keras writes models: groups, attributes, and where each dataset lies.

It needs no package, takes milliseconds, and can't be led outside the file: the C library of h5py follows external links, and a damaged
file can crash the process that hosts it. Values in chunks or compressed, which Keras never writes, are left to h5py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import unpack_from

from mplint.graph.model import GraphError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
UNDEFINED = 0xFFFFFFFFFFFFFFFF
MAX_OBJECTS = 300_000  # groups, datasets and attributes together
MAX_NAME = 4096
MAX_ATTRIBUTE = 1 << 27
MAX_BLOCKS = 4096  # pieces that one object header may be spread over

Read = Callable[[int, int], bytes]  # (offset, size) -> exactly that many bytes, or GraphError
Attribute = str | int | float | tuple[str, ...] | bytes | None


@dataclass(slots=True)
class Dataset:
    """A dataset: `offset` is where its values begin in the file, None where they are in chunks, compressed, or were never written."""

    dtype: str | None
    shape: tuple[int, ...]
    offset: int | None
    nbytes: int
    big_endian: bool = False
    attributes: dict[str, Attribute] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """A group: its attributes, and what it holds by name."""

    attributes: dict[str, Attribute] = field(default_factory=dict)
    members: dict[str, Group | Dataset] = field(default_factory=dict)

    def group(self, path: str) -> Group | None:
        """The group at a path below this one."""
        found: Group | Dataset | None = self
        for part in path.split("/"):
            found = found.members.get(part) if isinstance(found, Group) else None
        return found if isinstance(found, Group) else None


def read_hdf5(read: Read, size: int) -> Group:
    """Everything in an HDF5 file of `size` bytes but the values of its datasets. Raises GraphError."""
    return _File(read, size).root()


class _File:
    def __init__(self, read: Read, size: int) -> None:
        self._read, self._size = read, size
        self._left = MAX_OBJECTS
        self._open: set[int] = set()  # the headers of the groups on the way down: a link back to one of them is a circle
        self._done: dict[int, Group | Dataset] = {}

    def root(self) -> Group:
        head = self.take(0, min(self._size, 96))
        if not head.startswith(SIGNATURE):
            raise GraphError("not an HDF5 file")
        version = head[8]
        if version < 2:
            if head[13:15] != b"\x08\x08":
                raise GraphError("an HDF5 file with addresses that are not 8 bytes long")
            base = 24 if version == 0 else 28
            start, _, end, _, _, address = unpack_from("<6Q", head, base)
        else:
            if head[9:11] != b"\x08\x08":
                raise GraphError("an HDF5 file with addresses that are not 8 bytes long")
            start, _, end, address = unpack_from("<4Q", head, 12)
        if start != 0:
            raise GraphError("an HDF5 file with a user block")
        if end > self._size:
            raise GraphError(f"the file is cut off: it has {self._size} bytes of {end}")
        root = self.entry(address)
        if not isinstance(root, Group):
            raise GraphError("an HDF5 file whose root is no group")
        return root

    def take(self, offset: int, size: int) -> bytes:
        if offset < 0 or size < 0 or offset + size > self._size:
            raise GraphError("damaged HDF5 file: an address points outside of it")
        return self._read(offset, size)

    def entry(self, address: int, depth: int = 0) -> Group | Dataset:
        """The group or dataset whose header is at `address`."""
        if address in self._done:
            return self._done[address]
        self._left -= 1
        if self._left < 0:
            raise GraphError("an HDF5 file with more objects than any model has")
        if address in self._open:
            raise GraphError("damaged HDF5 file: a group that contains itself")
        if depth > 64:
            raise GraphError("damaged HDF5 file: nested too deeply")
        self._open.add(address)
        found = self._entry(address, depth)
        self._open.discard(address)
        self._done[address] = found
        return found

    def _entry(self, address: int, depth: int) -> Group | Dataset:
        attributes: dict[str, Attribute] = {}
        links: dict[str, int] = {}
        space: tuple[int, ...] | None = None
        kind: tuple[str | None, int, bool] | None = None
        layout: tuple[int | None, int] | None = None
        filtered = False
        for number, data in self._messages(address):
            match number:
                case 0x01:
                    space = _dataspace(data)
                case 0x03:
                    kind = _datatype(data)
                case 0x08:
                    layout = _layout(data)
                case 0x0B:
                    filtered = True
                case 0x07:
                    raise GraphError("an HDF5 dataset whose values lie in another file")
                case 0x0C:
                    self._left -= 1
                    name, value = self._attribute(data)
                    attributes[name] = value
                case 0x11:
                    tree, heap = unpack_from("<QQ", data)
                    self._symbols(tree, self._heap(heap), links, 0)
                case 0x06:
                    name, target = _link(data)
                    if target is not None:
                        links[name] = target
                case 0x02:
                    if unpack_from("<Q", data, 10 if data[1] & 1 else 2)[0] != UNDEFINED:
                        raise GraphError("an HDF5 file in the layout of libver='latest', which Keras does not write")
                case 0x15:
                    if unpack_from("<Q", data, 4 if data[1] & 1 else 2)[0] != UNDEFINED:
                        raise GraphError("an HDF5 file in the layout of libver='latest', which Keras does not write")
                case _:
                    pass
        if space is not None and kind is not None and layout is not None:
            return self._dataset(space, kind, layout if not filtered else (None, 0), attributes)
        return Group(attributes, {name: self.entry(target, depth + 1) for name, target in links.items()})

    def _dataset(
        self, shape: tuple[int, ...], kind: tuple[str | None, int, bool], layout: tuple[int | None, int], attributes: dict[str, Attribute]
    ) -> Dataset:
        dtype, item, big = kind
        nbytes = item
        for dim in shape:
            nbytes *= dim
        offset, claimed = layout
        if offset is not None and (nbytes > claimed or offset + nbytes > self._size):
            raise GraphError(f"an HDF5 dataset claims {nbytes} bytes that the file does not hold")
        if attributes.get("dtype") == "bfloat16" and item == 2:  # Keras marks what HDF5 has no name for
            dtype = "bfloat16"
        return Dataset(dtype, shape, offset, nbytes, big, attributes)

    def _messages(self, address: int) -> list[tuple[int, bytes]]:
        """The messages of an object header, version 1 or 2, its continuations included."""
        head = self.take(address, min(64, self._size - address))
        found: list[tuple[int, bytes]] = []
        if head.startswith(b"OHDR"):
            flags = head[5]
            at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
            width = 1 << (flags & 3)
            size = int.from_bytes(head[at : at + width], "little")
            blocks, modern, step = [(address + at + width, size)], True, 6 if flags & 4 else 4
        elif head[:1] == b"\x01":
            blocks, modern, step = [(address + 16, unpack_from("<I", head, 8)[0])], False, 8
        else:
            raise GraphError("damaged HDF5 file: an object header is missing")
        for count, (start, size) in enumerate(blocks):
            if count > MAX_BLOCKS:
                raise GraphError("damaged HDF5 file: an endless object header")
            block, place = self.take(start, size), 0
            while place + step <= len(block):
                if modern:
                    number, length = block[place], int.from_bytes(block[place + 1 : place + 3], "little")
                else:
                    number, length = unpack_from("<HH", block, place)
                data = block[place + step : place + step + length]
                place += step + length
                if number == 0x10:
                    more, length = unpack_from("<QQ", data)
                    blocks.append((more + 4, length - 8) if modern else (more, length))  # "OCHK" before, a checksum after
                elif data:
                    found.append((number, data))
        return found

    def _heap(self, address: int) -> bytes:
        head = self.take(address, 32)
        if not head.startswith(b"HEAP"):
            raise GraphError("damaged HDF5 file: a heap is missing")
        size, _, start = unpack_from("<QQQ", head, 8)
        return self.take(start, size)

    def _symbols(self, address: int, heap: bytes, links: dict[str, int], depth: int) -> None:
        """Fill `links` from the tree of a group's symbol tables."""
        if depth > 16:
            raise GraphError("damaged HDF5 file: a tree that is too deep")
        head = self.take(address, 24)
        if head.startswith(b"TREE"):
            used = unpack_from("<H", head, 6)[0]
            body = self.take(address + 24, 16 * used + 8)
            for index in range(used):
                self._left -= 1
                if self._left < 0:
                    raise GraphError("an HDF5 file with more objects than any model has")
                self._symbols(unpack_from("<Q", body, 16 * index + 8)[0], heap, links, depth + 1)
            return
        if not head.startswith(b"SNOD"):
            raise GraphError("damaged HDF5 file: a symbol table is missing")
        body = self.take(address + 8, 40 * unpack_from("<H", head, 6)[0])
        for place in range(0, len(body), 40):
            self._left -= 1
            name, target, cached = unpack_from("<QQI", body, place)
            if cached != 2:  # 2: a soft link, the only kind that old groups can hold beside hard ones; Keras writes none
                links[_text(heap, name)] = target

    def _attribute(self, data: bytes) -> tuple[str, Attribute]:
        version = data[0]
        name_size, kind_size, space_size = unpack_from("<HHH", data, 2)
        place = 8 + (1 if version >= 3 else 0)
        pad = 8 if version == 1 else 1
        name = data[place : place + name_size].split(b"\0")[0].decode("utf-8", "replace")
        place += -(-name_size // pad) * pad
        kind = data[place : place + kind_size]
        place += -(-kind_size // pad) * pad
        shape = _dataspace(data[place : place + space_size])
        place += -(-space_size // pad) * pad
        return name, self._value(kind, shape, data[place:])

    def _value(self, kind: bytes, shape: tuple[int, ...], data: bytes) -> Attribute:
        """The value of an attribute: text, a list of texts, a number; None for what Keras has no use for."""
        count = 1
        for dim in shape:
            count *= dim
        family, size = kind[0] & 15, unpack_from("<I", kind, 4)[0]
        if count == 0:
            return ()
        if size == 0 or count * size > len(data):
            return None
        cells = [data[size * i : size * (i + 1)] for i in range(count)]
        if family == 3:
            texts = [cell.split(b"\0")[0].decode("utf-8", "replace") for cell in cells]
        elif family == 9 and kind[1] & 15 == 1:
            texts = [self._long_text(*unpack_from("<IQI", cell)) for cell in cells]
        elif not shape and family == 0 and size <= 8:
            return int.from_bytes(data[:size], "little")
        elif not shape and family == 1 and size in (4, 8):
            number: float = unpack_from("<f" if size == 4 else "<d", data)[0]
            return number
        else:
            return None
        return tuple(texts) if shape else texts[0]

    def _long_text(self, length: int, address: int, index: int) -> str:
        """A text of any length, from the file's global heap."""
        if length == 0:
            return ""
        if length > MAX_ATTRIBUTE:
            raise GraphError("an HDF5 attribute larger than any model's")
        size = unpack_from("<Q", self.take(address, 16), 8)[0]
        heap, place = self.take(address, min(size, MAX_ATTRIBUTE + 4096)), 16
        if not heap.startswith(b"GCOL"):
            raise GraphError("damaged HDF5 file: a heap is missing")
        while place + 16 <= len(heap):
            number, taken = unpack_from("<H", heap, place)[0], unpack_from("<Q", heap, place + 8)[0]
            if number == index:
                return heap[place + 16 : place + 16 + length].decode("utf-8", "replace")
            if number == 0:
                break
            place += 16 + -(-taken // 8) * 8
        raise GraphError("damaged HDF5 file: a text is missing")


def _dataspace(data: bytes) -> tuple[int, ...]:
    version, rank = data[0], data[1]
    if rank > 32:
        raise GraphError("damaged HDF5 file: a dataset with too many dimensions")
    if version == 2 and data[3] == 2:
        return (0,)
    return unpack_from(f"<{rank}Q", data, 8 if version == 1 else 4)


def _datatype(data: bytes) -> tuple[str | None, int, bool]:
    """The canonical dtype, the bytes an element takes, and whether they come big end first."""
    family, flags, size = data[0] & 15, data[1], unpack_from("<I", data, 4)[0]
    bits, big = size * 8, bool(flags & 1)
    match family:
        case 0 if size in (1, 2, 4, 8):
            return f"{'int' if flags & 8 else 'uint'}{bits}", size, big
        case 1 if size in (2, 4, 8):
            exponent = data[13]
            name = "bfloat16" if size == 2 and exponent == 8 else f"float{bits}"
            return name, size, big
        case 8 if size == 1:
            return "bool", 1, False
        case 6 if size in (8, 16):
            return f"complex{bits}", size, False
        case 3 | 9:
            return "string", size, False
        case _:
            return None, size, False


def _layout(data: bytes) -> tuple[int | None, int]:
    """Where values begin and how many bytes they take; None for the place of chunks and of values inside the header."""
    version, family = data[0], data[1]
    if version < 3:
        return (None, 0)
    if family == 1:
        offset, size = unpack_from("<QQ", data, 2)
        return (None if offset == UNDEFINED else offset, size)
    if family == 3:
        raise GraphError("an HDF5 dataset that is put together from other files")
    return (None, 0)


def _link(data: bytes) -> tuple[str, int | None]:
    """The name and target of a link message; a soft link has none, and a link to another file is refused."""
    flags, place, family = data[1], 2, 0
    if flags & 8:
        family, place = data[place], place + 1
    place += (8 if flags & 4 else 0) + (1 if flags & 16 else 0)
    width = 1 << (flags & 3)
    length, place = int.from_bytes(data[place : place + width], "little"), place + width
    name, place = data[place : place + length].decode("utf-8", "replace"), place + length
    if family == 64:
        raise GraphError(f"the HDF5 file links {name[:80]!r} to another file")
    return name, unpack_from("<Q", data, place)[0] if family == 0 else None


def _text(heap: bytes, place: int) -> str:
    end = heap.find(b"\0", place, place + MAX_NAME)
    if place >= len(heap) or end < 0:
        raise GraphError("damaged HDF5 file: a name is missing")
    return heap[place:end].decode("utf-8", "replace")
