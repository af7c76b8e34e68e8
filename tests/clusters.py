"""Dask clusters for tests, and who of their processes is at work; begun as a program, a cluster that waits until it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

NEEDS = "distributed is not installed"
LIMIT = 240  # seconds of one run


class Dask(NamedTuple):
    """A cluster in processes of their own."""

    scheduler: subprocess.Popen[str]
    address: str
    workers: list[int]


@contextmanager
def cluster(environment: Mapping[str, str] | None = None) -> Iterator[Dask]:
    """A cluster of two processes, and of one that holds the scheduler, in this environment or another."""
    begun = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert begun.stdout is not None
    try:
        address, *workers = begun.stdout.readline().split()
        yield Dask(begun, address.replace("tcp:", "dask:"), [int(worker) for worker in workers])
    finally:
        with suppress(ProcessLookupError):
            os.killpg(begun.pid, signal.SIGKILL)
        begun.communicate(timeout=60)


def first_at_work(run: subprocess.Popen[str], module: str, workers: list[int] | None = None, group: int | None = None) -> int:
    """The first worker, of some or of a group of processes, that has begun a process of a module, while a run goes on."""
    patience = time.monotonic() + LIMIT
    while not (found := _working(module, workers, group)):
        assert run.poll() is None and time.monotonic() < patience
        time.sleep(0.02)
    return found[0]


def _working(module: str, workers: list[int] | None, group: int | None) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            ours = os.getpgid(parent) == group if workers is None else parent in workers
            if ours and module.encode() in (folder / "cmdline").read_bytes():
                found.append(parent)
    return found


def main() -> None:
    """Print the address of the scheduler and the numbers of the workers, and wait."""
    import distributed

    unseen = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, scheduler_kwargs=unseen) as begun:
        print(begun.scheduler_address, *(worker.pid for worker in begun.workers.values()), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
