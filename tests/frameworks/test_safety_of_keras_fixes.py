"""Which fixes of Keras code are safe: those that mean the same under every version and policy that the project runs with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fixture_files import FIXTURES

from mplint.config import Config
from mplint.engine.run import check_paths

FOR_TENSORFLOW_1 = FIXTURES / "MP209" / "bad_before_compute_dtype"


def applicability(folder: Path, code: str) -> str:
    """How sure the fix of the one finding of a rule is."""
    result = check_paths([str(folder)], Config(root=str(folder), cache=False, select=(code,)))
    (found,) = [finding for finding in result.findings if finding.code == code]
    assert found.fix is not None
    return found.fix.applicability.value


@pytest.mark.parametrize(("pins", "expected"), [("", "unsafe"), ("tensorflow>=2.8", "safe"), ("tensorflow>=1.15", "unsafe")])
def test_the_compute_dtype_of_layers_is_no_safe_fix_where_tensorflow_1_is_supported(tmp_path: Path, pins: str, expected: str) -> None:
    folder = tmp_path / "project"
    shutil.copytree(FOR_TENSORFLOW_1, folder)
    (folder / "requirements.txt").write_text(pins)
    assert applicability(folder, "MP209") == expected


def test_the_compute_dtype_of_layers_is_safe_where_nothing_speaks_of_tensorflow_1(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(FOR_TENSORFLOW_1, folder)
    program = folder / "train.py"
    program.write_text(program.read_text().replace('if tf.__version__ >= "2.4":', "if True:"))
    assert applicability(folder, "MP209") == "safe"


def test_an_output_in_float32_is_no_safe_fix_where_the_program_makes_half_tensors_that_meet_it(tmp_path: Path) -> None:
    text = (FIXTURES / "MP201" / "bad_half_weights_of_the_loss.py").read_text()
    (tmp_path / "train.py").write_text(text)
    assert applicability(tmp_path, "MP201") == "unsafe"
    (tmp_path / "train.py").write_text(text.replace("tf.float16", "tf.float32"))
    assert applicability(tmp_path, "MP201") == "safe"
