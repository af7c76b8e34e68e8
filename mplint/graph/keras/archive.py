"""Keras 3 archives (.keras), read as the zip, JSON and HDF5 that they are; no layer is made and no Lambda called."""

from __future__ import annotations

import os
from contextlib import ExitStack

from mplint.graph.keras.config import policy_name, read_model
from mplint.graph.keras.hdf5 import Dataset, Group, read_hdf5
from mplint.graph.keras.layers import Config
from mplint.graph.keras.weights import Source
from mplint.graph.model import GraphError, ModelGraph, Optimizer, Tensor, Weights, connect
from mplint.graph.storage import MAX_INFLATED, Archive, FileWeights, Json, MemoryWeights, parse_json, reads

WEIGHTS = "model.weights.h5"


@reads("Keras archive")
def load(path: str) -> ModelGraph:
    """The layers of a .keras file, with their policies and where their variables lie. Raises GraphError."""
    with Archive(path) as archive, ExitStack() as stack:
        config = parse_json(archive.read("config.json"), "config.json")
        about = parse_json(archive.read("metadata.json", 1 << 20), "metadata.json") if "metadata.json" in archive.members else {}
        if not isinstance(config, dict):
            raise GraphError("config.json is no model's configuration")
        notes: list[str] = []
        source = _weights(archive, notes, stack)
        model = read_keras(path, "keras", config, source, notes)
        version = about.get("keras_version") if isinstance(about, dict) else None
        model.mendable = isinstance(version, str) and not version.startswith("2.")
        model.producer = f"keras {version}" if isinstance(version, str) else "keras"
        model.optimizer = optimizer_of(config.get("compile_config"), source)
    return model


def read_keras(path: str, format: str, config: Config, source: Source, notes: list[str]) -> ModelGraph:
    """The model of a Keras configuration, from whatever file it came."""
    graph = read_model(config, source, notes)
    connect(graph)
    return ModelGraph(path, format, graph, policy=policy_name(config), notes=notes)


def _weights(archive: Archive, notes: list[str], stack: ExitStack) -> Source:
    info = archive.members.get(WEIGHTS)
    if info is None:
        notes.append(f"The archive has no {WEIGHTS}: nothing is known of the stored variables.")
        return Source()
    start = archive.place(WEIGHTS)
    if start is None:  # compressed, which Keras does not do: held in memory within bounds
        data = archive.read(WEIGHTS, MAX_INFLATED)

        def read_memory(offset: int, size: int) -> bytes:
            return data[offset : offset + size]

        def copy(path: str, dataset: Dataset) -> Weights | None:
            if dataset.offset is None or dataset.dtype is None:
                return None
            return MemoryWeights(data[dataset.offset : dataset.offset + dataset.nbytes], dataset.dtype, dataset.big_endian)

        return Source(read_hdf5(read_memory, len(data)), place=copy, made={})
    stream = stack.enter_context(open(archive.path, "rb"))  # noqa: SIM115
    return open_hdf5(archive.path, stream.fileno(), start, info.file_size)


def open_hdf5(path: str, descriptor: int, start: int, size: int) -> Source:
    """The groups of an HDF5 file that lies at `start` of a file."""

    def read(offset: int, count: int) -> bytes:
        data = os.pread(descriptor, count, start + offset)
        if len(data) != count:
            raise GraphError("the file is cut off")
        return data

    def place(name: str, dataset: Dataset) -> Weights | None:
        if dataset.offset is None or dataset.dtype is None:
            return None
        return FileWeights(path, start + dataset.offset, dataset.nbytes, dataset.dtype, dataset.big_endian)

    return Source(read_hdf5(read, size), place=place, made={})


def optimizer_of(compiled: Json, source: Source) -> Optimizer | None:
    """The optimizer that the model was compiled with, and its state; loss scaling shows in the state alone."""
    group = source.group.group("optimizer") if source.group is not None else None
    name = ""
    match compiled:
        case {"optimizer": {"class_name": str(name), "config": inner}}:
            if name.rpartition(">")[2].startswith("LossScaleOptimizer") and isinstance(inner, dict):
                match inner.get("inner_optimizer"):
                    case {"class_name": str(below)}:
                        return Optimizer(below, tuple(_states(group, source, "optimizer")), True)
        case {"optimizer": str(name)}:
            name = {"sgd": "SGD", "rmsprop": "RMSprop"}.get(name, name.capitalize())
    if not name and group is None:
        return None
    held = group.group("inner_optimizer") if group is not None else None
    tensors = _states(held or group, source, "optimizer/inner_optimizer" if held else "optimizer")
    scaled = held is not None
    return Optimizer(name, tuple(tensors), scaled if group is not None else None)


def _states(group: Group | None, source: Source, path: str) -> list[Tensor]:
    kept = group.group("vars") if group is not None else None
    return [
        Tensor(f"{path}/{index}", dataset.dtype, dataset.shape, weights=source.place(f"{path}/vars/{index}", dataset))
        for index, dataset in sorted(kept.members.items() if kept else (), key=lambda item: (len(item[0]), item[0]))
        if isinstance(dataset, Dataset)
    ]
