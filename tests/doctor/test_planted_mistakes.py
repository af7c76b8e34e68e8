"""`mplint doctor` finds a planted mistake at its line, and says nothing of healthy scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_scripts import HEALTHY, PLANTED, Planted

from mplint.doctor.diagnosis import NEAR, Report, diagnose
from mplint.runs.child import Settings
from mplint.runs.process import make_run

pytestmark = [pytest.mark.framework, pytest.mark.timeout(180)]


def watch(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, seed: int = 0) -> Report:
    monkeypatch.chdir(folder)
    script = folder / "train.py"
    script.write_text(text, encoding="utf-8")
    settings = Settings("doctor", ("torch",), str(script), text, [], "", 24, seed)
    return diagnose(make_run(settings, folder / "run", 150), [])


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_mistake_is_found_at_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Planted) -> None:
    report = watch(tmp_path, monkeypatch, planted.script)
    expected = next((number for number, line in enumerate(planted.script.splitlines(), 1) if line.endswith("# here")), None)
    found = [each for each in report.diagnoses if each.code == planted.code]
    assert found, (report.diagnoses, report.run.text("output"))
    assert expected is None or any(each.line is not None and abs(each.line - expected) <= NEAR for each in found)


@pytest.mark.parametrize("script", HEALTHY.values(), ids=HEALTHY.keys())
def test_a_healthy_script_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    report = watch(tmp_path, monkeypatch, script)
    assert report.run.text("error") == "", report.run.text("output")
    assert report.diagnoses == ()
    assert len(report.run.steps) == 24


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scaled_gradients_may_fill_their_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    scale_decides = HEALTHY["a scale too large at first"].replace("2.0**24", f"{0.9 + seed / 10} * 2.0**20")
    assert watch(tmp_path, monkeypatch, scale_decides, seed).diagnoses == ()
