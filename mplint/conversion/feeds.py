"""Calibration data: arrays by input name, in .npz files."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mplint.conversion.policy import ConversionError, nearest


class Data(dict[str, np.ndarray]):
    """The arrays of one .npz file by name; `file` is its path."""

    file = ""

    def renamed(self, names: Mapping[str, str]) -> Data:
        """The same arrays by other names."""
        made = Data({names.get(name, name): array for name, array in self.items()})
        made.file = self.file
        return made


class Wanted(NamedTuple):
    """What an input takes: a NumPy dtype ("float32"), and its sizes, None where it takes any; None for what is not known."""

    dtype: str | None
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        sizes = "…" if self.shape is None else ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype or 'any'}[{sizes}]"


KINDS = {"f": "f", "i": "iu", "u": "iu", "b": "b", "O": "OUS", "U": "OUS", "S": "OUS", "V": "fV"}  # what may be given for what


def check_data(data: Mapping[str, np.ndarray], inputs: Mapping[str, Wanted]) -> None:
    """Raise ConversionError where an array is missing, or of another type or shape than the input that it is for."""
    file = getattr(data, "file", "") or "the data"
    for name, wanted in inputs.items():
        if name not in data:
            held = ", ".join(data) or "nothing"
            raise ConversionError(f"{file} has no array for the input {name!r}; it holds {held}{nearest(name, list(data))}")
        array = data[name]
        kind = np.dtype(wanted.dtype).kind if wanted.dtype else array.dtype.kind
        fits = wanted.shape is None or (
            len(wanted.shape) == array.ndim and all(size in (None, given) for size, given in zip(wanted.shape, array.shape, strict=True))
        )
        if not fits or array.dtype.kind not in KINDS.get(kind, kind):
            given = Wanted(str(array.dtype), array.shape)
            raise ConversionError(f"{file}: the array {name!r} is {given}, and the input takes {wanted}")


def load_feeds(paths: Sequence[str], names: Sequence[str]) -> list[Data]:
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
                feed = Data({name: archive[name] for name in archive.files})
                feed.file = file
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            if "allow_pickle" in str(error):
                raise ConversionError(f"{file} holds arrays of Python objects: store texts with dtype=str, and no others") from None
            raise ConversionError(f"{file} can't be read as calibration data: {error}") from None
        check_data(feed, dict.fromkeys(names, Wanted(None, None)))
        feeds.append(feed)
    if not feeds:
        raise ConversionError(f"no .npz file in {', '.join(paths)}")
    return feeds
