"""A run that a launcher starts, such as torchrun: its processes are commands of their own, and watch themselves from their start on."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from mplint.errors import UsageError
from mplint.runs.child import Settings, arrive, told_of
from mplint.runs.record import Run

NAME = "sitecustomize"  # Python imports this module, where there is one, before it does anything else
# It stands in the way of a module of that name that the environment has, which is imported as well.
START = """\
import sys

own = sys.modules.pop("sitecustomize")
sys.path[:] = [place for place in sys.path if place != {folder!r}]
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = own
if sys.prefix == {prefix!r}:
    if {root!r} not in sys.path:
        sys.path.append({root!r})
    from mplint.runs.launched import watch_this

    watch_this({settings!r})
"""


def command_of(text: str) -> list[str]:
    """The words of a launcher, its program as a path; raises UsageError where there is none."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--launcher: {text}: {error}") from None
    if not words:
        raise UsageError('--launcher: give a command, such as "torchrun --nproc-per-node 2"')
    beside = os.path.dirname(sys.executable)
    program = shutil.which(words[0], path=beside) or shutil.which(words[0])
    if (
        program is None and words[0] == "torchrun" and find_spec("torch") is not None
    ):  # torch lies in another environment that this one sees
        return [sys.executable, "-m", "torch.distributed.run", *words[1:]]
    if program is None:
        raise UsageError(f"--launcher: no command {words[0]} was found")
    return [program, *words[1:]]


def prepared(settings: Path) -> Mapping[str, str]:
    """Variables with which every process of this Python watches itself, as the settings in a file ask."""
    folder = settings.parent / f"{settings.stem}-start"
    folder.mkdir()
    root = str(Path(__file__).resolve().parents[2])
    text = START.format(folder=str(folder), prefix=sys.prefix, root=root, settings=str(settings))
    (folder / f"{NAME}.py").write_text(text, encoding="utf-8")
    before = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{before}" if before else str(folder)}


def watch_this(settings: str) -> None:
    """Watch this process, and note the error that ends it."""
    asked = Settings(**json.loads(Path(settings).read_text(encoding="utf-8")))
    recorder = arrive(asked)
    shown = sys.excepthook

    def failed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if recorder.made:
            recorder.end()
        recorder.last_words({**told_of(error, asked.script), "error_at": time.time()})
        if shown is sys.__excepthook__:
            traceback.print_exception(kind, error, trace)
        else:
            shown(kind, error, trace)

    sys.excepthook = failed


def ended(run: Run, code: int, launcher: Sequence[str], steps: int) -> Run:
    """A run that its launcher has ended by itself, with that exit code."""
    if len(run.steps) >= steps:  # what befalls the others when one of them has ended is no error of theirs
        facts = {name: value for name, value in run.facts.items() if not name.startswith("error")}
        return run._replace(facts={**facts, "ended": "steps"})
    if code and not run.text("error"):
        return run._replace(facts={**run.facts, "ended": "error", "error": f"{os.path.basename(launcher[0])} ended with exit code {code}"})
    return run._replace(facts={**run.facts, "ended": "error" if run.text("error") else "program"})
