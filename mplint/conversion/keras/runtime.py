"""A Keras model at run time: loaded, called on inputs, and the sizes of what its layers take and give."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from mplint.conversion.keras.kernels import accumulating
from mplint.conversion.quiet import quiet

Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


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


def probabilities(model: Any) -> dict[int, str]:
    """The outputs that a softmax or a sigmoid makes, by their places among the results."""
    found = {}
    structure = getattr(model, "_outputs_struct", None)
    tensors = [structure[key] for key in sorted(structure)] if isinstance(structure, dict) else getattr(model, "outputs", None) or []
    for at, tensor in enumerate(tensors):
        maker = getattr(getattr(tensor, "_keras_history", None), "operation", None)
        name = getattr(getattr(maker, "activation", None), "__name__", "") or type(maker).__name__.lower()
        if name in ("softmax", "sigmoid"):
            found[at] = name
    return found


def caller(model: Any) -> Run:
    """A function that gives a model's results for inputs in the order of its `inputs`."""
    run = _compiled(lambda given: model(given, training=False))
    return lambda inputs: _flat(run(_arranged(model, inputs)))


class Watched:
    """A model that notes what goes through its layers and operations: `sizes`, by their paths in the configuration, of all calls so far."""

    def __init__(self, model: Any) -> None:
        self.model, self.sizes = model, dict[str, Sizes]()
        self.paths = {id(operation): path for operation, path in parts(model)}
        self.weights = {
            path: max((float(_largest(variable.value)) for variable in getattr(operation, "variables", ())), default=0.0)
            for operation, path in parts(model)
        }
        self._run = _compiled(self._noting)

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        results, found = self._run(_arranged(self.model, inputs))
        for path, pair in found.items():
            taken, given = (float(size) for size in pair)
            before = self.sizes.get(path, Sizes(0.0, self.weights[path], 0.0))
            self.sizes[path] = Sizes(max(before.taken, taken), before.weights, max(before.given, given))
        return _flat(results)

    def _noting(self, given: Any) -> tuple[Any, dict[str, tuple[Any, Any]]]:
        import keras

        found: dict[str, tuple[Any, Any]] = {}
        where = _graph()

        def noting(operation: Any, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
            result = call()
            path = self.paths.get(id(operation))
            if path is not None and _graph() is where:  # what a loop computes can't leave it
                pair = _largest((args, kwargs)), _largest(result)
                found[path] = tuple(map(keras.ops.maximum, found[path], pair)) if path in found else pair
            return result

        with _calling(noting):
            return self.model(given, training=False), found


class Mixed:
    """A model of which each part at `paths` runs as itself, or as the part of another model that stands there.

    No model has to be made for each choice. What a part of the other model gives is cast to the dtype that the model's own part gives;
    operations without a dtype of their own round as they would if they got all of theirs from such parts.
    """

    def __init__(self, model: Any, other: Any, paths: Sequence[str]) -> None:
        self.model, self.paths = model, list(paths)
        number = {path: at for at, path in enumerate(paths)}
        others = {path: operation for operation, path in parts(other)}
        self.places = {id(one): (number[path], others[path]) for one, path in parts(model) if path in number and path in others}
        self._run = _compiled(self._switching)

    def caller(self, chosen: Collection[str]) -> Run:
        """What gives the results with the `chosen` parts of the other model."""
        flags = np.array([path in chosen for path in self.paths])
        return lambda inputs: _flat(self._run(_arranged(self.model, inputs), flags))

    def _switching(self, given: Any, flags: Any) -> Any:
        import keras

        made: dict[int, _Chosen] = {}
        inside = False

        def taken(chosen: Any, dtype: str, one: Any, two: Any) -> Any:
            result = keras.ops.where(chosen, keras.ops.cast(two, one.dtype), one)
            made[id(result)] = _Chosen(result, chosen, dtype)
            return result

        def stored(operation: Any, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
            result, sources = call(), [made.get(id(tensor)) for tensor in _tensors((args, kwargs))]
            known = [source for source in sources if source is not None]
            if not known or len(known) < len(sources) or isinstance(operation, keras.layers.Layer):
                return result
            chosen, dtype = known[0].chosen, known[0].dtype
            for source in known[1:]:
                chosen = keras.ops.logical_and(chosen, source.chosen)
            return keras.tree.map_structure(
                lambda one: taken(chosen, dtype, one, keras.ops.cast(one, dtype)) if _is_float(one) else one, result
            )

        def switched(operation: Any, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
            nonlocal inside
            if inside:  # the parts of a part go with it
                return call()
            if id(operation) not in self.places:
                return stored(operation, args, kwargs, call)
            at, other = self.places[id(operation)]
            inside = True
            try:
                own, its = call(), other(*args, **kwargs)
            finally:
                inside = False
            return keras.tree.map_structure(
                lambda one, two: taken(flags[at], keras.backend.standardize_dtype(two.dtype), one, two) if _is_float(one) else one, own, its
            )

        with _calling(switched):
            return self.model(given, training=False)


class _Chosen(NamedTuple):
    """A tensor, whether it is the other model's, and the dtype that it has there."""

    tensor: Any
    chosen: Any
    dtype: str


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors, as one graph where the backend is TensorFlow: op by op, it takes many times as long.

    What can't be made a graph runs as it is.
    """
    import keras

    run = function
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        run = tf.function(function, reduce_retracing=True)

    def called(*given: Any) -> Any:
        nonlocal run
        with quiet(), accumulating(), _as_written():
            try:
                return run(*given)
            except Exception:
                if run is function:
                    raise
                result = function(*given)
                run = function
                return result

    return called


@contextmanager
def _as_written() -> Iterator[None]:
    """Let TensorFlow run graphs as they were made while it lasts: two graphs of one model give the same numbers."""
    import keras

    if keras.backend.backend() != "tensorflow":
        yield
        return
    from tensorflow.config import optimizer

    before = optimizer.get_experimental_options().get("disable_meta_optimizer", False)
    optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        optimizer.set_experimental_options({"disable_meta_optimizer": before})


def _graph() -> Any:
    """The graph that is being made, None where there is none."""
    import keras

    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


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
def _calling(around: Callable[[Any, Any, Any, Callable[[], Any]], Any]) -> Iterator[None]:
    """Let each layer and operation be called by `around(operation, args, kwargs, call)` while it lasts."""
    import keras

    operation = keras.Operation
    original = operation.__call__

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(self, args, kwargs, lambda: original(self, *args, **kwargs))

    operation.__call__ = called
    try:
        yield
    finally:
        operation.__call__ = original


def _largest(value: Any) -> Any:
    """The largest finite |value| among float tensors in nested structures, as a number or a tensor of a graph."""
    from keras import ops

    found: Any = np.float32(0)
    for item in _tensors(value):
        if 0 in item.shape:
            continue
        sizes = ops.abs(ops.cast(item, "float32"))
        found = ops.maximum(found, ops.max(ops.where(ops.isfinite(sizes), sizes, 0.0)))
    return found


def _tensors(value: Any) -> Iterator[Any]:
    import keras

    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif keras.ops.is_tensor(value) and _is_float(value) and not isinstance(value, keras.KerasTensor):
        yield value


def _is_float(tensor: Any) -> bool:
    return "float" in str(tensor.dtype)


def _flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, dict):
        return [array for key in sorted(value) for array in _flat(value[key])]
    if isinstance(value, list | tuple):
        return [array for item in value for array in _flat(item)]
    import keras

    return [np.asarray(keras.ops.convert_to_numpy(value))]
