"""`mplint init`: write a first configuration, commented, for what is there."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from mplint.cli.arguments import Parser
from mplint.cli.output import ensure_text_file, write_text
from mplint.cli.terminal import CLEAN
from mplint.config import Config, load_config
from mplint.errors import UsageError

NAME = "mplint.toml"
EPILOG = """\
Writes mplint.toml: every setting with what it means, the folders of other
people's code left out, and the versions that the project's pins allow.
A project that is configured already is left as it is."""


def add_options(parser: Parser) -> None:
    """The options of `mplint init`."""
    parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="the project (default: the current folder)")
    parser.add_argument("--dry-run", action="store_true", help="print the configuration, write nothing")


def run(options: Namespace) -> int:
    """Write the configuration, say what to do next, and return the exit code."""
    folder = options.folder
    if not os.path.isdir(folder):
        raise UsageError(f"{folder}: no such folder")
    configured = load_config(folder).source
    if configured is not None and not options.dry_run:
        raise UsageError(f"{configured} configures {folder} already; --dry-run prints what would be written")
    from mplint.cli.settings import first_configuration
    from mplint.engine.discovery import discover
    from mplint.engine.targets import TargetResolver

    path = os.path.normpath(os.path.join(folder, NAME))
    files = discover([folder], root=folder)
    text = first_configuration(files, TargetResolver(Config(root=folder)).targets(path), folder)
    if options.dry_run:
        sys.stdout.write(text)
        return CLEAN
    ensure_text_file(path)
    write_text(path, text)
    sys.stdout.write(f"Wrote {path}. `mplint check {folder}` reads it; `mplint baseline create` leaves old findings for later.\n")
    return CLEAN
