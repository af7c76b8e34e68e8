"""`mplint check`: find mistakes and report them."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mplint.cli.arguments import EXIT_EPILOG, Parser, add_common, add_paths, add_ranges, prepare
from mplint.cli.terminal import complain, exit_code, show_faults, style_of
from mplint.config import POLICIES
from mplint.errors import UsageError

if TYPE_CHECKING:
    from mplint.graph.model import ModelGraph

FORMATS = ("text", "concise", "json", "github", "sarif")
EPILOG = EXIT_EPILOG


def add_options(parser: Parser) -> None:
    """The options of `mplint check`."""
    add_paths(parser)
    parser.add_argument("--output-format", choices=FORMATS, default="text", metavar="FORMAT", help=f"{', '.join(FORMATS)} (default: text)")
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


def run(options: Namespace) -> int:
    """Check, report, and return the exit code."""
    if options.statistics and options.output_format not in ("text", "concise"):
        raise UsageError("--statistics goes with --output-format text or concise")
    config, stdin = prepare(options)
    from mplint.engine.run import check_paths
    from mplint.report.formats import Reported, report

    models = _models(options.model)
    paths = options.paths or ([] if models else ["."])
    result = check_paths(paths, config, stdin=stdin, stdin_filename=options.stdin_filename, models=models)
    faults = [str(fault) for fault in result.faults]
    reported = Reported(result, config, stdin, options.stdin_filename, faults, style_of(options, sys.stdout))
    text, more = report(reported, options.output_format, statistics=options.statistics)
    sys.stdout.write(text)
    faults += more
    for note in result.notes:
        complain(f"note: {note}")
    show_faults(faults)
    return exit_code(result.findings, bool(faults), config, options.exit_zero)


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
