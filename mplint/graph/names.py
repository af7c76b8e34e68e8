"""The names of model files: what a run looks at in folders. A leaf module, imported wherever files are listed."""

from __future__ import annotations

import re
from collections.abc import Sequence

INDEX = ".safetensors.index.json"
SAVEDMODEL = "saved_model.pb"
MODELS = (".onnx", ".keras", ".h5", ".hdf5", ".safetensors", ".pt2", ".pt", ".pth", ".ckpt", ".bin", INDEX, SAVEDMODEL)
PROGRAMS = (".py", ".pyi", ".ipynb", ".json", ".yaml", ".yml", ".toml", ".txt", ".md", ".cfg", ".ini")
# Names that say nothing of whether a file is a model: data sets, arrays and caches go by them, too.
VAGUE = (".h5", ".hdf5", ".pt", ".pth", ".ckpt", ".bin")

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # two letters or more: C:// is a drive


def is_address(path: str) -> bool:
    """Whether a model is named by an address, such as s3://bucket/model.onnx, and not by a path."""
    return _ADDRESS.match(path) is not None


def is_model(path: str) -> bool:
    """Whether a file is read as a model: by its name, or where that says nothing, because it is not text."""
    if path.endswith(MODELS) or is_address(path):
        return True
    if path.endswith(PROGRAMS):
        return False
    try:
        with open(path, "rb") as stream:
            head = stream.read(512)
    except OSError:
        return False
    return b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))


def without_shards(paths: Sequence[str]) -> list[str]:
    """The model files but for the parts of those whose index is among them: `model-00001-of-00007.safetensors`."""
    indexed = {path.rpartition("/")[0] for path in paths if path.endswith(INDEX)}
    if not indexed:
        return list(paths)
    import re

    shard = re.compile(r"-\d+-of-\d+\.safetensors$")
    return [path for path in paths if path.rpartition("/")[0] not in indexed or not shard.search(path)]
