"""Converting an ONNX model: measure, cut, write, verify, and cut again until the result holds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import onnx_ir as ir

from mplint.conversion.distance import Distance, distance, judge, sizes_of
from mplint.conversion.feeds import Wanted, check_data, load_feeds
from mplint.conversion.onnx.arrays import is_open, required
from mplint.conversion.onnx.choices import Choices, choosers, near_ties, watch
from mplint.conversion.onnx.constants import damage, tensor_of
from mplint.conversion.onnx.functions import separate, unite
from mplint.conversion.onnx.fuse import fused
from mplint.conversion.onnx.half_emulation import to_strict
from mplint.conversion.onnx.lean import Lean, fault_in, lean, write_whole
from mplint.conversion.onnx.measure import Measurement
from mplint.conversion.onnx.observed import observed
from mplint.conversion.onnx.opset import raised, wanted
from mplint.conversion.onnx.patterns import integers, is_whole, keep_whole, keep_whole_numbers
from mplint.conversion.onnx.program import Program, analyze, bodies, is_constant, names_of
from mplint.conversion.onnx.read import LEFT_OUT, faults_of, read
from mplint.conversion.onnx.rescale import scaled_before, too_large
from mplint.conversion.onnx.run import COUNTING, INLINE_BYTES, Feed, Outputs, Session, external_files, in_memory, weight_bytes
from mplint.conversion.onnx.runtime_crashes import CRASHES, crashes, keep_from_crashing
from mplint.conversion.onnx.samples import Samples, given, larger, samples
from mplint.conversion.onnx.scales import measure_by
from mplint.conversion.onnx.types import Declared, declared_in, declared_types, infer_types, inferred
from mplint.conversion.onnx.unbounded_ops import be_wary, raw_inputs
from mplint.conversion.onnx.write import write
from mplint.conversion.planner import ATTEMPTS, HEAVY_GAIN, HEAVY_SHARE, plan, reasons, regions
from mplint.conversion.policy import ConversionError, Options, Policy, nearest
from mplint.conversion.result import Conversion

SAME = 1e-4  # what another opset may move an output
SURPRISES = 3  # how often a plan is made anew with an input that it failed on


class Recipe(NamedTuple):
    """What is done to a model before it is planned: the opset that it is raised to, whether normalizations that are written out become one
    operator each, the names of products whose scale moves before them, and how what the file says wrongly is mended."""

    opset: int | None = None
    fuse: bool = False
    scaled: tuple[str, ...] = ()
    mends: tuple[str, ...] = ()


UNCHANGED = Recipe()


class Loaded(NamedTuple):
    """A model with the types of its values, what the file itself declared, and how often its recipe changed something."""

    model: ir.Model
    declared: Declared
    norms: int = 0
    moved: int = 0

    def copy(self) -> Loaded:
        """The same in a copy that may be changed; the weights are shared."""
        model = self.model.clone()
        return self._replace(model=model, declared=declared_in(model, self.model, self.declared))


def load(path: str, recipe: Recipe = UNCHANGED) -> Loaded:
    """The model in a file, changed as the recipe says."""
    try:
        model = read(path, recipe.mends)
    except Exception as error:
        raise ConversionError(f"{path} can't be read as an ONNX model: {error}") from None
    if recipe.opset is not None:
        model = raised(model, recipe.opset) or model
    separate(model)
    declared = declared_types(model)
    infer_types(model)
    norms = fused(model, declared) if recipe.fuse else 0
    return Loaded(model, declared, norms, scaled_before(model, recipe.scaled, declared) if recipe.scaled else 0)


Written = tuple[Conversion, ir.Model]


class Prepared(NamedTuple):
    """What a plan begins with, whatever it is told to keep: the recipe and the model that it gives, which stays as it is, what proves the
    result, the data grown, and what was noted."""

    path: str
    recipe: Recipe
    loaded: Loaded
    known: Samples
    grown: Samples | None
    notes: tuple[str, ...]


def prepare(path: str, policy: Policy, options: Options, calibration: Sequence[str] = ()) -> Prepared:
    """Read the model in a file and run it on its inputs. Raises ConversionError for a model that can't be read or run."""
    notes: list[str] = []
    options.tell("reading the model")
    recipe, fault = UNCHANGED, ""
    loaded = load(path)
    if weight_bytes(loaded.model) < INLINE_BYTES:
        fault, mends = faults_of(path)
        recipe = Recipe(mends=mends)
        notes += mended(fault, mends)
        loaded = load(path, recipe) if mends else loaded
    model = loaded.model
    notes += model.meta.get(LEFT_OUT, ())
    known = inputs_for(path, model, options, calibration, notes)
    if known.feeds and (choosing := choosers(model)):
        known.choices = Choices(model, choosing)
    known.fault = "" if recipe.mends else fault
    measure_by(known, model, policy, given=bool(calibration))
    for half in dict.fromkeys((policy.half, *(half for _, half in options.halves))):
        opset = needed_opset(path, recipe, model, half, partial(_is_to_be, half, policy, options), known, notes)
        recipe = recipe._replace(opset=opset or recipe.opset)
    if recipe.opset is not None:
        loaded = load(path, recipe)
    if any(node.op_type == "Sqrt" for node in loaded.model.graph):
        other = load(path, recipe._replace(fuse=True))
        if other.norms and agrees(other.model, known):
            recipe, loaded = recipe._replace(fuse=True), other
            notes.append(f"{other.norms} LayerNorms that were written out are one operator each, which computes its middle in float32")
    return Prepared(path, recipe, loaded, known, larger(known) if calibration else None, tuple(notes))


