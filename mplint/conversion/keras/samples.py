"""Inputs for Keras models: the user's data, or arrays made up from what the first layers expect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mplint.conversion.feeds import Wanted, check_data
from mplint.conversion.plausible import RATE, SEQUENCES, STEPS, hinted, is_sound, sequence
from mplint.conversion.policy import ConversionError, nearest

Feed = list[np.ndarray]
SAMPLES, NAMED = 3, 2
WORDS = {"string": "object", "bfloat16": "float32"}
SMALL = 20_000
MOVING = frozenset(("Reshape", "Flatten", "Permute", "RepeatVector", "Identity", "Cropping1D", "Cropping2D", "ZeroPadding2D"))
OPEN_DIMS = (16, 32, 64, 8, 128)


def samples_of(
    model: Any, feeds: Sequence[Mapping[str, np.ndarray]], ranges: Mapping[str, tuple[float, float]], size: int = OPEN_DIMS[0]
) -> tuple[list[Feed], str]:
    """Inputs in the order of `model.inputs`, or none and why; `size` is what open dimensions get where nothing is given."""
    try:
        inputs = list(model.inputs or ())
    except AttributeError:  # a sequential model that was never called
        inputs = []
    inputs = inputs or list(_built(model, feeds))
    names = [tensor.name for tensor in inputs]
    for name in ranges if inputs else ():
        if name not in names:
            raise ConversionError(f"the model has no input {name!r}; it takes {', '.join(names)}{nearest(name, names)}")
    if not inputs:
        return [], "what its inputs are is not known before it is called"
    if feeds:
        takes = {tensor.name: Wanted(WORDS.get(str(tensor.dtype), str(tensor.dtype)), tuple(tensor.shape)) for tensor in inputs}
        for feed in feeds:
            check_data(feed, takes)
        return [[np.asarray(feed[name]) for name in names] for feed in feeds], ""
    strings = [tensor.name for tensor in inputs if str(tensor.dtype) == "string"]
    if strings:
        return [], f"the input {strings[0]!r} takes strings: give --calibration data"
    bounds = [_range(model, tensor, ranges) for tensor in inputs]
    told = any(bound is None and hinted(tensor.name, (1, 1), 0) is not None for tensor, bound in zip(inputs, bounds, strict=True))
    seeds = range(SAMPLES + NAMED) if told else range(SAMPLES)  # what names say comes last
    made = [[_made(tensor, bounds[at], (seed, at), size) for at, tensor in enumerate(inputs)] for seed in seeds]
    walked = [bound is None and _is_walked(model, tensor) for tensor, bound in zip(inputs, bounds, strict=True)]
    for kind in SEQUENCES if any(walked) else ():
        made.append(
            [_sequence(tensor, kind, array) if walks else array for tensor, array, walks in zip(inputs, made[0], walked, strict=True)]
        )
    return made, ""


def _sequence(tensor: Any, kind: str, like: np.ndarray) -> np.ndarray:
    """A sequence for an input, of a kind that what is heard or measured has; of many steps, where the model takes any number."""
    shape = [like.shape[0], like.shape[1] if tensor.shape[1] is not None else STEPS, *like.shape[2:]]
    return sequence(shape, 1, kind, np.random.default_rng(SEQUENCES.index(kind))).astype(like.dtype)


def _is_walked(model: Any, tensor: Any) -> bool:
    """Whether a recurrent layer goes along the second axis of what becomes of a float input."""
    if len(tensor.shape) < 3 or "float" not in str(tensor.dtype):
        return False
    operations = list(getattr(model, "operations", None) or model.layers)
    if type(model).__name__ == "Sequential":
        return any(map(_is_recurrent, operations))
    reached, stack = {id(tensor)}, [tensor]
    while stack:
        current = stack.pop()
        for operation in operations:
            for node in getattr(operation, "_inbound_nodes", ()):
                if any(given is current for given in node.input_tensors):
                    if _is_recurrent(operation):
                        return True
                    new = [made for made in node.output_tensors if id(made) not in reached]
                    reached.update(map(id, new))
                    stack += new
    return False


def _is_recurrent(layer: Any) -> bool:
    """Whether a layer, one that it wraps, or one of a model in it has a cell that is called for each step."""
    inner = [getattr(layer, name, None) for name in ("layer", "forward_layer")]
    return hasattr(layer, "cell") or any(_is_recurrent(one) for one in (*inner, *getattr(layer, "layers", ())) if one is not None)


class _Input(NamedTuple):
    """What a model that makes its layers itself takes."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str = "float32"


