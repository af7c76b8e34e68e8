"""Stores of objects for tests: what s3:// and gs:// name is a folder, for the processes that a test begins, too; and small models in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

STORE = """\
import os
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

class Bucket(DirFileSystem):
    protocol = ("s3", "gs")

    def __init__(self, **kwargs):
        super().__init__(path=os.environ["TEST_BUCKETS"], fs=LocalFileSystem())

    def unstrip_protocol(self, name):
        return f"{os.environ['TEST_SCHEME']}://{name.lstrip('/')}"
"""
GRAPH = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,{width}] x) => (float[N,8] y) {{ y = MatMul(x, w) }}'


def buckets_in(folder: Path, scheme: str = "s3") -> dict[str, str]:
    """The environment of processes for which s3:// and gs:// lead below folder/buckets; packages register stores by entry points."""
    package = folder / "stores"
    about = package / "test_stores-1.dist-info"
    about.mkdir(parents=True)
    (package / "test_stores.py").write_text(STORE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: test-stores\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[fsspec.specs]\ns3 = test_stores:Bucket\ngs = test_stores:Bucket\n")
    (folder / "buckets").mkdir(exist_ok=True)
    known = os.pathsep.join((str(package), *filter(None, sys.path)))
    cache = str(folder / "cache")
    return {**os.environ, "PYTHONPATH": known, "TEST_BUCKETS": str(folder / "buckets"), "TEST_SCHEME": scheme, "MPLINT_CACHE_DIR": cache}


def save_model(path: Path, width: int, largest: float = 1.0, beside: str = "") -> None:
    """Write a product with weights of up to `largest`, in a file `beside` it where one is named."""
    import numpy as np
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    model = onnx.parser.parse_model(GRAPH.format(width=width))
    weights = np.linspace(-1, 1, width * 8, dtype=np.float32).reshape(width, 8) * np.float32(largest)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    options = {"save_as_external_data": True, "location": beside, "size_threshold": 0} if beside else {}
    onnx.save(model, str(path), **options)
