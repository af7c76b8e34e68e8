"""`mplint dev derive`: call every function of the frameworks, and write what their results are."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from mplint import data
from mplint.errors import UsageError

FRAMEWORKS = ("torch", "keras", "tf")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mplint dev derive`."""
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help=f"{', '.join(FRAMEWORKS)} (default: all)")
    parser.add_argument("--r-sources", metavar="DIR", help="checkouts of the R packages keras and keras3: write the table of R, too")
    parser.add_argument("--output", metavar="DIR", help="where to write the tables (default: where mplint reads them)")


def run(options: argparse.Namespace) -> int:
    """Write the tables that were asked for, and say what was not called."""
    folder = Path(options.output) if options.output else Path(data.__file__).parent / "derived"
    for framework in options.frameworks or FRAMEWORKS:
        if framework not in FRAMEWORKS:
            raise UsageError(f'unknown framework "{framework}"; known are {", ".join(FRAMEWORKS)}')
    folder.mkdir(parents=True, exist_ok=True)
    wanted = options.frameworks or (() if options.r_sources else FRAMEWORKS)
    lines = [line for framework in wanted for line in import_module(f"mplint.dev.derive.{framework}").derive(folder)]
    if options.r_sources:
        from mplint.dev.derive import r_names

        lines += r_names.derive(folder, Path(options.r_sources))
    for line in lines:
        sys.stdout.write(f"{line}\n")
    return 0
