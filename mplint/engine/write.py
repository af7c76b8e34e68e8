"""Replaces a file as a whole: a reader sees the old bytes or the new ones, never a part."""

from __future__ import annotations

import os
import stat


class WriteError(Exception):
    """A file that can't be replaced; the message says why, without its path."""


def replace_file(path: str, old: bytes, new: bytes) -> None:
    """Put `new` in the place of `old`, keeping the mode and following symbolic links; WriteError where that can't be done.

    A file that no longer holds `old` is left alone.
    """
    import tempfile

    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode
        if not stat.S_ISREG(mode):
            raise WriteError("it is no regular file")
        if not mode & 0o222 or not os.access(target, os.W_OK):
            raise WriteError("it is read-only")
        with open(target, "rb") as stream:
            if stream.read() != old:
                raise WriteError("it was changed while it was checked")
        handle, temporary = tempfile.mkstemp(prefix=".mplint-", dir=os.path.dirname(target))
    except OSError as error:
        raise WriteError(_reason(error)) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(new)
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