def _built(model: Any, feeds: Sequence[Mapping[str, np.ndarray]]) -> Iterator[_Input]:
    """The one input for which such a model was built, called as the data calls it."""
    shapes = getattr(model, "_build_shapes_dict", None) or {}
    shape = next(iter(shapes.values())) if len(shapes) == 1 else None
    if isinstance(shape, tuple | list) and len(shape) > 1 and all(size is None or isinstance(size, int) for size in shape):
        names = list(feeds[0]) if feeds and len(feeds[0]) == 1 else ["inputs"]
        dtype = str(feeds[0][names[0]].dtype) if feeds and names[0] in feeds[0] else "float32"
        yield _Input(names[0], (None, *shape[1:]), dtype)


def _made(tensor: Any, bounds: tuple[float, float] | None, seed: tuple[int, int], size: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shape = [size if dim is None else dim for dim in tensor.shape]
    if tensor.shape and tensor.shape[0] is None:  # few of what is large: a small batch of small outputs says little
        shape[0] = 8 if np.prod(shape[1:]) <= SMALL else 2
    dtype = str(tensor.dtype)
    whole = dtype.startswith(("int", "uint", "bool"))
    if not whole and bounds is None and is_sound(tensor.name) and 1 < len(shape) <= 3 and tensor.shape[1] is None:
        shape[1] = RATE
    named = hinted(tensor.name, shape, seed[0]) if seed[0] >= SAMPLES and not whole and bounds is None else None
    if named is not None:
        return named.astype(dtype)
    if bounds is None and not whole:
        array = rng.uniform(0.0, 1.0, shape) if seed[0] == 1 else rng.normal(0.0, 1.0 if seed[0] == 0 else 3.0, shape)
    else:
        low, high = bounds or ((0.0, 255.0) if dtype == "uint8" else (0.0, 1.0))
        array = rng.uniform(low, high + whole, shape)
    return np.asarray(np.floor(array) if whole else array).astype(dtype)


def _range(model: Any, tensor: Any, ranges: Mapping[str, tuple[float, float]]) -> tuple[float, float] | None:
    """The values that an input takes: as declared, or as the layers say that take it."""
    if tensor.name in ranges:
        return ranges[tensor.name]
    for layer in _takers(model, tensor):
        match type(layer).__name__:
            case "Embedding":
                return 0.0, float(layer.input_dim - 1)
            case "CategoryEncoding" if isinstance(getattr(layer, "num_tokens", None), int):
                return 0.0, float(layer.num_tokens - 1)
            case "Rescaling" if isinstance(layer.scale, float) and 0 < layer.scale < 0.02:  # of images, 1 / 255 or 1 / 127.5
                return 0.0, 255.0
            case "Normalization" if getattr(layer, "mean", None) is not None:
                mean, deviation = np.asarray(layer.mean, "float64"), np.sqrt(np.asarray(layer.variance, "float64"))
                return float((mean - 3 * deviation).min()), float((mean + 3 * deviation).max())
    return None


def _takers(model: Any, tensor: Any) -> Iterator[Any]:
    """The layers that take an input, inside nested models too."""
    operations = list(getattr(model, "operations", None) or model.layers)
    for operation in operations:
        for node in getattr(operation, "_inbound_nodes", ()):
            for place, given in enumerate(node.input_tensors):
                if given is tensor:
                    inner = getattr(operation, "inputs", None) if hasattr(operation, "layers") else None
                    if inner and place < len(inner):
                        yield from _takers(operation, inner[place])
                    elif type(operation).__name__ in MOVING:
                        yield from _takers(model, operation.output)
                    else:
                        yield operation
    if type(model).__name__ == "Sequential" and model.layers:
        yield model.layers[0]
