"""The programs of a folder as the interpreter reads them, for commands that report on what it understands."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

from mplint.engine.discovery import discover
from mplint.engine.prefilter import key_of
from mplint.engine.tracing import Programs, deep_stack, project_root, traced
from mplint.errors import UsageError
from mplint.program.machine import Recorder
from mplint.program.trace import Trace
from mplint.python.document import InputError
from mplint.python.imports import imported, search_folders
from mplint.python.parse import parse
from mplint.python.suffixes import PROGRAMS


def programs_below(folder: str) -> Programs:
    """Every program below a folder; raises UsageError where there is none."""
    if not os.path.isdir(folder):
        raise UsageError(f"no such folder: {folder}")
    paths = [path for path in discover([folder]) if path.endswith(PROGRAMS)]
    if not paths:
        raise UsageError(f"no programs in {folder}")
    return programs_of(paths)


def programs_around(file: str, root: str | None, given: Mapping[str, bytes] = {}) -> Programs:
    """A program and those of its project, below `root` or where the project seems to begin; raises UsageError where it is no program."""
    if not os.path.isfile(file) or not file.endswith(PROGRAMS):
        raise UsageError(f"no such program: {file}")
    below = root if root is not None else project_root([key_of(file)]) or "."
    if not os.path.isdir(below):
        raise UsageError(f"no such folder: {below}")
    return programs_of([file, *(path for path in discover([below]) if path.endswith(PROGRAMS))], given)


def programs_of(paths: Iterable[str], given: Mapping[str, bytes] = {}) -> Programs:
    """Programs by path, with what they import; `given` are texts that stand for what lies on disk."""
    found = Programs({key_of(path): path for path in paths}, lambda path: given[path] if path in given else read(path))
    for path in found.given:
        with suppress(OSError, InputError):
            document = found.loaded(path)
            tree = parse(document)
            found.imports[path] = imported(tree, document.text, path)
            if folders := search_folders(tree, document.text, path):
                found.folders[path] = folders
    return found


def read(path: str) -> bytes:
    """The bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


def watched(programs: Programs, recorder: Recorder) -> Trace:
    """Run the entries of the programs that speak of mixed precision, with a recorder looking on."""
    named = [path for path in programs.paths() if programs.mentions(path)]
    with deep_stack():
        return traced(programs, named, recorder)
