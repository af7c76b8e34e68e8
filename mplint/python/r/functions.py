"""What functions of R and its packages are in Python's terms: the table of Keras, datasets, and the few of R itself that matter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

KERAS2, KERAS3 = "keras", "keras3"
PACKAGES = {KERAS2: "tf_keras", KERAS3: "keras", "tensorflow": "tensorflow"}  # what an R package is the interface of
MODULES = {KERAS2: "keras", KERAS3: "keras", "tensorflow": "tf"}  # the name by which an R package hands out the module itself
REST = "..."
COMPOSED = "mplint_r.compose"  # what R's layers do: they are made, and given to what stands before them in the pipe

# Generics of R whose first argument is a model, and the method that they call.
METHODS = {
    **{name: name for name in ("compile", "fit", "evaluate", "train_on_batch", "test_on_batch", "predict_on_batch", "summary")},
    **{name: name for name in ("get_layer", "get_weights", "set_weights", "fit_generator", "evaluate_generator", "predict_generator")},
    "predict": "predict", "pop_layer": "pop", "save_model": "save", "save_model_hdf5": "save", "save_model_tf": "save",
    "save_model_weights": "save_weights", "save_model_weights_hdf5": "save_weights", "save_model_weights_tf": "save_weights",
    "load_model_weights": "load_weights", "load_model_weights_hdf5": "load_weights", "load_model_weights_tf": "load_weights",
}  # fmt: skip
# Functions of R and of packages that are not about layers, by the dotted name of their counterpart.
COUNTERPARTS = {
    "load_model": "keras.models.load_model",
    "load_model_hdf5": "keras.models.load_model",
    "load_model_tf": "keras.models.load_model",
    "multi_gpu_model": "keras.utils.multi_gpu_model",
    "clone_model": "keras.models.clone_model",
    "tf_function": "tf.function",
    "as_tensor": "tf.convert_to_tensor",
    "tensor_slices_dataset": "tf.data.Dataset.from_tensor_slices",
    "tensors_dataset": "tf.data.Dataset.from_tensors",
    "range_dataset": "tf.data.Dataset.range",
    "np_array": "numpy.array",
    "length": "len",
    "seq_len": "range",
    "print": "print",
    "message": "print",
    "cat": "print",
    "as.integer": "int",
    "as.numeric": "float",
    "as.double": "float",
    "as.character": "str",
    "as.list": "list",
    "zip_lists": "zip",
    "is.function": "callable",
    "round": "round",
    "abs": "abs",
    "max": "max",
    "min": "min",
}
# Datasets: `dataset_batch(ds, 32)` is `ds.batch(32)`; others stand for several methods.
DATASET = "dataset_"
DATASETS = {"dataset_prefetch_to_device": "prefetch", "dataset_collect": "as_numpy_iterator", "dataset_map_and_batch": "map"}
DATA = ("mnist", "cifar10", "cifar100", "imdb", "imdb_word_index", "reuters", "boston_housing", "fashion_mnist", "california_housing")
# The layers' merging functions take their inputs as a list, or one by one.
MERGED = "inputs"


class Known(NamedTuple):
    """A function of the R packages: the paths in Keras that it makes or calls, and the names of its first arguments."""

    homes: tuple[str, ...]
    formals: tuple[str, ...]

    @property
    def composes(self) -> bool:
        """Whether it makes a layer for what its first argument is."""
        return self.formals[:1] == ("object",) and self.homes[0].startswith("layers.")


class Given(NamedTuple, Generic[T]):
    """An argument of a call: the name of the parameter that it is for, "" where only its position says, and what is given."""

    name: str
    value: T


@cache
def table() -> dict[str, dict[str, Known]]:
    """mplint/data/derived/r_keras.json: by the function, and by the R package."""
    import json
    from importlib.resources import files

    found: dict[str, dict[str, Known]] = {}
    data = json.loads(files("mplint.data").joinpath("derived/r_keras.json").read_text("utf-8"))
    for name, value in data["functions"].items():
        by_package = value if isinstance(value, dict) else {KERAS2: value, KERAS3: value}
        found[name] = {package: Known(tuple(homes.split("|")), tuple(formals)) for package, (homes, formals) in by_package.items()}
    return found


def known(name: str, package: str) -> Known | None:
    """What is known of a function, as the R package in use defines it."""
    found = table().get(name)
    if found is None:
        return None
    return found.get(package) or next(iter(found.values()))


def matched(formals: Sequence[str], given: Sequence[Given[T]]) -> list[Given[T]]:
    """The arguments of a call with the names of the parameters that they are for, as R finds them: by name, then in order."""
    named = {argument.name for argument in given if argument.name}
    left = [formal for formal in formals if formal not in named]
    found = []
    for argument in given:
        if argument.name:
            found.append(argument)
            continue
        formal = left[0] if left else REST
        if formal == REST:
            found.append(argument)
        else:
            found.append(Given(formal, argument.value))
            left.pop(0)
    return found
