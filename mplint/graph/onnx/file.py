"""An ONNX file without its weights: large payloads stay in the file, and the model says where they lie.

ONNX stores weights within the protobuf message, up to 2 GiB. Parsing that would copy them all, so the message is first walked where it
is mapped, and every large `raw_data` is replaced by a reference to its place in the same file, as ONNX has them for external data.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from mplint.graph.model import GraphError

if TYPE_CHECKING:
    import numpy as np
    import onnx

KEPT = 4096  # payloads up to this size are parsed with the model: shapes and scalars, which inference needs
MAX_DEPTH = 60
MAX_SKELETON = 1 << 30
RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 9, 13, 14
# For each message, the fields in which tensors may lie, and their messages.
INSIDE: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
Buffer = mmap.mmap | bytes


def read_proto(path: str) -> onnx.ModelProto:
    """The model in the file at `path`, its large weights left where they are. Raises GraphError for what is no ONNX model."""
    import onnx

    name = os.path.basename(path)
    try:
        with open(path, "rb") as stream:
            if os.fstat(stream.fileno()).st_size == 0:
                raise GraphError("the file is empty")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                skeleton = b"".join(_message(data, 0, len(data), "model", name.encode("utf-8", "surrogateescape"), 0))
    except OSError as error:
        raise GraphError(f"can't be read: {(error.strerror or str(error)).lower()}") from None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(skeleton)
    except Exception:  # protobuf's DecodeError, whose class its packages name differently
        raise GraphError("not an ONNX model, or cut off: the protobuf message can't be decoded") from None
    if not model.HasField("graph"):
        raise GraphError("not an ONNX model: it has no graph")
    return model


def _message(data: Buffer, start: int, end: int, kind: str, name: bytes, depth: int) -> list[bytes]:
    """The bytes of a message between two places, in parts, with references for its large payloads."""
    if end - start <= KEPT or depth > MAX_DEPTH:
        if end - start > MAX_SKELETON:
            raise GraphError("nested too deeply to be read")
        return [data[start:end]]
    inside = INSIDE[kind]
    parts: list[bytes] = []
    place = kept = start
    payload: tuple[int, int] | None = None
    while place < end:
        tag, after = varint(data, place, end)
        wire = tag & 7
        if wire == 0:
            _, following = varint(data, after, end)
        elif wire == 2:
            length, after = varint(data, after, end)
            following = after + length
        elif wire in (1, 5):
            following = after + (8 if wire == 1 else 4)
        else:
            raise broken()
        if following > end:
            raise broken()
        field = tag >> 3
        inner = inside.get(field) if wire == 2 and following - after > KEPT else None
        if inner is not None:
            new = _message(data, after, following, inner, name, depth + 1)
            total = sum(map(len, new))
            parts += [data[kept:place], encoded(tag), encoded(total), *new]
            kept = following
        elif kind == "tensor" and field == RAW_DATA and wire == 2 and following - after > KEPT:
            payload = (after, following - after)
            parts.append(data[kept:place])
            kept = following
        elif kind == "tensor" and field in (EXTERNAL_DATA, DATA_LOCATION) and payload is not None:
            parts.append(data[kept:place])
            kept = following
        place = following
    parts.append(data[kept:end])
    if payload is not None:
        parts.append(reference(name, *payload))
    if sum(map(len, parts)) > MAX_SKELETON:
        raise GraphError("the model without its weights has more than a gigabyte")
    return parts


def reference(name: bytes, offset: int, length: int) -> bytes:
    """The fields of a TensorProto that say that its bytes lie in a file."""
    entries = ((b"location", name), (b"offset", str(offset).encode()), (b"length", str(length).encode()))
    fields = [_field(EXTERNAL_DATA, _field(1, key) + _field(2, value)) for key, value in entries]
    return b"".join(fields) + encoded(DATA_LOCATION << 3) + b"\x01"


def _field(number: int, value: bytes) -> bytes:
    return encoded(number << 3 | 2) + encoded(len(value)) + value


def varint(data: Buffer, start: int, end: int) -> tuple[int, int]:
    """The number at a place and the place after it."""
    value = shift = 0
    while start < end and shift < 70:
        byte = data[start]
        start += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, start
        shift += 7
    raise broken()


def encoded(number: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def broken() -> GraphError:
    """The error for bytes that are no protobuf message."""
    return GraphError("not an ONNX model, or cut off: its bytes are no protobuf message")


class InlineWeights:
    """A constant that the model itself holds; its array is made when someone asks."""

    __slots__ = ("_read", "nbytes")

    def __init__(self, nbytes: int, read: Callable[[], np.ndarray]) -> None:
        self.nbytes = nbytes
        self._read = read

    def chunks(self, size: int = 1 << 24) -> Iterator[np.ndarray]:
        """The elements in order, as flat arrays of at most `size` bytes each."""
        flat = self._read().reshape(-1)
        step = max(1, size // max(flat.itemsize, 1))
        for start in range(0, flat.size, step):
            yield flat[start : start + step]


@cache
def external_file(model: str, location: str) -> str:
    """The path of a file with external data; raises GraphError where it leads out of the folder of the model."""
    folder = os.path.dirname(os.path.abspath(model))
    if not location or os.path.isabs(location) or "\0" in location or re.match(r"[A-Za-z]:|\\", location):
        raise GraphError(f'its data file "{location}" is not named relative to the model')
    path = os.path.join(folder, location)
    inside = os.path.normpath(path).startswith(os.path.join(folder, ""))
    # A download cache links the model and its data into one folder of its own.
    homes = {os.path.realpath(folder), os.path.dirname(os.path.realpath(model))}
    if not inside or not any(os.path.realpath(path).startswith(os.path.join(home, "")) for home in homes):
        raise GraphError(f'its data file "{location}" lies outside the folder of the model')
    if not os.path.isfile(path):
        raise GraphError(f'its data file "{location}" is missing')
    return path
