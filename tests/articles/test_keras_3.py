"""The guide of Keras 3 on mixed precision."""

from __future__ import annotations

from pathlib import Path

import pytest
from article import assert_adopted, assert_compared, assert_healthy, estimated, expected, fixed, found, program

from mplint.api import check_text

NAME = "keras_3"


@pytest.mark.parametrize("name", ["as_it_stands.py", "on_a_tpu.py"])
def test_its_code_is_right(name: str) -> None:
    assert expected(f"{NAME}/{name}") == []
    assert [each for each in found(f"{NAME}/{name}") if each[2] != "info"] == []
    assert fixed(f"{NAME}/{name}") == program(f"{NAME}/{name}")


def test_a_tpu_is_right_for_bfloat16_and_wrong_for_float16() -> None:
    assert "MP502" not in {code for _, code, _ in found(f"{NAME}/on_a_tpu.py", target="tpu")}
    assert "MP502" in {code for _, code, _ in found(f"{NAME}/as_it_stands.py", target="tpu")}


def test_a_policy_on_a_cpu_is_a_warning_and_in_a_test_a_remark() -> None:
    severities = {}
    for path in ("src/train.py", "tests/test_train.py"):
        findings = check_text(program(f"{NAME}/as_it_stands.py"), path, {"target": "cpu"})
        severities[path] = {f.severity.value for f in findings if f.code == "MP501"}
    assert severities == {"src/train.py": {"warning"}, "tests/test_train.py": {"info"}}


def test_a_training_adopts_mixed_precision(tmp_path: Path) -> None:
    assert_adopted(NAME, tmp_path)


@pytest.mark.framework
@pytest.mark.timeout(1800)
def test_a_training_is_the_same_in_both_precisions_and_healthy(tmp_path: Path) -> None:
    policies = assert_compared(NAME, 12)
    assert policies["mixed_float16"]["scales"][-1] == 32768  # what Keras 3 begins with
    assert assert_healthy(NAME, 8, tmp_path)["diagnoses"] == []


@pytest.mark.framework
def test_more_than_three_times_is_within_reach_of_a_gpu_with_matrix_units() -> None:
    half = estimated(f"{NAME}:blocks", "Tesla V100-SXM2-16GB", 16)["mixed_float16"]
    assert half.ceiling > 3
