"""Which Keras a program is adopted for: the one that its project pins, that its text shows, or that is installed here."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from mplint.adopt.keras.spelling import root_of
from mplint.adopt.program import Note, Program
from mplint.findings import Location
from mplint.frameworks.keras.versions import before_policies, before_tensorflow2, loop_major
from mplint.targets import Targets
from mplint.versions import Versions

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

MOST_FILES = 20


class Keras(NamedTuple):
    """The Keras that a program runs under: 2 or 3, and how that is known (for a note).

    `before`: what shows that it is one without policies.
    """

    major: int
    known_by: str
    before: Note | None = None


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
    keras = keras._replace(before=shown_before(program, root))
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


def too_old(program: Program, keras: Keras) -> Note | None:
    """What says that the program is for a Keras that has no stable mixed precision API, or None."""
    targets = program.targets
    pins = {"TensorFlow": targets.tensorflow, "Keras": targets.keras}
    if root_of(program.file, None) == "tensorflow.keras" and targets.tensorflow is not None:
        del pins["Keras"]  # a package that the program does not use
    for title, versions in pins.items():
        if versions is not None and versions.below("2.4"):
            text = f"the project pins {title} before 2.4, whose mixed precision was experimental: move to a later one"
            return Note(top_of(program), text)
    return keras.before


def shown_before(program: Program, root: str) -> Note | None:
    """A note on what shows that the program, or a file that it runs, is for a Keras without policies; None where nothing does."""
    trace, pinned = program.execution.trace, program.targets.tensorflow
    for file in (program.file, *filter(None, map(trace.file, program.execution.run_with))):
        if root == "keras" and (node := before_policies(file)) is not None:
            return note_on(program, file, node, "a Keras before 2.4")
        if (pinned is None or pinned.before("2.0")) and (node := before_tensorflow2(file)) is not None:
            return note_on(program, file, node, "TensorFlow 1")
    return None


def note_on(program: Program, file: SourceFile, node: ast.stmt | ast.expr | ast.keyword, version: str) -> Note:
    """A note on a place that shows that a file is for a version without policies."""
    text = " ".join(file.text(node).split())
    here = file.document.path == program.path
    place, home = (program.file.location(node), "") if here else (top_of(program), f"{file.document.path}:{node.lineno}: ")
    given = f"`{text if len(text) <= 60 else f'{text[:57]}...'}`"
    return Note(place, f"{home}{given} is written for {version}, which has no policies: move to a later one first")


def top_of(program: Program) -> Location:
    """The first line of a program."""
    cells = program.file.document.cells
    return Location(program.path, 1, 1, 1, 1, cells[0].index if cells else None)
