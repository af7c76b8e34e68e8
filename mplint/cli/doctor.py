"""`mplint doctor`: a user's own training under instruments."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mplint.cli.arguments import Parser, add_color
from mplint.cli.output import ensure_text_file, write_text
from mplint.cli.terminal import CLEAN, complain, style_of
from mplint.errors import UsageError

if TYPE_CHECKING:
    from mplint.doctor.diagnosis import Report

FRAMEWORKS = ("torch", "keras")
SICK, INTERRUPTED = 1, 130
LAUNCHED = "environment variable RANK expected"  # what torch.distributed says where torchrun has not begun the process
EPILOG = """\
SCRIPT is a training script of PyTorch or Keras 3. It is run as it is, with the arguments
after `--`, and watched: values that leave the range of a dtype, gradients that
half precision makes zero, how the scaler is used. Nothing of yours is written.
As many steps are looked at closely as keep the run below three times its own
time; with --every as many as you say.

example:
  mplint doctor train.py --steps 200 -- --amp --epochs 1
  mplint doctor train.py --launcher "torchrun --nproc-per-node 2" -- --amp
  mplint doctor train.py --output-format json --output-file run.json
  mplint check --evidence run.json

exit status:
  0  nothing wrong was seen
  1  something was: it is listed, with the line where it happens
  2  misuse, or a program that uses neither PyTorch nor Keras
130  interrupted: what was seen until then is shown"""


def add_options(parser: Parser) -> None:
    """The options of `mplint doctor`."""
    parser.usage = "mplint doctor SCRIPT [OPTION ...] [-- ARGUMENT ...]"
    parser.add_argument("script", metavar="SCRIPT", help="a training script (.py), which is run")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="steps of the optimizer (default: 100)")
    parser.add_argument(
        "--every", type=int, default=0, metavar="N", help="look closely at every Nth step (default: as the time allows, see below)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="what random numbers begin with (default: 0)")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="the longest that the run may take (default: 600)")
    parser.add_argument(
        "--launcher",
        metavar="COMMAND",
        help='what starts the script ("torchrun --nproc-per-node 2"); its processes are watched (default: this Python)',
    )
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda or cuda:1: what the script is let see (default: all that there is)")
    parser.add_argument(
        "--output-format", choices=("text", "json", "sarif"), default="text", metavar="FORMAT", help="text, json or sarif (default: text)"
    )
    parser.add_argument("--output-file", metavar="FILE", help="write the report there, and the text to standard output")
    add_color(parser)


def run(options: argparse.Namespace) -> int:
    """Run the script under instruments and print what they show; raises UsageError for misuse."""
    from mplint.api import check
    from mplint.config import load_config
    from mplint.doctor.diagnosis import diagnose
    from mplint.engine.progress import Progress
    from mplint.runs.child import Settings
    from mplint.runs.devices import CPU, environment, must_be
    from mplint.runs.launched import command_of
    from mplint.runs.process import INTERRUPTED as STOPPED
    from mplint.runs.process import make_run
    from mplint.runs.project import project_of

    source = _source(options.script)
    if options.output_file is not None:
        ensure_text_file(options.output_file)
    for name, least in (("steps", 1), ("limit", 0.001)):
        if getattr(options, name) < least:
            raise UsageError(f"--{name}: {getattr(options, name):g} is too small")
    shown = environment(options.device)
    launcher = command_of(options.launcher) if options.launcher is not None else ()
    progress = Progress(sys.stderr, quiet=0)
    try:
        progress(f"checking the project of {options.script}")
        findings = check([os.path.relpath(project_of(options.script))], load_config(os.path.dirname(options.script) or ".")).findings
        progress(f"watching {options.script}")
        lines = tuple((finding.location.path, finding.location.line) for finding in findings if finding.location.line)
        settings = Settings(
            "doctor", FRAMEWORKS, options.script, source, list(options.passed_on), "", options.steps, options.seed, lines, options.every
        )
        with tempfile.TemporaryDirectory(prefix="mplint-") as place:
            found = make_run(settings, Path(place, "run"), options.limit, environment=shown, launcher=launcher)
    finally:
        progress.clear()
    if "unwatched" in found.facts and not found.steps:
        raise UsageError(f"{options.script} uses {found.text('unwatched')}, which is not watched")
    if not found.facts.keys() & {"torch", "keras"} and not found.text("error"):
        what = f"no process of `{options.launcher}` was seen to train with" if launcher else f"{options.script} used neither"
        raise UsageError(f"{what} PyTorch {'or' if launcher else 'nor'} Keras: there is nothing to watch")
    if found.steps:
        must_be(options.device, found.text("device") or CPU)
    report = diagnose(found, findings)
    _write(options, report)
    if not launcher and not found.steps and LAUNCHED in found.text("error_text"):
        complain(f'{options.script} wants to be started by a launcher: --launcher "torchrun --nproc-per-node 1"')
    if found.text("error") == STOPPED:
        complain("interrupted: what was seen until then stands above")
        return INTERRUPTED
    return SICK if report.diagnoses else CLEAN


def _write(options: argparse.Namespace, report: Report) -> None:
    """Write the report in the form that was asked for; where that goes into a file, the text is shown as well."""
    from mplint.report.doctor import doctor_json, doctor_sarif, doctor_text

    text = doctor_text(report, options.script, style_of(options, sys.stdout))
    if options.output_format == "json":
        written = doctor_json(report)
    elif options.output_format == "sarif":
        from mplint.config import Config
        from mplint.engine.select import loaded_rules

        written = doctor_sarif(report, options.script, loaded_rules(Config()))
    else:
        written = text
    if options.output_file is not None:
        write_text(options.output_file, written)
        written = text
    sys.stdout.write(written)


def _source(script: str) -> str:
    if not script.endswith((".py", ".pyw")):
        raise UsageError(f"{script}: only a Python script (.py) can be watched")
    try:
        return Path(script).read_bytes().decode("utf-8")
    except IsADirectoryError:
        raise UsageError(f"{script}: this is a folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{script}: {getattr(error, 'strerror', None) or error}") from None
