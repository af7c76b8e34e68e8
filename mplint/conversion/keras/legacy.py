"""Configurations of Keras 2, in the words that Keras 3 reads: settings that it dropped, policies, and the numbers of nested models' calls.

Only what says nothing is dropped: a setting with another value stays, and Keras refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mplint.graph.keras.layers import Config, class_of, layer_config, name_of
from mplint.graph.storage import Json

# Settings that Keras 3 does not know, and the values with which they say nothing; None for any value.
DROPPED: dict[str, tuple[Json, ...] | None] = {
    "time_major": (False,),
    "query_shape": None,
    "key_shape": None,
    "value_shape": None,
    "fused": None,
    "_checkpoint_name": None,
    "experimental_full_slice_range": None,
}
GROUPS: dict[str, tuple[Json, ...] | None] = {"groups": (1,)}
RENORM: dict[str, tuple[Json, ...] | None] = {
    "renorm": (False,),
    "renorm_clipping": (None,),
    "renorm_momentum": None,
    "virtual_batch_size": (None,),
    "adjustment": (None,),
}
DEPTHWISE: dict[str, tuple[Json, ...] | None] = {
    **GROUPS,
    "kernel_initializer": None,
    "kernel_regularizer": (None,),
    "kernel_constraint": (None,),
}
SHAPED: dict[str, dict[str, tuple[Json, ...] | None]] = {
    **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"), DEPTHWISE),
    **dict.fromkeys(("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"), GROUPS),
    **dict.fromkeys(("BatchNormalization", "SyncBatchNormalization"), RENORM),
}


def modernize(config: Config) -> bool:
    """Change the configuration of a model of Keras 2 in place; whether there was anything to change."""
    changed = False
    for entry in _entries(config):
        settings = layer_config(entry)
        for key, harmless in {**DROPPED, **SHAPED.get(class_of(entry), {})}.items():
            if key in settings and (harmless is None or settings[key] in harmless):
                del settings[key]
                changed = True
        match settings.get("dtype"):
            case {"class_name": "Policy" | "PolicyV1", "config": {"name": str(name)}}:
                settings["dtype"] = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": name}, "registered_name": None}
                changed = True
        changed |= _renumber(settings)
    return changed


def _entries(config: Json) -> Iterator[Config]:
    """A model's entry and those of all layers and parts in it."""
    stack = [config]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if isinstance(item.get("class_name"), str) and isinstance(item.get("config"), dict):
                yield item
            stack += item.values()
        elif isinstance(item, list):
            stack += item


def _renumber(model: Config) -> bool:
    """Number the calls of nested models from 0: Keras 2 counts the one that built the model itself, too."""
    layers = model.get("layers")
    if not isinstance(layers, list):
        return False
    nested = {}
    entries = [layer for layer in layers if isinstance(layer, dict)]
    references = list(_references([model.get("output_layers"), *(layer.get("inbound_nodes") for layer in entries)]))
    for layer in entries:
        if isinstance(layer_config(layer).get("layers"), list):
            calls = layer.get("inbound_nodes")
            used = [reference[1] for reference in references if reference[0] == name_of(layer)]
            if isinstance(calls, list) and calls and used and max(used) >= len(calls):
                nested[name_of(layer)] = max(used) + 1 - len(calls)
    for reference in references:
        reference[1] -= nested.get(reference[0], 0)
    return bool(nested)


def _references(value: Json) -> Iterator[list[Any]]:
    """The lists ["layer", call, output, …] in nested lists."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            if len(item) >= 3 and isinstance(item[0], str) and isinstance(item[1], int) and isinstance(item[2], int):
                yield item
            stack += item  # arguments that are tensors follow in the list
        elif isinstance(item, dict):
            stack += item.values()
