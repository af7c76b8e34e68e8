"""Models in memory: a keras.Model by its configuration and its layers' policies, a torch.nn.Module by an export on fake tensors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.graph.keras.archive import read_keras
from mplint.graph.keras.hdf5 import Dataset
from mplint.graph.keras.layers import Config, layer_node
from mplint.graph.keras.weights import Source
from mplint.graph.model import Graph, GraphError, ModelGraph, OpKind, Optimizer, Tensor, Weights

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np


def load(model: object, inputs: object = None) -> ModelGraph:
    """The graph of a keras.Model or a torch.nn.Module; raises GraphError for anything else.

    `inputs` are what a torch module is called with: a tuple of tensors or of shapes, or a dict of them by argument. Without them the
    module's own example inputs are taken where it has some, and where it has none the graph holds its parameters alone.
    """
    if isinstance(model, tuple) and len(model) == 2:  # a factory may return both
        model, inputs = model
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        from mplint.graph.torch.live import load_module

        return load_module(model, inputs)
    for name in ("keras", "tf_keras"):
        keras = sys.modules.get(name)
        if keras is not None and isinstance(model, keras.Model):
            return _load_keras(model, keras)
    if torch is not None and isinstance(model, torch.export.ExportedProgram):
        from mplint.graph.torch.live import read_exported

        return read_exported(model, "ExportedProgram")
    raise GraphError(f"a {type(model).__module__}.{type(model).__qualname__} is no model that mplint knows")


class LiveWeights(NamedTuple):
    """Values that a framework holds in memory."""

    variable: object
    nbytes: int

    def chunks(self, size: int = 1 << 24) -> Iterator[np.ndarray]:
        """The elements in pieces of at most `size` bytes."""
        import numpy as np

        numpy = getattr(self.variable, "numpy", None)
        flat = np.asarray(numpy() if numpy is not None else self.variable).reshape(-1)
        step = max(1, size // max(1, flat.itemsize))
        for start in range(0, flat.size, step):
            yield flat[start : start + step]


def _load_keras(model: object, keras: ModuleType) -> ModelGraph:
    name = str(getattr(model, "name", "model"))
    source = _variables(model)
    notes: list[str] = []
    try:
        serialized = keras.saving.serialize_keras_object(model)
        config = json.loads(json.dumps(serialized, default=str))
        layered = isinstance(config, dict) and isinstance(config.get("config"), dict) and "layers" in config["config"]
    except Exception:  # a subclassed model whose settings can't be written down, in whatever way it fails
        layered = False
    found = read_keras(name, "keras", config, source, notes) if layered else _subclassed(model, name, source, keras)
    found.producer = f"keras {getattr(keras, '__version__', '')}".strip()
    policy = getattr(model, "dtype_policy", None)
    found.policy = found.policy or getattr(policy, "name", None)
    found.optimizer = _optimizer(model)
    return found


def _subclassed(model: object, name: str, source: Source, keras: ModuleType) -> ModelGraph:
    """The layers of a model that is Python code, with their policies; how they are connected is not known."""
    graph = Graph(name)
    for layer in _below(model):
        path = str(getattr(layer, "path", None) or getattr(layer, "name", ""))
        try:
            entry: Config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer), default=str))
        except Exception:  # a layer that can't be written down: its class and policy are known all the same
            policy = getattr(getattr(layer, "dtype_policy", None), "name", None)
            entry = {"module": "custom", "class_name": type(layer).__name__, "config": {"name": path, "dtype": policy}}
        if not isinstance(entry, dict):
            continue
        entry.pop("inbound_nodes", None)
        scope, _, own = path.rpartition("/")
        named = source._replace(named=tuple(item for item in source.named if item[0][:-1] == tuple(path.split("/"))))
        node = layer_node({**entry, "name": own}, path, scope, [], named, [], {})
        node.outputs = ()
        node.graphs = {}
        if not node.weights and node.kind is OpKind.MOVE:
            continue
        graph.nodes.append(node)
    notes = [f"{name} is a subclassed model: which layer feeds which is in its Python code."]
    return ModelGraph(name, "keras", graph, notes=notes)


def _below(model: object) -> Iterator[object]:
    """The layers of a model and theirs, without the models that only hold others."""
    flatten = getattr(model, "_flatten_layers", None)
    yield from flatten(include_self=False, recursive=True) if flatten is not None else getattr(model, "layers", ())


def _variables(model: object) -> Source:
    values: dict[str, object] = {}
    named = []
    for variable in getattr(model, "weights", ()):
        path = str(getattr(variable, "path", None) or getattr(variable, "name", "")).partition(":")[0]
        while path in values:
            path += "'"
        dtype = getattr(variable, "dtype", None)
        shape = tuple(int(dim) for dim in variable.shape)
        dataset = Dataset(str(getattr(dtype, "name", dtype)), shape, None, 0)
        values[path] = variable
        named.append((tuple(path.split("/")), path, dataset))

    def place(path: str, dataset: Dataset) -> Weights | None:
        tensor = Tensor("", dataset.dtype, dataset.shape)
        return LiveWeights(values[path], tensor.nbytes or 0)

    return Source(named=tuple(named), place=place, made={})


def _optimizer(model: object) -> Optimizer | None:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return None
    inner = getattr(optimizer, "inner_optimizer", None)
    tensors = []
    for variable in getattr(optimizer, "variables", ()) if not callable(getattr(optimizer, "variables", None)) else ():
        dtype = getattr(variable, "dtype", None)
        name = str(getattr(variable, "path", None) or getattr(variable, "name", ""))
        tensors.append(Tensor(name, str(getattr(dtype, "name", dtype)), tuple(int(dim) for dim in variable.shape)))
    return Optimizer(type(inner or optimizer).__name__, tuple(tensors), inner is not None)
