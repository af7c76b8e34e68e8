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
