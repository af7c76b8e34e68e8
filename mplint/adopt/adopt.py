"""Adopts a policy in one program: PyTorch's part, then Keras', or only Keras' where the models are made of its layers."""

from __future__ import annotations

import os
from collections.abc import Iterable

from mplint.adopt.keras.adopt import adopt as adopt_keras
from mplint.adopt.keras.adopt import builds_keras
from mplint.adopt.program import Adopt, Adoption, Note, Program
from mplint.adopt.torch.adopt import adopt as adopt_torch
from mplint.python.document import is_test_path
from mplint.targets import Targets

TORCH = ("torch", "lightning", "transformers", "accelerate")  # packages that train with torch
FRAMEWORKS: tuple[tuple[str, Adopt], ...] = (*((name, adopt_torch) for name in TORCH), ("keras", adopt_keras), ("tensorflow", adopt_keras))


def adopt(path: str, data: bytes, policy: str, targets: Targets) -> Adoption:
    """Adopt `policy` in the program in `data`, as far as it is certain how; raises InputError for what is no program."""
    first = program = Program(title_of(path), data, targets)
    made: list[Note] = []
    left: list[Note] = []
    trains = False
    frameworks = [(name, adopts) for name, adopts in FRAMEWORKS if name in first.document.text]
    if "torch" in first.document.text and builds_keras(first):  # layers of Keras on the torch backend follow Keras' policy
        frameworks = [(name, adopts) for name, adopts in frameworks if name != "torch"]
    for adopts in dict.fromkeys(adopts for _, adopts in frameworks):
        result = noted = adopts(program, policy)
        if program is not first:  # places are those of the program as it was
            noted = adopts(first, policy)
        if trains and result.program is program:
            continue  # what another framework trains, and this one has nothing to do with
        program = result.program
        made += noted.made
        left += noted.left
        trains = trains or result.trains
    done, told = (ordered(note.at(first.path, path) for note in notes) for notes in (made, left))
    return Adoption(path, policy, data, program.data, done, told, trains)


def title_of(path: str) -> str:
    """The path under which a program is read: what is to be adopted is no test, wherever it lies."""
    name = "train.ipynb" if path.endswith(".ipynb") else "train.py"
    folder = os.path.dirname(path)
    if is_test_path(os.path.join(folder, name)):
        return name
    return os.path.join(folder, name) if is_test_path(path) else path


def ordered(notes: Iterable[Note]) -> tuple[Note, ...]:
    """The notes by their places, each once."""
    return tuple(sorted(dict.fromkeys(notes), key=_place))


def _place(note: Note) -> tuple[str, int, int, int, str]:
    at = note.location
    return at.path, at.cell or 0, at.line or 0, at.column or 0, note.text
