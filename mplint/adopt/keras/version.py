"""Which Keras a program is adopted for: the one that its project pins, that its text shows, or that is installed here."""

from __future__ import annotations

from typing import NamedTuple

from mplint.adopt.program import Program
from mplint.frameworks.keras.versions import loop_major
from mplint.targets import Targets
from mplint.versions import Versions

MOST_FILES = 20


class Keras(NamedTuple):
    """The Keras that a program runs under: 2 or 3, and how that is known (for a note)."""

    major: int
    known_by: str


def for_one_keras(program: Program, root: str) -> tuple[Program, Keras]:
    """The program for the Keras that it is adopted for."""
    file, targets = program.file, program.targets
    if targets.keras_major is not None:
        return program, Keras(targets.keras_major, "pinned by the project")
    if root == "tf_keras" or "TF_USE_LEGACY_KERAS" in file.document.text:
        keras = Keras(2, "as the program asks")
    elif (major := loop_major(file, targets)) is not None:
        keras = Keras(major, "as its API shows")
    elif (major := of_files_beside(program)) is not None:
        keras = Keras(major, "as the API that its files use shows")
    elif (version := installed(root)) is not None:
        keras = Keras(3 if version.split(".")[0] >= "3" else 2, f"installed: {version}")
    else:
        keras = Keras(3, "assumed, as none is pinned or installed")
    versions = Versions.parse(">=3" if keras.major == 3 else ">=2.4,<3")
    return Program(program.path, program.data, changed(targets, versions)), keras


def of_files_beside(program: Program) -> int | None:
    """2 or 3 where the other files that run with a program show it; None where they don't, or don't agree."""
    execution = program.execution
    places = (place for _, event in execution.all_events() for place in (event.place, *event.calls))
    paths = sorted({place.path for place in places} - {execution.path})[:MOST_FILES]
    files = (execution.trace.file(path) for path in paths)
    found = {loop_major(file, Targets()) for file in files if file is not None} - {None}
    return found.pop() if len(found) == 1 else None


def changed(targets: Targets, keras: Versions | None) -> Targets:
    """The settings for one Keras."""
    ranges = tuple(targets.input_ranges.items())
    return Targets(targets.torch, keras, targets.tensorflow, targets.hardware, None, targets.runtime, ranges)


def installed(root: str) -> str | None:
    """The version of the Keras that `import` would find here for a package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        if root.startswith("tensorflow"):
            found = version("tensorflow") if has("tensorflow") else version("tensorflow-cpu")
            numbers = [int(part) for part in found.split(".")[:2]]
            return version("keras") if numbers >= [2, 16] else found
        return version("keras")
    except (PackageNotFoundError, ValueError):
        return None


def has(distribution: str) -> bool:
    """Whether a distribution is installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def too_old(targets: Targets) -> str | None:
    """What is pinned that has no stable mixed precision API, or None."""
    if targets.tensorflow is not None and targets.tensorflow.below("2.4"):
        return "TensorFlow before 2.4"
    if targets.keras is not None and targets.keras.below("2.4"):
        return "Keras before 2.4"
    return None
