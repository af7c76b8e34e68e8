"""`mplint fix`: show the fixes as a diff, or write them."""

from __future__ import annotations

import sys
from argparse import Namespace

from mplint.cli.arguments import EXIT_EPILOG, Parser, add_common, add_paths, prepare
from mplint.cli.terminal import CLEAN, FOUND, exit_code, show_faults, style_of, tell

EPILOG = EXIT_EPILOG


def add_options(parser: Parser) -> None:
    """The options of `mplint fix`."""
    add_paths(parser)
    parser.add_argument("--apply", action="store_true", help="write the fixes instead of showing a diff")
    parser.add_argument("--unsafe-fixes", action="store_true", help="take also the fixes that change numerics or control flow")
    add_common(parser)


def run(options: Namespace) -> int:
    """Fix, report what remains, and return the exit code."""
    config, paths, given = prepare(options)
    from mplint.engine.fix import fix_paths
    from mplint.report.fixes import diff_report, fix_summary, remaining_report
    from mplint.report.sources import Sources

    unsafe, apply = options.unsafe_fixes, options.apply
    result = fix_paths(paths, config, unsafe=unsafe, apply=apply, given=given)
    summary = fix_summary(result.applied, len(result.changed), result.remaining, applied=apply, unsafe=unsafe)
    if not apply:
        sys.stdout.write(diff_report(result.diffs, style_of(options, sys.stdout)))
        tell(summary)
    else:
        # Where standard input is fixed, standard output is the fixed program and nothing else.
        stream = sys.stderr if given else sys.stdout
        for text in result.output.values():
            sys.stdout.buffer.write(text)
        sources = Sources(result.output)
        sys.stdout.flush()
        stream.write(remaining_report(result.remaining, sources, style_of(options, stream)) + summary)
    for refusal in result.refused:
        tell(f"Left to you: {refusal}\n")
    for failure in result.failures:
        tell(f"mplint: error: {failure}\n")
    show_faults(result.faults)
    code = exit_code(result.remaining, bool(result.faults or result.failures), config, options.exit_zero)
    return FOUND if code == CLEAN and result.diffs and not apply and not options.exit_zero else code
