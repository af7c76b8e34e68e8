"""Tests of a project are run where they speak of half precision, themselves or in the test code that they import."""

from __future__ import annotations

import ast

import pytest

from mplint.frameworks.known import frameworks
from mplint.frameworks.relevance import speaks_of_precision, speaks_of_training
from mplint.program.entries import trace
from mplint.program.lower import lower
from mplint.program.modules import ImportGraph
from mplint.program.project import Project

STEP = "import torch\n\ndef test_it(scaler, optimizer, loss):\n    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n"
PLAIN = """\
import tensorflow as tf
from tests.helpers import apply

def test_it(x):
    with tf.GradientTape() as tape:
        apply(tape, x)
"""
TAPE = "import tensorflow as tf\n\ndef apply(tape, x):\n    tape.gradient(x, x)\n"
POLICY = "import tensorflow as tf\ntf.keras.mixed_precision.set_global_policy('mixed_float16')\n"


def begun(files: dict[str, str]) -> set[str]:
    """The files in which the entries of a project begin."""
    imports = {path: ("tests.helpers",) if "tests.helpers" in text else () for path, text in files.items()}
    project = Project(files, lambda path: lower(ast.parse(files[path])), graph=ImportGraph(imports))
    found = trace(project, frameworks(), speaks_of_training, sorted(files), tested=speaks_of_precision)
    return {entry.path for entry in found.entries}


def test_a_test_with_a_scaler_is_run() -> None:
    assert begun({"tests/test_step.py": STEP}) == {"tests/test_step.py"}


@pytest.mark.parametrize(("other", "runs"), [("", False), (POLICY, True)])
def test_what_a_test_imports_speaks_for_it(other: str, runs: bool) -> None:
    files = {"tests/test_tape.py": PLAIN, "tests/helpers.py": other + TAPE}
    assert ("tests/test_tape.py" in begun(files)) is runs


@pytest.mark.parametrize(("other", "runs"), [("", False), (POLICY, True)])
def test_the_fixtures_of_its_folder_speak_for_a_test(other: str, runs: bool) -> None:
    files = {"tests/test_tape.py": PLAIN, "tests/conftest.py": other or "x = 1\n", "tests/helpers.py": TAPE}
    assert ("tests/test_tape.py" in begun(files)) is runs
