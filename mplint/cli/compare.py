"""`mplint compare`: a user's own training script under several policies, measured."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mplint.cli.arguments import Parser, add_color
from mplint.cli.output import ensure_writable, write_text
from mplint.cli.paths import check_report
from mplint.cli.terminal import CLEAN, complain, style_of
from mplint.errors import UsageError, nearest

if TYPE_CHECKING:
    from mplint.adopt.program import Adoption
    from mplint.compare.comparison import Comparison

FAILED, INTERRUPTED = 1, 130
KNOWN = ("float32", "mixed_float16", "mixed_bfloat16")
EPILOG = """\
SCRIPT is run: once for each policy and repeat, in processes of their own, with
the arguments after `--`. A script that trains in float32 is adopted first, in
memory (see `mplint convert SCRIPT`); nothing of yours is written.

examples:
  mplint compare train.py --report page.html
  mplint compare train.py --steps 500 --repeats 3 -- --epochs 1 --data images/

exit status:
  0  compared
  1  a run failed: what the others measured is shown
  2  misuse, or a script that can't be adopted
130  interrupted: what was measured until then is shown"""


def add_options(parser: Parser) -> None:
    """The options of `mplint compare`."""
    parser.add_argument("script", metavar="SCRIPT", help="a training script (.py), which is run")
    parser.usage = "mplint compare SCRIPT [OPTION ...] [-- ARGUMENT ...]"
    parser.add_argument(
        "--policies",
        default=",".join(KNOWN),
        metavar="POLICIES",
        help=f"separated by commas; float32 comes first (default: {','.join(KNOWN)})",
    )
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="steps of the optimizer in each run (default: 200)")
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="runs of each policy, taken in turns (default: 2)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="what random numbers begin with in every run (default: 0)")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="the longest that one run may take (default: 600)")
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda or cuda:1: what the script is let see (default: all that there is)")
    parser.add_argument("--output-format", choices=("text", "json"), default="text", metavar="FORMAT", help="text or json (default: text)")
    parser.add_argument("--report", metavar="FILE", help="write a page with every figure and curve to look at (.html)")
    parser.add_argument("--tensorboard", metavar="FOLDER", help="write the curves of every policy there for TensorBoard")
    parser.add_argument("--wandb", metavar="PROJECT", help="log the curves of every policy as runs of a Weights & Biases project")
    add_color(parser)


def run(options: argparse.Namespace) -> int:
    """Run the script under every policy and print what was measured; raises UsageError for misuse."""
    from mplint.compare.comparison import compare
    from mplint.compare.experiment import Experiment, carry_out
    from mplint.compare.loggers import require
    from mplint.engine.progress import Progress
    from mplint.report.compare import compare_json, compare_text
    from mplint.runs.devices import environment, must_be

    policies = _policies(options.policies)
    for name, least in (("steps", 1), ("repeats", 1), ("limit", 0.001)):
        if getattr(options, name) < least:
            raise UsageError(f"--{name}: {getattr(options, name):g} is too small")
    environment(options.device)
    if options.report is not None:
        ensure_writable(options.report)
        check_report(options.report, options.script, (".html",))
    for package, asked in (("tensorboard", options.tensorboard), ("wandb", options.wandb)):
        if asked:
            require(package)
    source, policies = _source(options.script, policies)
    progress = Progress(sys.stderr, quiet=0)
    experiment = Experiment(
        options.script, source, options.passed_on, policies, options.steps, options.repeats, options.seed, options.limit, options.device
    )
    try:
        outcome = carry_out(experiment, progress)
    finally:
        progress.clear()
    if not outcome.interrupted and not any(run.steps or run.text("error") for run in outcome.runs):
        raise UsageError(f"{options.script} made no step that can be seen: one of an optimizer of torch, or a batch of Keras' `fit`")
    found = compare(outcome.runs)
    if any(each.steps for each in found.measured):
        must_be(options.device, found.device)
    sys.stdout.write(
        compare_json(found) if options.output_format == "json" else compare_text(found, options.script, style_of(options, sys.stdout))
    )
    _hand_on(options, found, interrupted=outcome.interrupted)
    if outcome.interrupted:
        complain("interrupted: what was measured until then stands above")
        return INTERRUPTED
    return FAILED if any(each.error for each in found.measured) else CLEAN


def _hand_on(options: argparse.Namespace, found: Comparison, *, interrupted: bool) -> None:
    """Write the page, and hand the curves to the loggers, where that was asked for."""
    from mplint.compare.loggers import log_tensorboard, log_wandb

    if options.report is not None:
        from mplint.report.page import comparison_page

        write_text(options.report, comparison_page(found, options.script, interrupted=interrupted))
    if options.tensorboard:
        log_tensorboard(found, options.tensorboard)
    if options.wandb:
        log_wandb(found, options.wandb, options.script)


def _policies(text: str) -> tuple[str, ...]:
    named = [name.strip() for name in text.split(",") if name.strip()]
    for name in named:
        if name not in KNOWN:
            raise UsageError(f'--policies: "{name}" is no policy{nearest(name, KNOWN) or "; known are " + ", ".join(KNOWN)}')
    return tuple(dict.fromkeys(("float32", *named)))


def _source(script: str, policies: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The source that stands for a script in every run, and the policies that it can train in.

    A script that trains in mixed precision stands for itself, another one is adopted.
    """
    if not script.endswith((".py", ".pyw")):
        raise UsageError(f"{script}: only a Python script (.py) can be compared")
    if not os.path.isfile(script):
        raise UsageError(f"{script}: {'this is a folder' if os.path.isdir(script) else 'no such file'}")
    adoption = _adopted(script, "mixed_float16")
    if adoption.left and "mixed_bfloat16" in policies:
        other = _adopted(script, "mixed_bfloat16")
        if not other.left:
            for place in _places(adoption):
                complain(f"mixed_float16 is left out: {place}")
            return other.after.decode("utf-8"), tuple(policy for policy in policies if policy != "mixed_float16")
    if adoption.left:
        places = "".join(f"\n  {place}" for place in _places(adoption))
        raise UsageError(f"{script} can't be put into mixed precision without you (see `mplint convert {script}`):{places}")
    return adoption.after.decode("utf-8"), policies


def _adopted(script: str, policy: str) -> Adoption:
    from mplint.adopt.adopt import adopt
    from mplint.cli.adopt import targets_of
    from mplint.python.document import InputError
    from mplint.python.load import read_file

    try:
        return adopt(script, read_file(script), policy, targets_of(script))
    except InputError as error:
        raise UsageError(f"{script}: {error.message}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{Path(script)}: {error}") from None


def _places(adoption: Adoption) -> list[str]:
    return [f"{note.location.path}:{note.location.line}: {note.text}" for note in adoption.left]
