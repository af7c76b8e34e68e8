"""`mplint fix`: show the fixes as a diff, or write them."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace

from mplint.cli.arguments import EXIT_EPILOG, Parser, add_common, add_paths, add_ranges, prepare
from mplint.cli.terminal import CLEAN, FOUND, exit_code, progress_of, show_faults, style_of, tell

EPILOG = (
    EXIT_EPILOG
    + """

A fix of a model (.onnx, .keras) is made where its outputs are proven to stay
the same; one that is not proven is named, and the exit status is 1."""
)


def add_options(parser: Parser) -> None:
    """The options of `mplint fix`."""
    add_paths(parser)
    parser.add_argument("--apply", action="store_true", help="write the fixes instead of showing a diff")
    parser.add_argument("--unsafe-fixes", action="store_true", help="take also the fixes that change numerics or control flow")
    models = parser.add_argument_group("models")
    models.add_argument(
        "--calibration", action="append", default=[], metavar="FILE", help="an .npz file with inputs on which fixes are proven, or a folder"
    )
    add_ranges(models)
    add_common(parser)


def run(options: Namespace) -> int:
    """Fix, report what remains, and return the exit code."""
    config, paths, given = prepare(options)
    from mplint.engine.fix import fix_paths
    from mplint.report.fixes import diff_report, fix_summary, mended_report, models_report, remaining_report, shown_report
    from mplint.report.sources import Sources

    unsafe, apply = options.unsafe_fixes, options.apply
    left = "every file is as it was or fixed as a whole" if apply else "nothing is reported"
    with progress_of(left) as progress:
        result = fix_paths(paths, config, unsafe=unsafe, apply=apply, given=given, calibration=options.calibration, progress=progress)
    command = "" if apply else shlex.join(("mplint", "fix", "--apply", *options.given_arguments))
    summary = fix_summary(result.applied, len(result.changed), result.remaining, command=command, unsafe=unsafe)
    if not apply:
        style = style_of(options, sys.stdout)
        sys.stdout.write(diff_report(result.diffs, style) + models_report(result.models, style))
        tell(shown_report(result.shown, style_of(options, sys.stderr)) + summary)
    else:
        # Where standard input is fixed, standard output is the fixed program and nothing else.
        stream = sys.stderr if given else sys.stdout
        for text in result.output.values():
            sys.stdout.buffer.write(text)
        sources = Sources(result.output)
        sys.stdout.flush()
        style = style_of(options, stream)
        done = mended_report(result.mended) + models_report(result.models, style)
        untouched = "" if given else "".join(f"Not fixed: {failure}\n" for failure in result.failures)
        stream.write(done + remaining_report(result.remaining, sources, style) + shown_report(result.shown, style) + untouched + summary)
    for reason in result.unproven:
        tell(f"Not proven, and not written: {reason}\n")
    for refusal in result.refused:
        tell(f"Left to you: {refusal}\n")
    for failure in result.failures:
        tell(f"mplint: error: {failure}\n")
    show_faults(result.faults)
    code = exit_code(result.remaining, bool(result.faults or result.failures), config, options.exit_zero)
    more = result.unproven or ((result.diffs or result.models) and not apply)
    return FOUND if code == CLEAN and more and not options.exit_zero else code
