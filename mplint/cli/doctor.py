"""`mplint doctor`: a user's own training under instruments."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from mplint.cli.arguments import Parser, add_color
from mplint.cli.terminal import CLEAN, complain, style_of
from mplint.errors import UsageError

SICK, INTERRUPTED = 1, 130
EPILOG = """\
SCRIPT is a training script of PyTorch. It is run as it is, with the arguments
after `--`, and watched: values that leave the range of a dtype, gradients that
half precision makes zero, how the scaler is used. Nothing of yours is written.

example:
  mplint doctor train.py --steps 200 -- --amp --epochs 1

exit status:
  0  nothing wrong was seen
  1  something was: it is listed, with the line where it happens
  2  misuse, or a program that does not use PyTorch
130  interrupted: what was seen until then is shown"""


def add_options(parser: Parser) -> None:
    """The options of `mplint doctor`."""
    parser.usage = "mplint doctor SCRIPT [OPTION ...] [-- ARGUMENT ...]"
    parser.add_argument("script", metavar="SCRIPT", help="a training script (.py), which is run")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="steps of the optimizer (default: 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="what random numbers begin with (default: 0)")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="the longest that the run may take (default: 600)")
    parser.add_argument("--output-format", choices=("text", "json"), default="text", metavar="FORMAT", help="text or json (default: text)")
    add_color(parser)


def run(options: argparse.Namespace) -> int:
    """Run the script under instruments and print what they show; raises UsageError for misuse."""
    from mplint.api import check
    from mplint.doctor.diagnosis import diagnose
    from mplint.engine.progress import Progress
    from mplint.report.doctor import doctor_json, doctor_text
    from mplint.runs.child import Settings
    from mplint.runs.process import INTERRUPTED as STOPPED
    from mplint.runs.process import make_run

    source = _source(options.script)
    for name, least in (("steps", 1), ("limit", 0.001)):
        if getattr(options, name) < least:
            raise UsageError(f"--{name}: {getattr(options, name):g} is too small")
    progress = Progress(sys.stderr, quiet=0)
    try:
        progress(f"checking {options.script}")
        folder = os.path.dirname(options.script) or "."
        findings = [finding for finding in check([folder]).findings if finding.location.line]
        progress(f"watching {options.script}")
        lines = tuple((finding.location.path, finding.location.line or 0) for finding in findings)
        settings = Settings("doctor", ("torch",), options.script, source, list(options.passed_on), "", options.steps, options.seed, lines)
        with tempfile.TemporaryDirectory(prefix="mplint-") as place:
            found = make_run(settings, Path(place, "run"), options.limit)
    finally:
        progress.clear()
    if "torch" not in found.facts and not found.text("error"):
        raise UsageError(f"{options.script} did not use PyTorch: there is nothing to watch")
    report = diagnose(found, findings)
    sys.stdout.write(
        doctor_json(report) if options.output_format == "json" else doctor_text(report, options.script, style_of(options, sys.stdout))
    )
    if found.text("error") == STOPPED:
        complain("interrupted: what was seen until then stands above")
        return INTERRUPTED
    return SICK if report.diagnoses else CLEAN


def _source(script: str) -> str:
    if not script.endswith((".py", ".pyw")):
        raise UsageError(f"{script}: only a Python script (.py) can be watched")
    try:
        return Path(script).read_bytes().decode("utf-8")
    except IsADirectoryError:
        raise UsageError(f"{script}: this is a folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{script}: {getattr(error, 'strerror', None) or error}") from None
