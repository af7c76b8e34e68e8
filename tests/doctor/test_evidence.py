"""A saved run judges the findings of `mplint check`: what it says in each format, and which runs it can't read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest
from sarif_schema import LOG

from mplint.cli.main import main
from mplint.doctor.diagnosis import Diagnosis, Report, Verdict
from mplint.findings import Confidence, Finding, Location, Severity
from mplint.report.doctor import doctor_json, doctor_sarif
from mplint.rule import Rule
from mplint.runs.record import Run, StepLine

PROGRAM = """\
import torch


def step(model, loss, optimizer, scaler):
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for batch in range(10):
    with torch.autocast("cuda"):
        loss = model(torch.randn(8, 8).cuda()).mean()
    step(model, loss, optimizer, scaler)
"""


def saved(folder: Path, verdict: str, told: str = "their norm was 600, 0.6 without the scale") -> Path:
    """A file with what a run of 24 steps says of the clip in `train.py` in a folder, which is the current one."""
    place = Location(str(folder / "train.py"), 6, 5, 6, 60)
    finding = Finding("MP304", "clip-before-unscale", Severity.ERROR, Confidence.HIGH, "a clip", place)
    steps = tuple(StepLine(0.1, 1.0, 65536.0, False) for _ in range(24))
    file = folder / "run.json"
    file.write_text(doctor_json(Report(Run("", 0, steps, {}), (), (Verdict(finding, verdict, told),))), encoding="utf-8")
    return file


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["check", "train.py", "--isolated", "--no-cache", "--select", "MP304", *arguments])
    written = capsys.readouterr()
    return code, written.out, written.err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    return tmp_path


def test_a_confirmed_finding_says_so_with_the_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(folder, "confirmed")
    code, out, err = check(capsys, "--evidence", "run.json")
    assert code == 1
    assert "Confirmed by a run of 24 steps: their norm was 600, 0.6 without the scale." in " ".join(out.split())
    assert "by a run of 24 steps: 1 confirmed" in err


def test_a_refuted_finding_is_info_and_does_not_fail_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(folder, "refuted", "the line ran, and 24 steps showed nothing of it")
    code, out, _ = check(capsys, "--evidence", "run.json", "--output-format", "json")
    (found,) = json.loads(out)["findings"]
    assert code == 0
    assert found["severity"] == "info"
    assert found["evidence"] == {"verdict": "refuted", "text": "the line ran, and 24 steps showed nothing of it"}


@pytest.mark.parametrize("verdict", ["not reached", "undecided"])
def test_a_finding_that_the_run_does_not_judge_stays(folder: Path, capsys: pytest.CaptureFixture[str], verdict: str) -> None:
    saved(folder, verdict)
    code, out, _ = check(capsys, "--evidence", "run.json", "--output-format", "sarif")
    (found,) = json.loads(out)["runs"][0]["results"]
    assert (code, found["level"], found["properties"]["evidence"]["verdict"]) == (1, "error", verdict)


def test_the_verdict_moves_with_its_line_and_not_to_another(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(folder, "refuted")
    moved = PROGRAM.replace("def step", "# a comment\n\n\ndef step")
    (folder / "train.py").write_text(moved, encoding="utf-8")
    assert check(capsys, "--evidence", "run.json")[0] == 0
    (folder / "train.py").write_text(moved.replace("model.parameters(), 1.0", "model.parameters(), 2.0"), encoding="utf-8")
    code, _, err = check(capsys, "--evidence", "run.json")
    assert code == 1
    assert "1 finding of that run is not among these" in err


def test_a_run_is_read_from_another_folder(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    saved(folder, "refuted")
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    arguments = ["check", os.path.join("..", "train.py"), "--isolated", "--no-cache", "--select", "MP304"]
    assert main([*arguments, "--evidence", os.path.join("..", "run.json")]) == 0
    assert main(arguments) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such run"),
        ("{", "not a run"),
        ('{"findings": {}}', "not a run"),
        ('{"version": "9", "steps": 1, "findings": []}', "version 9"),
        ('{"version": "1", "steps": 1, "findings": [{"code": "MP304"}]}', "no verdict"),
    ],
)
def test_what_is_no_run_is_misuse(folder: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str) -> None:
    if text is not None:
        (folder / "run.json").write_text(text, encoding="utf-8")
    code, out, err = check(capsys, "--evidence", "run.json")
    assert (code, out) == (2, "")
    assert said in err


def test_sarif_of_a_run_holds_verdicts_and_what_no_finding_said(folder: Path) -> None:
    place = Location("train.py", 6, 5, 6, 60)
    finding = Finding("MP304", "clip-before-unscale", Severity.ERROR, Confidence.HIGH, "a clip", place)
    other = Diagnosis("nan", "", str(folder / "train.py"), 5, "`log` makes a value not a number", ("from float16",))
    known = Diagnosis("clip-before-unscale", "MP304", str(folder / "train.py"), 6, "their norm was 600")
    report = Report(Run("", 0, (), {}), (other, known), (Verdict(finding, "confirmed", "their norm was 600"),))
    rules: dict[str, type[Rule]] = {}
    written = json.loads(doctor_sarif(report, "train.py", rules))
    jsonschema.validate(written, LOG)
    found = [(each["ruleId"], each["properties"]["evidence"]["verdict"]) for each in written["runs"][0]["results"]]
    assert found == [("MP304", "confirmed"), ("nan", "confirmed")]
