"""Mixed precision training with tf.keras."""

from __future__ import annotations

from pathlib import Path

import pytest
from article import assert_adopted, assert_compared, assert_healthy, estimated, expected, fixed, found

NAME = "tf_keras"


@pytest.mark.parametrize("name", ["as_it_stands.py", "by_layer.py"])
def test_its_code_has_the_findings_that_were_foretold(name: str) -> None:
    assert found(f"{NAME}/{name}") == expected(f"{NAME}/{name}")


def test_what_has_a_counterpart_is_fixed() -> None:
    text = fixed(f"{NAME}/as_it_stands.py")
    assert 'tf.keras.mixed_precision.set_global_policy("mixed_float16")' in text
    assert "tf.keras.mixed_precision.LossScaleOptimizer(opt)" in text
    assert "input_layer = Input(shape=(img_size[0], img_size[1], 3))" in text
    assert '{"auto_mixed_precision": True}' in text  # left to its author
    assert 'tf.keras.mixed_precision.Policy("mixed_float16")' in fixed(f"{NAME}/by_layer.py")


def test_its_training_adopts_mixed_precision(tmp_path: Path) -> None:
    assert_adopted(NAME, tmp_path)


@pytest.mark.framework
@pytest.mark.timeout(1800)
def test_its_training_is_the_same_in_both_precisions_and_healthy(tmp_path: Path) -> None:
    assert_compared(NAME, 12)
    assert assert_healthy(NAME, 8, tmp_path)["diagnoses"] == []


@pytest.mark.framework
def test_its_numbers_stand_beside_the_estimate() -> None:
    half = estimated(f"{NAME}:resnet50", "Tesla T4", 64)["mixed_float16"]
    assert half.speedup == pytest.approx(770 / 229, rel=0.1)
    assert half.ceiling > 770 / 229
