"""TensorFlow checkpoints: the table in variables.index, and where in the data files each variable lies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import unpack_from

from mplint.graph.model import GraphError, Tensor
from mplint.graph.protobuf import Message, varint
from mplint.graph.storage import FileWeights
from mplint.graph.tensorflow.types import dtype_of, shape_of

MAGIC = 0xDB4775248B80FB57
MAX_INDEX = 1 << 28
OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
STEM = "variables"


def read_bundle(folder: str) -> dict[str, Tensor]:
    """The variables of a checkpoint `folder`/variables.*, by their full names where the checkpoint knows them, and by their keys."""
    path = os.path.join(folder, f"{STEM}.index")
    if not os.path.isfile(path):
        return {}
    if os.path.getsize(path) > MAX_INDEX:
        raise GraphError("an index of variables larger than any model's")
    with open(path, "rb") as stream:
        data = memoryview(stream.read())
    shards, little = 1, True
    found: dict[str, Tensor] = {}
    names: dict[str, str] = {}
    for key, message in _entries(data):
        if key == "":
            shards, little = message.number(1, 1), message.number(2) == 0
            continue
        entry = _Entry(message)
        file = os.path.join(folder, f"{STEM}.data-{entry.shard:05d}-of-{shards:05d}")
        if not os.path.isfile(file) or entry.offset + entry.size > os.path.getsize(file):
            raise GraphError(f"the variable {key[:100]} claims {entry.size} bytes that {os.path.basename(file)} does not hold")
        if key == OBJECTS:
            names = _full_names(file, entry.offset, entry.size)
            continue
        tensor = Tensor(key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"), dtype_of(entry.dtype), entry.shape)
        if tensor.nbytes == entry.size and tensor.dtype is not None:
            tensor.weights = FileWeights(file, entry.offset, entry.size, tensor.dtype, not little)
        found[key] = tensor
    for key, name in names.items():
        if key in found:
            found.setdefault(name, found[key])
    return found


class _Entry:
    """A BundleEntryProto."""

    def __init__(self, message: Message) -> None:
        self.dtype, self.shard = message.number(1), message.number(3)
        self.offset, self.size = message.number(4), message.number(5)
        self.shape = shape_of(message.first(2)) or ()


def _entries(data: memoryview) -> Iterator[tuple[str, Message]]:
    """The keys and values of a table in the format of LevelDB."""
    if len(data) < 48 or unpack_from("<Q", data, len(data) - 8)[0] != MAGIC:
        raise GraphError("variables.index is damaged or cut off")
    foot = len(data) - 48
    _, place = varint(data, foot, len(data))
    _, place = varint(data, place, len(data))
    offset, place = varint(data, place, len(data))
    size, _ = varint(data, place, len(data))
    budget = [2_000_000]
    for _, value in _block(data, offset, size):
        start, place = varint(data, value.start, value.end)
        length, _ = varint(data, place, value.end)
        for key, message in _block(data, start, length):
            yield key.decode("utf-8", "replace"), Message(data, message.start, message.end, budget)


def _block(data: memoryview, offset: int, size: int) -> Iterator[tuple[bytes, Message]]:
    if offset + size + 5 > len(data) or size < 4:
        raise GraphError("variables.index is damaged: a block lies outside of it")
    if data[offset + size] != 0:
        raise GraphError("variables.index is compressed, which TensorFlow does not do")
    restarts = unpack_from("<I", data, offset + size - 4)[0]
    end = offset + size - 4 - 4 * restarts
    key, place = b"", offset
    while place < end:
        shared, place = varint(data, place, end)
        fresh, place = varint(data, place, end)
        length, place = varint(data, place, end)
        if shared > len(key) or fresh > 65536 or place + fresh + length > end:
            raise GraphError("variables.index is damaged")
        key = key[:shared] + data[place : place + fresh].tobytes()
        place += fresh
        yield key, Message(data, place, place + length)
        place += length


def _full_names(path: str, offset: int, size: int) -> dict[str, str]:
    """The full names of variables by their keys, from the object graph that the checkpoint keeps beside them."""
    if size > MAX_INDEX:
        return {}
    with open(path, "rb") as stream:
        stream.seek(offset)
        data = memoryview(stream.read(size))
    length, place = varint(data, 0, len(data))
    start = place + 4  # a checksum of the length
    if start + length > len(data):
        raise GraphError("the checkpoint's object graph is cut off")
    names: dict[str, str] = {}
    for node in Message(data, start, start + length).each(1):
        for attribute in node.each(2):
            full, key = attribute.string(2), attribute.string(3)
            if full and key:
                names[key] = full
    return names
