"""A Keras model at run time: loaded, called on inputs, and the sizes of what its layers take and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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


def output_names(model: Any) -> list[str]:
    """The names of a model's outputs, in the order of its results."""
    names = getattr(model, "output_names", None) or []
    structure = getattr(model, "_outputs_struct", None)
    return sorted(structure) if isinstance(structure, dict) else [str(name) for name in names]


def caller(model: Any) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """A function that gives a model's results for inputs in the order of its `inputs`.

    Models with recurrent layers run as one graph where the backend is TensorFlow, which would take their steps one by one.
    """
    import keras

    def plain(given: Any) -> Any:
        return model(given, training=False)

    run = plain
    if keras.backend.backend() == "tensorflow" and any(hasattr(layer, "cell") for layer in model._flatten_layers()):
        import tensorflow as tf

        run = tf.function(plain, reduce_retracing=True)

    def called(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        with quiet(), accumulating():
            return _flat(run(_arranged(model, inputs)))

    return called


def watched(model: Any, samples: Sequence[Sequence[np.ndarray]]) -> tuple[list[list[np.ndarray]], dict[str, Sizes]]:
    """A model's results for all samples, and what each layer and operation takes and gives, by its path in the configuration."""
    paths = {id(operation): path for operation, path in parts(model)}
    found: dict[str, Sizes] = {}
    with _watching(paths, found), quiet(), accumulating():
        results = [_flat(model(_arranged(model, inputs), training=False)) for inputs in samples]
    return results, found


def _arranged(model: Any, inputs: Sequence[np.ndarray]) -> Any:
    """Inputs in the structure that a model takes."""
    structure = getattr(model, "_inputs_struct", None)
    if structure is None:
        return inputs[0] if len(inputs) == 1 else list(inputs)
    import keras

    return keras.tree.pack_sequence_as(structure, list(inputs))


def parts(model: Any, prefix: str = "") -> Iterator[tuple[Any, str]]:
    """The layers and operations of a model, of the models in it and of wrappers, with the paths that the configuration gives them."""
    for operation in getattr(model, "operations", None) or model.layers:
        path = prefix + operation.name
        if hasattr(operation, "layers") and hasattr(operation, "get_layer"):
            yield from parts(operation, f"{path}/")
            continue
        yield operation, path
        for name in ("layer", "forward_layer", "backward_layer"):
            inner = getattr(operation, name, None)
            if inner is not None and hasattr(inner, "name"):
                if hasattr(inner, "get_layer"):
                    yield from parts(inner, f"{path}/{name}/")
                else:
                    yield inner, f"{path}/{inner.name}"


@contextmanager
def _watching(paths: Mapping[int, str], found: dict[str, Sizes]) -> Iterator[None]:
    """Note what goes through the layers at `paths` while it lasts."""
    import keras

    operation = keras.Operation
    original = operation.__call__

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        path = paths.get(id(self))
        if path is not None:
            before = found.get(path, Sizes(0.0, 0.0, 0.0))
            weights = before.weights or _largest([variable.value for variable in getattr(self, "variables", ())])
            found[path] = Sizes(max(before.taken, _largest((args, kwargs))), weights, max(before.given, _largest(result)))
        return result

    operation.__call__ = noting
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
