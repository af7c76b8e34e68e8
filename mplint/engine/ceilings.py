"""What one file may cost: beyond it the file counts as unreadable, and the run goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from mplint.python.document import InputError

SECONDS = 60.0  # of processor time that a program or a configuration may take by itself
MODEL_SECONDS = 600.0  # the same of a model
BYTES = 4 << 30  # that a program or a configuration, or interpreting all of them, may take besides what mplint holds already
AGAIN = 1.0  # seconds after which a file that went on is stopped again

T = TypeVar("T")


class _Exceeded(BaseException):
    """The time is over; no `except Exception` on the way may take it for a fault."""


def within_ceilings(read: Callable[[], T], *, seconds: float, memory: int | None = None) -> T:
    """What `read` returns; raises InputError where it takes more processor time than `seconds`, or more memory than `memory` bytes.

    Time is bounded in the main thread of systems with timers, memory on Linux; models, which are mapped into memory, are not to be bounded.
    """
    try:
        with _timer(seconds), room(memory):
            return read()
    except _Exceeded:
        raise InputError(f"takes more than {seconds:g} seconds of processor time to check") from None
    except MemoryError:
        raise InputError("takes more memory to check than there is, or than one file may take") from None


@contextmanager
def _timer(seconds: float) -> Iterator[None]:
    """Raises `_Exceeded` when this process has computed for so long."""
    import signal

    def stop(*_: object) -> None:
        raise _Exceeded

    try:
        before = signal.signal(signal.SIGVTALRM, stop)
    except (AttributeError, ValueError):  # no such signal here, or not the main thread
        yield
        return
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def room(memory: int | None) -> Iterator[None]:
    """Lets allocations fail that would make this process larger by more than `memory` bytes."""
    if memory is None or sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb") as stream:
        now = int(stream.read().split(b" ", 1)[0]) * resource.getpagesize()
    bound = now + memory
    if any(limit != resource.RLIM_INFINITY and limit <= bound for limit in (soft, hard)):
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
