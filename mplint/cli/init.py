"""`mplint init`: write a first configuration, commented, for what is there."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace

from mplint.cli.arguments import Parser, add_color
from mplint.cli.output import ensure_text_file, write_text
from mplint.cli.terminal import CLEAN, style_of
from mplint.config import Config, load_config
from mplint.errors import UsageError

NAME = "mplint.toml"
EPILOG = """\
Writes mplint.toml: the settings that most projects need, with what they mean,
the folders of other people's code left out, and the versions that the
project's pins allow.
A project that is configured already is left as it is."""


def add_options(parser: Parser) -> None:
    """The options of `mplint init`."""
    parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="the project (default: the current folder)")
    parser.add_argument("--dry-run", action="store_true", help="print the configuration, write nothing")
    add_color(parser)


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
    where = "" if folder == "." else f" {shlex.quote(folder)}"
    told = f"Wrote {path}. `mplint check{where or ' .'}` reads it; `mplint baseline create{where}` leaves old findings for later."
    sys.stdout.write("".join(f"{line}\n" for line in style_of(options, sys.stdout).wrap(told)))
    return CLEAN
