"""What another machine does for a run, in a process of its own: it checks a parcel as it would be checked at home."""

from __future__ import annotations

import os
import pickle
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from shutil import rmtree
from threading import Thread

from mplint.config import config_in
from mplint.engine.moved import moved
from mplint.engine.parcel import Answer, identity, moved_in, opened, unpack

LENGTH = 8  # bytes of the number that a parcel begins with


def check_parcel(data: bytes) -> bytes:
    """Check a parcel in a process that ends with this one; the answer, pickled. Raises RuntimeError where the process fails."""
    return carried_out("mplint.engine.far", data, "checking a repository")


def carried_out(module: str, data: bytes, what: str) -> bytes:
    """What a module that `serve`s answers to `data`, in a process that ends with this one. Raises RuntimeError where it fails at `what`."""
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen([sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(len(data).to_bytes(LENGTH, "big") + data)
            process.stdin.flush()
            answer = process.stdout.read()
        except BrokenPipeError:
            answer = b""
        finally:
            process.stdin.close()
        if process.wait() != 0 or not answer:
            complaints.seek(0)
            told = complaints.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise RuntimeError(f"{what} failed: {told or f'exit status {process.returncode}'}")
    return answer


def answer_to(data: bytes, top: str) -> Answer:
    """The answer to a parcel whose files are laid out below the folder `top`."""
    from mplint.engine.job import Job
    from mplint.engine.pins import consulted
    from mplint.engine.targets import TargetResolver

    parcel = opened(data)
    folder = top
    while (folder := os.path.dirname(folder)) != os.path.dirname(folder):
        if config_in(folder) is not None:
            raise RuntimeError(f"{folder} has a configuration that would hold for what lies in {top}")
    if parcel.identity != identity():
        return Answer(None, another=f"{identity()} at {platform.node()}, {parcel.identity} here")
    unpack(parcel, top)
    os.chdir(top + parcel.here)
    parcel = moved_in(parcel, top)
    job = Job.of(parcel.config)._replace(named=parcel.named)
    found, others = parcel.part.examine(job, TargetResolver(job.config, job.scopes))
    back = moved((found, frozenset({*others, *consulted(parcel.part.files)})), top)
    assert isinstance(back, tuple)
    return Answer(*back)


def serve(answer_to: Callable[[bytes, str], object]) -> None:
    """Read data from standard input and write what is answered to it, given a folder to work in; end at once where the other end does."""
    data = sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(LENGTH), "big"))
    top = os.path.realpath(tempfile.mkdtemp(prefix="mplint-"))

    def watch() -> None:
        if not os.read(0, 1):
            rmtree(top, ignore_errors=True)
            os._exit(1)

    Thread(target=watch, daemon=True).start()
    try:
        answer = pickle.dumps(answer_to(data, top), pickle.HIGHEST_PROTOCOL)
    finally:
        os.chdir("/")
        rmtree(top, ignore_errors=True)
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    os._exit(0)


if __name__ == "__main__":
    serve(answer_to)
