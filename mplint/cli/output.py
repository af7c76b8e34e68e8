"""Files that a user asked a command to write beside the programs and models that it is about."""

from __future__ import annotations

import os

from mplint.errors import UsageError


def ensure_writable(path: str) -> None:
    """Raise UsageError, before the work, where a file can't be written."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise UsageError(f"{path}: is a folder")
    if not os.path.isdir(folder):
        raise UsageError(f"{path}: no such folder {folder}")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise UsageError(f"{path}: can't be written")


def write_text(path: str, text: str) -> None:
    """Write a file, in UTF-8. Raises UsageError where it can't."""
    try:
        with open(path, "w", encoding="utf-8", errors="replace", newline="\n") as stream:
            stream.write(text)
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {(error.strerror or str(error)).lower()}") from None
