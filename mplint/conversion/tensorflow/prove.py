"""Running the signatures of SavedModels beside each other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from mplint.conversion.distance import Distance, distance, sizes_of
from mplint.conversion.quiet import quiet, said
from mplint.conversion.stress import stressed
from mplint.conversion.tensorflow.plan import signatures

Arrays = dict[str, np.ndarray]
Runs = dict[str, list["Run"]]  # by signature
OPEN_DIMS = (16, 32, 64, 8, 224, 128, 1)
SAMPLES = 3


class Run(NamedTuple):
    """Inputs, and what the original gives for them; `usual` are the sizes of outputs where the inputs are derived of others."""

    inputs: Arrays
    expected: list[np.ndarray]
    usual: tuple[float, ...] = ()


def run_original(
    folder: str, meta: Any, feeds: Sequence[Mapping[str, np.ndarray]], ranges: Mapping[str, tuple[float, float]]
) -> tuple[Runs, list[str]]:
    """What each signature of the original gives for the data, or for made-up inputs; and which signatures could not be run, and why."""
    runs: Runs = {}
    notes: list[str] = []
    with _loaded(folder) as called:
        for name, signature in signatures(meta):
            if name not in called:
                continue
            given = [feed for feed in feeds if all(key in feed for key in signature.inputs)]
            if feeds and not given:
                notes.append(f"signature {name!r} not run: the data has no array for its inputs {', '.join(sorted(signature.inputs))}")
                continue
            made, why = _run(called[name], signature, given, ranges)
            if made:
                runs[name] = made
            else:
                notes.append(f"signature {name!r} not run: {why}")
    return runs, notes


def compared(folder: str, runs: Runs) -> Distance:
    """How far the signatures of the SavedModel in `folder` are from what the original gave."""
    worst = Distance(0.0)
    with _loaded(folder) as called:
        for name, pairs in runs.items():
            for inputs, expected, usual in pairs:
                got = _outputs(called[name](**_tensors(called[name], inputs)))
                if [one.dtype for one in expected] != [other.dtype for other in got]:
                    return Distance(float("inf"), "an output has another dtype than the original's")
                found = distance(expected, got, usual, exact=not usual)
                worst = max(worst, found, key=lambda one: (bool(one.broken), one.error))
    return worst


@contextmanager
def beside(folder: str, saved: Any) -> Iterator[str]:
    """A SavedModel folder with this SavedModel message and the variables and assets of another folder, for as long as it is looked at."""
    with tempfile.TemporaryDirectory(prefix="mplint-") as made:
        for name in ("variables", "assets", "assets.extra"):
            if os.path.isdir(os.path.join(folder, name)):
                os.symlink(os.path.abspath(os.path.join(folder, name)), os.path.join(made, name))
        with open(os.path.join(made, "saved_model.pb"), "wb") as stream:
            stream.write(saved.SerializeToString())
        yield made


@contextmanager
def _loaded(folder: str) -> Iterator[Mapping[str, Callable[..., Any]]]:
    import tensorflow as tf

    with quiet():
        model = tf.saved_model.load(folder)
        yield model.signatures


def _run(
    function: Any, signature: Any, feeds: Sequence[Mapping[str, np.ndarray]], ranges: Mapping[str, tuple[float, float]]
) -> tuple[list[Run], str]:
    import tensorflow as tf

    why = ""
    is_open = any(dim.size < 0 for tensor in signature.inputs.values() for dim in tensor.tensor_shape.dim[1:])
    attempts = [(size, whole) for size in OPEN_DIMS[: None if is_open else 1] for whole in (False, True)]
    for size, whole in attempts[: 1 if feeds else None]:
        try:
            if feeds:
                given = [{key: np.asarray(feed[key]) for key in signature.inputs} for feed in feeds]
            else:
                given = [_generated(signature, ranges, seed, size, whole=whole) for seed in range(SAMPLES)]
            made = [Run(inputs, _outputs(function(**_tensors(function, inputs)))) for inputs in given]
            return made + list(_derived(function, made)), ""
        except _Unknown as error:
            return [], str(error)
        except (tf.errors.OpError, ValueError, TypeError) as error:
            why = why or said(error)
    return [], why


def _derived(function: Any, made: Sequence[Run]) -> Iterator[Run]:
    """What zeros, faint inputs and constant rows make of the first run, where the original gives numbers for them."""
    usual = sizes_of(run.expected for run in made)
    for _, feed in stressed(made[0].inputs):
        try:
            given = _outputs(function(**_tensors(function, feed)))
        except Exception:
            continue
        if all(np.isfinite(array).all() for array in given if array.dtype.kind == "f"):
            yield Run(feed, given, usual)


class _Unknown(Exception):
    """Inputs that nobody can make up."""


def _generated(signature: Any, ranges: Mapping[str, tuple[float, float]], seed: int, size: int, *, whole: bool) -> Arrays:
    """Made-up inputs: normal and uniform floats, small integers, which floats are too where they must be `whole`.

    `size` is what open dimensions get.
    """
    import tensorflow as tf

    made: Arrays = {}
    for place, (key, tensor) in enumerate(sorted(signature.inputs.items())):
        rng = np.random.default_rng((seed, place))
        if tensor.tensor_shape.unknown_rank:
            raise _Unknown(f"the number of dimensions of {key!r} is open: give --calibration data")
        dims = [dim.size for dim in tensor.tensor_shape.dim]
        shape = [2 if at == 0 and dim < 0 else size if dim < 0 else dim for at, dim in enumerate(dims)]
        dtype = tf.as_dtype(tensor.dtype)
        if dtype == tf.string:
            raise _Unknown(f"{key!r} takes strings: give --calibration data")
        if key in ranges:
            array = rng.uniform(*ranges[key], shape)
        elif dtype.is_floating and not whole:
            array = rng.uniform(0.0, 1.0, shape) if seed == 1 else rng.normal(0.0, 1.0 if seed == 0 else 4.0, shape)
        else:
            array = np.floor(rng.uniform(0.0, 2.0, shape))
        made[key] = np.asarray(array).astype(dtype.as_numpy_dtype)
    return made


def _tensors(function: Any, inputs: Arrays) -> dict[str, Any]:
    import tensorflow as tf

    wanted = function.structured_input_signature[1]
    return {key: tf.constant(array, dtype=wanted[key].dtype if key in wanted else None) for key, array in inputs.items()}


def _outputs(values: Mapping[str, Any]) -> list[np.ndarray]:
    return [np.asarray(values[key]) for key in sorted(values)]
