"""Starts the process of one run, ends it, and reads what it has told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from mplint.runs.child import Settings
from mplint.runs.record import Run, read_run

INTERRUPTED = "interrupted"
TOLD = 12  # lines of a failed program's output that are shown


def make_run(settings: Settings, place: Path, limit: float, repeat: int = 0) -> Run:
    """Run a script for at most `limit` seconds. What went wrong, Ctrl-C included, is the fact "error" of the run, never an exception."""
    settings = settings._replace(output=str(place.with_suffix(".steps")))
    place.with_suffix(".json").write_text(json.dumps(settings._asdict()), encoding="utf-8")
    stopped = _run(place, limit)
    found = read_run(place.with_suffix(".steps"), settings.policy, repeat)
    if "ended" not in found.facts:
        found = found._replace(facts={**found.facts, "ended": "error", "error": stopped or "the process died"})
    if found.text("error"):
        found = found._replace(facts={**found.facts, "output": _tail(place.with_suffix(".log"))})
    return found


def _run(place: Path, limit: float) -> str:
    """Run what the settings at `place` ask for; returns why it was ended from outside, "" where it was not."""
    with place.with_suffix(".log").open("wb") as log:
        command = [sys.executable, "-m", "mplint.runs.child", str(place.with_suffix(".json"))]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=os.name == "posix")
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            _end(process)
            return f"it took longer than {limit:g} s"
        except KeyboardInterrupt:
            _end(process)
            return INTERRUPTED
    return f"the process was ended by signal {-code}" if code < 0 else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run and what it started: the workers of its data loaders."""
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-TOLD:])
