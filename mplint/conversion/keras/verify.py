"""Proving a converted Keras model with Keras: outputs against the original's, the dtype of every layer, and a round trip.

Before that, what goes through the original's layers says which of them half can't hold; after it, where the proof fails, the layers that
make it fail are found by trying.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mplint.conversion.distance import PLAIN, Distance, Ruler, distance, moves, ruler, sizes_of, trials
from mplint.conversion.fill import misfits
from mplint.conversion.keras import runtime
from mplint.conversion.keras.editor import HEAVY
from mplint.conversion.keras.samples import OPEN_DIMS, Feed, samples_of
from mplint.conversion.policy import Options, Policy
from mplint.conversion.quiet import quiet, said
from mplint.conversion.result import Conversion
from mplint.conversion.stress import BETWEEN, midway, stressed
from mplint.graph.storage import Archive, parse_json

Reasons = dict[str, str]  # why a layer stays float32, by its path
MARGIN = 4  # how far from the end of the range the sizes that were met must stay


class Original:
    """The original model with Keras, its inputs, and what it gives for them; `note` says why nothing can be run, where nothing can."""

    def __init__(self, path: str, feeds: Sequence[Mapping[str, np.ndarray]], options: Options, custom: Mapping[str, object] | None) -> None:
        self.custom, self.given = custom, bool(feeds)
        self.model: Any = None
        self.samples: list[Feed] = []
        self.expected: list[list[np.ndarray]] = []
        self.derived: list[tuple[str, Feed, list[np.ndarray]]] = []  # what silence and the like make of the first sample
        self.note = ""
        self.sizes: dict[str, runtime.Sizes] = {}
        self.ruler: Ruler = PLAIN
        try:
            with quiet():
                import keras  # noqa: F401
        except ImportError:
            self.note = "not verified: Keras is not installed here"
            return
        if _is_keras2(path):
            self.note = "not verified: Keras 2 wrote the archive, and Keras 3 can't read it; its own Keras (tf_keras) loads the result"
            return
        try:
            self.model = runtime.load(path, custom)
        except Exception as error:
            why = "it holds Python code, which is not run here" if "safe_mode" in str(error) else said(error)
            self.note = f"not verified: Keras can't load it without your program ({why}); there, call mplint.convert(model)"
            return
        for size in OPEN_DIMS:
            self.samples, why = samples_of(self.model, feeds, options.ranges, size)
            if not self.samples:
                self.note = f"not run: {why}"
                return
            try:
                self.expected, self.sizes = runtime.watched(self.model, self.samples)
                self.note = ""
                self._derive()
                return
            except Exception as error:
                self.note = self.note or f"not run: {said(error)}"
                self.samples = []
                if feeds or all(None not in tensor.shape[1:] for tensor in self.model.inputs):
                    break

    def _derive(self) -> None:
        """Add what zeros, faint inputs and constant rows make of the first sample, where the original gives numbers for them."""
        run = runtime.caller(self.model)
        base = {str(at): array for at, array in enumerate(self.samples[0])}
        silent = {name: np.zeros_like(array) if array.dtype.kind == "f" else array for name, array in base.items()}

        def tried(feed: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
            try:
                return run(list(feed.values()))
            except Exception:
                return None

        for name, feed in (*stressed(base), *((BETWEEN, feed) for feed in midway(tried, base, silent))):
            given = tried(feed)
            if given is not None and all(np.isfinite(array).all() for array in given if array.dtype.kind == "f"):
                self.derived.append((name, list(feed.values()), given))

    def gaps(self) -> list[str]:
        """Why what was run proves nothing."""
        results: list[Sequence[object]] = [*self.expected, *(given for _, _, given in self.derived)]
        if not self.samples:
            return [self.note]
        moved = moves(results)
        if not any(moved):
            return ["the outputs are the same whatever the inputs are: give --calibration data on which they move"]
        floats = [np.asarray(one).dtype.kind == "f" for one in results[0]]
        names = runtime.output_names(self.model)
        still = next((name for name, one, is_float in zip(names, moved, floats, strict=False) if is_float and not one), None)
        return (
            []
            if still is None
            else [f"the output {still!r} is the same whatever the inputs are: give --calibration data on which it moves"]
        )

    def too_large(self, policy: Policy) -> Reasons:
        """The layers and operations that take, hold or give values that half can't hold."""
        limit, found = policy.largest / MARGIN, Reasons()
        for path, (taken, weights, given) in self.sizes.items():
            if weights > policy.largest:
                found[path] = f"its weights reach {weights:.3g}, and {policy.half} ends at {policy.largest:g}"
            elif max(taken, given) > limit:
                what, reached = ("inputs", taken) if taken > limit else ("results", given)
                found[path] = f"its {what} reach {reached:.3g}, more than a quarter of {policy.half}'s {policy.largest:g}"
        return found


