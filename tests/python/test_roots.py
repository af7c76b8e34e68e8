"""Where a project begins: a `setup.py` that builds a distribution tells, and a module that is called so does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.api import check
from mplint.config import Config
from mplint.engine.tracing import project_root
from mplint.python.roots import builds_distribution
from mplint.runs.project import project_of

MODULE = "def setup(args):\n    return args.folder\n\n\nprint(setup)\n"
BUILD = "from setuptools import find_packages, setup\n\nsetup(name='words', packages=find_packages())\n"


@pytest.mark.parametrize(
    "text",
    [
        BUILD,
        "import setuptools\nsetuptools.setup()\n",
        "from distutils.core import setup\nsetup(name='a')\n",
        "from skbuild import setup\nsetup (name='a')\n",
        "from numpy.distutils.core import setup\nif __name__ == '__main__':\n    setup(**options())\n",
    ],
)
def test_a_call_of_setup_builds_a_distribution(text: str) -> None:
    assert builds_distribution(text)


@pytest.mark.parametrize("text", [MODULE, "", "from helpers import setup\nsetup(3)\n", "import setuptools\n\n\ndef setup():\n    pass\n"])
def test_a_module_that_is_called_so_builds_none(text: str) -> None:
    assert not builds_distribution(text)


@pytest.mark.parametrize(("text", "begins"), [(MODULE, False), (BUILD, True)])
def test_a_project_begins_where_a_distribution_is_built(tmp_path: Path, text: str, begins: bool) -> None:
    outer, inner = tmp_path, tmp_path / "training"
    inner.mkdir()
    (outer / "requirements.txt").write_text("torch\n")
    (outer / "setup.cfg").write_text("[metadata]\nname = words\n")
    (inner / "setup.py").write_text(text)
    expected = str(inner if begins else outer)
    assert project_root([str(inner / "train.py")]) == expected
    assert project_of(str(inner / "train.py")) == expected


LAYER = """import tensorflow as tf


class Gate(tf.keras.layers.Layer):
    def build(self, input_shape):
        start = tf.keras.initializers.GlorotUniform()
        self.shares = tf.Variable(start(shape=(1, input_shape[-1])), name="shares")

    def call(self, inputs):
        return inputs * tf.broadcast_to(self.shares, tf.shape(inputs))
"""
TEST = """import pytest
import tensorflow as tf

from parts import Gate


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gives_the_dtype_that_it_is_made_in(dtype):
    assert Gate(dtype=dtype)(tf.ones((3, 5), dtype)).dtype == dtype
"""


@pytest.mark.parametrize(("text", "codes"), [(MODULE, []), (BUILD, ["MP209"])])
def test_users_choose_a_policy_for_what_is_distributed_only(tmp_path: Path, text: str, codes: list[str]) -> None:
    for name in ("parts", "tests"):
        (tmp_path / name).mkdir()
    (tmp_path / "setup.py").write_text(text)
    (tmp_path / "parts" / "__init__.py").write_text("from parts.gates import Gate\n")
    (tmp_path / "parts" / "gates.py").write_text(LAYER)
    (tmp_path / "tests" / "test_gates.py").write_text(TEST)
    found = check([str(tmp_path)], Config(cache=False, isolated=True)).findings
    assert [finding.code for finding in found] == codes
