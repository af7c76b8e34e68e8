"""Where the bytes of a model lie, read in bounded pieces: files, members of zip archives, JSON of a sane size.

Every loader reads through here, so that a hostile file costs bounded time and memory, and so that whatever is wrong with a file
ends as a GraphError with the reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from io import BufferedReader, BytesIO, RawIOBase
from typing import IO, TYPE_CHECKING, BinaryIO, NamedTuple
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from mplint.graph.model import BITS, GraphError, ModelGraph, Weights

if TYPE_CHECKING:
    import numpy as np

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

MAX_JSON = 1 << 27  # bytes of JSON text
MAX_CONTAINERS, MAX_ITEMS = 6_000_000, 24_000_000  # lists and dicts in it, and commas: what its parsed form takes
MAX_RATIO = 300  # no honest member compresses better
MAX_DIRECTORY = 1 << 25  # bytes of the table of contents of a zip archive
MAX_INFLATED = 1 << 29  # bytes that a compressed member may take in memory


def reads(kind: str) -> Callable[[Callable[[str], ModelGraph]], Callable[[str], ModelGraph]]:
    """Turn whatever damaged content raises inside a loader into a GraphError that says what kind of file is damaged, and where."""

    def decorate(load: Callable[[str], ModelGraph]) -> Callable[[str], ModelGraph]:
        @wraps(load)
        def guarded(path: str) -> ModelGraph:
            try:
                return load(path)
            except GraphError:
                raise
            except RecursionError:
                raise GraphError(f"damaged {kind}: nested too deeply") from None
            except MemoryError:
                raise GraphError(f"damaged {kind}: it claims more than fits in memory") from None
            except OSError as error:
                raise GraphError(f"can't be read: {(error.strerror or str(error)).lower()}") from None
            except Exception as error:
                raise GraphError(f"damaged {kind}: {_plain(error)}") from None

        return guarded

    return decorate


def _plain(error: Exception) -> str:
    """What an exception says, short enough for one line."""
    text = " ".join(str(error).split())[:120]
    match error:
        case KeyError():
            return f"{text} is missing"
        case UnicodeDecodeError():
            return "text that is not UTF-8"
        case TypeError() | AttributeError() | IndexError() | AssertionError():
            return "an entry has the wrong form"
        case _:
            return text or "an entry has the wrong form"


def parse_json(data: bytes, what: str, *, unique: bool = False) -> Json:
    """JSON of bounded size and depth; `unique` refuses keys that stand twice. Raises GraphError."""
    if len(data) > MAX_JSON:
        raise GraphError(f"{what} is {len(data) >> 20} MiB of JSON; at most {MAX_JSON >> 20} MiB are read")
    if data.count(b"{") + data.count(b"[") > MAX_CONTAINERS or data.count(b",") > MAX_ITEMS:
        raise GraphError(f"{what} holds more JSON entries than any model needs")

    def once(pairs: list[tuple[str, Json]]) -> Json:
        found = dict(pairs)
        if len(found) < len(pairs):
            left = dict.fromkeys(found)
            twice = next(name for name, _ in pairs if left.pop(name, name) is not None)
            raise GraphError(f"{what} names {twice[:100]!r} twice")
        return found

    try:
        parsed: Json = json.loads(data, object_pairs_hook=once if unique else None)
    except RecursionError:
        raise GraphError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise GraphError(f"{what} is no valid JSON: {_plain(error)}") from None
    return parsed


def shape_of(value: object) -> tuple[int | None, ...] | None:
    """A shape as JSON gives it: numbers, null for an unknown dimension. None for anything else."""
    if not isinstance(value, list | tuple) or len(value) > 64:
        return None
    if not all(dim is None or (isinstance(dim, int) and not isinstance(dim, bool)) for dim in value):
        return None
    return tuple(None if dim is None or dim < 0 else dim for dim in value)


def numpy_dtype(name: str, big_endian: bool = False) -> np.dtype[np.generic]:
    """The numpy dtype of a canonical name; bfloat16, float8 and the like come from ml_dtypes. Raises GraphError for a dtype of neither."""
    try:
        import numpy as np
    except ImportError:
        raise GraphError("reading the values of weights needs the package numpy") from None
    try:
        dtype: np.dtype[np.generic] = np.dtype(name)
    except TypeError:
        try:
            import ml_dtypes

            dtype = np.dtype(getattr(ml_dtypes, name))
        except (ImportError, AttributeError):
            raise GraphError(f"values of dtype {name} can't be read here (they need the package ml_dtypes)") from None
    return dtype.newbyteorder(">") if big_endian else dtype


class FileWeights(NamedTuple):
    """Values that lie in one piece in a file."""

    path: str
    offset: int
    nbytes: int
    dtype: str
    big_endian: bool = False

    def chunks(self, size: int = 1 << 24) -> Iterator[np.ndarray]:
        """The elements in pieces of at most `size` bytes, read one after the other."""
        yield from _arrays(self._read(_whole(size, self.dtype)), self.dtype, self.big_endian)

    def _read(self, size: int) -> Iterator[bytearray]:
        left = self.nbytes
        with open(self.path, "rb", buffering=0) as stream:
            stream.seek(self.offset)
            while left > 0:
                piece = bytearray(min(size, left))
                view, filled = memoryview(piece), 0
                while filled < len(piece):
                    count = stream.readinto(view[filled:])
                    if not count:
                        raise GraphError(f"the file ends {left - filled} bytes before the end of a weight")
                    filled += count
                left -= len(piece)
                yield piece


class MemberWeights(NamedTuple):
    """Values in a member of a zip archive, compressed or not."""

    path: str
    member: str
    offset: int
    nbytes: int
    dtype: str
    big_endian: bool = False

    def chunks(self, size: int = 1 << 24) -> Iterator[np.ndarray]:
        """The elements in pieces of at most `size` bytes; an uncompressed member is read where it lies."""
        with Archive(self.path) as archive:
            start = archive.place(self.member)
        if start is not None:
            yield from FileWeights(self.path, start + self.offset, self.nbytes, self.dtype, self.big_endian).chunks(size)
            return
        yield from _arrays(self._inflate(_whole(size, self.dtype)), self.dtype, self.big_endian)

    def _inflate(self, size: int) -> Iterator[bytearray]:
        with Archive(self.path) as archive, archive.unpacked(self.member) as stream:
            skipped = 0
            while skipped < self.offset:
                skipped += len(stream.read(min(size, self.offset - skipped)) or self._short())
            left = self.nbytes
            while left > 0:
                piece = bytearray()
                while len(piece) < min(size, left):
                    piece += stream.read(min(size, left) - len(piece)) or self._short()
                left -= len(piece)
                yield piece

    def _short(self) -> bytes:
        raise GraphError(f"{self.member} holds less than it claims")


class MemoryWeights(NamedTuple):
    """Values that the loader had to read anyway."""

    data: bytes
    dtype: str
    big_endian: bool = False

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return len(self.data)

    def chunks(self, size: int = 1 << 24) -> Iterator[np.ndarray]:
        """The elements in pieces of at most `size` bytes."""
        step = _whole(size, self.dtype)
        yield from _arrays(
            (bytearray(self.data[start : start + step]) for start in range(0, len(self.data), step)), self.dtype, self.big_endian
        )


def _whole(size: int, dtype: str) -> int:
    """`size` rounded down to whole elements."""
    item = max(1, BITS.get(dtype, 8) // 8)
    return max(item, size - size % item)


def _arrays(pieces: Iterator[bytearray], dtype: str, big_endian: bool) -> Iterator[np.ndarray]:
    from importlib.util import find_spec

    import numpy as np

    if BITS.get(dtype, 8) < 8:
        raise GraphError(f"values of dtype {dtype} can't be read one by one")
    if dtype == "bfloat16" and find_spec("ml_dtypes") is None:  # the same values in float32
        for piece in pieces:
            yield (np.frombuffer(piece, ">u2" if big_endian else "<u2").astype("u4") << 16).view("f4")
        return
    element = numpy_dtype(dtype, big_endian)
    for piece in pieces:
        yield np.frombuffer(piece, element)


class Archive:
    """A zip archive of bounded size whose members are read in bounded pieces. A context manager."""

    def __init__(self, path: str, stream: BinaryIO | None = None, base: int | None = 0) -> None:
        self.path = path
        self.base = base  # where the archive begins in the file, None for one that is held in memory
        self._stream = stream if stream is not None else open(path, "rb")  # noqa: SIM115
        try:
            check_directory(self._stream)
            self.zip = ZipFile(self._stream)
            self.members: dict[str, ZipInfo] = {info.filename: info for info in self.zip.infolist()}
            if len(self.members) < len(self.zip.infolist()):
                raise GraphError("a zip archive in which two members have the same name")
        except (BadZipFile, ValueError, RuntimeError) as error:
            self._stream.close()
            raise GraphError(f"a damaged zip archive, or one that is cut off: {_plain(error)}") from None
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.zip.close()
        self._stream.close()

    @property
    def folder(self) -> str:
        """The one folder in which everything lies ("model/"), or "" where there is none."""
        tops = {name.partition("/")[0] for name in self.members}
        return f"{tops.pop()}/" if len(tops) == 1 and not any("/" not in name for name in self.members) else ""

    def read(self, name: str, limit: int = MAX_JSON) -> bytes:
        """The content of a member; raises GraphError where it is missing, larger than `limit`, or a zip bomb."""
        info = self.members.get(name)
        if info is None:
            raise GraphError(f"the archive has no {name}")
        if info.file_size > limit:
            raise GraphError(f"{name} claims {info.file_size >> 20} MiB; at most {limit >> 20} MiB are read")
        if info.file_size > 1 << 20 and info.file_size > MAX_RATIO * info.compress_size:
            raise GraphError(f"{name} is a zip bomb: {info.compress_size} bytes that claim to be {info.file_size}")
        with self.unpacked(name) as stream:
            data = stream.read(limit + 1)
        if len(data) != info.file_size:
            raise GraphError(f"{name} holds {len(data)} bytes and claims {info.file_size}")
        return data

    @contextmanager
    def unpacked(self, name: str) -> Iterator[IO[bytes]]:
        """The bytes of a member; raises GraphError where it is damaged, encrypted, or packed in a way that nobody knows."""
        try:
            with self.zip.open(name) as stream:
                yield stream
        except (GraphError, OSError):
            raise
        except Exception as error:  # zlib.error, BadZipFile, EOFError, RuntimeError, NotImplementedError
            raise GraphError(f"{name} can't be unpacked: {_plain(error)}") from None

    def place(self, name: str) -> int | None:
        """Where an uncompressed member's bytes begin in the file; None where they are compressed."""
        info = self.members.get(name)
        if info is None:
            raise GraphError(f"the archive has no {name}")
        if info.compress_type != ZIP_STORED or info.flag_bits & 1:
            return None
        self._stream.seek(info.header_offset)
        header = self._stream.read(30)
        if len(header) < 30 or not header.startswith(b"PK\x03\x04"):
            raise GraphError(f"{name} does not lie where the archive says")
        start = info.header_offset + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        if start + info.file_size > self._stream.seek(0, os.SEEK_END):
            raise GraphError(f"{name} claims {info.file_size} bytes that the file does not hold")
        return start

    def weights(self, name: str, dtype: str, nbytes: int, offset: int = 0, big_endian: bool = False) -> Weights | None:
        """The values in a member, None where the archive has no such member; raises GraphError where it is too short for them."""
        info = self.members.get(name)
        if info is None:
            return None
        if offset < 0 or nbytes < 0 or offset + nbytes > info.file_size:
            raise GraphError(f"a weight claims {nbytes} bytes at {offset} of {name}, which has {info.file_size}")
        if self.base == 0:
            return MemberWeights(self.path, name, offset, nbytes, dtype, big_endian)
        start = self.place(name)
        if start is not None and self.base is not None:
            return FileWeights(self.path, self.base + start + offset, nbytes, dtype, big_endian)
        return MemoryWeights(self.read(name, MAX_INFLATED)[offset : offset + nbytes], dtype, big_endian)

    def inner(self, name: str) -> Archive:
        """A zip archive that is a member of this one: read where it lies, or held in memory where it is compressed."""
        start = self.place(name)
        if start is None or self.base is None:
            return Archive(self.path, BytesIO(self.read(name, MAX_INFLATED)), None)
        window = Window(open(self.path, "rb"), self.base + start, self.members[name].file_size)  # noqa: SIM115
        return Archive(self.path, BufferedReader(window), self.base + start)


