"""`mplint convert train.py`: what it prints and writes, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mplint.cli.main import main

LOOP = """\
import torch

device = torch.device("cpu")
model = torch.nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x.to(device)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
POLICY = ("--policy", "mixed_float16")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(LOOP)
    return path


def run(*arguments: str) -> int:
    try:
        return main(["convert", *arguments])
    except SystemExit as leaving:
        return int(leaving.code or 0)


def test_without_apply_it_shows_a_diff_and_writes_nothing(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train.py", *POLICY) == 0
    shown = capsys.readouterr()
    assert "+    with torch.autocast(device_type=device.type, dtype=torch.float16):" in shown.out
    assert "train.py: adopts mixed_float16" in shown.err
    assert "line 9: `loss.backward()`: its forward pass runs under autocast in float16, its loss scaled" in shown.err
    assert "`mplint convert train.py --policy mixed_float16 --apply` writes it" in shown.err
    assert script.read_text() == LOOP


def test_apply_writes_in_place_and_then_there_is_nothing_to_change(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train.py", *POLICY, "--apply") == 0
    written = script.read_text()
    assert "scaler.scale(loss).backward()" in written
    assert "Check it with `mplint check train.py`" in capsys.readouterr().err
    assert run("train.py", *POLICY, "--apply") == 0
    assert "adopted already; nothing to change" in capsys.readouterr().err
    assert script.read_text() == written


def test_output_is_written_beside_the_input(script: Path) -> None:
    assert run("train.py", *POLICY, "-o", "half.py") == 0
    assert script.read_text() == LOOP
    assert "scaler.step(optimizer)" in (script.parent / "half.py").read_text()


def test_what_is_left_exits_with_one_and_names_line_and_reason(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(LOOP.replace("loss.backward()", "loss.backward(create_graph=True)"))
    assert run("train.py", *POLICY) == 1
    shown = capsys.readouterr().err
    assert "Left to you:\n  line 9: `loss.backward(create_graph=True)` stays in float32: gradients are differentiated again" in shown
    assert "train.py: nothing was changed." in shown


def test_the_report_holds_every_note(script: Path) -> None:
    assert run("train.py", *POLICY, "--report", "report.json") == 0
    report = json.loads((script.parent / "report.json").read_text())
    assert report["changed"] is True and report["left"] == []
    assert [(note["line"], note["column"]) for note in report["adopted"]] == [(9, 5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.py",), "missing.py: no such file"),
        (("train.py", "--calibration", "data.npz"), "--calibration is for models"),
        (("train.py", "-o", "train.py"), "is the input itself"),
        (("train.py", "--apply", "-o", "half.py"), "give one of them"),
        (("train.py", "--report", "report.txt"), "does not end with .json or .html"),
        (("broken.py",), "broken.py"),
    ],
)
def test_misuse_exits_with_two_and_says_why(
    script: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (script.parent / "broken.py").write_text("def (:\n")
    assert run(*arguments, *POLICY) == 2
    assert message in capsys.readouterr().err


def test_a_notebook_is_a_program(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = {"cell_type": "code", "metadata": {}, "source": LOOP.splitlines(True), "execution_count": None, "outputs": []}
    notebook = script.with_suffix(".ipynb")
    notebook.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1))
    assert run("train.ipynb", *POLICY, "--apply") == 0
    assert "cell 0 line 9: `loss.backward()`" in capsys.readouterr().err
    assert "scaler.update()" in "".join(json.loads(notebook.read_text())["cells"][0]["source"])


def test_a_script_stays_what_its_name_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    assert main(["convert", str(script), "-o", str(tmp_path / "train.ipynb")]) == 2
    assert "becomes a .py file" in capsys.readouterr().err
