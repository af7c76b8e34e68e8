"""`mplint convert train.py`: a diff, or the file written."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from mplint.adopt.adopt import adopt
from mplint.adopt.program import Adoption
from mplint.cli.output import write_text
from mplint.cli.paths import check_report
from mplint.config import load_config
from mplint.engine.fix import unified_diff
from mplint.engine.targets import TargetResolver
from mplint.errors import UsageError
from mplint.python.document import InputError
from mplint.python.load import read_file
from mplint.replace import WriteError, replace_file
from mplint.report.conversion import adoption_json, adoption_text
from mplint.report.fixes import diff_report
from mplint.report.style import style_for
from mplint.targets import Targets

ADOPTED, LEFT = 0, 1
MODELS_ONLY = {
    "calibration": "--calibration",
    "input_range": "--input-range",
    "tolerance": "--tolerance",
    "keep": "--keep",
    "half_io": "--half-io",
    "force": "--force",
}


def run(options: argparse.Namespace) -> int:
    """Adopt mixed precision in one program and return the exit code; raises UsageError for misuse."""
    path = options.input
    check_options(options)
    try:
        adoption = adopt(path, read_file(path), options.policy, targets_of(path))
    except InputError as error:
        raise UsageError(f"{path}: {error.message}") from None
    except OSError as error:
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    changed = adoption.after != adoption.before
    written = None if options.dry_run else write(adoption, options.output, options.apply)
    if changed and written is None:
        sys.stdout.write(diff_of(adoption))
        sys.stdout.flush()
    sys.stderr.write(adoption_text(adoption, written))
    if options.report:
        write_report(options.report, adoption, written)
    return LEFT if adoption.left else ADOPTED


def check_options(options: argparse.Namespace) -> None:
    """Raise UsageError for options that only models have, and where it is not clear what to write."""
    path = options.input
    for name, flag in MODELS_ONLY.items():
        if getattr(options, name):
            raise UsageError(f"{flag} is for models; {path} is a program")
    if not os.path.isfile(path):
        raise UsageError(f"{path}: {'this is a folder' if os.path.isdir(path) else 'no such file'}")
    if options.apply and options.output:
        raise UsageError("--apply writes the program in place, -o beside it: give one of them")
    if options.output and os.path.exists(options.output) and os.path.samefile(path, options.output):
        raise UsageError(f"-o {options.output} is the input itself: `--apply` writes it in place")
    for target in filter(None, (options.output, options.report)):
        if not os.path.isdir(os.path.dirname(os.path.abspath(target))):
            raise UsageError(f"{target}: the folder {os.path.dirname(target)} does not exist")
    if options.output and os.path.splitext(options.output)[1] != os.path.splitext(path)[1]:
        raise UsageError(f"-o {options.output}: {path} becomes a {os.path.splitext(path)[1]} file")
    if options.report is not None:
        check_report(options.report, options.output, (".json", ".html"))


def write(adoption: Adoption, output: str | None, apply: bool) -> str | None:
    """Write the program where it is asked for, and return where that was; raises UsageError where it can't be written."""
    try:
        if output:
            Path(output).write_bytes(adoption.after)
            return output
        if apply and adoption.after != adoption.before:
            replace_file(adoption.path, adoption.before, adoption.after)
            return adoption.path
    except WriteError as error:
        raise UsageError(f"{adoption.path}: {error}") from None
    except OSError as error:
        raise UsageError(f"{output or adoption.path}: {(error.strerror or str(error)).lower()}") from None
    return None


def write_report(report: str, adoption: Adoption, written: str | None) -> None:
    """Write what was done and what is left, for programs or for people, as the name of the file says."""
    if report.endswith(".html"):
        from mplint.report.page import adoption_page

        write_text(report, adoption_page(adoption, written))
    else:
        write_text(report, adoption_json(adoption))


def diff_of(adoption: Adoption) -> str:
    """The unified diff of what is adopted, colored on a terminal."""
    return diff_report([unified_diff(adoption.path, adoption.before, adoption.after)], style_for(sys.stdout, "auto"))


def targets_of(path: str) -> Targets:
    """The library versions that the program is for: those that its project configures or pins."""
    return TargetResolver(load_config(path)).targets(path)
