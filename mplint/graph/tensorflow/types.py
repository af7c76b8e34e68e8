"""Dtypes, shapes and small tensors as TensorFlow's messages hold them."""

from __future__ import annotations

from struct import pack

from mplint.graph.model import BITS, Dim, Tensor, Weights
from mplint.graph.protobuf import Message, signed
from mplint.graph.storage import FileWeights, MemoryWeights

DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64", 10: "bool",
    11: "int8", 12: "uint8", 13: "int32", 14: "bfloat16", 15: "int16", 16: "uint16", 17: "uint16", 18: "complex128", 19: "float16",
    20: "resource", 21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2", 25: "float8_e4m3fn", 29: "int4", 30: "uint4",
}  # fmt: skip
MAX_SPLAT = 1 << 20


def dtype_of(code: int) -> str | None:
    """The canonical dtype of TensorFlow's DataType."""
    return DTYPES.get(code % 100)  # above 100: references, in the graphs of TensorFlow 1


def shape_of(message: Message | None) -> tuple[Dim, ...] | None:
    """The shape in a TensorShapeProto; -1 is a dimension that is not known."""
    if message is None or message.number(3):
        return None
    sizes = [signed(dim.number(1)) for dim in message.each(2)]
    return tuple(size if size >= 0 else None for size in sizes)


def constant_of(name: str, message: Message, path: str) -> Tensor:
    """The tensor in a TensorProto; a large one stays in the file."""
    dtype = dtype_of(message.number(1))
    tensor = Tensor(name, dtype, shape_of(message.first(2)) or ())
    tensor.weights = _values(message, tensor, path)
    return tensor


def _values(message: Message, tensor: Tensor, path: str) -> Weights | None:
    dtype, size = tensor.dtype or "", tensor.nbytes
    if size is None or BITS.get(dtype, 0) < 8:
        return None
    content = message.first(4)
    if content is not None:
        length = content.end - content.start
        return FileWeights(path, content.start, size, dtype) if length == size else None
    cells = _cells(message, dtype)
    item = BITS[dtype] // 8
    if not cells:
        cells = [bytes(item)] if size <= MAX_SPLAT else []
    count = size // item
    if not cells or (len(cells) < count and size > MAX_SPLAT):
        return None
    return MemoryWeights(b"".join(cells[:count]) + cells[-1] * max(0, count - len(cells)), dtype)


def _cells(message: Message, dtype: str) -> list[bytes]:
    """The elements that the typed fields of a TensorProto list, each as bytes; the last one stands for all that follow."""
    match dtype:
        case "float16" | "bfloat16":
            return [pack("<H", value & 0xFFFF) for value in message.numbers(13)]
        case "float32" | "float64":
            number, item = (5, 4) if dtype == "float32" else (6, 8)
            return [
                part.data[at : at + item].tobytes() for part in message.each(number) for at in range(part.start, part.end - item + 1, item)
            ]
        case "int64" | "bool" | "uint64":
            item = BITS[dtype] // 8
            values = message.numbers({"int64": 10, "bool": 11, "uint64": 17}[dtype])
            return [(value & ((1 << 8 * item) - 1)).to_bytes(item, "little") for value in values]
        case "int32" | "int16" | "int8" | "uint8" | "uint16" | "uint32":
            item = BITS[dtype] // 8
            values = message.numbers(16 if dtype == "uint32" else 7)
            return [(value & ((1 << 8 * item) - 1)).to_bytes(item, "little") for value in values]
        case _:
            return []
