"""Proving a converted program: as a caller sees it, at other sizes, and after a round trip through a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mplint.conversion.distance import PLAIN, Distance, Ruler, distance, judge, moves, ruler, sizes_of
from mplint.conversion.policy import ConversionError, Options, Policy
from mplint.conversion.result import Conversion, Trial
from mplint.conversion.stress import FAR, ILL, NOISE, STRONGER, ZEROS, perturbed, stressed
from mplint.conversion.torch.files import first_line, reloaded
from mplint.conversion.torch.run import Arrays, Seen, caller
from mplint.conversion.torch.samples import (
    Sample,
    calibrated,
    examples,
    home,
    input_names,
    leaves,
    moved_by_inputs,
    output_names,
    resized,
    scaled,
    sequences,
    varied,
    with_leaves,
)

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@dataclass(slots=True)
class Expected:
    """What a program is proven on, for a device type.

    `samples` are what it is measured on, with their `names`; those from `ordinary` on are derived of the first: silence, faint inputs;
    but for the `learned` ones, by their numbers, which a result failed on as it ran, and which count as they did there.
    `wider` ones have larger inputs, and `shown` are runs as the caller sees them. `flat` and `seen` measure the outputs of the graph and
    those that the caller sees. `usual` says how large the latter are, where data says it, `gaps` why all this proves too little.
    """

    samples: list[Sample]
    device: str
    names: list[str] = field(default_factory=list)
    ordinary: int = 0
    learned: set[int] = field(default_factory=set)
    wider: list[Sample] = field(default_factory=list)
    shown: list[tuple[Sample, Seen]] = field(default_factory=list)
    flat: Ruler = PLAIN
    seen: Ruler = PLAIN
    gaps: list[str] = field(default_factory=list)
    given: bool = False

    def far(self, references: Sequence[Arrays], at: int, got: Arrays) -> Distance:
        """How far the outputs of the graph are from the original's on a sample."""
        derived = at >= self.ordinary > 0 and at not in self.learned
        sizes = sizes_of(references[: self.ordinary]) if derived or (self.given and at not in self.learned) else ()
        found = distance(references[at], got, sizes, exact=not derived, by=self.flat)
        return found._replace(broken=f"{found.broken} ({self.names[at]})") if found.broken and derived else found


def expected(program: ExportedProgram, policy: Policy, options: Options, device: str, feeds: Sequence[Mapping[str, Any]]) -> Expected:
    """Samples and what the original gives on them; raises ConversionError where it does not even run on its examples."""
    first = examples(program)
    call = caller(program)
    found = Expected(calibrated(program, first, feeds) if feeds else [first], device, given=bool(feeds))
    found.names = [getattr(feed, "file", "the data") for feed in feeds] or ["the example inputs"]
    flat, seen = output_names(program)
    found.seen = ruler(policy, seen)
    found.flat = ruler(replace(policy, outputs={name: one for name, one in policy.outputs.items() if name in flat}), flat)
    try:
        found.shown.append((found.samples[0], call(found.samples[0])))
    except Exception as error:
        what = (
            "on the calibration data: give arrays of the sizes that it was exported for" if feeds else "on the CPU: export it for the CPU"
        )
        raise ConversionError(f"the program does not run {what} ({first_line(error)})") from None
    for integers in (True, False):
        other = _runs(call, varied(program, found.samples[0], 1, options, integers=integers))
        if other is not None:
            found.samples.append(other[0])
            found.names.append("varied inputs")
            found.shown.append(other)
            break
    for walked in () if feeds else sequences(program, found.samples[0], options):
        other = _runs(call, walked)
        if other is not None:
            found.samples.append(other[0])
            found.names.append("a sequence")
            found.shown.append(other)
    found.ordinary = len(found.samples)
    derived = list(_derived(program, call, found))
    larger = _runs(call, scaled(program, found.samples[0], 2.0))
    if larger is not None:
        found.wider.append(larger[0])
    runs = (*found.shown, *([larger] if larger is not None else []), *derived)
    results = [given.values[: len(seen)] for _, given in runs]  # behind the outputs are buffers and inputs
    if len(results) > 1 and (still := _move(program, call, found, results)):
        found.gaps.append(f"{still} the same whatever the inputs are: give --calibration data on which it moves")
    other_size = resized(program, found.samples[0], options)
    sized = _runs(call, other_size) if other_size is not None else None
    if sized is not None:
        found.shown.append(sized)
    return found


def _move(program: ExportedProgram, call: Callable[[Sample], Seen], found: Expected, results: list[Arrays]) -> str:
    """Which outputs hardly follow the inputs, "" where all do that may; stronger inputs are tried first, and taken in where they help."""
    names, reached = found.seen.names, moved_by_inputs(program)
    for factor in (*STRONGER, None):
        moved = moves(results)
        still = [name for name, one in zip(names, moved, strict=False) if not one and name in reached]
        if any(moved) and not still:
            return ""
        stronger = _runs(call, scaled(program, found.samples[0], factor)) if factor is not None else None
        if stronger is None or not _numbers(stronger[1].values):
            break
        results.append(stronger[1].values[: len(names)])
        if moves(results) != moved:
            found.samples.insert(found.ordinary, stronger[0])
            found.names.insert(found.ordinary, f"{found.names[0]}, × {factor:g}")
            found.ordinary += 1
            found.shown.append(stronger)
    return f"the output {still[0]!r} is" if any(moved) else "the output is" if len(names) == 1 else "every output is"