def _is_to_be(half: str, policy: Policy, options: Options, node: ir.Node) -> bool:
    return options.half_of(names_of(node), policy.half) == half


def convert(path: str, policy: Policy, options: Options, calibration: Sequence[str] = ()) -> Conversion:
    """Convert the model in a file; nothing is written. Raises ConversionError for a model that can't be read or run."""
    return planned(prepare(path, policy, options, calibration), policy, options)


def planned(prepared: Prepared, policy: Policy, options: Options) -> Conversion:
    """Plan, write and verify a model that was prepared, until the result holds; what a result failed on before is known to the next."""
    path, recipe, loaded, known, grown = prepared[:5]
    notes = list(prepared.notes)
    known.learned = 0
    program, unsafe, measurement = measured(loaded.model, policy, options, known, grown)
    if known.feeds and (products := too_large(program, unsafe)):
        other = load(path, recipe._replace(scaled=products))
        if other.moved and agrees(other.model, known):
            found = measured(other.model, policy, options, known, grown)
            if heavy_in_half(found.program, found.unsafe) > heavy_in_half(program, unsafe):
                recipe, loaded, (program, unsafe, measurement) = recipe._replace(scaled=products), other, found
                notes += [f"{name}: the scale moved before the product, which half can't hold" for name in products]
    ready = written(path, loaded, policy, options, plan(program, unsafe))
    first: Written | None = ready
    if condemned := options.condemned(ready[0]):
        options, first = replace(options, reasons={**options.reasons, **condemned}), None
        for operation in program.operations:
            if operation.node is not None:
                operation.stays = operation.stays or options.stays(names_of(operation.node))
    for attempt in range(ATTEMPTS):
        options.tell("writing and verifying" if attempt == 0 else f"writing and verifying, attempt {attempt + 1} of {ATTEMPTS}")
        halves = plan(program, unsafe, attempt)
        learned = known.learned
        result = verified(first or written(path, loaded, policy, options, halves), path, recipe, known)
        first = None
        if CRASHES in result.problems:
            keep_from_crashing(program)
            halves = plan(program, unsafe, attempt)
            result = verified(written(path, loaded, policy, options, halves), path, recipe, known)
        if measurement is not None and measurement.took_hastily and not sure(result):
            learned = known.learned
            options.tell("measuring with every input")
            unsafe |= measurement.carefully(policy.tolerance, options.tell, grown)
            halves = plan(program, unsafe, attempt)
            result = verified(written(path, loaded, policy, options, halves), path, recipe, known)
        while learned < known.learned <= SURPRISES:  # it fails on what the plan does not know: plan with that, too
            learned = known.learned
            options.tell("measuring with an input that the plan did not know")
            assert measurement is not None
            unsafe |= measurement.unsafe(policy.tolerance, options.tell, grown)
            halves = plan(program, unsafe, attempt)
            result = verified(written(path, loaded, policy, options, halves), path, recipe, known)
        if not result.problems or attempt == ATTEMPTS - 1:
            result.kept = reasons(program, halves, unsafe)
            result.regions = regions(program, halves, unsafe, measurement.costs if measurement is not None else {})
            if measurement is not None:
                measurement.close()
            result.notes = notes + result.notes
            return result
    raise AssertionError("no attempt was made")


def sure(result: Conversion) -> bool:
    """Whether a result leaves as much of the tolerance as a plan that was made on all inputs would."""
    return not result.problems and (result.error or 0.0) <= HEAVY_SHARE * result.policy.tolerance


