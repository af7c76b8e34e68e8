"""`mplint check`: find mistakes and report them."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mplint.cli.arguments import EXIT_EPILOG, Parser, add_common, add_paths, add_ranges, prepare
from mplint.cli.output import ensure_writable, write_text
from mplint.cli.terminal import complain, exit_code, show_faults, style_of
from mplint.config import POLICIES
from mplint.errors import UsageError
from mplint.report.formats import FORMATS, PLAIN

if TYPE_CHECKING:
    from mplint.config import Config
    from mplint.engine.run import CheckResult
    from mplint.graph.model import ModelGraph

EPILOG = EXIT_EPILOG


def add_options(parser: Parser) -> None:
    """The options of `mplint check`."""
    add_paths(parser)
    parser.add_argument("--output-format", choices=FORMATS, default="text", metavar="FORMAT", help=f"{', '.join(FORMATS)} (default: text)")
    parser.add_argument("--output-file", metavar="FILE", help="write the report there, and only the summary to standard output")
    parser.add_argument(
        "--statistics", action="store_true", help="count the findings of each rule instead of listing them; sum up the precision of models"
    )
    models = parser.add_argument_group("models")
    models.add_argument("--runtime", metavar="NAME", help="what will run them, such as onnxruntime-cpu or tensorrt")
    models.add_argument(
        "--policy", choices=POLICIES, metavar="POLICY", help="judge float32 models as if converted to mixed_float16 or mixed_bfloat16"
    )
    add_ranges(models)
    models.add_argument(
        "--model", action="append", default=[], metavar="MODULE:FACTORY", help="check the model that FACTORY() makes; runs your code"
    )
    add_common(parser)
    changes = parser.add_argument_group("which change")
    changes.add_argument("--since", metavar="REF", help="report what changed since git commit REF: findings on changed lines, and new ones")
    changes.add_argument("--staged", action="store_true", help="report what the next commit would change")


def run(options: Namespace) -> int:
    """Check, report, and return the exit code."""
    if options.statistics and options.output_format not in PLAIN:
        raise UsageError(f"--statistics goes with --output-format {', '.join(PLAIN)}")
    if options.output_file is not None:
        ensure_writable(options.output_file)
    config, paths, texts = prepare(options)
    given: Mapping[str, bytes] = texts
    from mplint.engine.run import check_paths
    from mplint.report.formats import Reported, report, summary
    from mplint.report.style import Style

    models = _models(options.model)
    if models and not options.paths:
        paths = ()
    if options.since is not None or options.staged:
        result, given = _changed(options, config, paths)
    else:
        result = check_paths(paths, config, given=given, models=models)
    faults = [str(fault) for fault in result.faults]
    style = style_of(options, sys.stdout)
    reported = Reported(result, config, given, faults, style if options.output_file is None else Style())
    text, more = report(reported, options.output_format, statistics=options.statistics)
    if options.output_file is not None:
        write_text(options.output_file, text)
        text = summary(reported._replace(style=style))
    sys.stdout.write(text)
    faults += more
    for note in result.notes:
        complain(f"note: {note}")
    if result.stale:
        gone = sum(result.stale.values())
        what = "1 known finding is" if gone == 1 else f"{gone} known findings are"
        complain(f"note: {config.baseline}: {what} gone; `mplint baseline prune` drops them")
    if options.output_format == "concise" and not options.statistics:
        for path, reason in result.unjudged:
            complain(f"note: {path}: not judged: {reason}")
    show_faults(faults)
    return exit_code(result.findings, bool(faults), config, options.exit_zero)


def _changed(options: Namespace, config: Config, paths: Sequence[str]) -> tuple[CheckResult, Mapping[str, bytes]]:
    """The findings of a change, and the texts that were checked in the place of files."""
    if options.since is not None and options.staged:
        raise UsageError("--since and --staged exclude each other")
    if options.model or "-" in options.paths:
        raise UsageError(f"{'--staged' if options.staged else '--since'} goes with files, not with --model or standard input")
    from mplint.engine.changes import check_changes

    return check_changes(paths, config, options.since)


def _models(names: Sequence[str]) -> list[ModelGraph]:
    """The models that the user's own functions make, named `package.module:factory`."""
    if not names:
        return []
    from mplint.cli.factory import graph_of

    found = []
    for name in names:
        complain(f"note: --model imports and runs your code to build {name}")
        found.append(graph_of(name))
    return found
