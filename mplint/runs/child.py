"""The process in which a user's script runs under one policy: `python -m mplint.runs.child SETTINGS.json`."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import NamedTuple, NoReturn, TextIO

from mplint.runs.project import is_own, project_of
from mplint.runs.reached import Reached
from mplint.runs.record import Finished, Recorder

COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # which some errors are written in
AUTOGRAPH, IN_KERAS = "in user code:", "Exception encountered when calling "  # what errors of TensorFlow and Keras begin with
CALLS = 12  # of those that led to an error, which are told


class Settings(NamedTuple):
    """One run: which probes are set, the user's script, the source to run in its place, its arguments, and where to write what is seen.

    `probes` is a package of mplint that has a module `torch_probe` or `keras_probe` for each of the `frameworks`, with
    `install(module, settings, recorder)`; of a module inside a package that of the package.
    `every` so manieth step is looked at closely, 0 for as many as the time allows.
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
    every: int = 0
    output: str = ""


class AfterImport(MetaPathFinder):
    """Calls a function with a module as soon as the program has imported it."""

    def __init__(self, waiting: dict[str, Callable[[ModuleType], None]]) -> None:
        self._waiting = waiting
        self._asked: set[str] = set()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module that is waited for, its loader made to call back."""
        if fullname not in self._waiting or fullname in self._asked:
            return None
        self._asked.add(fullname)
        try:
            spec = find_spec(fullname)
        finally:
            self._asked.remove(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            install = self._waiting.pop(fullname, None)  # a program may look for a module and not import it
            if install is not None:
                install(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def main() -> None:
    """Run the script that the settings name, as `python SCRIPT` would."""
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    run(settings)


def run(settings: Settings) -> NoReturn:
    """Run the script of the settings in this process, which ends with it."""
    with open(settings.output, "w", encoding="utf-8") as stream:
        recorder = Recorder(stream, settings.steps, settings.output)
        Thread(target=_end_with_parent, daemon=True).start()
        signal.signal(signal.SIGTERM, _stop)
        recorder.in_child(lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
        reached = Reached(settings.lines)
        _watch(settings, recorder, reached)
        _seed(settings.seed)
        code = _execute(settings, recorder, reached)
        recorder.fact("memory", _peak_memory())
        recorder.end()
        if recorder.main:
            stream.flush()
        sys.stdout.flush()
        os._exit(code)  # threads and loaders of the program are not waited for


class Stopped(Finished):
    """Raised into the user's program when the run is ended from outside."""


def _stop(*_: object) -> NoReturn:
    raise Stopped


class Arrival:
    """Stands among what a new process of multiprocessing is told: when that reads it, it is watched as this one is."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __reduce__(self) -> tuple[Callable[[Settings], Recorder], tuple[Settings]]:
        return arrive, (self._settings,)


def arrive(settings: Settings) -> Recorder:
    """Watch this process, which the run has started."""
    reached, recorder = Reached(settings.lines), Recorder(None, settings.steps, settings.output)
    _watch(settings, recorder, reached)
    reached.__enter__()
    return recorder


def _watch(settings: Settings, recorder: Recorder, reached: Reached) -> None:
    """Have frameworks probed as they are imported, and lines noted as they are run."""

    def sum_up() -> None:
        recorder.fact("reached", sorted(reached.found))
        recorder.fact("files", sorted(_own_files(settings.script)))

    recorder.at_end(sum_up)
    _watch_imports(settings, recorder)
    _watch_warnings(settings, recorder)


def _follow(spawn: ModuleType, settings: Settings) -> None:
    """Have processes that the program starts watched, too."""
    prepare = spawn.get_preparation_data

    def preparing(name: str) -> dict[str, object]:
        return {**prepare(name), "mplint": Arrival(settings)}

    spawn.get_preparation_data = preparing  # type: ignore[attr-defined]


def _end_with_parent() -> None:
    """End the run where nobody waits for it any more."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _watch_imports(settings: Settings, recorder: Recorder) -> None:
    def starting(framework: str) -> Callable[[ModuleType], None]:
        def install(module: ModuleType) -> None:
            probe = framework.partition(".")[0].removeprefix("pytorch_").removesuffix("_fabric")
            import_module(f"mplint.{settings.probes}.{probe}_probe").install(module, settings, recorder)

        return install

    waiting = {framework: starting(framework) for framework in settings.frameworks}
    waiting["multiprocessing.spawn"] = lambda module: _follow(module, settings)
    for name in [name for name in waiting if name in sys.modules]:
        waiting.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, AfterImport(waiting))


