"""What glibc keeps of freed memory: given back after each session, and at once in a process that is the command's own."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # the numbers of glibc's settings
RETURNED = 1 << 20  # bytes: smaller blocks lie between others that are still held, which keeps what is freed around them


@cache
def _c_library() -> ctypes.CDLL | None:
    """glibc, which keeps what is freed; None where there is another one."""
    import ctypes

    try:
        library = ctypes.CDLL("libc.so.6") if sys.platform == "linux" else None
    except OSError:
        return None
    return library if library is not None and hasattr(library, "malloc_trim") else None


def give_back_at_once() -> None:
    """Have this process give back every freed block of some size at once; else glibc learns to keep blocks of up to 32 MiB.

    It lasts as long as the process, so that it is for those that do nothing else.
    """
    library = _c_library()
    if library is not None:
        for setting in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            library.mallopt(setting, RETURNED)


def trim() -> None:
    """Give freed memory back to the system."""
    library = _c_library()
    if library is not None:
        library.malloc_trim(0)
