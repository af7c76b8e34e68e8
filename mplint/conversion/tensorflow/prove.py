"""Running the signatures of SavedModels beside each other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from mplint.conversion.distance import Distance, distance, ruler, sizes_of, trials
from mplint.conversion.feeds import Wanted, check_data
from mplint.conversion.plausible import RATE, hinted, is_sound
from mplint.conversion.policy import Policy
from mplint.conversion.quiet import quiet, said
from mplint.conversion.result import Trial
from mplint.conversion.stress import BETWEEN, midway, stressed
from mplint.conversion.tensorflow.plan import signatures

Arrays = dict[str, np.ndarray]
Runs = dict[str, list["Run"]]  # by signature
OPEN_DIMS = (16, 32, 64, 8, 224, 128, 1)
SAMPLES, NAMED = 3, 2


class Run(NamedTuple):
    """Inputs, and what the original gives for them.

    `usual` are the sizes of outputs on all samples, where these are of one kind; some inputs are derived of others, as `name` says.
    """

    inputs: Arrays
    expected: list[np.ndarray]
    usual: tuple[float, ...] = ()
    name: str = ""


def run_original(
    folder: str, meta: Any, feeds: Sequence[Mapping[str, np.ndarray]], ranges: Mapping[str, tuple[float, float]]
) -> tuple[Runs, list[str]]:
    """What each signature of the original gives for the data, or for made-up inputs; and which signatures could not be run, and why."""
    runs: Runs = {}
    notes: list[str] = []
    _check(dict(signatures(meta)), feeds)
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


def _check(known: Mapping[str, Any], feeds: Sequence[Mapping[str, np.ndarray]]) -> None:
    """Raise ConversionError where data fits no signature, or an array not the input that it is for."""
    import tensorflow as tf

    for feed in feeds:
        takers = [signature for signature in known.values() if all(key in feed for key in signature.inputs)]
        for signature in takers or list(known.values())[:1]:
            wanted = {}
            for key, tensor in signature.inputs.items():
                dtype = tf.as_dtype(tensor.dtype)
                dims = None if tensor.tensor_shape.unknown_rank else [dim.size for dim in tensor.tensor_shape.dim]
                shape = None if dims is None else tuple(dim if dim >= 0 else None for dim in dims)
                wanted[key] = Wanted("object" if dtype == tf.string else np.dtype(dtype.as_numpy_dtype).name, shape)
            check_data(feed, wanted)


class Compared(NamedTuple):
    """How far the outputs are from the original's at worst, and what each sample showed."""

    worst: Distance
    trials: list[Trial]


def compared(folder: str, runs: Runs, policy: Policy) -> Compared:
    """How far the signatures of the SavedModel in `folder` are from what the original gave."""
    found: list[Distance] = []
    names = []
    with _loaded(folder) as called:
        for name, pairs in runs.items():
            for at, (inputs, expected, usual, derived) in enumerate(pairs, 1):
                given = called[name](**_tensors(called[name], inputs))
                got = _outputs(given)
                if [one.dtype for one in expected] != [other.dtype for other in got]:
                    return Compared(Distance(float("inf"), "an output has another dtype than the original's"), [])
                found.append(distance(expected, got, usual, exact=not derived, by=ruler(policy, sorted(given))))
                names.append(f"{name}: {derived or f'sample {at}'}")
    worst = max(found, key=lambda one: (bool(one.broken), one.error), default=Distance(0.0))
    return Compared(worst, trials(found, names))


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
                given = [_generated(signature, ranges, seed, size, whole=whole) for seed in _seeds(signature, ranges)]
            made = [Run(inputs, _outputs(function(**_tensors(function, inputs)))) for inputs in given]
            usual = sizes_of(run.expected for run in made) if feeds else ()
            made = [run._replace(usual=usual) for run in made]
            return made + list(_derived(function, made)), ""
        except _Unknown as error:
            return [], str(error)
        except (tf.errors.OpError, ValueError, TypeError) as error:
            why = why or said(error)
    return [], why


def _derived(function: Any, made: Sequence[Run]) -> Iterator[Run]:
    """What zeros, faint inputs and constant rows make of the first run, where the original gives numbers for them."""
    usual = sizes_of(run.expected for run in made)
    base = made[0].inputs
    silent = {name: np.zeros_like(array) if array.dtype.kind == "f" else array for name, array in base.items()}

    def tried(feed: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
        try:
            return _outputs(function(**_tensors(function, dict(feed))))
        except Exception:
            return None

    for name, feed in (*stressed(base), *((BETWEEN, feed) for feed in midway(tried, base, silent))):
        given = tried(feed)
        if given is not None and all(np.isfinite(array).all() for array in given if array.dtype.kind == "f"):
            yield Run(feed, given, usual, name)


class _Unknown(Exception):
    """Inputs that nobody can make up."""


def _seeds(signature: Any, ranges: Mapping[str, tuple[float, float]]) -> range:
    """Which samples to make: what names say comes last."""
    told = any(key not in ranges and hinted(key, (1, 1), 0) is not None for key in signature.inputs)
    return range(SAMPLES + NAMED) if told else range(SAMPLES)


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
        if is_sound(key) and dtype.is_floating and 1 < len(shape) <= 3 and dims[1] < 0:
            shape[1] = RATE
        named = hinted(key, shape, seed) if seed >= SAMPLES and dtype.is_floating else None
        if key in ranges:
            array = rng.uniform(*ranges[key], shape)
        elif named is not None and not whole:
            array = named
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
