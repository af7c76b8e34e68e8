"""First experiments with TensorFlow mixed-precision training, in R."""

from __future__ import annotations

from pathlib import Path

import pytest
from article import assert_adopted, assert_compared, assert_healthy, estimated, expected, fixed, found

NAME = "in_r"
SCRIPT = f"{NAME}/as_it_stands.R"
# Milliseconds a step at some batches, as the article measured them: float32, mixed.
MEASURED = {"Tesla V100-SXM2-16GB": {32: (30, 28), 128: (106, 97), 512: (415, 377)}, "TITAN Xp": {128: (136, 142), 512: (539, 518)}}


def test_its_code_has_the_findings_that_were_foretold() -> None:
    assert found(SCRIPT) == expected(SCRIPT)


@pytest.mark.parametrize(("device", "told"), [("Tesla V100-SXM2-16GB", False), ("TITAN Xp", True), ("Quadro M2200", True)])
def test_its_devices_are_told_apart(device: str, told: bool) -> None:
    assert ("MP501" in {code for _, code, _ in found(SCRIPT, target=device)}) is told


def test_it_is_fixed_in_r() -> None:
    text = fixed(SCRIPT)
    assert "mixed_precision <- tf$keras$mixed_precision\n" in text.replace("  # expect: MP102 error", "")
    assert "mixed_precision$set_global_policy(policy)" in text
    assert 'policy <- mixed_precision$Policy("mixed_float16")\n' in text


def test_its_network_adopts_mixed_precision_in_python(tmp_path: Path) -> None:
    assert_adopted(NAME, tmp_path)


@pytest.mark.framework
@pytest.mark.timeout(1800)
def test_its_training_is_the_same_in_both_precisions_and_healthy(tmp_path: Path) -> None:
    assert_compared(NAME, 12)
    assert assert_healthy(NAME, 8, tmp_path)["diagnoses"] == []


@pytest.mark.framework
def test_its_numbers_stand_beside_the_estimate() -> None:
    for device, batches in MEASURED.items():
        half = estimated(f"{NAME}:large_filters", device, 128)["mixed_float16"]
        assert all(full / mixed < half.ceiling for full, mixed in batches.values())
    assert estimated(f"{NAME}:large_filters", "TITAN Xp", 128)["mixed_float16"].speedup < 1.1
    small = estimated(f"{NAME}:large_filters", "Quadro M2200", 256)
    assert small["float32"].safe < 256 <= small["mixed_float16"].safe  # the one failed there, the other ran
