"""`mplint watch`: check again whenever a file or the configuration changes."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace

from mplint.cli import check
from mplint.cli.arguments import EXIT_EPILOG, Parser, configuration
from mplint.cli.terminal import complain, tell
from mplint.config import Config
from mplint.errors import UsageError
from mplint.report.formats import PLAIN

EPILOG = """\
Ctrl-C ends it. Only what changed is read again; what the whole program says
is asked anew where that may differ.

""" + EXIT_EPILOG.partition("\n\nexit status:")[0]

PAUSE = 0.5  # seconds between two looks at the files
SHARE = 10  # times as long as a look takes, at least, is waited for the next one
CLEAR = "\x1b[2J\x1b[3J\x1b[H"

# What tells that something changed: paths with sizes and times, or what is wrong with the question.
State = tuple[tuple[str, int, int], ...] | str


def add_options(parser: Parser) -> None:
    """The options of `mplint check`."""
    check.add_options(parser)


def run(options: Namespace) -> int:
    """Check, wait for a change, and check again, until the user ends it."""
    once = {"--fix": options.fix, "--add-ignores": options.add_ignores, "--show-files": options.show_files}
    once |= {"--executor": options.executor}
    once |= {"--show-settings": options.show_settings, "--model": options.model, "standard input": "-" in options.paths}
    wrong = [name for name, given in once.items() if given]
    if wrong:
        raise UsageError(f"{wrong[0]} goes with `mplint check`, which runs once")
    if options.output_format not in PLAIN:
        raise UsageError(f"--output-format must be {', '.join(PLAIN)} here; `mplint check` has the others")
    seen: State | None = None
    while True:
        begun = time.monotonic()
        now = state(options)
        looked = time.monotonic() - begun
        if now != seen:
            seen = now
            show(options)
        time.sleep(max(PAUSE, SHARE * looked))


def state(options: Namespace) -> State:
    """What the files and the configurations of a run look like from outside."""
    from mplint.engine.job import Job
    from mplint.engine.run import files_of

    try:
        config: Config = configuration(options)
        paths = tuple(options.paths) or (".",)
        job = Job.of(config, paths)
        files = files_of(paths, job)
        sources = [scope.config.source for scope in job.scopes.among(files) if scope.config.source is not None]
    except UsageError as error:
        return str(error)
    found = []
    for path in (*files, *sources, *([config.baseline] if config.baseline is not None else [])):
        try:
            status = os.stat(path)
            found.append((path, status.st_size, status.st_mtime_ns))
        except OSError:
            found.append((path, -1, 0))
    return tuple(found)


def show(options: Namespace) -> None:
    """Check once and say that the next change is waited for; what is wrong with the question is told, and may be mended meanwhile."""
    if sys.stdout.isatty():
        sys.stdout.write(CLEAR)
    try:
        check.run(options)
    except UsageError as error:
        complain(f"error: {error}")
    sys.stdout.flush()
    tell(f"{time.strftime('%H:%M:%S')} waiting for a change; Ctrl-C ends.\n")
    sys.stderr.flush()
