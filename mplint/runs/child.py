"""The process in which a user's script runs under one policy: `python -m mplint.runs.child SETTINGS.json`."""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import NamedTuple

from mplint.runs.reached import Reached
from mplint.runs.record import Finished, Recorder


class Settings(NamedTuple):
    """One run: which probes are set, the user's script, the source to run in its place, its arguments, and where to write what is seen.

    `probes` is a package of mplint that has a module `torch_probe` or `keras_probe` for each of the `frameworks`, with
    `install(module, settings, recorder)`.
    `lines` are places of the program, a file and a line each: it is noted which of them were run.
    """

    probes: str
    frameworks: tuple[str, ...]
    script: str
    source: str
    arguments: list[str]
    policy: str
    steps: int
    seed: int
    lines: tuple[tuple[str, int], ...] = ()
    output: str = ""


class AfterImport(MetaPathFinder):
    """Calls a function with a module as soon as the program has imported it."""

    def __init__(self, waiting: dict[str, Callable[[ModuleType], None]]) -> None:
        self._waiting = waiting

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module that is waited for, its loader made to call back."""
        install = self._waiting.pop(fullname, None)
        spec = find_spec(fullname) if install is not None else None
        if install is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            install(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def main() -> None:
    """Run the script that the settings name, as `python SCRIPT` would."""
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    with open(settings.output, "w", encoding="utf-8") as stream:
        recorder = Recorder(stream, settings.steps)
        Thread(target=_end_with_parent, daemon=True).start()
        _watch_imports(settings, recorder)
        _seed(settings.seed)
        reached = Reached(settings.lines)
        code = _execute(settings, recorder, reached)
        recorder.fact("reached", sorted(reached.found))
        recorder.fact("files", sorted(_own_files(settings.script)))
        recorder.fact("memory", _peak_memory())
        recorder.end()
    sys.stdout.flush()
    os._exit(code)  # threads and loaders of the program are not waited for


def _end_with_parent() -> None:
    """End the run where nobody waits for it any more."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _watch_imports(settings: Settings, recorder: Recorder) -> None:
    def starting(framework: str) -> Callable[[ModuleType], None]:
        def install(module: ModuleType) -> None:
            import_module(f"mplint.{settings.probes}.{framework}_probe").install(module, settings, recorder)

        return install

    sys.meta_path.insert(0, AfterImport({framework: starting(framework) for framework in settings.frameworks}))


def _seed(seed: int) -> None:
    random.seed(seed)
    if find_spec("numpy") is not None:
        import numpy as np

        np.random.seed(seed)


def _execute(settings: Settings, recorder: Recorder, reached: Reached) -> int:
    folder = os.path.dirname(os.path.abspath(settings.script))
    sys.argv = [settings.script, *settings.arguments]
    sys.path[: not sys.flags.safe_path] = [folder]
    module = ModuleType("__main__")
    module.__file__ = settings.script
    sys.modules["__main__"] = module
    try:
        with reached:
            exec(compile(settings.source, settings.script, "exec"), module.__dict__)
    except Finished:
        recorder.fact("ended", "steps")
    except SystemExit as stop:
        recorder.fact("ended", "steps" if isinstance(stop.__context__, Finished) else "program")
        if stop.code not in (None, 0):
            recorder.fact("error", f"the program ended with exit code {stop.code}")
    except BaseException as error:
        recorder.fact("ended", "error")
        recorder.fact("error", _told(error, settings.script))
        traceback.print_exc()
        return 1
    else:
        recorder.fact("ended", "program")
    return 0


def _own_files(script: str) -> set[str]:
    """The files beside the script, and below, of which the program was made."""
    root = os.path.join(os.path.dirname(os.path.abspath(script)), "")
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {path for name in files if isinstance(name, str) and (path := os.path.abspath(name)).startswith(root)}


def _told(error: BaseException, script: str) -> str:
    """An error with the last line of the user's script that led to it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == script]
    first = str(error).strip().partition("\n")[0][:200]
    return f"{script}:{lines[-1]}: {type(error).__name__}: {first}" if lines else f"{type(error).__name__}: {first}"


def _peak_memory() -> int | None:
    """Bytes that the process held at most, None where the system does not say."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    main()
