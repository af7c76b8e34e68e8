"""Files of weights, written from text: one tensor a line, `name dtype[shape]`, in every container that such names occur in.

Comments set targets and expectations as in ONNX fixtures; `# containers: h5` limits the files to those that write such names. What
begins with "optimizer." stands in the state dict of an optimizer where the container has one.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from model_files import pickled, tensor

from mplint.graph.model import BITS
from mplint.graph.safetensors import DTYPES
from mplint.graph.torch.pickle import STORAGES

LINE = re.compile(r"^(\S+) (\w+)\[([\d, ]*)\]$", re.M)
CONTAINERS = re.compile(r"^# containers: (.*)$", re.M)
CODES = {name: code for code, name in reversed(DTYPES.items())}
KINDS = {name: f"{kind}Storage" for kind, name in reversed(STORAGES.items())}
STATE = "optimizer."


class Stored(NamedTuple):
    """A tensor of zeros."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.count * BITS[self.dtype] // 8


def tensors(text: str) -> list[Stored]:
    """The tensors that a text lists."""
    return [Stored(name, dtype, tuple(int(dim) for dim in shape.split(",") if dim.strip())) for name, dtype, shape in LINE.findall(text)]


def write_safetensors(path: Path, listed: list[Stored]) -> None:
    """A safetensors file in the order of its names, as the library writes it; its values are a hole in the file."""
    header, place = {}, 0
    for one in sorted(listed, key=lambda t: t.name):
        header[one.name] = {"dtype": CODES[one.dtype], "shape": list(one.shape), "data_offsets": [place, place + one.nbytes]}
        place += one.nbytes
    head = json.dumps(header).encode()
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", len(head)) + head)
        stream.truncate(8 + len(head) + place)


def write_checkpoint(path: Path, listed: list[Stored]) -> None:
    """A file of torch.save: a state dict, or with an optimizer's state a checkpoint of both."""
    made = {t.name: tensor(str(n), t.shape, t.count, KINDS.get(t.dtype, "ByteStorage")) for n, t in enumerate(listed)}
    weights = {name: value for name, value in made.items() if not name.startswith(STATE)}
    state = {name.removeprefix(STATE): value for name, value in made.items() if name.startswith(STATE)}
    found: object = {"model": weights, "optimizer": {"state": {0: state}, "param_groups": []}} if state else weights
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data.pkl", pickled(found))
        for number, one in enumerate(listed):
            archive.writestr(f"model/data/{number}", bytes(one.nbytes))


def write_h5(path: Path, listed: list[Stored]) -> None:
    """A .weights.h5 file as Keras 3 writes it."""
    import h5py
    import ml_dtypes

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for one in listed:
            values = np.zeros(one.shape, getattr(ml_dtypes, one.dtype, one.dtype))
            if one.dtype == "bfloat16":  # which HDF5 has no type for
                file.create_dataset(one.name, data=values.view("V2")).attrs["dtype"] = "bfloat16"
            else:
                file[one.name] = values
    path.write_bytes(buffer.getvalue())


WRITERS: dict[str, tuple[str, Callable[[Path, list[Stored]], None]]] = {
    "safetensors": ("model.safetensors", write_safetensors),
    "checkpoint": ("model.pt", write_checkpoint),
    "h5": ("model.weights.h5", write_h5),
}


def containers(text: str) -> list[str]:
    """The containers in which these weights are written; float8 has no storage of its own in older checkpoints."""
    match = CONTAINERS.search(text)
    if match:
        return match[1].split()
    return ["safetensors"] if "float8" in text else ["safetensors", "checkpoint"]


def write(folder: Path, container: str, text: str) -> Path:
    """The file of one container."""
    name, writer = WRITERS[container]
    writer(folder / name, tensors(text))
    return folder / name
