"""Conversions for a device: its policy, what its runtime has no half kernel for, and the curve of error against share in half."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_models import dtypes, model, rng

from mplint.cli.explore import curve
from mplint.cli.main import main
from mplint.conversion.hardware import fitted
from mplint.conversion.policy import ConversionError, policy
from mplint.conversion.result import Conversion
from mplint.hardware import resolve_target

SAMPLED = """g (float[1,4,8,8] x, float[1,8,8,2] at) => (float[1,4,8,8] y) { a = Conv(x, K) b = GridSample(a, at) y = Conv(b, K) }"""


@pytest.mark.parametrize(
    ("device", "expected", "torch"),
    [("Tesla T4", "mixed_float16", "cuda"), ("A100-SXM4-40GB", "mixed_float16", "cuda"), ("tpu", "mixed_bfloat16", "xla")],
)
def test_a_device_chooses_the_policy(device: str, expected: str, torch: str) -> None:
    made = fitted(resolve_target(device), None, None, onnx=False)
    assert (made.policy, made.device, made.against) == (expected, torch, "")


def test_a_device_without_the_asked_policy_refuses_it() -> None:
    for device, asked in (("Tesla T4", "mixed_bfloat16"), ("tpu", "mixed_float16")):
        with pytest.raises(ConversionError, match="leave --policy out"):
            fitted(resolve_target(device), asked, None, onnx=False)
    assert "multiplies no faster in float16" in fitted(resolve_target("Tesla P40"), None, None, onnx=False).against


def test_what_the_device_has_no_kernel_for_stays_float32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model(SAMPLED, tmp_path / "a.onnx", K=rng(4, 4, 1, 1))
    for options, half in (([], "float16"), (["--target", "Tesla T4"], "float"), (["--runtime", "onnxruntime-cuda"], "float")):
        assert main(["convert", path, "-o", str(tmp_path / "b.onnx"), *options]) == 0
        found = dtypes(tmp_path / "b.onnx")
        assert half in {dtype for name, dtype in found.items() if name.startswith("b")}
        assert ("ONNX Runtime's CUDA provider has no float16 kernel" in capsys.readouterr().out) == (half == "float")
    assert main(["convert", path, "-o", str(tmp_path / "b.onnx"), "--target", "Tesla T44"]) == 2
    assert "did you mean" in capsys.readouterr().err


def test_the_curve_goes_from_much_to_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "g (float[4,16] x) => (float[4,16] y) { a = MatMul(x, W) b = Exp(a) c = MatMul(b, V) d = Tanh(c) y = MatMul(d, W) }"
    path = model(text, tmp_path / "a.onnx", W=rng(16, 16), V=rng(16, 16, scale=1e-3))
    np.savez(tmp_path / "d.npz", x=rng(4, 16))
    assert main(["convert", path, "--explore", "--calibration", str(tmp_path / "d.npz")]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    errors = [float(line.split()[0]) for line in lines]
    assert len(lines) > 1 and errors == sorted(errors, reverse=True) and "2 of 3 matmuls" in lines[0]
    assert not list(tmp_path.glob("*.keras"))


def test_a_curve_ends_where_nothing_gets_better() -> None:
    asked = []

    def convert(tolerance: float) -> Conversion:
        asked.append(tolerance)
        return Conversion(policy("mixed_float16", tolerance), lambda _: None, 1, 1, 1, 1, error=tolerance / 4)

    assert len(list(curve(convert))) == 1 and asked == sorted(asked, reverse=True) and len(asked) <= 8
