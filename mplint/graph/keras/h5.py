"""The older Keras files (.h5): the configuration in an attribute, as Keras 2 or Keras 3 writes it, and weights by their names."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mplint.graph.checkpoints import take_state
from mplint.graph.keras.archive import open_hdf5, read_keras
from mplint.graph.keras.hdf5 import Attribute, Dataset, Group
from mplint.graph.keras.weights import Source
from mplint.graph.model import Graph, GraphError, ModelGraph, NotAModel, Optimizer, Tensor
from mplint.graph.storage import Json, parse_json, reads

Named = tuple[tuple[str, ...], str, Dataset]


@reads("Keras file")
def load(path: str) -> ModelGraph:
    """The layers of an .h5 model, or the variables of an .h5 file of weights. Raises GraphError."""
    source = _opened(path)
    root = source.group
    assert root is not None
    weights = root.group("model_weights") or root
    named = tuple(_named(weights, "model_weights/" if weights is not root else ""))
    text = root.attributes.get("model_config")
    if not isinstance(text, str):
        return _weights_only(path, source, root, named)
    config = parse_json(text.encode(), "model_config")
    if not isinstance(config, dict):
        raise GraphError("model_config is no model's configuration")
    model = read_keras(path, "keras-h5", config, source._replace(group=None, named=named), [])
    version = root.attributes.get("keras_version")
    model.producer = f"keras {version}" if isinstance(version, str) else "keras"
    model.mendable = isinstance(version, str) and not version.startswith(("1.", "2."))
    model.optimizer = _optimizer(root, source)
    return model


def configuration(path: str) -> str:
    """The configuration of the model in an .h5 file, as it stands there. Raises GraphError."""
    root = _opened(path).group
    text = root.attributes.get("model_config") if root is not None else None
    if not isinstance(text, str):
        raise GraphError("it holds no model's configuration")
    return text


def _opened(path: str) -> Source:
    with open(path, "rb") as stream:
        return open_hdf5(path, stream.fileno(), 0, os.path.getsize(path))


def _weights_only(path: str, source: Source, root: Group, named: tuple[Named, ...]) -> ModelGraph:
    if not named and not root.members.keys() & {"layers", "vars", "_layer_checkpoint_dependencies", "top_level_model_weights"}:
        raise NotAModel("an HDF5 file that Keras did not write")
    found = named or tuple(_datasets(root, ()))
    graph = Graph()
    for parts, place, dataset in found:
        name = "/".join(parts)
        graph.constants[name] = Tensor(name, dataset.dtype, dataset.shape, weights=source.place(place, dataset))
    model = ModelGraph(path, "keras-h5", graph, producer="keras")
    take_state(model)
    return model


def _named(weights: Group, path: str) -> Iterator[Named]:
    """The variables that the groups of layers list, in that order."""
    for layer, group in weights.members.items():
        if not isinstance(group, Group):
            continue
        for name in names_in(group.attributes, "weight_names"):
            parts = tuple(name.split("/"))
            holder = group.group("/".join(parts[:-1])) if len(parts) > 1 else group
            dataset = holder.members.get(parts[-1]) if holder is not None else None
            if isinstance(dataset, Dataset):
                yield (layer, *parts[:-1], parts[-1].partition(":")[0]), f"{path}{layer}/{name}", dataset


def names_in(attributes: dict[str, Attribute], key: str) -> tuple[str, ...]:
    """A list of names; a long one is split over weight_names0, weight_names1 …"""
    found: tuple[str, ...] = ()
    whole = attributes.get(key)
    if isinstance(whole, tuple):
        found = whole
    index = 0
    while isinstance(part := attributes.get(f"{key}{index}"), tuple):
        found += part
        index += 1
    return found


def _datasets(group: Group, parts: tuple[str, ...]) -> Iterator[Named]:
    for name, member in group.members.items():
        if isinstance(member, Dataset):
            yield (*parts, name), "/".join((*parts, name)), member
        else:
            yield from _datasets(member, (*parts, name))


def _optimizer(root: Group, source: Source) -> Optimizer | None:
    text = root.attributes.get("training_config")
    config: Json = parse_json(text.encode(), "training_config") if isinstance(text, str) else None
    kept = root.group("optimizer_weights")
    tensors = [
        Tensor("/".join(parts), dataset.dtype, dataset.shape, weights=source.place(place, dataset))
        for parts, place, dataset in (_datasets(kept, ()) if kept else ())
    ]
    match config:
        case {"optimizer_config": {"class_name": str(name), "config": inner}}:
            scaled = name.rpartition(">")[2].startswith("LossScaleOptimizer")
            match inner:
                case {"inner_optimizer": {"class_name": str(below)}} if scaled:
                    name = below
                case _:
                    pass
            name = name.rpartition(">")[2]
            return Optimizer(name, tuple(tensors), scaled or any("loss_scale" in t.name for t in tensors))
        case _:
            return Optimizer("", tuple(tensors)) if tensors else None