def prove(result: Conversion, original: Original, plan: Callable[[Reasons], Conversion], reasons: Reasons, options: Options) -> Conversion:
    """The result, proven: as it is, or with more layers in float32 where it fails; `plan(reasons)` plans anew."""
    if original.model is None:
        result.notes.append(original.note)
        return result
    result.gaps += original.gaps()
    original.ruler = ruler(result.policy, runtime.output_names(original.model))
    try:
        with _loaded(result, original) as (converted, folder):
            found = _distance(result, converted, original)
            problem = _other_policy(result, converted, original, folder)
            _count(result, converted)
        if found is not None and not found.within(result.policy.tolerance):
            options.tell("looking for the layers that must stay float32")
            result, found = _cured(result, found, original, plan, reasons)
    except _Unusable as error:
        result.problems.append(str(error))
        return result
    if problem:
        result.problems.append(problem)
    else:
        result.verified.append("Keras: every layer's policy, and saved and loaded again")
    if found is None:
        result.notes.append(original.note)
        return result
    result.error = found.error
    result.observe = lambda: {path: sizes.given for path, sizes in original.sizes.items()}
    result.outputs = runtime.output_names(original.model)
    if not found.within(result.policy.tolerance):
        result.problems.append(found.broken or f"the outputs are off by {found.error:.2g}, more than {result.policy.tolerance:g}")
    count = len(original.samples) + len(original.derived)
    result.verified.insert(0, f"outputs against the original's on {count} sample{'s' if count > 1 else ''}")
    return result


def _count(result: Conversion, converted: Any) -> None:
    """Write into a result which layers compute in half, where the model made them itself of one policy."""
    made = [layer for layer in converted._flatten_layers(include_self=False) if layer.weights]
    if result.operations == 1 and len(made) > 1 and converted.name in result.planned:
        halves = [layer.name for layer in made if layer.compute_dtype == result.policy.half]
        result.operations, result.operations_half = len(made), len(halves)
        heavy = [layer for layer in made if type(layer).__name__.startswith(HEAVY)]
        result.heavy, result.heavy_half = len(heavy), sum(layer.name in halves for layer in heavy)
        if not halves:
            result.notes.append("its own code does not hand its policy on to its layers: they stay float32")


class _Unusable(Exception):
    """A result that Keras can't load."""


def _cured(
    result: Conversion, found: Distance, original: Original, plan: Callable[[Reasons], Conversion], reasons: Reasons
) -> tuple[Conversion, Distance]:
    """A plan that stands, with the layers in float32 that make this one fail; this one, where no plan does."""
    movable = list(result.in_half)

    def distance_of(tried: Conversion) -> Distance:
        with _loaded(tried, original) as (converted, _):
            return _distance(tried, converted, original) or found

    def measure(chosen: Collection[str]) -> Distance:
        others = dict.fromkeys((path for path in movable if path not in set(chosen)), "tried")
        return distance_of(plan({**reasons, **others}))

    blamed = misfits(movable, measure, result.policy.tolerance)
    careful = plan({**reasons, **{path: _blame(far, result.policy) for path, far in blamed.items()}})
    again = distance_of(careful)
    return (careful, again) if again.within(result.policy.tolerance) else (result, found)


def _blame(far: Distance, policy: Policy) -> str:
    return f"in {policy.half} {far.broken or f'the outputs are off by {far.error:.2g}'}"


@contextmanager
def _loaded(result: Conversion, original: Original) -> Iterator[tuple[Any, str]]:
    """The converted model, and a folder for the time that it is looked at."""
    with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
        target = os.path.join(folder, "converted.keras")
        result.save(target)
        try:
            model = runtime.load(target, original.custom)
        except Exception as error:
            raise _Unusable(f"Keras loads the original and not the result ({said(error)})") from None
        yield model, folder


def _distance(result: Conversion, converted: Any, original: Original) -> Distance | None:
    """How far the converted model is from the original, None where nothing can be run; the result holds what each sample showed."""
    found = list(_distances(converted, original))
    samples = [*(f"sample {at}" for at in range(1, len(original.samples) + 1)), *(name for name, *_ in original.derived)]
    result.trials = trials(found, samples)
    return max(found, key=lambda one: (bool(one.broken), one.error), default=None)


def _distances(converted: Any, original: Original) -> Iterator[Distance]:
    """How far the converted model is from the original on each sample; after one on which it does not run there is no other."""
    if not original.samples:
        return
    run, usual = runtime.caller(converted), sizes_of(original.expected)
    for inputs, expected in zip(original.samples, original.expected, strict=True):
        try:
            got = run(inputs)
        except Exception as error:
            yield Distance(float("inf"), f"it does not run ({said(error)})")
            return
        found = distance(expected, got, usual if original.given else (), by=original.ruler)  # made-up inputs are not all of one size
        if [one.dtype for one in expected] != [other.dtype for other in got]:
            found = Distance(float("inf"), "an output has another dtype than the original's")
        yield found
    for name, inputs, expected in original.derived:
        found = distance(expected, run(inputs), usual, exact=False, by=original.ruler)
        yield found._replace(broken=f"{found.broken} ({name})" if found.broken else "")


def _other_policy(result: Conversion, converted: Any, original: Original, folder: str) -> str:
    """Which layer has another policy than was written, now or after another round trip; "" where none has."""
    layers = list(converted._flatten_layers())
    for layer in layers:
        if result.planned.get(layer.name, layer.dtype_policy.name) != layer.dtype_policy.name:
            return f"the policy of {layer.name!r} is not the one that was written"
    again = os.path.join(folder, "again.keras")
    converted.save(again)
    reloaded = runtime.load(again, original.custom)
    if [layer.dtype_policy.name for layer in reloaded._flatten_layers()] != [layer.dtype_policy.name for layer in layers]:
        return "saved and loaded again, it has other policies"
    return ""


def _is_keras2(path: str) -> bool:
    if not zipfile.is_zipfile(path):
        return False  # an .h5 file, which Keras 3 reads
    with Archive(path) as archive:
        about = parse_json(archive.read("metadata.json"), "metadata.json") if "metadata.json" in archive.members else None
    return isinstance(about, dict) and str(about.get("keras_version", "")).startswith("2.")
