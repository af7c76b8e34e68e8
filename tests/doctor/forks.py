"""Runs scripts under the doctor's instruments in processes that are forked from one that has imported the framework.

`python forks.py MODULE …` imports the modules, and answers each line of standard input, the settings of a run, with a line when it is over.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

from mplint.runs.child import Settings, run
from mplint.runs.record import Run, read_run, with_processes

LIMIT = 60  # seconds that a run may take
HERE = Path(__file__).resolve()


class Forks:
    """A process with a framework, and the runs that are forked from it; `environment` is added to its own."""

    def __init__(self, *modules: str, **environment: str) -> None:
        quiet = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        paths = os.pathsep.join([str(HERE.parents[2]), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **quiet, **environment, "PYTHONPATH": paths},
            text=True,
        )

    def watch(self, folder: Path, script: str, steps: int, seed: int = 0, every: int = 0) -> Run:
        """What a run of a script has told; the script lies in the folder as `train.py`."""
        path = folder / "train.py"
        path.write_text(script, encoding="utf-8")
        out = folder / "run.steps"
        settings = Settings("doctor", ("torch", "keras"), str(path), script, [], "", steps, seed, every=every, output=str(out))
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"folder": str(folder), "settings": settings._asdict()}) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], LIMIT + 60)
        assert ready, "the process that forks is stuck"
        assert self._process.stdout.readline() == "done\n"
        found = with_processes(read_run(out, "", 0), out)
        output = (folder / "run.log").read_text(encoding="utf-8", errors="replace")
        return found._replace(facts={**found.facts, "output": output[-3000:]})

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _serve(modules: list[str]) -> None:
    for name in modules:
        import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            _begin(Path(asked["folder"]), Settings(**asked["settings"]))
        _wait(child)
        sys.stdout.write("done\n")
        sys.stdout.flush()


def _begin(folder: Path, settings: Settings) -> None:
    os.setsid()
    os.chdir(folder)
    log = os.open(folder / "run.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    run(settings)


def _wait(child: int) -> None:
    end = time.monotonic() + LIMIT
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.01)


if __name__ == "__main__":
    _serve(sys.argv[1:])
