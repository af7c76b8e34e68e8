"""Starts the process of one run, ends it, and reads what it has told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mplint.runs.child import Settings
from mplint.runs.launched import ended, prepared
from mplint.runs.record import Run, read_run, with_processes

INTERRUPTED = "interrupted"
TOO_LONG = "it took longer than"
TOLD = 12  # lines of a failed program's output that are shown
GRACE = 5  # seconds in which a run that is ended may sum up what it has seen


def make_run(
    settings: Settings,
    place: Path,
    limit: float,
    repeat: int = 0,
    environment: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
) -> Run:
    """Run a script for at most `limit` seconds, with `environment` beside this process's own variables.

    A `launcher` is a command that starts the script, in as many processes as it likes.
    What went wrong, Ctrl-C included, is the fact "error" of the run, never an exception. A run that has made steps when its time is up has
    done nothing wrong: its fact "limit" is the seconds that it had.
    """
    settings = settings._replace(output=str(place.with_suffix(".steps")))
    # Sets of texts, by which programs number classes, have one order in every run.
    environment = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", str(settings.seed % 2**32)), **(environment or {})}
    place.with_suffix(".json").write_text(json.dumps(settings._asdict()), encoding="utf-8")
    if launcher:
        command = [*launcher, settings.script, *settings.arguments]
        environment = {**environment, **prepared(place.with_suffix(".json"))}
    else:
        command = [sys.executable, "-m", "mplint.runs.child", str(place.with_suffix(".json"))]
    stopped, code = _run(command, place, limit, {**os.environ, **environment})
    found = with_processes(read_run(place.with_suffix(".steps"), settings.policy, repeat), place.with_suffix(".steps"))
    if launcher and not stopped:
        found = ended(found, code, launcher, settings.steps)
    if stopped.startswith(TOO_LONG) and found.steps and not found.text("error"):
        return found._replace(facts={**found.facts, "ended": "limit", "limit": limit})
    if stopped or "ended" not in found.facts:
        found = found._replace(facts={**found.facts, "ended": "error", "error": stopped or "the process ended itself"})
    if found.text("error"):
        found = found._replace(facts={**found.facts, "output": _tail(place.with_suffix(".log"))})
    return found


def _run(command: Sequence[str], place: Path, limit: float, environment: Mapping[str, str]) -> tuple[str, int]:
    """Run a command, whose output is kept at `place`; returns why it was ended from outside, "" where it was not, and its exit code."""
    with place.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=os.name == "posix", env=environment
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            _end(process)
            return f"{TOO_LONG} {limit:g} s", 0
        except KeyboardInterrupt:
            _end(process)
            return INTERRUPTED, 0
    return f"the process was ended by signal {-code}" if code < 0 else "", code


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run and what it started, the workers of its data loaders; it may sum up before."""
    if os.name == "posix":
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.terminate()
            process.wait(GRACE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-TOLD:])
