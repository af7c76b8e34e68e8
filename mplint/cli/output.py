"""Files that a user asked a command to write beside the programs and models that it is about."""

from __future__ import annotations

import os

from mplint.errors import UsageError


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
    """Raise UsageError where a text can't be written to a path, before anything is worked out for it."""
    if os.path.isdir(path):
        raise UsageError(f"{path} can't be written: it is a folder")
    ensure_writable(path)


def write_text(path: str, text: str) -> None:
    """Write a file, in UTF-8. Raises UsageError where it can't."""
    try:
        with open(path, "w", encoding="utf-8", errors="replace", newline="\n") as stream:
            stream.write(text)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {(error.strerror or str(error)).lower()}") from None
