"""`mplint baseline`: write down the findings that a project knows, so that `check` reports only new ones."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import Counter
from typing import TYPE_CHECKING

from mplint.cli.arguments import Parser, add_choice, add_paths, prepare
from mplint.cli.output import write_text
from mplint.cli.terminal import CLEAN, FAILED, complain, progress_of, show_faults, style_of
from mplint.errors import UsageError

if TYPE_CHECKING:
    from mplint.engine.baseline import Key

ACTIONS = ("create", "update", "prune")
EPILOG = """\
create   write every finding of now to the baseline
update   add the findings that are new, drop those that are gone
prune    drop those that are gone, and nothing else

An entry is the file, the rule and the text of the line: it survives edits
elsewhere in the file. `mplint check --baseline FILE` then reports only what
the baseline does not hold; so does `baseline = "FILE"` in [tool.mplint].

exit status:
  0  written, or nothing to change
  2  misuse, or an input that could not be read"""


def add_options(parser: Parser) -> None:
    """The options of `mplint baseline`."""
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    add_paths(parser, "files, folders and globs (default: the current folder)")
    add_choice(parser)


def run(options: Namespace) -> int:
    """Write the baseline, say what changed, and return the exit code."""
    config, paths, given = prepare(options)
    if given:
        raise UsageError("a baseline is of files, not of standard input")
    from mplint.engine import baseline
    from mplint.engine.builtin_rules import UnreadableInput
    from mplint.engine.run import check_paths
    from mplint.engine.texts import Texts
    from mplint.report.summary import counted

    file = config.baseline or os.path.normpath(os.path.join(config.root, baseline.FILE_NAME))
    creates = options.action == "create"
    if creates and os.path.exists(file):
        raise UsageError(f"{file} is there already; `mplint baseline update` brings it up to date")
    before: Counter[Key] = Counter() if creates else Counter(dict(baseline.read(file)))
    with progress_of(f"{file} is as it was") as progress:
        result = check_paths(paths, config._replace(baseline=None if creates else file), progress=progress)
    keys = baseline.Keys(os.path.dirname(os.path.abspath(file)), Texts())
    fresh: Counter[Key] = Counter() if options.action == "prune" else keys.count(result.findings)
    gone = Counter(dict(result.stale))
    after = before - gone + fresh
    if creates or after != before:
        write_text(file, baseline.text_of(after))
    sizes = f"{counted(after.total(), 'finding')} in {counted(len({key.path for key in after}), 'file')}"
    changes = "" if creates else f" ({fresh.total()} new, {gone.total()} gone)"
    sys.stdout.write(f"{file}: {sizes}{changes}.\n")
    if creates and config.baseline is None:
        where = "mplint.toml" if os.path.isfile("mplint.toml") else "[tool.mplint] of pyproject.toml"
        setting = f'`baseline = "{os.path.basename(file)}"` in {where}'
        told = style_of(options, sys.stdout).wrap(f"`mplint check --baseline {file}` reports what is new; so does {setting}.")
        sys.stdout.write("".join(f"{line}\n" for line in told))
    unread = [finding for finding in result.findings if finding.code == UnreadableInput.code]
    for finding in unread:
        complain(
            f"error: {finding.location.path}: {finding.message}; no baseline holds this: mend it, or leave the file out with `exclude`"
        )
    show_faults([str(fault) for fault in result.faults])
    return FAILED if unread or result.faults else CLEAN
