"""Converts the model of an errand, in a process of its own: the model is brought here, and what is written is brought away.

Paths within that process are the same wherever it runs, so that two machines write the same; in what it says they are those of the errand.
"""

from __future__ import annotations

import io
import os
import pickle
import platform
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stderr, redirect_stdout

from mplint.cli.main import main
from mplint.engine.addresses import at_hand, put
from mplint.engine.errand import Done, Errand
from mplint.engine.far import serve
from mplint.engine.parcel import identity
from mplint.errors import UsageError
from mplint.graph.names import is_address
from mplint.python.document import InputError

FROM, TO, DATA, REPORT = "@from", "@to", "@data", "@report"  # what the folders and the report are called meanwhile


def answer_to(data: bytes, top: str) -> Done:
    """What comes of a pickled errand, worked on in the folder `top`."""
    errand = pickle.loads(data)
    assert isinstance(errand, Errand)
    if errand.identity != identity():
        return Done(2, another=f"{identity()} at {platform.node()}, {errand.identity} here")
    os.chdir(top)
    try:
        with ExitStack() as held:
            return converted(errand, held)
    except (InputError, UsageError) as error:
        where = "" if isinstance(error, UsageError) else f"{errand.source}: "
        told = error.message if isinstance(error, InputError) else error
        return Done(2, err=f"mplint: error: {where}{told}\n")


def converted(errand: Errand, held: ExitStack) -> Done:
    """Convert in the current folder; what is brought here for it is `held`."""
    names = {linked(held.enter_context(brought(errand, errand.source)), FROM): errand.source}
    command = ["convert", *names, *errand.options]
    for number, data in enumerate(errand.calibration):
        name = linked(held.enter_context(brought(errand, data)), f"{DATA}{number}")
        names[name] = data
        command += ["--calibration", name]
    os.mkdir(TO)
    if errand.target is not None:
        name = f"{TO}/{os.path.basename(errand.target.rstrip('/'))}"
        names[name] = errand.target
        command += ["-o", name]
    if errand.report is not None:
        name = REPORT + os.path.splitext(errand.report)[1]
        names[name] = errand.report
        command += ["--report", name]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(command)
    if errand.target is not None and os.listdir(TO):
        put(TO, at_home(errand, errand.target))
    report = read(name) if errand.report is not None and os.path.exists(name) else b""
    return Done(code, told(out.getvalue(), names), told(err.getvalue(), names), told(report.decode(), names).encode())


def brought(errand: Errand, place: str) -> AbstractContextManager[str]:
    """The path of what an errand names, while it is needed."""
    return at_hand(place) if is_address(place) else nullcontext(at_home(errand, place))


def at_home(errand: Errand, place: str) -> str:
    """An address as it is, and a path as it was meant where the errand comes from."""
    return place if is_address(place) else os.path.normpath(os.path.join(errand.here, place))


def linked(path: str, name: str) -> str:
    """A path by another name for the folder that it lies in."""
    folder, base = os.path.split(path.rstrip("/"))
    os.symlink(folder, name)
    return f"{name}/{base}"


def told(text: str, names: dict[str, str]) -> str:
    """A text with what the user named in the place of what was named here."""
    for name, given in names.items():
        text = text.replace(name, given)
    return text


def read(path: str) -> bytes:
    """The bytes of a file."""
    with open(path, "rb") as stream:
        return stream.read()


if __name__ == "__main__":
    serve(answer_to)