def _watch_warnings(settings: Settings, recorder: Recorder) -> None:
    """Note what a library warns of at the user's lines, such as a name that will be gone."""
    shown, project = warnings.showwarning, project_of(settings.script)

    def showing(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
    ) -> None:
        path = os.path.abspath(filename)
        if is_own(path, project):
            recorder.event("warned", place=[path, lineno], message=f"{category.__name__}: {str(message).strip()[:300]}")
        shown(message, category, filename, lineno, file, line)

    warnings.showwarning = showing


def _seed(seed: int) -> None:
    random.seed(seed)
    if find_spec("numpy") is not None:
        import numpy as np

        np.random.seed(seed)


def _execute(settings: Settings, recorder: Recorder, reached: Reached) -> int:
    folder = os.path.dirname(os.path.abspath(settings.script))
    sys.argv = [settings.script, *settings.arguments]
    sys.path[: _is_first()] = [folder]
    module = ModuleType("__main__")
    module.__file__ = settings.script
    sys.modules["__main__"] = module
    try:
        with reached:
            exec(compile(settings.source, settings.script, "exec"), module.__dict__)
    except Stopped:
        recorder.fact("ended", "stopped")
    except Finished:
        recorder.fact("ended", "steps")
    except SystemExit as stop:
        recorder.fact("ended", "steps" if isinstance(stop.__context__, Finished) else "program")
        if stop.code not in (None, 0):
            recorder.fact("error", f"the program ended with exit code {stop.code}")
    except BaseException as error:
        recorder.fact("ended", "error")
        for name, value in told_of(error, settings.script).items():
            recorder.fact(name, value)
        own = error.__traceback__.tb_next if error.__traceback__ is not None else None  # without what runs the program
        traceback.print_exception(type(error), error, own or error.__traceback__)
        return 1
    else:
        recorder.fact("ended", "program")
    return 0


def _is_first() -> bool:
    """Whether the folder of this process stands first on the path, before those of PYTHONPATH: mplint takes that of `-m` out itself."""
    by_module = sys.orig_argv[1:2] == ["-m"]
    return not sys.flags.safe_path and (not by_module or __file__.startswith(os.path.join(os.getcwd(), "")))


def told_of(error: BaseException, script: str) -> dict[str, object]:
    """The facts on an error that ends a program."""
    calls = [f"{frame.filename.replace(os.sep, '/')}:{frame.name}" for frame in _frames(error)][-CALLS:]
    return {"error": _told(error, script), "error_text": COLORS.sub("", str(error))[:2000], "error_calls": calls}


def _own_files(script: str) -> set[str]:
    """The files of the script's project of which the program was made."""
    project = project_of(script)
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {path for name in files if isinstance(name, str) and is_own(path := os.path.abspath(name), project) and os.path.isfile(path)}


def _told(error: BaseException, script: str) -> str:
    """An error with the last line of the user's program that led to it."""
    project = project_of(script)
    own = [frame for frame in _frames(error) if frame.filename == script or is_own(os.path.abspath(frame.filename), project)]
    kind = f"{type(error).__name__}: "
    first = kind + reason(COLORS.sub("", str(error))).removeprefix(kind)[:200]
    return f"{own[-1].filename}:{own[-1].lineno}: {first}" if own else first


def reason(text: str) -> str:
    """The line of an error's text that says why; AutoGraph and Keras put it behind headings and frames."""
    text = text.strip()
    if text.startswith(AUTOGRAPH):
        parts = re.split(r"\n\s*\n", text)[1:]
        text = next((part.strip() for part in parts if not part.lstrip().startswith("File ")), text)
    where, _, rest = text.partition("\n")
    if IN_KERAS in where and rest.strip():
        reason = (rest.partition("Error encountered:")[2] or rest).strip().partition("\n")[0]
        return f"{where.replace(IN_KERAS, '').rstrip('.')}: {reason}"
    return where


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return list(traceback.extract_tb(error.__traceback__))


def _peak_memory() -> int | None:
    """Bytes that the process held at most, None where the system does not say."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    # What other processes are told of this module must not be looked for in the user's `__main__`.
    from mplint.runs import child

    child.main()
