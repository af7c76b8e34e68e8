"""Proving a converted Keras model with Keras: outputs against the original's, the dtype of every layer, and a round trip.

Before that, what goes through the original's layers says which of them half can't hold; after it, where the proof fails, the layers that
make it fail are found by trying.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from mplint.conversion.distance import PLAIN, Distance, Ruler, distance, is_decided, moves, ruler, sizes_of, tells, trials, undecided
from mplint.conversion.fill import Measure, misfits
from mplint.conversion.keras import runtime
from mplint.conversion.keras.editor import HEAVY
from mplint.conversion.keras.samples import OPEN_DIMS, Feed, samples_of
from mplint.conversion.policy import Options, Policy
from mplint.conversion.quiet import quiet, said
from mplint.conversion.result import Conversion
from mplint.conversion.stress import BETWEEN, midway, stressed
from mplint.graph.storage import Archive, parse_json

Reasons = dict[str, str]  # why a layer stays float32, by its path
SURE = 0.65  # of the tolerance: what samples that nobody tried may add is the rest
SHARES = (0.6, 0.4, 0.25)  # of the tolerance, that a plan is made to fill where not all layers may be half
ALIKE = 0.5  # of the error of a result that its layers beside the original's must show
MOST, WORST = 400, 2  # groups of layers of which each is tried by itself, and the samples that it is tried on
WRITTEN = "converted.keras"
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
        self.probabilities: dict[int, str] = {}  # the outputs that a softmax or a sigmoid makes
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
                run = runtime.Watched(self.model)
                self.expected = [run(inputs) for inputs in self.samples]
                self.note, self.sizes = "", dict(run.sizes)
                self._derive(run)
                self.probabilities = runtime.probabilities(self.model)
                return
            except Exception as error:
                self.note = self.note or f"not run: {said(error)}"
                self.samples = []
                if feeds or all(None not in tensor.shape[1:] for tensor in self.model.inputs):
                    break

    def _derive(self, run: runtime.Run) -> None:
        """Add what zeros, faint inputs and constant rows make of the first sample, where the original gives numbers for them."""
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
        for at, kind in self.probabilities.items():
            seen = any(tells(given[at], kind) for given in self.expected) or any(
                not is_decided(given[at], kind) for *_, given in self.derived
            )
            if not seen:
                return [
                    f"the output {names[at]!r} is 0 or 1 whatever half does before its {kind}: give --calibration data on which it is not"
                ]
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
            found = _distance(result, runtime.caller(converted), original)
            problem = _other_policy(result, converted, original, folder)
            _count(result, converted)
            if found is not None and not found.within(SURE * result.policy.tolerance):
                options.tell("looking for the layers that must stay float32")
                result, found = _cured(result, found, converted, original, plan, reasons)
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
    result: Conversion, found: Distance, converted: Any, original: Original, plan: Callable[[Reasons], Conversion], reasons: Reasons
) -> tuple[Conversion, Distance]:
    """A plan that leaves room for other samples, with the layers in float32 that make this one fail; the best, where none does."""
    movable, tolerance = list(_together(result.in_half, converted)), result.policy.tolerance
    measure = _in_place(converted, original, movable, found)
    if measure is None:  # each choice is written and loaded

        def anew(chosen: Collection[Group]) -> Distance:
            others = dict.fromkeys((path for group in movable if group not in set(chosen) for path in group), "tried")
            tried = plan({**reasons, **others})
            with _loaded(tried, original) as (model, _):
                return _distance(tried, runtime.caller(model), original) or found

        measure = _Measures(anew)
    for share in SHARES:
        blamed = misfits(movable, measure.all, share * tolerance, cost=measure.alone)
        careful = plan({**reasons, **{path: _blame(far, result.policy) for group, far in blamed.items() for path in group}})
        with _loaded(careful, original) as (model, _):
            again = _distance(careful, runtime.caller(model), original) or found
        if again.within(SURE * tolerance) or (again.within(tolerance) and not found.within(tolerance)):
            result, found = careful, again
        if found.within(SURE * tolerance):
            break
    return result, found


Group = tuple[str, ...]  # layers that are half or float32 together, by their paths


def _together(paths: Sequence[str], model: Any) -> Iterator[Group]:
    """Each heavy layer with the light ones behind it, up to the next heavy one: between them stand no casts."""
    kinds = {path: type(operation).__name__ for operation, path in runtime.parts(model)}
    group: list[str] = []
    for path in paths:
        if group and kinds.get(path, "").startswith(HEAVY) and not any(path.startswith(f"{before}/") for before in group):
            yield tuple(group)
            group = []
        group.append(path)
    if group:
        yield tuple(group)


class _Measures(NamedTuple):
    """How far the outputs are with some layers in half, and, where that is cheap to ask, with one group on the samples that are worst."""

    all: Measure[Group]
    alone: Callable[[Group], float] | None = None


def _in_place(converted: Any, original: Original, movable: Sequence[Group], found: Distance) -> _Measures | None:
    """Measures of the original with some of its layers as the converted model has them; None where those show nothing of what was found."""

    def distances(chosen: Collection[Group], among: Collection[int] | None = None) -> list[Distance]:
        return list(_distances(mixed.caller({path for group in chosen for path in group}), original, among))

    def alone(group: Group) -> float:
        far = max(distances([group], worst), key=_badness)
        return float("inf") if far.broken else far.error

    try:
        mixed = runtime.Mixed(original.model, converted, [path for group in movable for path in group])
        each = distances(movable)
    except Exception:  # layers that can't be called beside others
        return None
    everything = max(each, key=_badness)
    if bool(everything.broken) != bool(found.broken) or everything.error < ALIKE * found.error:
        return None
    worst = sorted(range(len(each)), key=lambda at: _badness(each[at]), reverse=True)[:WORST]
    return _Measures(lambda chosen: max(distances(chosen), key=_badness), alone if len(movable) <= MOST else None)


def _badness(far: Distance) -> tuple[bool, float]:
    return bool(far.broken), far.error


def _blame(far: Distance, policy: Policy) -> str:
    return f"in {policy.half} {far.broken or f'the outputs are off by {far.error:.2g}'}"


@contextmanager
def _loaded(result: Conversion, original: Original) -> Iterator[tuple[Any, str]]:
    """The converted model, and a folder for the time that it is looked at."""
    with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
        target = os.path.join(folder, WRITTEN)
        result.save(target)
        try:
            model = runtime.load(target, original.custom)
        except Exception as error:
            raise _Unusable(f"Keras loads the original and not the result ({said(error)})") from None
        yield model, folder


def _distance(result: Conversion, run: runtime.Run, original: Original) -> Distance | None:
    """How far the converted model is from the original, None where nothing can be run; the result holds what each sample showed."""
    found = list(_distances(run, original))
    samples = [*(f"sample {at}" for at in range(1, len(original.samples) + 1)), *(name for name, *_ in original.derived)]
    result.trials = trials(found, samples)
    return max(found, key=_badness, default=None)


def _distances(run: runtime.Run, original: Original, among: Collection[int] | None = None) -> Iterator[Distance]:
    """How far what `run` gives is from the original on each sample, or those `among` them, up to one on which it does not run."""
    usual = sizes_of(original.expected)
    given = usual if original.given else ()  # made-up inputs are not all of one size
    known = [(inputs, expected, "") for inputs, expected in zip(original.samples, original.expected, strict=True)]
    derived = [(inputs, expected, name) for name, inputs, expected in original.derived]
    for at, (inputs, expected, name) in enumerate(known + derived):
        if among is not None and at not in among:
            continue
        try:
            got = run(inputs)
        except Exception as error:
            yield Distance(float("inf"), f"it does not run ({said(error)})")
            return
        if [one.dtype for one in expected] != [other.dtype for other in got]:
            yield Distance(float("inf"), "an output has another dtype than the original's")
            continue
        found = distance(expected, got, usual if name else given, exact=not name, by=original.ruler)
        if not found.broken and not name and original.ruler.metric is None:
            hiding = {at: kind for at, kind in original.probabilities.items() if is_decided(expected[at], kind)}
            told = {at: undecided(kind, expected[at], got[at]) for at, kind in hiding.items()}
            each = tuple(max(error or 0.0, told[at]) if at in told else error for at, error in enumerate(found.each))
            found = found._replace(error=max(found.error, *told.values()), each=each) if told else found
        yield found._replace(broken=f"{found.broken} ({name})" if found.broken and name else found.broken)


def _other_policy(result: Conversion, converted: Any, original: Original, folder: str) -> str:
    """Which layer has another policy than was written, now or after another round trip; "" where none has."""
    layers = list(converted._flatten_layers())
    for layer in layers:
        if result.planned.get(layer.name, layer.dtype_policy.name) != layer.dtype_policy.name:
            return f"the policy of {layer.name!r} is not the one that was written"
    if _policies_kept(converted, os.path.join(folder, WRITTEN)):
        return ""
    again = os.path.join(folder, "again.keras")
    converted.save(again)
    reloaded = runtime.load(again, original.custom)
    if [layer.dtype_policy.name for layer in reloaded._flatten_layers()] != [layer.dtype_policy.name for layer in layers]:
        return "saved and loaded again, it has other policies"
    return ""


def _policies_kept(model: Any, path: str) -> bool:
    """Whether a model, saved again, would say of all dtypes what the archive says that it was loaded from: loaded again, it is the same."""
    import keras

    with Archive(path) as archive:
        written = parse_json(archive.read("config.json"), "config.json")
    try:
        again = json.loads(json.dumps(keras.saving.serialize_keras_object(model)))
    except (TypeError, ValueError):  # what only Keras writes as text
        return False
    return list(_dtypes(written)) == list(_dtypes(again))


def _dtypes(config: object) -> Iterator[object]:
    """What stands under "dtype" in a configuration, in order."""
    if isinstance(config, dict):
        for key, value in config.items():
            if key == "dtype":
                yield value if not isinstance(value, dict) else {name: value.get(name) for name in ("class_name", "config")}
            else:
                yield from _dtypes(value)
    elif isinstance(config, list):
        for item in config:
            yield from _dtypes(item)


def _is_keras2(path: str) -> bool:
    if not zipfile.is_zipfile(path):
        return False  # an .h5 file, which Keras 3 reads
    with Archive(path) as archive:
        about = parse_json(archive.read("metadata.json"), "metadata.json") if "metadata.json" in archive.members else None
    return isinstance(about, dict) and str(about.get("keras_version", "")).startswith("2.")
