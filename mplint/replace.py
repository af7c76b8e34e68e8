"""Replaces a file as a whole: a reader sees the old bytes or the new ones, never a part. A file with several names keeps them all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, NamedTuple


class WriteError(Exception):
    """A file that can't be replaced; the message says why, and how it was left, without its path."""

    def __str__(self) -> str:
        return f"{self.args[0]}; nothing was changed"


class Stamp(NamedTuple):
    """What tells that a file which may be huge is the one that was read: its size, its time of change and where it lies."""

    size: int
    changed: int
    number: int

    @classmethod
    def of(cls, path: str) -> Stamp:
        """The stamp of a file; raises OSError."""
        status = os.stat(path)
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


def replace_file(path: str, old: bytes, new: bytes) -> None:
    """Put `new` in the place of `old`, keeping the mode and following links; WriteError where that can't be done.

    A file with several names (hard links) is written in place, after a copy of the new content has been written beside it: there
    is room for it then, and the copy is left where writing fails all the same.

    A file that no longer holds `old` is left alone.
    """

    def is_same(target: str) -> bool:
        with open(target, "rb") as stream:
            return stream.read() == old

    _replace(path, is_same, lambda stream: stream.write(new))


def replace_model(path: str, stamp: Stamp, write: Callable[[BinaryIO], object]) -> None:
    """The same for a file that had a stamp when it was read, and whose new content `write` gives."""
    _replace(path, lambda target: Stamp.of(target) == stamp, write)


def _replace(path: str, is_same: Callable[[str], bool], write: Callable[[BinaryIO], object]) -> None:
    import tempfile

    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode
        if not stat.S_ISREG(mode):
            raise WriteError("it is no regular file")
        if not mode & 0o222 or not os.access(target, os.W_OK):
            raise WriteError("it is read-only")
        if not is_same(target):
            raise WriteError("it was changed while it was checked")
        handle, temporary = tempfile.mkstemp(prefix=".mplint-", dir=os.path.dirname(target))
    except OSError as error:
        raise WriteError(_reason(error)) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        if os.stat(target).st_nlink > 1:
            _overwrite(target, temporary)
        else:
            os.chmod(temporary, stat.S_IMODE(mode))
            os.replace(temporary, target)
    except BaseException as error:
        if not isinstance(error, _HalfWritten):
            with suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise WriteError(_reason(error)) from None
        raise


class _HalfWritten(WriteError):
    """A file of which a part was overwritten, and whose new content lies beside it."""

    def __str__(self) -> str:
        return str(self.args[0])


def _overwrite(target: str, copy: str) -> None:
    """Write the content of a copy over a file, and remove the copy."""
    with open(copy, "rb") as source, open(target, "r+b") as stream:
        begun = False
        try:
            while data := source.read(1 << 20):
                begun = True
                stream.write(data)
            stream.truncate()
            stream.flush()
            os.fsync(stream.fileno())
        except OSError as error:
            if not begun:
                raise
            raise _HalfWritten(f"{_reason(error)}; it is half written, and the new content lies in {copy}") from None
    os.unlink(copy)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
