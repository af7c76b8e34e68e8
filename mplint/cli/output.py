"""Files that a user asked a command to write beside the programs and models that it is about."""

from __future__ import annotations

import os
from errno import EACCES

from mplint.errors import UsageError
from mplint.graph.names import is_model
from mplint.python.suffixes import PROGRAMS


def ensure_writable(path: str) -> None:
    """Raise UsageError where nothing can be written to a path, before anything is worked out for it."""
    import tempfile

    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"{path}: the folder {folder} does not exist")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise UsageError(f"{path} can't be written: it is read-only")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{path} can't be written: {(error.strerror or str(error)).lower()}") from None


def ensure_text_file(path: str) -> None:
    """Raise UsageError where a text can't be written to a path, before anything is worked out for it.

    A program or a model that is there is never replaced: it was meant to be read.
    """
    if os.path.exists(path) and (path.endswith(PROGRAMS) or is_model(path)):
        raise UsageError(f"{path} is a program or a model, which no report replaces: name another file")
    if os.path.isdir(path):
        raise UsageError(f"{path} can't be written: it is a folder")
    ensure_writable(path)


def write_text(path: str, text: str) -> None:
    """Write a file, in UTF-8; one that lies there stays as it is where that fails. Raises UsageError where it can't."""
    target, data = os.path.realpath(path), text.encode("utf-8", "replace")
    try:
        if os.path.exists(path) and (not os.path.isfile(path) or os.stat(path).st_nlink > 1 or is_opened(path)):
            with open(path, "wb") as stream:  # a device, a pipe, or a file with other names
                stream.write(data)
        else:
            _replace(target, data)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {(error.strerror or str(error)).lower()}") from None


def is_opened(path: str) -> bool:
    """Whether a path means what a process has open already, such as /dev/stdout."""
    return os.path.abspath(path).startswith(("/dev/", "/proc/"))


def _replace(path: str, data: bytes) -> None:
    """Put data in the place of a file, if any, as a whole, with its mode; raises OSError."""
    import tempfile

    if os.path.exists(path):
        mode = os.stat(path).st_mode & 0o7777
        if not os.access(path, os.W_OK):
            raise PermissionError(EACCES, os.strerror(EACCES))
    else:
        mask = os.umask(0o022)
        os.umask(mask)
        mode = 0o666 & ~mask
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
