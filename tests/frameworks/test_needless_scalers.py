"""What is said of a scaler that only bfloat16 uses: one thing, by all rules that find something wrong with its use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mplint.cli.main import main

PROGRAM = """\
import torch

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for batch in range(10):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(torch.randn(8, 8).cuda()).mean()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
"""


def found(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, bool]]:
    """By the codes of the findings: what to do, and whether there is a fix."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    main(["check", str(folder), "--isolated", "--no-cache", "--select", "MP3", "--output-format", "json"])
    return {each["code"]: (each["help"], each.get("fix") is not None) for each in json.loads(capsys.readouterr().out)["findings"]}


def test_all_say_to_leave_a_scaler_of_bfloat16_out_and_one_does_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = found(tmp_path, PROGRAM, capsys)
    assert set(told) == {"MP303", "MP304", "MP306"}
    assert all(advice.lower().startswith("leave the scaler out") for advice, _ in told.values())
    assert [code for code, (_, fixed) in told.items() if fixed] == ["MP306"]
    assert main(["fix", str(tmp_path), "--isolated", "--no-cache", "--unsafe-fixes", "--apply"]) == 0
    capsys.readouterr()
    assert found(tmp_path, (tmp_path / "train.py").read_text(encoding="utf-8"), capsys) == {}


def test_a_scaler_that_float16_needs_is_to_be_used_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = found(tmp_path, PROGRAM.replace("bfloat16", "float16"), capsys)
    assert set(told) == {"MP303", "MP304"}
    assert all(advice.lower().startswith("call") and fixed for advice, fixed in told.values())
