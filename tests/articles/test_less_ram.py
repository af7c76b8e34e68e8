"""Mixed Precision Training: Less RAM, More Speed."""

from __future__ import annotations

from pathlib import Path

import pytest
from article import assert_adopted, assert_compared, assert_healthy, estimated, expected, fixed, found, program

NAME = "less_ram"


@pytest.mark.parametrize("name", ["as_it_stands.py", "as_it_is_meant.py", "own_loop.py", "on_a_tpu.py"])
def test_its_code_has_the_findings_that_were_foretold(name: str) -> None:
    assert found(f"{NAME}/{name}") == expected(f"{NAME}/{name}")


def test_what_it_warns_of_is_fixed() -> None:
    loop = fixed(f"{NAME}/own_loop.py")
    assert "LossScaleOptimizer(tf.keras.optimizers.Adam())" in loop
    assert "optimizer.scale_loss(loss)" in loop
    assert fixed(f"{NAME}/on_a_tpu.py") == program(f"{NAME}/on_a_tpu.py").replace('("mixed_float16")', '("mixed_bfloat16")')


def test_its_training_adopts_mixed_precision(tmp_path: Path) -> None:
    assert_adopted(NAME, tmp_path)


@pytest.mark.framework
@pytest.mark.timeout(1800)
def test_its_training_is_the_same_in_both_precisions_and_healthy(tmp_path: Path) -> None:
    assert_compared(NAME, 12)
    assert assert_healthy(NAME, 8, tmp_path)["diagnoses"] == []


@pytest.mark.framework
def test_its_numbers_stand_beside_the_estimate() -> None:
    by = estimated(f"{NAME}:pictures", "Tesla T4", 50)
    full, half = by["float32"], by["mixed_float16"]
    assert half.memory.peak == pytest.approx(3.57e9, rel=0.05)  # as the article measured it
    assert 0.75 * 8.55e9 < full.memory.peak < 8.55e9  # TensorFlow kept a copy in another layout besides
    assert half.speedup == pytest.approx(475 / 183, rel=0.1)
    assert half.ceiling > 475 / 183
