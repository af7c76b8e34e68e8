"""What the hardware rules say of one program on several targets, and in test code."""

from __future__ import annotations

import pytest

from mplint.api import check_text
from mplint.findings import Severity

POLICY = 'from tensorflow import keras\n\nkeras.mixed_precision.set_global_policy("mixed_{}")\n'


def codes(program: str, target: str | None, path: str = "src/train.py") -> list[tuple[str, Severity]]:
    found = check_text(program, path, {"target": target} if target else {}, select=["MP501", "MP503"])
    return [(finding.code, finding.severity) for finding in found]


@pytest.mark.parametrize(
    ("target", "float16", "bfloat16"),
    [
        (None, [], []),
        ("Tesla P40", ["MP501"], ["MP503"]),
        ("6.0", ["MP501"], ["MP503"]),
        ("GeForce GTX 1660", ["MP501"], ["MP503"]),
        ("V100", [], ["MP503"]),
        ("Tesla T4", [], ["MP503"]),
        ("Instinct MI50", [], ["MP503"]),
        ("A100", [], []),
        ("9.0", [], []),
        ("cpu", ["MP501"], []),
        ("tpu", [], []),
        ("M2", [], []),
    ],
)
def test_each_dtype_is_reported_exactly_where_the_target_lacks_it(target: str | None, float16: list[str], bfloat16: list[str]) -> None:
    assert codes(POLICY.format("float16"), target) == [(code, Severity.WARNING) for code in float16]
    assert codes(POLICY.format("bfloat16"), target) == [(code, Severity.WARNING) for code in bfloat16]


def test_test_code_that_sets_a_policy_on_purpose_gets_advice_only() -> None:
    assert codes(POLICY.format("float16"), "cpu", "tests/test_model.py") == [("MP501", Severity.INFO)]
    assert codes(POLICY.format("bfloat16"), "Tesla T4", "tests/test_model.py") == [("MP503", Severity.INFO)]


@pytest.mark.parametrize(
    ("target", "words", "reason"),
    [
        ("Tesla P100-PCIE-16GB", "runs at most twice as fast as float32", "this device has 6.0: its cores do two float16 operations"),
        ("GeForce GTX 1660", "runs at most twice as fast as float32", "unlike other Turing GPUs, no Tensor Cores"),
        ("NVIDIA T400", "runs at most twice as fast as float32", "Its cores do two float16 operations"),
        ("NVIDIA Tegra X1", "runs at most twice as fast as float32", "this device has 5.3"),
        ("Tesla P40", "runs at 1/64 of the float32 rate", "its cores compute float16 at 1/64 of their float32 rate"),
        ("GTX 1080 Ti", "runs at 1/64 of the float32 rate", "its cores compute float16 at 1/64 of their float32 rate"),
        ("6.1", "runs at 1/64 of the float32 rate", "this device has 6.1"),
        ("Tesla M40", "is no faster than float32", "its cores convert float16 to float32"),
        ("Tesla K80", "is no faster than float32", "this device has 3.7: its cores convert"),
        ("cpu", "is no faster than float32", "A CPU without AVX512-FP16"),
    ],
)
def test_what_float16_comes_to_follows_the_device(target: str, words: str, reason: str) -> None:
    (finding,) = check_text(POLICY.format("float16"), "src/train.py", {"target": target}, select=["MP501"])
    assert f"computes in float16, which {words} on " in finding.message
    assert reason in finding.why