def inputs_for(path: str, model: ir.Model, options: Options, calibration: Sequence[str], notes: list[str]) -> Samples:
    """The data of the user, else inputs that are made up; raises ConversionError for data and ranges that do not fit the model."""
    takes = [value.name or "" for value in required(model)]
    for name in options.ranges:
        if name not in takes:
            raise ConversionError(f"the model has no input {name!r}; it takes {', '.join(takes) or 'none'}{nearest(name, takes)}")
    if calibration:
        feeds = load_feeds(calibration, takes)
        for feed in feeds:
            check_data(feed, {value.name or "": wanted_of(value) for value in required(model)})
        return given(path, feeds, model)
    return samples(path, model, options, notes)


def wanted_of(value: ir.Value) -> Wanted:
    """What an input takes."""
    shape = None if value.shape is None else tuple(None if is_open(size) else int(str(size)) for size in value.shape)
    dtype = None if value.dtype is None or value.dtype == ir.DataType.STRING else str(value.dtype.numpy())
    return Wanted(dtype, shape if isinstance(value.type, ir.TensorType) else None)


class Measured(NamedTuple):
    """A program, which of its tensors must stay float32 and why, and what measured that, where there are inputs."""

    program: Program
    unsafe: dict[ir.Value, str]
    by: Measurement | None


def measured(model: ir.Model, policy: Policy, options: Options, known: Samples, grown: Samples | None) -> Measured:
    """What is measured on a model; without inputs that have `grown` there is no data."""
    program = analyze(model, policy.half, options)
    keep_whole(program)
    keep_whole_numbers(program)
    unsafe: dict[ir.Value, str] = {}
    measurement = None
    if grown is None:
        be_wary(program)
        unsafe |= raw_inputs(program, known.free)
    if known.feeds:
        options.tell("measuring which tensors may be half")
        measurement = Measurement(program, policy, known)
        unsafe |= measurement.unsafe(policy.tolerance, options.tell, grown)
    else:
        unsafe |= unread_constants(program, policy)
    return Measured(program, unsafe, measurement)


def heavy_in_half(program: Program, unsafe: dict[ir.Value, str]) -> int:
    """How many heavy operations a plan would turn to half."""
    halves = plan(program, unsafe)
    return sum(half for half, operation in zip(halves, program.operations, strict=True) if operation.gain == HEAVY_GAIN)


def mended(fault: str, mends: Sequence[str]) -> Iterator[str]:
    """What is said of a fault of the original, and of what was mended in the copy."""
    if mends:
        refused = f"the ONNX checker refuses the original ({fault}); in" if fault else "in"
        yield f"{refused} the copy, {', '.join(mends)}"


def needed_opset(
    path: str, recipe: Recipe, model: ir.Model, half: str, among: Callable[[ir.Node], bool], known: Samples, notes: list[str]
) -> int | None:
    """The opset to raise the model to for what is to be a half dtype `among` its nodes, None to leave it."""
    old = model.opset_imports.get("", 1)
    opsets = wanted(model, half, among)
    for opset in opsets:
        other = raised(read(path, recipe.mends), opset)
        if other is not None and agrees(other, known):
            notes.append(f"raised from opset {old} to {opset}, in which the heavy operators take {half}")
            return opset
    if opsets:
        notes.append(f"the heavy operators take {half} from opset {opsets[-1]} on, and the model can't be raised to it from {old}")
    return None


def agrees(model: ir.Model, known: Samples) -> bool:
    """Whether a model in another opset loads and still gives what the original does."""
    try:
        session = Session(model)
        same = all(found.within(SAME) for _, found in known.distances(session.run))
        session.close()
    except Exception:
        return False
    return same


def unread_constants(program: Program, policy: Policy) -> dict[ir.Value, str]:
    """The constants that half can't hold, found by reading them."""
    found = {}
    for value in program.producers:
        tensor = tensor_of(value) if is_constant(value) else None
        if tensor is not None and (why := damage(tensor, policy)):
            found[value] = why
    return found


