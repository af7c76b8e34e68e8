"""Models that are int8 in part: what is int8 stays so and is counted, and the rest becomes half."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import model, rng

from mplint.conversion.api import convert_file
from mplint.conversion.policy import Options
from mplint.conversion.policy import policy as named
from mplint.conversion.result import Conversion
from mplint.report.conversion import conversion_text

quantization = pytest.importorskip("onnxruntime.quantization")
TEXT = """g (float[4,16] x) => (float[4,16] y) { a = MatMul(x, W) r = Relu(a) b = MatMul(r, V) s = Softmax(b) y = MatMul(s, U) }"""


def plain(folder: Path) -> str:
    path = model(TEXT, folder / "a.onnx", W=rng(16, 16), V=rng(16, 16), U=rng(16, 16))
    message = onnx.load(path)
    for at, node in enumerate(message.graph.node):
        node.name = f"n{at}"
    onnx.save(message, path)
    return path


def converted(path: Path) -> Conversion:
    return convert_file(str(path), str(path), named("mixed_float16"), Options(), [], "cuda")


def test_the_float_part_of_a_statically_quantized_model_is_half(tmp_path: Path) -> None:
    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rows: Iterator[dict[str, np.ndarray]] = iter([{"x": rng(4, 16, seed=seed)} for seed in range(3)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.rows, None)

    form = quantization.QuantFormat.QDQ
    quantization.quantize_static(plain(tmp_path), str(tmp_path / "b.onnx"), Reader(), quant_format=form, nodes_to_exclude=["n4"])
    result = converted(tmp_path / "b.onnx")
    assert result.proven and (result.heavy_half, result.heavy, result.whole) == (1, 1, 2)
    assert dict(result.kept)["n0 (MatMul)"].startswith("it is int8")
    assert "2 more are int8" in conversion_text(result, "b", "", written=False)


def test_the_float_part_of_a_dynamically_quantized_model_is_half(tmp_path: Path) -> None:
    quantization.quantize_dynamic(plain(tmp_path), str(tmp_path / "b.onnx"), nodes_to_exclude=["n4"])
    result = converted(tmp_path / "b.onnx")
    assert result.proven and (result.heavy_half, result.heavy, result.whole) == (1, 1, 2)
