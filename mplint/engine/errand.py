"""One model to convert, as it travels to who converts it, and what came of it."""

from __future__ import annotations

import pickle
from typing import NamedTuple

from mplint.engine.far import carried_out

SERVER = "mplint.cli.errand"  # the module that converts; the engine does not know the commands


class Errand(NamedTuple):
    """A model to convert: from which path or address to which (None where nothing is written), and the options of `mplint convert`.

    `identity` tells the mplint that asks, and `here` is the folder that paths are relative to; `calibration` are the paths or addresses
    of data.
    """

    identity: str
    here: str
    source: str
    target: str | None
    options: tuple[str, ...] = ()
    calibration: tuple[str, ...] = ()
    report: str | None = None


class Done(NamedTuple):
    """What came of an errand: the exit code, what was written to both streams, and the report; nothing where this is `another` mplint."""

    code: int
    out: str = ""
    err: str = ""
    report: bytes = b""
    another: str = ""


def run_errand(data: bytes) -> bytes:
    """Convert the model of a pickled errand in a process that ends with this one; what came of it, pickled. Raises RuntimeError."""
    return carried_out(SERVER, data, "converting a model")


def carried_out_here(errand: Errand) -> Done:
    """What comes of an errand on this machine."""
    try:
        done = pickle.loads(run_errand(pickle.dumps(errand)))
        assert isinstance(done, Done)
        return done
    except RuntimeError as error:
        return Done(2, err=f"mplint: error: {errand.source}: {error}\n")
