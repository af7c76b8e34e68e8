"""`mplint convert`: a model or a training script in mixed precision, and what is written where."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from mplint.cli.arguments import Parser, add_ranges, input_range, known_runtime
from mplint.cli.factory import function_of
from mplint.cli.output import write_text
from mplint.cli.paths import check_paths
from mplint.cli.terminal import complain
from mplint.conversion.memory import give_back_at_once
from mplint.conversion.policy import POLICIES, Asked, ConversionError, Options, Tolerance, asked
from mplint.conversion.policy import policy as named
from mplint.conversion.result import Conversion, Verdict
from mplint.errors import UsageError
from mplint.graph.names import is_address

if TYPE_CHECKING:
    from mplint.conversion.hardware import Fitted
    from mplint.engine.progress import Progress

CONVERTED, UNPROVEN, UNCHANGED = 0, 1, 3
PROGRAMS = (".py", ".pyw", ".ipynb")
ADVICE = {
    Verdict.WRONG: "not written, since verification failed: give --calibration data of your own, --keep what is named above, or --force",
    Verdict.UNPROVEN: "not written, since nothing proves it: give --calibration data of your own, or --force",
    Verdict.UNCHANGED: "not written, since nothing in it turned to half, for the reasons above; --force writes a copy",
}
EPILOG = """\
exit status:
  0  converted and proven (notes say what could not be run); a training
     script has adopted the policy, or trained in mixed precision before
  1  the result is wrong or unproven: not written, unless with --force; of a
     training script something is left to you
  2  misuse, or an input that can't be read or run
  3  nothing was converted: not written, unless with --force; the reasons are
     listed
Of several models the first of 2, 1, 3 and 0 that one of them gives."""


def add_options(parser: Parser) -> None:
    """The options of `mplint convert`."""
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="an ONNX model, a Keras model (.keras, .h5), a SavedModel folder, a torch program (.pt2, TorchScript), or a script (.py); "
        "models also by address (s3://bucket/models/*.onnx)",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="where to write the converted model; the folder for several")
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="POLICY",
        help=f"{' or '.join(POLICIES)} (default: what is fast on --target, else mixed_float16); of some layers of ONNX and Keras models "
        "otherwise: PATTERN=bfloat16, PATTERN=float16 or PATTERN=float32",
    )
    parser.add_argument("--target", metavar="HARDWARE", help='what it is for: a GPU ("Tesla T4"), a capability ("7.5"), tpu, cpu, or auto')
    parser.add_argument("--runtime", metavar="NAME", help="what will run an ONNX model, such as onnxruntime-cuda or tensorrt")
    data = parser.add_argument_group("data")
    data.add_argument(
        "--calibration", action="append", default=[], metavar="FILE", help="an .npz file with an array for each input, or a folder of them"
    )
    add_ranges(data)
    data.add_argument(
        "--tolerance",
        action="append",
        default=[],
        metavar="ERROR",
        help="the largest error of an output, relative to its largest value (default: 0.02, bfloat16 0.08), or abs=ERROR, "
        "or both (rel=0.01,abs=1e-3: the larger counts); OUTPUT:abs=ERROR for one output",
    )
    data.add_argument(
        "--metric",
        metavar="MODULE:FUNCTION",
        help="a function of yours that takes the outputs of the original and of the result by their names, and says the error of a sample",
    )
    parser.add_argument("--device", metavar="TYPE", help="the device type that a torch program is for (default: cuda)")
    plan = parser.add_argument_group("plan")
    plan.add_argument(
        "--keep", action="append", default=[], metavar="NAME", help="a node, an op type or a pattern (*/head/*) that stays float32"
    )
    io = plan.add_mutually_exclusive_group()
    io.add_argument("--keep-io", action="store_true", help="inputs and outputs stay float32 (the default)")
    io.add_argument("--half-io", action="store_true", help="inputs and outputs become half")
    parser.add_argument(
        "--explore", action="store_true", help="print how large the error is for which share in half, from much to little; write nothing"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and its proof, write nothing")
    parser.add_argument("--apply", action="store_true", help="write an adopted training script in place (default: show the diff)")
    parser.add_argument("--report", metavar="FILE", help="write every figure and reason to FILE: .html, a page for a browser, or .json")
    parser.add_argument("--force", action="store_true", help="write the result even if verification fails")
    parser.add_argument(
        "--executor", metavar="URL", help="convert models on a dask cluster: dask://HOST:PORT, or dask://local?workers=N for one here"
    )


def run(options: argparse.Namespace) -> int:
    """Convert one model or program, or several models; returns the exit code, raises UsageError for misuse and what can't be converted."""
    if are_several(options):
        from mplint.cli import models

        return models.run(options)
    options.input = options.inputs[0]
    fit, wishes = _fitted(options)
    options.policy = fit.policy
    if is_source(options.input):
        from mplint.cli.adopt import run as adopt

        return adopt(options)
    if options.apply:
        raise UsageError("--apply is for programs (train.py): say where to write a model with -o OUT")
    from mplint.conversion.api import convert_file
    from mplint.engine.progress import Progress
    from mplint.report.conversion import conversion_text

    give_back_at_once()
    source, target = options.input, options.output
    _check(options)
    progress = Progress(sys.stderr, quiet=0)
    wanted = _options(options, fit, wishes, progress)
    metric = function_of(options.metric, "--metric ") if options.metric else None

    def convert(tolerance: Tolerance) -> Conversion:
        policy = named(fit.policy, tolerance, metric, wishes.halves)
        return convert_file(source, target or "converted.keras", policy, wanted, options.calibration, options.device or fit.device)

    result: Conversion | None = None
    saved = False
    try:
        if options.explore:
            return _explored(convert, source, progress)
        result = convert(options.tolerance)
        written = not options.dry_run and (result.verdict is Verdict.PROVEN or options.force)
        if written:
            result.save(target)
            saved = True
        if options.report:
            progress("writing the report")
            write_report(options.report, result, source, target or "", written=written)
    except ConversionError as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        progress.clear()
        complain(f"interrupted: {left_by(target, options.report, saved=saved)}")
        raise
    except OSError as error:
        raise UsageError(f"{error.filename or target}: {(error.strerror or str(error)).lower()}") from None
    finally:
        progress.clear()
        if result is not None:
            result.close()
        if "mplint.conversion.onnx.run" in sys.modules:  # an interruption leaves no temporary file
            sys.modules["mplint.conversion.onnx.run"].close_all()
    sys.stdout.write(conversion_text(result, source, target or "", written=written))
    if result.verdict is not Verdict.PROVEN and not options.force:
        sys.stderr.write(f"mplint: {ADVICE[result.verdict]}\n")
    return {Verdict.PROVEN: CONVERTED, Verdict.UNCHANGED: UNCHANGED}.get(result.verdict, UNPROVEN)


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError where what is asked of a model can't be, before anything is worked out."""
    check_paths(options.input, options.output, options.dry_run or options.explore, options.report)
    if options.device is not None and not options.input.endswith((".pt2", ".pt", ".jit", ".ts")):
        raise UsageError(f"--device {options.device} says what a torch program is for; {options.input} has no device")


