"""Which R files may be about mixed precision: told from bytes, before anything is parsed."""

from __future__ import annotations

import os
import stat

WORDS = (b"float16", b"mixed_precision", b"set_policy", b"dtype_policy", b"set_floatx")
MAX_PROGRAM = 10_000_000


def may_hold_precision(path: str) -> bool:
    """Whether the file at `path` is a file, and mentions a half dtype or what sets one."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= MAX_PROGRAM:
            return False
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError:
        return False
    return any(word in data for word in WORDS)
