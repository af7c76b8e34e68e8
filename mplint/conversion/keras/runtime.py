"""A Keras model at run time: loaded, called on inputs, and the sizes of what its layers take and give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from mplint.conversion.keras.kernels import accumulating
from mplint.conversion.quiet import quiet


class Sizes(NamedTuple):
    """The largest |value| of a layer's inputs, weights and results."""

    taken: float
    weights: float
    given: float


def load(path: str, custom: Mapping[str, object] | None) -> Any:
    """The model in a file, not compiled; raises whatever Keras raises. `custom` are classes of a live model, whose code may run."""
    import keras

    with quiet():
        return keras.models.load_model(path, custom_objects=custom, compile=False, safe_mode=custom is None)


def outputs(model: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a model gives for inputs in the order of its `inputs`."""
    structure = getattr(model, "_inputs_struct", None)
    given: Any = list(inputs)
    if isinstance(structure, dict):
        by_name = dict(zip([tensor.name for tensor in model.inputs], inputs, strict=True))
        given = {key: by_name[tensor.name] for key, tensor in structure.items()}
    elif len(given) == 1 and not isinstance(structure, list | tuple):
        given = given[0]
    with quiet(), accumulating():
        return _flat(model(given, training=False))


def sizes(model: Any, samples: Sequence[Sequence[np.ndarray]]) -> dict[str, Sizes]:
    """What each layer and operation takes and gives over all samples, by its path in the configuration."""
    paths = {id(operation): path for operation, path in parts(model)}
    found: dict[str, Sizes] = {}
    with _watched(paths, found):
        for inputs in samples:
            outputs(model, inputs)
    return found


def parts(model: Any, prefix: str = "") -> Iterator[tuple[Any, str]]:
    """The layers and operations of a model, of the models in it and of wrappers, with the paths that the configuration gives them."""
    for operation in getattr(model, "operations", None) or model.layers:
        path = prefix + operation.name
        if hasattr(operation, "layers") and hasattr(operation, "get_layer"):
            yield from parts(operation, f"{path}/")
            continue
        yield operation, path
        for name in ("layer", "forward_layer", "backward_layer", "cell"):
            inner = getattr(operation, name, None)
            if inner is not None and hasattr(inner, "name"):
                if hasattr(inner, "get_layer"):
                    yield from parts(inner, f"{path}/{name}/")
                else:
                    yield inner, f"{path}/{inner.name}"


@contextmanager
def _watched(paths: Mapping[int, str], found: dict[str, Sizes]) -> Iterator[None]:
    """Note what goes through the layers at `paths` while it lasts."""
    import keras

    operation = keras.Operation
    original = operation.__call__

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        path = paths.get(id(self))
        if path is not None:
            before = found.get(path, Sizes(0.0, 0.0, 0.0))
            weights = before.weights or _largest([variable.value for variable in getattr(self, "variables", ())])
            found[path] = Sizes(max(before.taken, _largest((args, kwargs))), weights, max(before.given, _largest(result)))
        return result

    operation.__call__ = watched
    try:
        yield
    finally:
        operation.__call__ = original


def _largest(value: Any) -> float:
    """The largest finite |value| among float tensors in nested structures."""
    found = 0.0
    for item in _tensors(value):
        try:
            array = np.asarray(item).astype("float32")
        except (TypeError, ValueError, NotImplementedError):  # a symbol, inside a loop that is traced
            continue
        finite = np.abs(array[np.isfinite(array)])
        found = max(found, float(finite.max(initial=0.0)))
    return found


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif "float" in str(getattr(value, "dtype", "")):
        import keras

        try:
            yield keras.ops.convert_to_numpy(value)
        except Exception:  # symbols have no values
            return


def _flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, dict):
        return [array for key in sorted(value) for array in _flat(value[key])]
    if isinstance(value, list | tuple):
        return [array for item in value for array in _flat(item)]
    import keras

    return [np.asarray(keras.ops.convert_to_numpy(value))]