def left_by(target: str | None, report: str | None, *, saved: bool) -> str:
    """What an interrupted conversion has left; `saved` says that the result was written before."""
    if saved:
        return f"{target} is written, and {report} is not"
    if target is None:
        return "nothing was written"
    return f"{target} is as it was before" if os.path.exists(target) else f"no {target} was written"


def write_report(report: str, result: Conversion, source: str, target: str, *, written: bool) -> None:
    """Write every figure and reason, for programs or for people, as the name of the file says."""
    if report.endswith(".html"):
        from mplint.report.page import conversion_page

        write_text(report, conversion_page(result, source, target, written=written))
    else:
        from mplint.report.conversion import conversion_json

        write_text(report, conversion_json(result, source, target))


def _fitted(options: argparse.Namespace) -> tuple[Fitted, Asked]:
    """What the device and the runtime that the user named ask for, and what the user asked of layers."""
    from mplint.conversion.hardware import fitted
    from mplint.hardware import resolve_target

    runtime = known_runtime(options.runtime)
    target = resolve_target(options.target) if options.target is not None else None
    try:
        wishes = asked(options.policy)
    except ConversionError as error:
        raise UsageError(str(error)) from None
    if is_source(options.input) and (wishes.halves or wishes.keep):
        raise UsageError(f"--policy {' '.join(options.policy)}: patterns are for models; a program has one policy")
    try:
        return fitted(target, wishes.name, runtime, onnx=options.input.endswith(".onnx")), wishes
    except ConversionError as error:
        raise UsageError(f"--policy {wishes.name}: {error}") from None


def _options(options: argparse.Namespace, fit: Fitted, wishes: Asked, progress: Progress) -> Options:
    """What the user asked of the conversion; what speaks against it is said once, above the line of progress."""
    warned: set[str] = set()

    def warn(text: str) -> None:
        progress.clear()
        if text not in warned:
            complain(text)
        warned.add(text)

    if fit.against:
        warn(fit.against)
    ranges = dict(map(input_range, options.input_range))
    keep = (*options.keep, *wishes.keep)
    return Options(keep, options.half_io, wishes.halves, ranges, tell=progress, warn=warn, reasons=fit.reasons)


def _explored(convert: Callable[[float], Conversion], source: str, progress: Progress) -> int:
    """Print the curve, and return the exit code."""
    from mplint.cli.explore import curve
    from mplint.report.conversion import curve_lines

    results = []
    try:
        for result in curve(convert):
            result.close()
            results.append(result)
    finally:
        progress.clear()
    sys.stdout.write("".join(f"{line}\n" for line in curve_lines(results, source)))
    return CONVERTED if any(result.verdict is Verdict.PROVEN for result in results) else UNPROVEN


def are_several(options: argparse.Namespace) -> bool:
    """Whether a run converts something else than one model or program that lies here."""
    places = [*options.inputs, options.output or "", *options.calibration]
    return len(options.inputs) > 1 or options.executor is not None or any(map(is_address, places))


def is_source(path: str) -> bool:
    """Whether a file is a program and no model."""
    return path.endswith(PROGRAMS)
