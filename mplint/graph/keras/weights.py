"""Which arrays of a Keras file belong to which layer: the groups of Keras 3 and the weight_names of the older .h5 files."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from mplint.graph.keras.hdf5 import Dataset, Group
from mplint.graph.model import Tensor, Weights

Place = Callable[[str, Dataset], Weights | None]  # (path in the file, dataset) -> its values
Variables = dict[str, Tensor]

# The variables of layers in the order in which they are made; those switched off by a setting are left out of the file.
NAMES = {
    "Dense": ("kernel", "bias"),
    "EinsumDense": ("kernel", "bias"),
    "Embedding": ("embeddings",),
    "BatchNormalization": ("gamma", "beta", "moving_mean", "moving_variance"),
    "LayerNormalization": ("gamma", "beta"),
    "GroupNormalization": ("gamma", "beta"),
    "RMSNormalization": ("scale",),
    "PReLU": ("alpha",),
    "Normalization": ("mean", "variance", "count"),
    **dict.fromkeys(("LSTMCell", "GRUCell", "SimpleRNNCell", "ConvLSTMCell"), ("kernel", "recurrent_kernel", "bias")),
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), ("depthwise_kernel", "pointwise_kernel", "bias")),
}
SWITCHES = {"gamma": "scale", "beta": "center"}


class Source(NamedTuple):
    """Where a layer's variables are: in a group of a Keras 3 file, or among the named weights of an older one."""

    group: Group | None = None
    path: str = ""
    named: tuple[tuple[tuple[str, ...], str, Dataset], ...] = ()  # (name in parts, path in the file, dataset)
    place: Place = lambda path, dataset: None
    made: Variables = {}  # by their paths in the file: a wrapper and the layer in it hold the same variables

    def variable(self, name: str, path: str, dataset: Dataset) -> Tensor:
        """The variable at a path of the file, one tensor however often it is asked for."""
        if path not in self.made:
            self.made[path] = Tensor(name, dataset.dtype, dataset.shape, weights=self.place(path, dataset))
        return self.made[path]


NOTHING = Source()


def children(source: Source, layers: list[tuple[str, str]]) -> dict[str, Source]:
    """The source of every layer of a model, by layer name; `layers` are pairs of name and class, in the order of the file."""
    if source.named:
        index: dict[str, list[tuple[tuple[str, ...], str, Dataset]]] = {}
        for entry in source.named:
            for part in set(entry[0]):
                index.setdefault(part, []).append(entry)
        return {name: source._replace(named=tuple(index[name])) for name, _ in layers if name in index}
    holder = next((name for name in ("layers", "_layer_checkpoint_dependencies") if source.group and source.group.group(name)), None)
    return listed(source, holder, layers) if holder is not None else {}


def listed(source: Source, holder: str, layers: list[tuple[str, str]]) -> dict[str, Source]:
    """The source of every layer of a list that a model or layer keeps under the name `holder`."""
    group = source.group.group(holder) if source.group is not None else None
    if group is None:
        return {name: inner(source, name) for name, _ in layers}
    by_name = {}
    for key, member in group.members.items():
        if isinstance(member, Group):
            kept = member.group("vars")
            name = kept.attributes.get("name") if kept is not None else None
            if isinstance(name, str):
                by_name[name] = key
    found, counts = {}, dict[str, int]()
    for name, kind in layers:
        stem = snake_case(kind)
        count = counts.get(stem, 0)
        counts[stem] = count + 1
        found[name] = inner(source, f"{holder}/{by_name.get(name, f'{stem}_{count}' if count else stem)}")
    return found


def inner(source: Source, part: str) -> Source:
    """The source of a part of a layer, such as the cell of a recurrent one."""
    if source.named or source.group is None:
        return source._replace(named=tuple(entry for entry in source.named if part in entry[0])) if source.named else NOTHING
    return source._replace(group=source.group.group(part), path=f"{source.path}{part}/")


def variables(source: Source, layer: str, kind: str, config: dict[str, object]) -> Variables:
    """The variables of a layer by name; those of its parts by the path of the part ("cell/kernel")."""
    if source.named:
        return _named(source, layer)
    found: Variables = {}
    if source.group is not None:
        match config.get("layer"):
            case {"class_name": str(inside), "config": dict(settings)} if kind != "Bidirectional":
                names = _names(inside, settings)
            case _:
                names = _names(kind, config)
        _collect(source, source.group, layer, "", names, found)
    return found


def _collect(source: Source, group: Group, layer: str, part: str, names: tuple[str, ...], found: Variables) -> None:
    for key, member in group.members.items():
        if not isinstance(member, Group) or key in ("layers", "seed_generator"):
            continue
        if key != "vars":
            below = ("kernel", "bias") if key.endswith("dense") else NAMES["LSTMCell"] if key == "cell" else names if key == "layer" else ()
            _collect(source, member, layer, f"{part}{key}/", below, found)
            continue
        for index, dataset in sorted(member.members.items(), key=lambda item: (len(item[0]), item[0])):
            if isinstance(dataset, Dataset):
                place = int(index) if index.isdecimal() and len(index) < 9 else -1
                name = part + (names[place] if 0 <= place < len(names) else index)
                path = f"{source.path}{part}vars/{index}"
                found[name] = source.variable(f"{layer}/{name}", path, dataset)


def _named(source: Source, layer: str) -> Variables:
    own = layer.rpartition("/")[2]
    found: Variables = {}
    for parts, path, dataset in source.named:
        start = max((i for i, part in enumerate(parts[:-1]) if part == own), default=-1)
        name = "/".join(parts[start + 1 :])
        found[name] = source.variable(f"{layer}/{name}", path, dataset)
    return found


def _names(kind: str, config: dict[str, object]) -> tuple[str, ...]:
    names = NAMES.get(kind)
    if names is None:
        names = ("kernel", "bias") if "Conv" in kind else ()
    return tuple(name for name in names if config.get(SWITCHES.get(name, ""), True) is not False)


def snake_case(name: str) -> str:
    """The name that Keras gives to an object of a class: "Conv2D" is "conv2d", "MultiHeadAttention" "multi_head_attention"."""
    name = re.sub(r"\W+", "", name[:200])
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
