"""Converting Keras files and live models: the plan from the configuration, corrected by what Keras measures where Keras is installed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from mplint.conversion.feeds import load_feeds
from mplint.conversion.keras.archive import convert, makes_layers
from mplint.conversion.keras.verify import Original, Reasons, prove
from mplint.conversion.policy import ConversionError, Options, Policy
from mplint.conversion.result import Conversion


def convert_archive(
    path: str,
    target: str,
    policy: Policy,
    options: Options,
    calibration: list[str],
    custom: Mapping[str, object] | None = None,
    known: list[Original] | None = None,
) -> Conversion:
    """Convert a .keras archive, and prove it with Keras where Keras is installed. Raises ConversionError.

    The original, once it was run, is `known` to another conversion of it.
    """
    if options.half_io:
        raise ConversionError("--half-io is for ONNX: Keras models keep float32 inputs and outputs")
    feeds = load_feeds(calibration, ()) if calibration else []
    largest = {name: max(abs(low), abs(high)) for name, (low, high) in options.ranges.items()}
    for feed in feeds:
        for name, array in feed.items():
            if array.dtype.kind in "iuf":
                largest[name] = max(largest.get(name, 0.0), float(abs(array).max(initial=0)))

    def plan(reasons: Reasons) -> Conversion:
        return convert(path, target, policy, options, largest, reasons, known=original is not None and original.model is not None)

    original: Original | None = known[0] if known else None
    if original is None:
        if not makes_layers(path):
            plan({})  # what can't be converted is refused before Keras is imported
        options.tell("running the original")
        original = Original(path, feeds, options, custom)
        if known is not None:
            known.append(original)
    reasons = original.too_large(policy)
    options.tell("verifying")
    return prove(plan(reasons), original, plan, reasons, options)


def convert_h5(path: str, target: str, policy: Policy, options: Options, calibration: list[str]) -> Conversion:
    """Convert a Keras .h5 model to a .keras archive; Keras reads the file. Raises ConversionError."""
    from mplint.conversion.keras.h5 import archive_of

    options.tell("reading the .h5 file with Keras")
    folder = tempfile.TemporaryDirectory(prefix="mplint-")
    made = os.path.join(folder.name, "model.keras")
    notes = archive_of(path, made)
    try:
        result = convert_archive(made, target, policy, options, calibration)
    except ConversionError as error:
        raise ConversionError(str(error).replace(made, path)) from None
    result.size_before = os.path.getsize(path)
    result.notes = notes + result.notes
    return _keeping(result, folder)


def convert_live(model: Any, policy: Policy, options: Options, calibration: list[str]) -> Conversion:
    """Convert a keras.Model in memory, through an archive of it; the model itself does not change. Raises ConversionError."""
    folder = tempfile.TemporaryDirectory(prefix="mplint-")
    source = os.path.join(folder.name, "model.keras")
    if not model.built:
        raise ConversionError("the model has no weights yet: call it on a batch, or build it, first")
    model.save(source)
    custom = {type(layer).__name__: type(layer) for layer in model._flatten_layers() if not type(layer).__module__.startswith("keras.")}
    try:
        return _keeping(convert_archive(source, "converted.keras", policy, options, calibration, custom), folder)
    except ConversionError as error:
        raise ConversionError(str(error).replace(source, "the model")) from None


def _keeping(result: Conversion, folder: tempfile.TemporaryDirectory[str]) -> Conversion:
    """The result, whose archive lives as long as it may be written."""
    result.close = folder.cleanup
    return result