def written(path: str, loaded: Loaded, policy: Policy, options: Options, halves: Sequence[bool]) -> Written:
    """A plan in a fresh copy of the model, with what there is to say of it; nothing of it was tried yet."""
    model, declared, *_ = loaded.copy()
    before, sources = weight_bytes(model), external_files(model) - {os.path.realpath(path)}
    program = analyze(model, policy.half, options)
    casts = write(program, halves, declared)
    unite(model)
    int8 = {n for n, operation in enumerate(program.operations) if operation.node is not None and is_whole(operation.node)}
    heavy = [n for n, operation in enumerate(program.operations) if operation.gain == HEAVY_GAIN and n not in int8]
    computing = [n for n, operation in enumerate(program.operations) if operation.node is not None]
    result = Conversion(
        policy,
        save=lambda target: save(model, target, sources),
        heavy=len(heavy),
        heavy_half=sum(halves[n] for n in heavy),
        operations=len(computing),
        operations_half=sum(halves[n] for n in computing),
        whole=len(int8) + integers(model),
        casts_added=casts.casts - casts.removed,
        size_before=before,
        size_after=weight_bytes(model),
        halves=tuple(sorted({program.operations[n].half for n in computing if halves[n]}, reverse=True)),
    )
    return result, model


def verified(made: Written, path: str, recipe: Recipe, known: Samples) -> Conversion:
    """A result that was tried."""
    result, model = made
    result.observe = lambda: observed(load(path, recipe).model, known.feeds) if known.feeds else {}
    # a model that stays what it was is not wrong for what its own half operations round
    verify(result, model, result.policy, known, compare=result.operations_half > 0 or not holds_half(model))
    if result.problems and result.trials and known.choices is None and holds_half(original := load(path, recipe).model):
        acquitted(result, model, original, known)
    return result


def acquitted(result: Conversion, model: ir.Model, original: ir.Model, known: Samples) -> None:
    """Hold a result that is off against what the original gives where its own half operations store in half: that is not its fault."""
    sessions = [Session(emulated(one)) for one in (original, model)]
    try:
        own = dict(known.distances(sessions[0].run))
        usual = sizes_of(known.references)
        given = [(feed, sessions[0].run(feed), sessions[1].run(feed)) for feed in known.all_feeds()]
    except Exception:
        return
    finally:
        for session in sessions:
            session.close()
    worst = max(own.values(), key=lambda far: (bool(far.broken), far.error))
    found = [distance(expected, got, usual, exact=at < len(known.feeds), by=known.ruler) for at, (_, expected, got) in enumerate(given)]
    if worst.within(result.policy.tolerance) or not all(far.within(result.policy.tolerance) for far in found):
        return
    result.problems.clear()
    result.trials.clear()
    judge(result, found, known.named())
    what = worst.broken or f"they move an output by {worst.error:.2g}"
    result.notes.append(
        f"the original's own half operations are off where half is half ({what}): the result is held against what they give"
    )


def emulated(model: ir.Model, thin: Lean | None = None) -> ir.Model:
    """A model, whose message may be known, in which every half result is rounded where it is made."""
    strict = typed(model, thin)
    to_strict(strict, thin=weight_bytes(model) >= COUNTING)
    return strict


def holds_half(model: ir.Model) -> bool:
    """Whether something in a model is float16 or bfloat16."""
    halves = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    made = (value for body, _ in bodies(model) for node in body for value in (*node.inputs, *node.outputs) if value is not None)
    return any(value.dtype in halves for value in (*model.graph.inputs, *made))


def verify(result: Conversion, model: ir.Model, policy: Policy, known: Samples, *, compare: bool = True) -> None:
    """Checker, ONNX Runtime, and (where they are to `compare`) strict emulation against the float32 model."""
    thin = lean(model)
    refused = fault_in(thin.proto)
    if not refused:
        result.verified.append("the ONNX checker with full type inference")
    elif not known.fault:
        result.problems.append(f"the ONNX checker refuses it: {refused}")
        return
    else:
        result.notes.append(f"the ONNX checker refuses the original, and so the result: {known.fault}")
    if weight_bytes(model) < INLINE_BYTES and crashes(model):
        result.problems.append(CRASHES)
        return
    try:
        session = Session(thin.copy(), optimize=True)
        for feed in {_form(feed): feed for feed in known.all_feeds()}.values():
            session.run(feed)
        session.close()
        result.verified.append("loaded and run by ONNX Runtime")
    except Exception as error:
        if _runs_as_a_file(model, known):
            result.verified.append("loaded and run by ONNX Runtime")
        elif "bfloat16" not in result.halves or "NOT_IMPLEMENTED" not in str(error):
            result.problems.append(f"ONNX Runtime refuses it: {str(error).strip().splitlines()[0][:300]}")
            return
    result.gaps += known.gaps
    result.notes += known.notes
    if not known.feeds or not compare:
        return
    strict = emulated(model, thin)
    names = known.named()
    if known.choices is not None:
        watch(strict, known.choices.among)
    behind: list[Outputs] = []  # what is chosen from, for each feed

    def run(feed: Feed) -> Outputs:
        outputs = session.run(feed)
        behind.append(outputs[len(model.graph.outputs) :])
        return outputs[: len(model.graph.outputs)]

    try:
        session = Session(strict)
        found = [far for _, far in known.distances(run)]
        if all(far.within(policy.tolerance) for far in found):
            found += known.surprises(run, policy.tolerance * HEAVY_SHARE)
        session.close()
        if known.choices is not None and len(behind) == len(names) and all(far.within(policy.tolerance) for far in found):
            found += chosen(result, known, known.choices, names, behind)
    except Exception as error:
        result.problems.append(f"its emulation does not run: {str(error).strip().splitlines()[0][:300]}")
        return
    result.verified.append(
        f"true {' and '.join(result.halves or (policy.half,))} semantics on {len(found)} sample{'s' if len(found) > 1 else ''}"
    )
    judge(result, found, names)
    result.outputs = [value.name or "" for value in model.graph.outputs]