class Window(RawIOBase):
    """A part of a file, as a stream of its own."""

    def __init__(self, stream: BinaryIO, start: int, size: int) -> None:
        super().__init__()
        self._inner, self._start, self._size, self._place = stream, start, size, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move within the part."""
        self._place = max(0, offset + (0, self._place, self._size)[whence])
        return self._place

    def readinto(self, buffer: object) -> int:
        """Fill `buffer` from the part."""
        view = memoryview(buffer)  # type: ignore[arg-type]
        self._inner.seek(self._start + self._place)
        data = self._inner.read(max(0, min(len(view), self._size - self._place)))
        view[: len(data)] = data
        self._place += len(data)
        return len(data)

    def close(self) -> None:
        """Close the file."""
        self._inner.close()
        super().close()


def check_directory(stream: BinaryIO) -> None:
    """Refuse a zip archive whose table of contents would take long to read; raises GraphError."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - (1 << 16) - 64))
    tail = stream.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0:
        raise GraphError("a zip archive that is cut off: it has no table of contents")
    length = int.from_bytes(tail[end + 12 : end + 16], "little")
    large = tail.rfind(b"PK\x06\x06")
    if length == 0xFFFFFFFF and large >= 0:
        length = int.from_bytes(tail[large + 40 : large + 48], "little")
    if length > MAX_DIRECTORY:
        raise GraphError("a zip archive with more members than any model has")
