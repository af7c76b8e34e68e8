"""Keeping frameworks off the terminal, and saying shortly what they say at length."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

PASSED = ("Exception encountered", "Detected at")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what frameworks' compiled code writes to the terminal off it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with open(os.devnull, "w") as nowhere, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = os.dup(2)
        try:
            os.dup2(nowhere.fileno(), 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def said(error: Exception) -> str:
    """What an exception of Keras or TensorFlow says first, without colors, the layer that it went through, and long dumps."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines()]
    told = [line for line in lines if line and not line.endswith("error:") and not line.startswith(PASSED)]
    text = re.split(r"\. (?:Please|Full)| using config=|; please", told[0] if told else type(error).__name__)[0]
    return text if len(text) <= 160 else text[:157] + "…"
