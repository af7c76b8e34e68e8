"""What `mplint convert` says where a package that it needs is not installed."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import onnx
import onnx.parser
import pytest

from mplint.conversion.api import convert_file
from mplint.conversion.policy import ConversionError, Options, policy

ONNX = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'


def refused(path: Path) -> str:
    with pytest.raises(ConversionError) as caught:
        convert_file(str(path), str(path), policy("mixed_float16"), Options(), (), "cuda")
    return str(caught.value)


def test_onnx_models_need_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(onnx.parser.parse_model(ONNX), tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert refused(tmp_path / "model.onnx") == 'converting ONNX models needs onnxruntime: pip install "mplint[convert]"'


def test_savedmodels_need_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01\x12\x00")
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert "needs TensorFlow, whose graph optimizer does it: pip install tensorflow" in refused(tmp_path)


def test_keras_archives_need_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.0.0"}))
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": []}}))
    for module in ("feeds", "keras.convert", "keras.verify", "keras.runtime", "keras.samples"):
        monkeypatch.delitem(sys.modules, f"mplint.conversion.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert refused(tmp_path / "model.keras") == 'converting Keras files needs numpy: pip install "mplint[keras]"'
