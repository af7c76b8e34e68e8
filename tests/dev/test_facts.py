"""`mplint dev facts` tells what happened on each line, from which beginnings, and under which conditions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mplint.cli.main import main
from mplint.dev.facts import Facts, LineFacts, facts, text_of

MODEL = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.head(x)
"""
TRAIN = """\
import argparse
import torch
from model import Net

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
args = parser.parse_args()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda", enabled=args.amp):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def line(found: Facts, number: int) -> LineFacts:
    return next(line for line in found.lines if line.number == number)


def test_a_line_of_the_model_says_how_its_tensor_came_to_be_half(project: Path) -> None:
    found = facts("model.py", ".")
    (said,) = [said for said in line(found, 10).values if said.subject == "self.head(x)" and "float16" in said.words]
    assert "train.py:12: autocast runs in float16 here; then line 10: `Linear` computes in float16 here" in said.words
    assert any(region.words.startswith("autocast in float16 on cuda") for region in line(found, 10).autocast)


def test_events_tell_their_data_and_conditions(project: Path) -> None:
    (clip,) = [event for event in line(facts("train.py", "."), 15).events if event.kind == "clip"]
    assert clip.data["threshold"] == "1.0"
    assert clip.data["gradients"].startswith("scaled, since line 14")
    assert [event.kind for event in line(facts("train.py", "."), 16).events] == ["scaler step"]


def test_values_under_a_switch_name_it(project: Path) -> None:
    said = [said.words for said in line(facts("train.py", "."), 12).values]
    assert any(words.startswith("autocast off when") and "amp" in words for words in said)
    assert any(words.startswith("autocast in float16 on cuda") and "amp" in words for words in said)


def test_entries_say_whether_they_are_scripts(project: Path) -> None:
    assert "[1] train.py as a script" in text_of(facts("model.py", "."))


def test_two_runs_write_the_same(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = []
    for _ in range(2):
        assert main(["dev", "facts", "train.py", "--root", "."]) == 0
        written.append(capsys.readouterr().out)
    assert written[0] == written[1]
    assert "   14 |     scaler.scale(loss).backward()" in written[0]


def test_json_holds_the_lines_with_their_entries(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "facts", "train.py", "--root", ".", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["version"] == "1" and found["entries"][0]["script"] is True
    backward = next(entry for entry in found["lines"] if entry["line"] == 14)
    assert {event["kind"] for event in backward["events"]} == {"loss scaled", "backward"}


def test_what_is_no_program_is_misuse(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "facts", "missing.py"]) == 2
    assert "no such program: missing.py" in capsys.readouterr().err


def test_a_program_that_says_nothing_of_precision_gets_a_line(project: Path) -> None:
    (project / "plain.py").write_text("print(1)\n")
    assert "nothing that speaks of mixed precision happens here" in text_of(facts("plain.py", "."))


def test_both_comparisons_of_a_chain_stand_in_their_line(project: Path) -> None:
    chained = TRAIN.replace("    scaler.scale(loss)", "    if 0 < args.amp < 2:\n        print(loss.shape)\n    scaler.scale(loss)")
    (project / "train.py").write_text(chained)
    assert "0 < args.amp < 2" in text_of(facts("train.py", None))


def test_scripts_that_lead_to_a_program_are_run(tmp_path: Path) -> None:
    (tmp_path / "region.py").write_text(
        'import torch\n\n\ndef share(x):\n    with torch.autocast("cuda", dtype=torch.float16):\n        return x @ x.T\n'
    )
    (tmp_path / "run.py").write_text("import torch\n\nfrom region import share\n\nprint(share(torch.ones(8, 8, device='cuda')))\n")
    found = facts(str(tmp_path / "region.py"), str(tmp_path))
    assert [entry.script for entry in found.entries] == [True]
