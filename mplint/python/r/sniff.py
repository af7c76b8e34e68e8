"""Which R files may be about mixed precision: told from bytes, before anything is parsed."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

WORDS = (b"float16", b"mixed_precision", b"set_policy", b"dtype_policy", b"set_floatx")
MAX_PROGRAM = 10_000_000
DEEPEST = 4  # files that run files that run files
MAX_UP = 8  # folders above a program from which it may be run
SOURCED = rb"""\bsource\(\s*(?:(?:here::)?here\(|file\.path\()?\s*((?:["'][^"'\n]+["']\s*,?\s*)+)"""


def may_hold_precision(path: str, depth: int = 0) -> bool:
    """Whether the file at `path` is a file, and mentions a half dtype or what sets one, or runs a file that does."""
    data = _read(path)
    if any(word in data for word in WORDS):
        return True
    return depth < DEEPEST and any(may_hold_precision(each, depth + 1) for each in _sourced(path, data))


def sourced_files(path: str) -> Iterator[str]:
    """The files that an R program runs by `source`, each beside it or below a folder around it, and those that they run."""
    known = {os.path.abspath(path)}
    stack = [path]
    while stack:
        at = stack.pop()
        for found in _sourced(at, _read(at)):
            if os.path.abspath(found) not in known:
                known.add(os.path.abspath(found))
                stack.append(found)
                yield found


def _sourced(path: str, data: bytes) -> Iterator[str]:
    if b"source(" not in data:
        return
    for match in re.finditer(SOURCED, data):
        parts = re.findall(rb"""["']([^"'\n]+)["']""", match[1])
        written = b"/".join(parts).decode("utf-8", "replace")
        folder = os.path.dirname(path)
        for _ in range(MAX_UP):
            found = os.path.normpath(os.path.join(folder, written))
            if written.endswith((".R", ".r")) and os.path.isfile(found):
                yield found
                break
            if os.path.exists(os.path.join(folder, ".git")) or os.path.dirname(os.path.abspath(folder)) == os.path.abspath(folder):
                break
            folder = os.path.normpath(os.path.join(folder, ".."))


def _read(path: str) -> bytes:
    """What a file holds, nothing of what is no file or too large for a program."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= MAX_PROGRAM:
            return b""
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""
