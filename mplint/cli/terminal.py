"""What the commands say beside their reports, and the exit codes that they share."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from mplint.config import Config
    from mplint.engine.progress import Progress
    from mplint.findings import Finding
    from mplint.report.style import Style

CLEAN, FOUND, FAILED = 0, 1, 2
BUGS = "https://github.com/mplint/mplint/issues"
UNREADABLE = "MP001"


def exit_code(findings: Iterable[Finding], faulty: bool, config: Config, exit_zero: bool) -> int:
    """The exit code for what was found; `faulty`: something of mplint's own failed. With `exit_zero` it is 0 whatever was found."""
    findings = tuple(findings)
    if faulty:
        return FAILED
    if exit_zero:
        return CLEAN
    if any(finding.code == UNREADABLE for finding in findings):
        return FAILED
    return FOUND if any(finding.severity.rank >= config.fail_on.rank for finding in findings) else CLEAN


def style_of(options: Namespace, stream: TextIO) -> Style:
    """How text is set on a stream: in color, or plain."""
    from mplint.report.style import style_for

    return style_for(stream, options.color)


def show_faults(faults: Sequence[str]) -> None:
    """Say what of mplint's own failed, and where to report it."""
    for fault in faults:
        complain(f"internal error: {fault}")
    if faults:
        ask_for_report()


def ask_for_report() -> None:
    """Ask the user to report what stands above."""
    complain(f"this is a mistake of mplint's own, not yours; please report what stands above at {BUGS}")


@contextmanager
def progress_of(left: str, *, shown: bool = True) -> Iterator[Progress]:
    """What tells how far a run is, on a terminal where it is `shown`; an interruption is told, with what it has `left`."""
    from mplint.engine.progress import Progress

    with Progress(sys.stderr if shown else None) as progress:
        try:
            yield progress
        except KeyboardInterrupt as stop:
            progress.clear()
            complain(f"interrupted while {progress.told}; {stop if stop.args else left}")
            raise


def complain(text: str) -> None:
    """Write a line of mplint's own to standard error."""
    tell(f"mplint: {text}\n")


def tell(text: str) -> None:
    """Write to standard error, after what stands before it on standard output."""
    sys.stdout.flush()
    sys.stderr.write(text)
