"""What kind of model a file holds, told by its content: a name may be wrong, and ONNX has no magic bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property

HEAD = 4096
HDF5 = b"\x89HDF\r\n\x1a\n"
LFS = b"version https://git-lfs.github.com/spec/"
LEGACY_TORCH = b"l\xfc\x9cF\xf9 j\xa8P\x19"  # the magic number that torch.save pickles first, before format 1.6
MAX_MEMBERS = 100_000
# The fields of ONNX's ModelProto and their wire types: 0 a number, 2 bytes with a length.
MODEL_PROTO = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
GRAPH_FIELD = 7


class Probe:
    """A path and what the first bytes of the file say; archives are opened only when a recognizer asks for their members."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder = os.path.isdir(path)

    @cached_property
    def head(self) -> bytes:
        """The first bytes of the file; none for a folder."""
        if self.folder:
            return b""
        with open(self.path, "rb") as stream:
            return stream.read(HEAD)

    @cached_property
    def members(self) -> frozenset[str]:
        """The names in a zip archive, empty for anything else."""
        if not self.head.startswith(b"PK"):
            return frozenset()
        from zipfile import BadZipFile, ZipFile

        from mplint.graph.storage import check_directory

        try:
            with open(self.path, "rb") as stream:
                check_directory(stream)
                with ZipFile(stream) as archive:
                    return frozenset(archive.namelist()[:MAX_MEMBERS])
        except (BadZipFile, OSError, ValueError, NotImplementedError):
            return frozenset()

    @cached_property
    def member_names(self) -> frozenset[str]:
        """The names in a zip archive below its one top folder, as torch's archives have it."""
        return frozenset(name.partition("/")[2] or name for name in self.members) | self.members


def is_onnx(probe: Probe) -> bool:
    """A ModelProto: its top-level fields have the right types, and a graph is one of them. Reads a few bytes a field."""
    if probe.folder or not probe.head or probe.head[0] >> 3 not in MODEL_PROTO:
        return False
    return any(field == GRAPH_FIELD for field in _fields(probe.path))


def _fields(path: str) -> Iterator[int]:
    """The numbers of the top-level fields, up to the first that no ModelProto has."""
    size = os.path.getsize(path)
    with open(path, "rb") as stream:
        place = 0
        while place < size:
            stream.seek(place)
            head = stream.read(20)
            tag, used = _varint(head, 0)
            field, wire = tag >> 3, tag & 7
            if used == 0 or MODEL_PROTO.get(field) != wire:
                return
            value, end = _varint(head, used)
            if end == 0 or (wire == 2 and place + end + value > size):
                return
            yield field
            place += end + (value if wire == 2 else 0)


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """A protobuf number and the place after it, which is 0 where there is none."""
    value = 0
    for shift, byte in enumerate(data[start : start + 10]):
        value |= (byte & 127) << (7 * shift)
        if byte < 128:
            return value, start + shift + 1
    return 0, 0


def is_keras(probe: Probe) -> bool:
    """A Keras 3 archive."""
    return {"config.json", "metadata.json"} <= probe.members


def is_hdf5(probe: Probe) -> bool:
    """An HDF5 file."""
    return probe.head.startswith(HDF5)


def is_torch_export(probe: Probe) -> bool:
    """A program of torch.export, in the archive format of torch 2.8 or in the older one."""
    names = probe.member_names
    return any(n.startswith("models/") and n.endswith(".json") for n in names) or "serialized_exported_program.json" in names


def is_torchscript(probe: Probe) -> bool:
    """A TorchScript archive: pickled data with code."""
    names = probe.member_names
    return "data.pkl" in names and ("constants.pkl" in names or any(n.startswith("code/") for n in names))


def is_pickled(probe: Probe) -> bool:
    """A file of torch.save: a zip archive with data.pkl, or the older stream of pickles."""
    return "data.pkl" in probe.member_names or (probe.head[:1] == b"\x80" and LEGACY_TORCH in probe.head[:32])


def is_safetensors(probe: Probe) -> bool:
    """A safetensors file: the length of a JSON header, then the header."""
    return len(probe.head) > 8 and probe.head[8:9] == b"{" and 2 <= int.from_bytes(probe.head[:8], "little") <= 1 << 32


def is_safetensors_index(probe: Probe) -> bool:
    """The JSON file that says which safetensors file holds which tensor."""
    name = os.path.basename(probe.path)
    return probe.head.lstrip()[:1] == b"{" and (name.endswith(".safetensors.index.json") or b'"weight_map"' in probe.head)


def is_savedmodel(probe: Probe) -> bool:
    """A TensorFlow SavedModel folder, or the saved_model.pb in it."""
    if probe.folder:
        return os.path.isfile(os.path.join(probe.path, "saved_model.pb"))
    return os.path.basename(probe.path) == "saved_model.pb"