def _derived(program: ExportedProgram, call: Callable[[Sample], Seen], found: Expected) -> Iterator[tuple[Sample, Seen]]:
    """Take in what silence, faint inputs and constant rows make of the first sample, where the original bears them."""
    values = leaves(program, found.samples[0])
    floats = {str(at): one for at, one in enumerate(values) if isinstance(one, torch.Tensor) and one.dtype == torch.float32}
    base = {name: one.detach().cpu().numpy() for name, one in floats.items()}
    usual = sizes_of(seen.values for _, seen in found.shown)

    def sample_of(feed: Mapping[str, np.ndarray]) -> Sample:
        made = list(values)
        for name, array in feed.items():
            made[int(name)] = torch.from_numpy(array.copy()).to(floats[name])
        return with_leaves(program, found.samples[0], made)

    for name, feed in stressed(base):
        tried = _runs(call, sample_of(feed))
        if tried is None or not _numbers(tried[1].values):
            continue
        beyond = any(size > FAR * known for size, known in zip(sizes_of([tried[1].values]), usual, strict=False))
        noisy = _runs(call, sample_of(perturbed(feed, base, NOISE)))
        ill = noisy is None or not distance(tried[1].values, noisy[1].values, usual, exact=False).within(ILL)
        if ill or (beyond and name != ZEROS):
            continue
        found.samples.append(tried[0])
        found.names.append(f"{found.names[0]}, {name}")
        yield tried


def _numbers(outputs: Arrays) -> bool:
    return all(np.isfinite(one).all() for one in map(np.asarray, outputs) if one.dtype.kind == "f")


def _runs(call: Callable[[Sample], Seen], sample: Sample) -> tuple[Sample, Seen] | None:
    try:
        return sample, call(sample)
    except Exception:  # inputs that were made up may be none that it takes
        return None


def verify(result: Conversion, original: ExportedProgram, made: ExportedProgram, wanted: Expected, measured: Sequence[Distance]) -> None:
    """Save and load the program, run it as its caller would, and judge by that and by what was `measured` before.

    What is too far before that is not even saved. Raises ConversionError where it can't be saved, or comes back different, which no
    other plan would mend.
    """
    found = list(measured)
    result.outputs = list(wanted.seen.names)
    result.gaps += wanted.gaps
    if not all(one.within(result.policy.tolerance) for one in found) or not _runs_well(result, made, wanted, found):
        if not result.problems:
            judge(result, found)
            result.trials = _trials(original, wanted, measured, found[len(measured) :])
        return
    try:
        again, _ = reloaded(made)
    except Exception as error:
        raise ConversionError(f"the result can't be saved and loaded again: {first_line(error)}") from None
    if difference := _difference(original, again):
        raise ConversionError(f"{difference} changed when it was saved and loaded again")
    result.verified.append("saved and loaded again")
    del found[len(measured) :]
    _runs_well(result, again, wanted, found)
    if result.problems:
        return
    place = home(original)
    result.verified.append(f"run by torch in {result.policy.half} on {'the CPU' if place == 'cpu' else place}")
    judge(result, found)
    result.trials = _trials(original, wanted, measured, found[len(measured) :])


def _runs_well(result: Conversion, made: ExportedProgram, wanted: Expected, found: list[Distance]) -> bool:
    """Whether a program gives what the original does where it is run as its caller would; how far it is on each sample is `found`."""
    try:
        call = caller(made)
        for sample, reference in wanted.shown:
            seen = _run_anyhow(call, sample, wanted.device)
            if reference.dtypes != seen.dtypes:
                result.problems.append("an output has another dtype than the original's")
                return False
            found.append(distance(reference.values, seen.values, by=wanted.seen))
    except Exception as error:
        result.problems.append(f"it does not run on the CPU: {first_line(error)}")
        return False
    return all(one.within(result.policy.tolerance) for one in found)


def _trials(original: ExportedProgram, wanted: Expected, measured: Sequence[Distance], run: Sequence[Distance]) -> list[Trial]:
    """What each sample showed of the outputs: a graph gives them behind what it writes into buffers, a caller sees them first."""
    count = len(original.graph_signature.user_outputs)
    found = [Trial(f"{name}, by the rules", one.each[-count:], one.broken) for name, one in zip(wanted.names, measured, strict=True)]
    return found + [Trial(f"sample {at}, run", one.each[:count], one.broken) for at, one in enumerate(run, 1)]


def _difference(original: ExportedProgram, again: ExportedProgram) -> str:
    """What a caller would miss in a program that was loaded again."""
    if set(again.state_dict) != set(original.state_dict):
        return "the names of its parameters"
    one, other = original.module_call_graph[0].signature, again.module_call_graph[0].signature
    if one is None or other is None or (one.in_spec, one.out_spec) != (other.in_spec, other.out_spec):
        return "its signature"
    if _sizes(again) != _sizes(original):
        return "its dynamic sizes"
    return ""


def _sizes(program: ExportedProgram) -> list[list[str]]:
    """The sizes of each input: numbers, and the bounds of those that may vary."""
    named = set(input_names(program))
    shapes = [getattr(n.meta.get("val"), "shape", ()) for n in program.graph.nodes if n.op == "placeholder" and n.name in named]
    return [[_size(size, program) for size in shape] for shape in shapes]


def _size(size: Any, program: ExportedProgram) -> str:
    if isinstance(size, int) or size.node.expr.is_number:
        return str(size)
    return str(program.range_constraints.get(size.node.expr, "any"))


def _run_anyhow(call: Callable[[Sample], Seen], sample: Sample, device: str) -> Seen:
    """Run a program on the CPU; one for another device without oneDNN where that lacks a half form that the plain kernels have."""
    try:
        return call(sample)
    except RuntimeError as error:
        if device == "cpu" or "primitive" not in str(error):
            raise
    with torch.backends.mkldnn.flags(enabled=False):
        return call(sample)
