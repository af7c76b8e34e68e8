"""From a Keras .h5 model to a .keras archive, by Keras itself, and checked: every variable must come over bit for bit.

How a layer's variables lie in an archive is known to its class alone, and Keras translates the configuration of older files as it loads:
without Keras this is not done.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from mplint.conversion.keras.legacy import modernize
from mplint.conversion.policy import ConversionError
from mplint.conversion.quiet import quiet, said
from mplint.graph.keras.h5 import names_in
from mplint.graph.keras.layers import FUNCTIONS
from mplint.graph.load import load_graph
from mplint.graph.model import GraphError
from mplint.graph.storage import Json

SAVE = "save it with model.save('model.keras'), and convert that"
AGAIN = "load it in the program that made it, " + SAVE
Values = Counter[tuple[tuple[int, ...], str, str]]  # shape, dtype, digest


def archive_of(path: str, target: str) -> list[str]:
    """Write the model of an .h5 file as a .keras archive and return what the user should know; raises ConversionError."""
    try:
        load_graph(path)  # refuses what is damaged, or leads outside the file, before other code opens it
    except GraphError as error:
        raise ConversionError(f"{path}: {error}") from None
    try:
        with quiet():
            import h5py
            import keras
    except ImportError as error:
        raise ConversionError(f'converting {path} needs {error.name}, for Keras reads it: pip install "keras>=3" tensorflow') from None
    with h5py.File(path, "r") as file:
        text = file.attrs.get("model_config")
        if text is None:
            raise ConversionError(f"{path} holds weights and no model: make the model in your program, load them into it, {SAVE}")
        config = json.loads(text)
        refuse_code(path, config)
        stored = _stored(file)
    notes = []
    given = path
    if modernize(config):
        given = f"{os.path.splitext(target)[0]}-given.h5"
        shutil.copyfile(path, given)
        with h5py.File(given, "r+") as file:
            file.attrs["model_config"] = json.dumps(config)
        notes.append("its configuration is one of Keras 2: settings that Keras 3 does not know, and that say nothing, are left out")
    with quiet():
        try:
            model = keras.models.load_model(given)
        except Exception:  # an optimizer, loss or metric that Keras can't make
            try:
                model = keras.models.load_model(given, compile=False)
            except Exception as error:
                raise ConversionError(f"{path}: Keras {keras.__version__} can't load it ({said(error)}): {AGAIN}") from None
            notes.append("its optimizer and losses are not carried over: Keras can't make them from the .h5 file")
        model.save(target)
    if given != path:
        os.unlink(given)
    lost = stored - _values(np.asarray(variable) for variable in model.variables)
    if lost:
        changed = f"{lost.total()} of its {stored.total()} variables"
        raise ConversionError(f"{path}: Keras {keras.__version__} changes {changed} as it loads it: {AGAIN}")
    return [f"Keras {keras.__version__} read the .h5 file; its {stored.total()} variables are in the archive bit for bit", *notes]


def refuse_code(path: str, config: Json) -> None:
    """Raise ConversionError for a configuration with code, which Keras would run as it loads an .h5 file, or that it can't make."""
    kinds = set(_classes(config))
    if not kinds.isdisjoint(("Lambda", "__lambda__")):
        raise ConversionError(f"{path} holds Python code in a Lambda layer, which is not run here: {AGAIN}")
    functions = sorted(kinds.intersection(FUNCTIONS))
    if functions:
        raise ConversionError(
            f"{path} holds TensorFlow functions as layers ({', '.join(functions)}), which Keras 3 can't make: write them with keras.ops in "
            f"the program that makes the model, load the weights, {SAVE}"
        )


def write(source: str, config: str, stream: IO[bytes]) -> None:
    """Write an .h5 file with another configuration to an open file; its weights lie where they lay."""
    import h5py

    with tempfile.NamedTemporaryFile(suffix=".h5") as copy:
        with open(source, "rb") as given:
            shutil.copyfileobj(given, copy, 1 << 20)
        copy.flush()
        with h5py.File(copy.name, "r+") as file:
            file.attrs["model_config"] = config
        copy.seek(0)
        shutil.copyfileobj(copy, stream, 1 << 20)


def _classes(config: Json) -> Iterator[str]:
    stack = [config]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            kind = item.get("class_name")
            if isinstance(kind, str):
                yield kind
            stack += item.values()
        elif isinstance(item, list):
            stack += item


def _stored(file: Any) -> Values:
    """The variables that the layers of an .h5 file list."""
    group = file["model_weights"]
    found = []
    for layer in _names(group, "layer_names"):
        found += [group[layer][name][()] for name in _names(group[layer], "weight_names")]
    if "top_level_model_weights" in group:
        inner = group["top_level_model_weights"]
        found += [inner[name][()] for name in _names(inner, "weight_names")]
    return _values(iter(found))


def _names(group: Any, key: str) -> tuple[str, ...]:
    return names_in({name: tuple(map(_text, np.ravel(value))) for name, value in group.attrs.items()}, key)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _values(arrays: Iterator[np.ndarray]) -> Values:
    return Counter((array.shape, str(array.dtype), hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()) for array in arrays)
