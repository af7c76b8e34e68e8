"""`mplint dev coverage` counts the calls that half precision reaches, and names those that nobody knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mplint.cli.main import main

PROGRAM = """\
import torch
import strange


def train(model, loader, optimizer, scaler):
    for x, y in loader:
        with torch.autocast("cuda"):
            prediction = strange.frobnicate(torch.relu(model(x)))
            loss = torch.nn.functional.mse_loss(prediction, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def test_unknown_calls_are_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    assert main(["dev", "coverage", str(tmp_path), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["unknown"] == [{"call": "strange.frobnicate", "count": 1, "folders": 1}]
    assert report["total"]["unknown"] == 1
    assert report["total"]["models"] == 1
    assert report["total"]["share"] == pytest.approx(1 - 1 / report["total"]["calls"], abs=1e-4)


def test_programs_without_mixed_precision_have_no_such_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain.py").write_text("import strange\n\nstrange.frobnicate(1)\n")
    assert main(["dev", "coverage", str(tmp_path)]) == 0
    assert "100.0%       0 calls" in capsys.readouterr().out


def test_a_folder_without_programs_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "coverage", str(tmp_path)]) == 2
    assert "no programs in" in capsys.readouterr().err
