"""Calibration data: arrays by input name, in .npz files."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence

import numpy as np

from mplint.conversion.policy import ConversionError


def load_feeds(paths: Sequence[str], names: Sequence[str]) -> list[dict[str, np.ndarray]]:
    """The calibration data in .npz files, or in all .npz files of folders; raises ConversionError where an input is missing."""
    files: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            files += sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(".npz"))
        else:
            files.append(path)
    feeds = []
    for file in files:
        try:
            if not zipfile.is_zipfile(file):
                reason = "it is no .npz file: write one with numpy.savez(path, name=array)" if os.path.isfile(file) else "no such file"
                raise ConversionError(f"{file} can't be read as calibration data: {reason}")
            with np.load(file, allow_pickle=False) as archive:
                feed = {name: archive[name] for name in archive.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            if "allow_pickle" in str(error):
                raise ConversionError(f"{file} holds arrays of Python objects: store texts with dtype=str, and no others") from None
            raise ConversionError(f"{file} can't be read as calibration data: {error}") from None
        missing = [name for name in names if name not in feed]
        if missing:
            raise ConversionError(f"{file} has no array for the input {missing[0]!r}; it holds {', '.join(feed) or 'nothing'}")
        feeds.append(feed)
    if not feeds:
        raise ConversionError(f"no .npz file in {', '.join(paths)}")
    return feeds
