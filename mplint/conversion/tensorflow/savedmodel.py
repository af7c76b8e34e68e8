"""Converting a SavedModel: TensorFlow's graph optimizer rewrites its functions; variables, assets and signatures stay as they are."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mplint.conversion.distance import Distance, moves
from mplint.conversion.planner import Trials, misfits
from mplint.conversion.policy import ConversionError, Options, Policy
from mplint.conversion.quiet import said
from mplint.conversion.result import Conversion
from mplint.conversion.tensorflow.functions import HALVES
from mplint.conversion.tensorflow.plan import HEAVY, Place, Plan, make_plan
from mplint.conversion.tensorflow.prove import Runs, beside, compared, run_original

if TYPE_CHECKING:
    import numpy as np

LISTED = (  # what the optimizer refuses to compute in half
    "Exp",
    "Expm1",
    "L2Loss",
    "Log",
    "Log1p",
    "LogSoftmax",
    "Mean",
    "Pow",
    "Prod",
    "Reciprocal",
    "Rsqrt",
    "Softmax",
    "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits",
    "Sqrt",
    "Square",
    "SquaredDifference",
    "Sum",
)
NO_PASS = "TensorFlow's pass for bfloat16 needs a processor with AVX-512, which this one is not"
WARY = {"float16": " with a quarter of its range", "bfloat16": ""}
METADATA = "keras_metadata.pb"


def convert(
    path: str, policy: Policy, options: Options, feeds: Sequence[Mapping[str, np.ndarray]], target: str = "converted"
) -> Conversion:
    """Convert the SavedModel in a folder and prove it on the data, or on made-up inputs; nothing is written.

    Raises ConversionError for a model that TensorFlow can't read here.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    options.tell("reading the model")
    saved, meta = _read(folder)
    kept = _asked(meta, options)
    options.tell("planning")
    plan = make_plan(meta, policy.half, kept)
    result = Conversion(policy, save=partial(save, folder, b""))
    options.tell("running the original")
    try:
        runs, notes = run_original(folder, meta, feeds, options.ranges)
    except ConversionError:
        raise
    except Exception as error:
        raise ConversionError(f"{path}: TensorFlow can't load it here ({said(error)})") from None
    result.notes += notes
    measured: dict[Place, Distance] = {}
    result.gaps += unproven(runs, notes)
    if runs and plan.half:
        options.tell("verifying")
        plan, measured = _proven(result, folder, saved, meta, plan, kept, runs, options)
    elif not plan.half:
        why = NO_PASS if lacks_pass(policy.half) else "nothing in it gains from half"
        result.notes.append(f"{why}: it stays the model that it was")
    result.save = partial(save, folder, _with_meta(saved, meta, plan.meta).SerializeToString())
    _describe(result, plan, kept, measured, policy)
    result.size_before = result.size_after = _size(folder)
    if plan.half:
        result.notes.append("the variables stay float32, bit for bit, and are cast when they are read: the files do not shrink")
    if os.path.exists(os.path.join(folder, METADATA)):
        result.notes.append(
            "keras.models.load_model of Keras 2 makes the layers anew, in float32: load it with tf.saved_model.load, or serve it"
        )
    return result


def unproven(runs: Runs, notes: Sequence[str]) -> list[str]:
    """Why what was run proves nothing."""
    if not runs:
        return ["no signature could be run: give --calibration data", *notes]
    still = [name for name, made in runs.items() if not any(moves([run.expected for run in made]))]
    why = "is the same whatever the inputs are: give --calibration data on which it moves"
    return [f"what the signature {name!r} gives {why}" for name in still]


