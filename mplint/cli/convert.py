"""`mplint convert`: a model or a training script in mixed precision, and what is written where."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from mplint.cli.arguments import Parser, add_ranges, input_range
from mplint.cli.paths import check_paths
from mplint.conversion.policy import POLICIES, ConversionError, Options
from mplint.conversion.result import Conversion, Verdict
from mplint.errors import UsageError

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
     listed"""


def add_options(parser: Parser) -> None:
    """The options of `mplint convert`."""
    parser.add_argument(
        "input",
        metavar="INPUT",
        help="an ONNX model, a Keras model (.keras, .h5), a SavedModel folder, a torch program (.pt2), or a training script (.py, .ipynb)",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="where to write the converted model")
    parser.add_argument(
        "--policy",
        choices=sorted(POLICIES),
        default="mixed_float16",
        metavar="POLICY",
        help=f"{' or '.join(POLICIES)} (default: mixed_float16)",
    )
    data = parser.add_argument_group("data")
    data.add_argument(
        "--calibration", action="append", default=[], metavar="FILE", help="an .npz file with an array for each input, or a folder of them"
    )
    add_ranges(data)
    data.add_argument(
        "--tolerance",
        type=float,
        metavar="ERROR",
        help="the largest error of an output, relative to its largest value (default: 0.02, bfloat16 0.08)",
    )
    parser.add_argument("--device", metavar="TYPE", help="the device type that a torch program is for (default: cuda)")
    plan = parser.add_argument_group("plan")
    plan.add_argument(
        "--keep", action="append", default=[], metavar="NAME", help="a node, an op type or a pattern (*/head/*) that stays float32"
    )
    io = plan.add_mutually_exclusive_group()
    io.add_argument("--keep-io", action="store_true", help="inputs and outputs stay float32 (the default)")
    io.add_argument("--half-io", action="store_true", help="inputs and outputs become half")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and its proof, write nothing")
    parser.add_argument("--apply", action="store_true", help="write an adopted training script in place (default: show the diff)")
    parser.add_argument("--report", metavar="FILE", help="write every figure and reason to FILE (.json or .html)")
    parser.add_argument("--force", action="store_true", help="write the result even if verification fails")


def run(options: argparse.Namespace) -> int:
    """Convert one model or program and return the exit code; raises UsageError for misuse and for what can't be converted."""
    if is_source(options.input):
        from mplint.cli.adopt import run as adopt

        return adopt(options)
    if options.apply:
        raise UsageError("--apply is for programs (train.py): say where to write a model with -o OUT")
    from mplint.conversion.api import convert_file
    from mplint.report.conversion import conversion_html, conversion_json, conversion_text

    source, target = options.input, options.output
    check_paths(source, target, options.dry_run, options.report)
    if options.tolerance is not None and not 0 < options.tolerance < 1:
        raise UsageError(f"--tolerance: {options.tolerance:g} is not between 0 and 1")
    if options.device is not None and not source.endswith((".pt2", ".pt")):
        raise UsageError(f"--device {options.device} says what a torch program is for; {source} has no device")
    progress = Progress()
    wanted = Options(tuple(options.keep), options.half_io, dict(map(input_range, options.input_range)), progress)
    result: Conversion | None = None
    try:
        result = convert_file(
            source, target or "converted.keras", options.policy, options.tolerance, wanted, options.calibration, options.device or "cuda"
        )
        written = not options.dry_run and (result.verdict is Verdict.PROVEN or options.force)
        if written:
            result.save(target)
    except ConversionError as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        progress.clear()
        left = f"{target} is as it was before" if target and os.path.exists(target) else f"no {target} was written"
        sys.stderr.write(f"mplint: interrupted: {left if target else 'nothing was written'}\n")
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
    if options.report:
        made = conversion_html if options.report.endswith(".html") else conversion_json
        Path(options.report).write_text(made(result, source, target or ""), encoding="utf-8")
    if result.verdict is not Verdict.PROVEN and not options.force:
        sys.stderr.write(f"mplint: {ADVICE[result.verdict]}\n")
    return {Verdict.PROVEN: CONVERTED, Verdict.UNCHANGED: UNCHANGED}.get(result.verdict, UNPROVEN)


def is_source(path: str) -> bool:
    """Whether a file is a program and no model."""
    return path.endswith(PROGRAMS)


class Progress:
    """One line on the terminal that says what goes on; nothing where standard error is no terminal."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        """Show a stage."""
        if self.shown:
            sys.stderr.write(f"\r\x1b[Kmplint: {text} …")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self.shown:
            sys.stderr.write("\r\x1b[K")
