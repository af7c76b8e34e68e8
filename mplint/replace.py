"""Replaces a file as a whole: a reader sees the old bytes or the new ones, never a part."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import BinaryIO, NamedTuple


class WriteError(Exception):
    """A file that can't be replaced; the message says why, without its path."""


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
    """Put `new` in the place of `old`, keeping the mode and following symbolic links; WriteError where that can't be done.

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
        os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise WriteError(_reason(error)) from None
        raise


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