def save(source: str, message: bytes, target: str) -> None:
    """Copy a SavedModel with another saved_model.pb into a folder that is not there yet or empty: whole or not at all."""
    target = os.path.abspath(target)
    made = tempfile.mkdtemp(prefix=".mplint-", dir=os.path.dirname(target))
    try:
        whole = os.path.join(made, "model")
        # The fingerprint is one of the other saved_model.pb.
        shutil.copytree(source, whole, ignore=shutil.ignore_patterns("fingerprint.pb"))
        with open(os.path.join(whole, "saved_model.pb"), "wb") as stream:
            stream.write(message)
        os.replace(whole, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _read(folder: str) -> tuple[Any, Any]:
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel()
    with open(os.path.join(folder, "saved_model.pb"), "rb") as stream:
        try:
            saved.ParseFromString(stream.read())
        except DecodeError:
            raise ConversionError(f"{folder}: saved_model.pb is damaged or cut off") from None
    if not saved.meta_graphs:
        raise ConversionError(f"{folder}: saved_model.pb holds no graph")
    return saved, next((meta for meta in saved.meta_graphs if "serve" in meta.meta_info_def.tags), saved.meta_graphs[0])


def _with_meta(saved: Any, meta: Any, other: Any) -> Any:
    made = type(saved)()
    made.CopyFrom(saved)
    made.meta_graphs[next(index for index, one in enumerate(saved.meta_graphs) if one is meta)].CopyFrom(other)
    return made


def _asked(meta: Any, options: Options) -> dict[Place, str]:
    """The nodes that are to stay float32, and why."""
    bodies = [("", meta.graph_def.node)] + [(one.signature.name, one.node_def) for one in meta.graph_def.library.function]
    found = {(owner, node.name): options.stays((node.name, node.op, owner)) for owner, nodes in bodies for node in nodes}
    return {place: why for place, why in found.items() if why}


def _proven(
    result: Conversion, folder: str, saved: Any, meta: Any, plan: Plan, kept: Mapping[Place, str], runs: Runs, options: Options
) -> tuple[Plan, dict[Place, Distance]]:
    """A plan whose outputs stand, if there is one, with the operations that had to leave it; what was found goes into the result."""
    from tensorflow.python.framework import errors

    half = result.policy.half

    def distance_of(tried: Plan) -> Distance:
        with beside(folder, _with_meta(saved, meta, tried.emulation)) as emulation:
            try:
                found, result.trials = compared(emulation, runs, result.policy)
                return found
            except (errors.OpError, ValueError) as error:  # an index that half made wrong, for one
                return Distance(float("inf"), f"it does not run: {said(error)}")

    found, blamed = distance_of(plan), dict[Place, Distance]()
    first = result.trials
    if not found.within(result.policy.tolerance):
        options.tell("looking for what must stay float32")
        movable = sorted(plan.half, key=lambda place: plan.half[place] not in HEAVY)
        everything = frozenset(movable)

        def measure(chosen: Collection[Place]) -> Distance:
            return distance_of(make_plan(meta, half, {*kept, *everything.difference(chosen)}))

        heavy = [place for place in movable if plan.half[place] in HEAVY]
        blamed = misfits(heavy, movable[len(heavy) :], Trials(measure), result.policy.tolerance)
        careful = make_plan(meta, half, {*kept, *blamed})
        again = distance_of(careful)
        if again.within(result.policy.tolerance):
            plan, found = careful, again
        else:
            blamed, result.trials = {}, first
    result.error = found.error
    if not found.within(result.policy.tolerance):
        result.problems.append(found.broken or f"the outputs are off by {found.error:.2g}, more than {result.policy.tolerance:g}")
    count = sum(map(len, runs.values()))
    names = ", ".join(sorted(runs))
    samples = f"{count} sample{'s' if count > 1 else ''}"
    result.verified.append(f"the outputs of {names} against the original's on {samples}, each {half} result stored as such{WARY[half]}")
    _run_really(result, folder, _with_meta(saved, meta, plan.meta), runs)
    return plan, blamed


def _run_really(result: Conversion, folder: str, converted: Any, runs: Runs) -> None:
    """Load the converted model as it is, and run it as far as the CPU has kernels for half."""
    try:
        with beside(folder, converted) as real:
            found = compared(real, runs, result.policy).worst
    except Exception as error:
        if "kernel" in str(error).lower() or "not supported" in str(error).lower():
            result.notes.append(f"loaded, but not run as it is: the CPU has no kernel for an operation in half ({said(error)})")
        else:
            result.problems.append(f"TensorFlow can't load and run it ({said(error)})")
        return
    if found.broken:
        result.problems.append(f"run as it is, {found.broken}")
    result.verified.append("TensorFlow, which loads and runs it")


def _describe(result: Conversion, plan: Plan, kept: Mapping[Place, str], measured: Mapping[Place, Distance], policy: Policy) -> None:
    from tensorflow.python.framework import op_def_registry

    result.operations_half, result.operations = len(plan.half), len(plan.half) + len(plan.float32)
    result.heavy_half = sum(op in HEAVY for op in plan.half.values())
    result.heavy = result.heavy_half + sum(op in HEAVY for op in plan.float32.values())
    result.casts_added = plan.casts
    for place, op in sorted(plan.float32.items(), key=lambda item: (item[0] not in measured, item[1] not in HEAVY)):
        definition = op_def_registry.get(op)
        if place in measured:
            far = measured[place]
            reason = f"in {policy.half}{WARY[policy.half]} {far.broken or f'the outputs are off by {far.error:.2g}'}"
        elif place in kept:
            reason = kept[place]
        elif place in plan.ends:
            reason = "it makes an output, which stays float32"
        elif definition is None or not _has_half(definition, policy.half):
            reason = f"TensorFlow has no {policy.half} version of it"
        elif op in LISTED:
            reason = f"its results depend on sizes and sums that {policy.half} may not hold"
        elif not plan.half and lacks_pass(policy.half):
            reason = NO_PASS
        else:
            reason = "half gains nothing there: a cast would be needed before or after it"
        result.kept.append((f"{place[1]} ({op})", reason))


def lacks_pass(half: str) -> bool:
    """Whether TensorFlow's pass for a half dtype does nothing on this machine's processor."""
    import numpy as np

    found = np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", [])
    return half == "bfloat16" and not any(name.startswith("AVX512") for name in found)


def _has_half(definition: Any, half: str) -> bool:
    lists = [attribute.allowed_values.list.type for attribute in definition.attr if attribute.type == "type"]
    return any(not allowed or HALVES[half] in allowed for allowed in lists)


def _size(folder: str) -> int:
    paths = [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]
    return sum(os.path.getsize(path) for path in paths)
