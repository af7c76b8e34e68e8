"""Proving a converted program: as a caller sees it, at other sizes, and after a round trip through a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from mplint.conversion.distance import Distance, distance, judge
from mplint.conversion.policy import ConversionError, Options
from mplint.conversion.result import Conversion
from mplint.conversion.torch.files import first_line, reloaded
from mplint.conversion.torch.run import Seen, caller
from mplint.conversion.torch.samples import Sample, calibrated, examples, home, input_names, resized, scaled, varied

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@dataclass(slots=True)
class Expected:
    """Samples that a program runs on, `wider` ones with larger inputs, and what it gives on those of `shown`; the device type it is for."""

    samples: list[Sample]
    device: str
    wider: list[Sample] = field(default_factory=list)
    shown: list[tuple[Sample, Seen]] = field(default_factory=list)


def expected(program: ExportedProgram, options: Options, device: str, feeds: Sequence[Mapping[str, Any]]) -> Expected:
    """Samples and what the original gives on them; raises ConversionError where it does not even run on its examples."""
    first = examples(program)
    call = caller(program)
    found = Expected(calibrated(program, first, feeds) if feeds else [first], device)
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
            found.shown.append(other)
            break
    larger = _runs(call, scaled(program, found.samples[0], 2.0))
    if larger is not None:
        found.wider.append(larger[0])
    other_size = resized(program, found.samples[0], options)
    sized = _runs(call, other_size) if other_size is not None else None
    if sized is not None:
        found.shown.append(sized)
    return found


def _runs(call: Callable[[Sample], Seen], sample: Sample) -> tuple[Sample, Seen] | None:
    try:
        return sample, call(sample)
    except Exception:  # inputs that were made up may be none that it takes
        return None


def verify(result: Conversion, original: ExportedProgram, made: ExportedProgram, wanted: Expected, measured: Sequence[Distance]) -> None:
    """Save and load the program, run it as its caller would, and judge by that and by what was `measured` before.

    Raises ConversionError where it can't be saved, or comes back different, which no other plan would mend.
    """
    found = list(measured)
    try:
        again, _ = reloaded(made)
    except Exception as error:
        raise ConversionError(f"the result can't be saved and loaded again: {first_line(error)}") from None
    if difference := _difference(original, again):
        raise ConversionError(f"{difference} changed when it was saved and loaded again")
    result.verified.append("saved and loaded again")
    try:
        call = caller(again)
        for sample, reference in wanted.shown:
            seen = _run_anyhow(call, sample, wanted.device)
            if reference.dtypes != seen.dtypes:
                result.problems.append("an output has another dtype than the original's")
                return
            found.append(distance(reference.values, seen.values))
    except Exception as error:
        result.problems.append(f"it does not run on the CPU: {first_line(error)}")
        return
    place = home(original)
    result.verified.append(f"run by torch in {result.policy.half} on {'the CPU' if place == 'cpu' else place}")
    judge(result, found)


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
