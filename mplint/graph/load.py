"""Which loader reads a model file: recognized by content, read as data, imported when it is needed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from mplint.graph.model import GraphError, ModelGraph, NotAModel, Optimizer
from mplint.graph.names import VAGUE
from mplint.graph.recognize import (
    LFS,
    Probe,
    is_hdf5,
    is_keras,
    is_onnx,
    is_pickled,
    is_safetensors,
    is_safetensors_index,
    is_savedmodel,
    is_torch_export,
    is_torchscript,
)


class Format(NamedTuple):
    """One kind of model file.

    `module` defines `load(path: str) -> ModelGraph`, which raises GraphError for what it can't read. `needs` are the packages that it
    imports, or that rules need for the values of weights; `extra` is the extra of mplint that brings them. `suffixes` are the names such
    files go by, for files that no content gives away.
    """

    name: str
    recognize: Callable[[Probe], bool]
    module: str
    suffixes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    extra: str = ""


# The first that recognizes a file reads it.
FORMATS: tuple[Format, ...] = (
    Format("onnx", is_onnx, "mplint.graph.onnx.loader", (".onnx",), ("onnx", "onnx_ir", "numpy", "ml_dtypes"), "onnx"),
    Format("keras", is_keras, "mplint.graph.keras.archive", (".keras",), ("numpy",), "keras"),
    Format("keras-h5", is_hdf5, "mplint.graph.keras.h5", (".h5", ".hdf5"), ("numpy",), "keras"),
    Format("safetensors", is_safetensors, "mplint.graph.safetensors", (".safetensors",), ("numpy",), "torch"),
    Format("safetensors", is_safetensors_index, "mplint.graph.safetensors", (), ("numpy",), "torch"),
    Format("torch-export", is_torch_export, "mplint.graph.torch.export", (".pt2",), ("numpy",), "torch"),
    Format("torchscript", is_torchscript, "mplint.graph.torch.script", (".pt",), ("numpy",), "torch"),
    Format("state-dict", is_pickled, "mplint.graph.torch.pickle", (".pt", ".pth"), ("numpy",), "torch"),
    Format("savedmodel", is_savedmodel, "mplint.graph.tensorflow.savedmodel", (), ("numpy",), "keras"),
)
BESIDE = ("optimizer.pt", "optimizer.bin")  # what transformers and accelerate save next to a model's weights
LIVE = "mplint.graph.live"  # defines `load(model: object, inputs: object) -> ModelGraph` for keras.Model and torch.nn.Module


class MissingExtra(GraphError):
    """A model file that could be read if an optional package were installed."""

    def __init__(self, path: str, format: str, extra: str, package: str) -> None:
        super().__init__(f'reading a file of the format {format} needs {package}: pip install "mplint[{extra}]"')
        self.extra = extra
        self.package = package


def load_graph(model: object, inputs: object = None) -> ModelGraph:
    """The graph of a model: a path to a file or a SavedModel folder, or a live keras.Model or torch.nn.Module.

    `inputs` are example inputs, or shapes of inputs, for a torch module.

    Files are read as data: nothing in them is run, and weights are not read. Raises GraphError for what can't be read, MissingExtra
    where a package is missing for it.
    """
    from importlib import import_module

    if isinstance(model, ModelGraph):
        return model
    if not isinstance(model, str | os.PathLike):
        describe: Callable[[object, object], ModelGraph] = import_module(LIVE).load
        return describe(model, inputs)
    path = os.fspath(model)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    found = format_of(path)
    for package in found.needs:
        require(package, path, found)
    loader: Callable[[str], ModelGraph] = import_module(found.module).load
    model = loader(path)
    if model.optimizer is None and model.graph.constants and not model.graph.nodes:
        model.optimizer = optimizer_beside(path)
    return model


def optimizer_beside(path: str) -> Optimizer | None:
    """The optimizer whose state a trainer saved in a file of its own beside the weights."""
    for name in BESIDE:
        place = os.path.join(os.path.dirname(path), name)
        if os.path.basename(path) != name and os.path.isfile(place):
            try:
                return load_graph(place).optimizer
            except GraphError:  # it is reported where that file is checked
                return None
    return None


def format_of(path: str) -> Format:
    """The format of the model at `path`; raises GraphError where its content is none that is known."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise NotAModel("not a regular file")
        probe = Probe(path)
        for found in FORMATS:
            if found.recognize(probe):
                return found
        head = probe.head
    except OSError as error:
        raise GraphError(f"can't be read: {(error.strerror or str(error)).lower()}") from None
    if probe.folder:
        raise NotAModel("not a model: the folder has no saved_model.pb")
    if head.startswith(LFS):
        raise NotAModel("a Git LFS pointer, not the model itself; fetch it with `git lfs pull`")
    named = next((f.name for f in FORMATS if path.lower().endswith(f.suffixes)), None)
    reason = "the file is empty" if not head else "not a model file of a known format"
    if named is not None and head:
        reason = f"the name says {named}, but the content is no {named} file, or is cut off"
    if named is None or path.lower().endswith(VAGUE):
        raise NotAModel(reason)
    raise GraphError(reason)


def require(package: str, path: str, found: Format) -> None:
    """Raise MissingExtra where a package that a loader needs is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise MissingExtra(path, found.name, found.extra, package)
