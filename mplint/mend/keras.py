"""Mending Keras models: only the configuration in the file changes, and Keras proves it where it loads the model without other code."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import IO, NamedTuple

import numpy as np

from mplint.conversion.distance import NO_NUMBER, Distance, distance
from mplint.conversion.feeds import load_feeds
from mplint.conversion.keras import runtime
from mplint.conversion.keras.archive import write as write_archive
from mplint.conversion.keras.h5 import refuse_code
from mplint.conversion.keras.h5 import write as write_h5
from mplint.conversion.keras.verify import Original
from mplint.conversion.policy import POLICIES, ConversionError, Options
from mplint.conversion.quiet import said
from mplint.findings import Fix
from mplint.graph.keras import archive, h5
from mplint.graph.keras.layers import Config
from mplint.graph.model import HALF, ModelGraph
from mplint.graph.storage import Archive, Json, parse_json
from mplint.mend.keras_edit import carry_out, widened
from mplint.mend.proof import STAYS_BROKEN, MendError, Proof
from mplint.replace import Stamp, replace_model

Outputs = list[np.ndarray]


class KerasCandidate:
    """A model with another configuration."""

    def __init__(self, config: Config, original: KerasOriginal) -> None:
        self.config, self.original = config, original

    def graph(self) -> ModelGraph:
        """The copy as rules see it."""
        found = self.original.form.load(self.original.written(self.config))
        found.path = self.original.path
        return found

    def prove(self, *, exact: bool) -> Proof:
        """Hold it against the original; raises MendError."""
        original = self.original
        expected = original.expected
        tolerance = 0.0 if exact else original.tolerance
        try:
            run = runtime.caller(runtime.load(original.written(self.config), None))
        except Exception as error:
            raise MendError(f"Keras loads the original and not the result ({said(error)})") from None
        try:
            got = [run(inputs) for inputs in original.known.samples]
        except Exception as error:
            raise MendError(f"it does not run ({said(error)})") from None
        if not all(
            _may_become(one, other) for (given, _), new in zip(expected, got, strict=True) for one, other in zip(given, new, strict=False)
        ):
            raise MendError("an output would have another dtype than the original's")
        broken = not exact and not all(_is_finite(given) for given, _ in expected)
        wanted = [given if exact or _is_finite(given) or not _is_finite(meant) else meant for given, meant in expected]
        worst = _farthest(wanted, got)
        if not exact and not worst.within(tolerance) and _farthest([meant for _, meant in expected], got).within(tolerance):
            # Half itself is further from float32 than that, and what the copy gives is nearer.
            worst, broken = _farthest([meant for _, meant in expected], got), True
        if broken and worst.broken == NO_NUMBER:
            worst = worst._replace(broken=STAYS_BROKEN)
        if all(distance(given if exact else meant, meant).empty for given, meant in expected):
            worst = worst._replace(broken="the original's outputs are NaN or infinite on all samples: give --calibration data")
        problem = worst.broken or f"the outputs are off by {worst.error:.2g}, more than {tolerance:g}"
        count = len(expected)
        verified = f"Keras, outputs against the original's on {count} sample{'s' if count > 1 else ''}"
        return Proof(worst.error, (verified,), () if worst.within(tolerance) else (problem,), broken)

    def save(self) -> None:
        """Put it in the place of the original; raises WriteError."""
        text = json.dumps(self.config)
        replace_model(self.original.path, self.original.stamp, lambda stream: self.original.form.write(self.original.path, text, stream))


class Form(NamedTuple):
    """A kind of file that Keras writes: its suffix, how its graph and configuration are read, and how another configuration is written."""

    suffix: str
    load: Callable[[str], ModelGraph]
    config: Callable[[str], Json]
    write: Callable[[str, str, IO[bytes]], None]


def _archive_config(path: str) -> Json:
    with Archive(path) as held:
        return parse_json(held.read("config.json"), "config.json")


def _h5_config(path: str) -> Json:
    text = h5.configuration(path)
    config = parse_json(text.encode(), "model_config")
    try:
        refuse_code(path, config)
    except ConversionError as error:
        raise MendError(str(error).removeprefix(f"{path} ")) from None
    return config


FORMS = {
    "keras": Form(".keras", archive.load, _archive_config, write_archive),
    "keras-h5": Form(".h5", h5.load, _h5_config, write_h5),
}


class KerasOriginal:
    """A .keras archive or an .h5 file."""

    def __init__(self, path: str, form: Form, options: Options, calibration: Sequence[str]) -> None:
        self.path, self.form, self.options, self.calibration = path, form, options, calibration
        self.stamp = Stamp.of(path)
        self.folder = tempfile.TemporaryDirectory(prefix="mplint-")
        config = form.config(path)
        if not isinstance(config, dict):
            raise MendError("it holds no model's configuration")
        self.config = config
        self.copies = 0

    def mended(self, passes: Sequence[Sequence[Fix]]) -> KerasCandidate:
        """A copy with all the fixes, one pass after the other; raises MendError."""
        config = copy.deepcopy(self.config)
        for fixes in passes:
            carry_out(config, fixes)
        return KerasCandidate(config, self)

    def written(self, config: Config) -> str:
        """The path of a temporary file with another configuration."""
        self.copies += 1
        place = os.path.join(self.folder.name, f"{self.copies}{self.form.suffix}")
        with open(place, "wb") as stream:
            self.form.write(self.path, json.dumps(config), stream)
        return place

    @cached_property
    def known(self) -> Original:
        """The original with Keras, and its inputs; raises MendError where Keras can't run it."""
        try:
            feeds = load_feeds(self.calibration, ()) if self.calibration else []
        except ConversionError as error:
            raise MendError(str(error)) from None
        found = Original(self.path, feeds, self.options, None)
        if found.model is None or not found.samples:
            raise MendError(found.note.removeprefix("not verified: ").removeprefix("not run: ") or "Keras can't run it")
        return found

    @cached_property
    def expected(self) -> list[tuple[Outputs, Outputs]]:
        """For each sample what the original gives, and what it gives in float32."""
        given = self.known.expected
        config = copy.deepcopy(self.config)
        widened(config)
        try:
            run = runtime.caller(runtime.load(self.written(config), None))
            return [(outputs, run(inputs)) for outputs, inputs in zip(given, self.known.samples, strict=True)]
        except Exception:  # code of a layer that asks for half
            return [(outputs, outputs) for outputs in given]

    @cached_property
    def tolerance(self) -> float:
        """How far outputs may move: by the half dtype of the model."""
        bfloat = '"mixed_bfloat16"' in (text := json.dumps(self.config)) or '"bfloat16"' in text
        return POLICIES["mixed_bfloat16" if bfloat else "mixed_float16"].tolerance

    def close(self) -> None:
        """Take the temporary files away."""
        self.folder.cleanup()


def _is_finite(outputs: Outputs) -> bool:
    return all(np.isfinite(array.astype(np.float64)).all() for array in outputs if array.dtype.kind in "fV")


def _farthest(expected: Sequence[Outputs], got: Sequence[Outputs]) -> Distance:
    found = [distance(one, other) for one, other in zip(expected, got, strict=True)]
    return max(found, key=lambda one: (bool(one.broken), one.error))


def _may_become(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether an output may have this dtype: its own, or float32 in the place of half."""
    return before.dtype == after.dtype or (str(before.dtype) in HALF and str(after.dtype) == "float32")
