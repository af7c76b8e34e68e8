"""Worker processes: how they begin, and how none of them is left behind."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

METHOD = "fork" if sys.platform == "linux" else "spawn"
_is_worker = False


def is_worker() -> bool:
    """Whether this process is one of several that share the work already."""
    return _is_worker


@contextmanager
def pool_of(workers: int, begin: Callable[..., None], *args: object) -> Iterator[ProcessPoolExecutor]:
    """Processes that share some work, each of which calls `begin` first; none of them is left where the work is broken off."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    gc.freeze()
    pool = ProcessPoolExecutor(workers, mp_context=get_context(METHOD), initializer=start_worker, initargs=(begin, args))
    try:
        with held_signals("SIGINT", "SIGTERM"):
            pool.submit(os.getpid)  # begins the processes
        yield pool
    except BaseException:
        for process in list(pool._processes.values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def held_signals(*names: str) -> Iterator[None]:
    """Let signals that end this process wait: an exception raised while a process begins would be lost. That process holds them, too."""
    import signal

    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.Signals[name] for name in names])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_worker(begin: Callable[..., None], args: tuple[object, ...]) -> None:
    """Begin as a worker, which ends with the process that it works for."""
    import signal
    from threading import Thread

    global _is_worker
    _is_worker = True
    begin(*args)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the first one ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait for the end of the process that this one works for, and end with it."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
