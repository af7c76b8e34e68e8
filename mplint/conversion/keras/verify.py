"""Proving a converted Keras model with Keras: outputs against the original's, the dtype of every layer, and a round trip."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mplint.conversion.distance import distance, judge
from mplint.conversion.quiet import quiet
from mplint.conversion.result import Conversion

SAMPLES = 2
OPEN_DIM = 16


def verify(result: Conversion, source: str, feeds: Sequence[Mapping[str, np.ndarray]], ranges: Mapping[str, tuple[float, float]]) -> None:
    """Load both models and compare; without Keras, or with layers that only the user's program knows, say so in the notes."""
    try:
        with quiet():
            import keras
    except ImportError:
        result.notes.append("not verified: Keras is not installed here")
        return
    with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
        target = os.path.join(folder, "converted.keras")
        result.save(target)
        try:
            with quiet():
                original = keras.models.load_model(source, compile=False)
                converted = keras.models.load_model(target, compile=False)
        except Exception as error:
            result.notes.append(f"not verified: Keras can't load it without your program ({str(error).strip().splitlines()[0][:160]})")
            return
        wrong = [
            layer.name
            for layer in converted._flatten_layers()
            if result.planned.get(layer.name, layer.dtype_policy.name) != layer.dtype_policy.name
        ]
        if wrong:
            result.problems.append(f"the policy of {wrong[0]!r} is not the one that was written")
        _compare(result, original, converted, feeds, ranges)
        again = os.path.join(folder, "again.keras")
        converted.save(again)
        reloaded = keras.models.load_model(again, compile=False)
        if [layer.dtype_policy.name for layer in reloaded._flatten_layers()] != [
            layer.dtype_policy.name for layer in converted._flatten_layers()
        ]:
            result.problems.append("saved and loaded again, it has other policies")
        result.verified.append("Keras: every layer's policy, and saved and loaded again")


def _compare(
    result: Conversion, original: Any, converted: Any, feeds: Sequence[Mapping[str, np.ndarray]], ranges: Mapping[str, tuple[float, float]]
) -> None:
    distances = []
    for inputs in [_given(original, feed) for feed in feeds] or [_generated(original, ranges, seed) for seed in range(SAMPLES)]:
        if inputs is None:
            result.notes.append("not run: the data has no array for an input")
            return
        try:
            with quiet():
                expected, got = (_flat(model(inputs, training=False)) for model in (original, converted))
        except Exception as error:
            result.notes.append(f"not run: {str(error).strip().splitlines()[0][:160]}")
            return
        if [one.dtype for one in expected] != [other.dtype for other in got]:
            result.problems.append("an output has another dtype than the original's")
            return
        distances.append(distance(expected, got))
    result.verified.append(f"outputs against the original's on {len(distances)} sample{'s' if len(distances) > 1 else ''}")
    judge(result, distances)


def _given(model: Any, feed: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    names = [tensor.name for tensor in model.inputs]
    return [feed[name] for name in names] if all(name in feed for name in names) else None


def _generated(model: Any, ranges: Mapping[str, tuple[float, float]], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = []
    for tensor in model.inputs:
        shape = [2 if at == 0 else OPEN_DIM if dim is None else dim for at, dim in enumerate(tensor.shape)]
        dtype = str(tensor.dtype)
        array = rng.normal(0.0, 1.0, shape)
        if tensor.name in ranges:
            array = rng.uniform(*ranges[tensor.name], shape)
        elif dtype.startswith(("int", "uint", "bool")):
            array = np.floor(rng.uniform(0.0, 2.0, shape))
        made.append(array.astype(dtype))
    return made


def _flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, dict):
        return [array for key in sorted(value) for array in _flat(value[key])]
    if isinstance(value, list | tuple):
        return [array for item in value for array in _flat(item)]
    import keras

    return [np.asarray(keras.ops.convert_to_numpy(value))]