def _runs_as_a_file(model: ir.Model, known: Samples) -> bool:
    """Whether ONNX Runtime runs a model that holds its weights, as a file does; it breaks some that it is given as it moves transposes."""
    import onnxruntime as ort

    if weight_bytes(model) >= INLINE_BYTES:
        return False
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(in_memory(model).SerializeToString(), options, providers=["CPUExecutionProvider"])
        for feed in {_form(feed): feed for feed in known.all_feeds()}.values():
            session.run(None, dict(feed))
    except Exception:
        return False
    return True


def chosen(result: Conversion, known: Samples, choices: Choices, names: list[str], behind: Sequence[Outputs]) -> list[Distance]:
    """How far what operators choose from is on each feed, whose names are told; where near ties decide on a sample, nothing is proven."""
    feeds = [*known.all_feeds(), *(one.feed for one in known.unseen)]
    usual, found = choices.sizes(known.feeds), []
    what = " and ".join(sorted({chooser.op_type for chooser in choices.among}))
    for name, feed, got in zip(tuple(names), feeds, behind, strict=True):
        far = choices.distance(feed, got, usual)
        if far.within(result.policy.tolerance) or choices.steady(feed, known.feeds[0], usual):
            found.append(far._replace(each=()))
            names.append(f"{name}, what {what} choose{'s' if ' and ' not in what else ''} from")
    if result.policy.metric is None and result.operations_half:
        given = list(zip(names, feeds, behind, strict=False))[: len(known.feeds)]
        result.gaps += near_ties(choices, [(name, feed) for name, feed, _ in given], {name: got for name, _, got in given})
    return found


def _form(feed: Feed) -> tuple[object, ...]:
    """What tells whether a model that runs on one feed runs on another: shapes, and what switches and sizes are."""
    return tuple((name, array.shape, array.tobytes() if array.size == 1 else b"") for name, array in sorted(feed.items()))


def typed(model: ir.Model, thin: Lean | None = None) -> ir.Model:
    """A copy of a model, whose message may be known, with the types of all values."""
    thin = thin or lean(model)
    with suppress(Exception):  # types that onnx-ir does not know
        return inferred(thin)
    copy = model.clone()
    infer_types(copy)
    return copy


def save(model: ir.Model, path: str, sources: frozenset[str]) -> None:
    """Write a model, whole or not at all; its weights to a file beside it where the original's `sources` did so, or above 1 GiB.

    Raises ConversionError where that file is one of the original's.
    """
    folder = os.path.dirname(os.path.abspath(path))
    name = os.path.basename(path)
    if os.path.realpath(path) in sources:
        raise ConversionError(f"{path} holds weights of the input, which is never overwritten: choose another name")
    if os.path.realpath(f"{path}.data") in sources:
        raise ConversionError(f"{path}.data holds weights of the input, which is never overwritten: choose another name than {name}")
    with tempfile.TemporaryDirectory(prefix=".mplint-", dir=folder) as partial:
        target = os.path.join(partial, name)
        if sources or weight_bytes(model) >= INLINE_BYTES:
            ir.save(model, target, format="protobuf", external_data=f"{name}.data", max_workers=1, max_in_flight_bytes=1 << 28)
        else:
            write_whole(model, target)
        for written in sorted(os.listdir(partial), reverse=True):  # the weights first
            os.replace(os.path.join(partial, written), os.path.join(folder, written))
