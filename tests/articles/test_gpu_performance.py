"""Deep Learning GPU Performance Analysis."""

from __future__ import annotations

from pathlib import Path

import pytest
from article import assert_adopted, assert_compared, assert_healthy, estimated, expected, fixed, found, program

NAME = "gpu_performance"


@pytest.mark.parametrize("name", ["as_it_stands.py", "without_the_steps.py", "rewrite.py"])
def test_its_code_has_the_findings_that_were_foretold(name: str) -> None:
    assert found(f"{NAME}/{name}") == expected(f"{NAME}/{name}")


def test_its_names_are_fixed_and_the_rewrite_is_left_to_its_author() -> None:
    text = fixed(f"{NAME}/as_it_stands.py")
    assert 'GradScaler("cuda")' in text
    assert 'autocast("cuda")' in text
    assert "torch.cuda.amp" not in text
    assert fixed(f"{NAME}/without_the_steps.py").endswith("    scaler.update()\n")
    assert fixed(f"{NAME}/rewrite.py") == program(f"{NAME}/rewrite.py")


def test_a_training_adopts_the_three_steps(tmp_path: Path) -> None:
    assert_adopted(NAME, tmp_path)


@pytest.mark.framework
@pytest.mark.timeout(1800)
def test_a_training_is_the_same_in_both_precisions_and_healthy(tmp_path: Path) -> None:
    policies = assert_compared(NAME, 24)
    assert policies["mixed_float16"]["scales"][0] == 65536
    report = assert_healthy(NAME, 12, tmp_path)
    assert report["diagnoses"] == []
    assert report["facts"]["operations"]["float16"] > 0


@pytest.mark.framework
def test_matrix_units_make_the_difference() -> None:
    with_units, without = (estimated(f"{NAME}:perceptron", device, 512) for device in ("Tesla V100-SXM2-16GB", "TITAN Xp"))
    assert with_units["mixed_float16"].speedup > 3
    assert without["mixed_float16"].speedup < 1.1
