"""`mplint doctor` finds a planted mistake at its line, and says nothing of healthy scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from forks import Forks
from training_scripts import CLOSURE, HEALTHY, PLANTED, REMARKED, Planted, Remarked

from mplint.doctor.diagnosis import NEAR, Report, diagnose

pytestmark = [pytest.mark.framework, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def torch_runs() -> Iterator[Forks]:
    forks = Forks("torch", "torch.optim", "torch._dynamo")
    yield forks
    forks.close()


def watch(folder: Path, forks: Forks, text: str, seed: int = 0, steps: int = 24) -> Report:
    return diagnose(forks.watch(folder, text, steps, seed), [])


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_mistake_is_found_at_its_line(tmp_path: Path, torch_runs: Forks, planted: Planted) -> None:
    report = watch(tmp_path, torch_runs, planted.script)
    expected = next((number for number, line in enumerate(planted.script.splitlines(), 1) if line.endswith("# here")), None)
    found = [each for each in report.diagnoses if each.code == planted.code]
    assert found, (report.diagnoses, report.run.text("output"))
    assert expected is None or any(each.line is not None and abs(each.line - expected) <= NEAR for each in found)


@pytest.mark.parametrize("script", HEALTHY.values(), ids=HEALTHY.keys())
def test_a_healthy_script_is_well(tmp_path: Path, torch_runs: Forks, script: str) -> None:
    report = watch(tmp_path, torch_runs, script)
    assert report.run.text("error") == "", report.run.text("output")
    assert report.diagnoses == ()
    assert [each for each in report.remarks if each.code in ("MP304", "MP315")] == []
    assert len(report.run.steps) == 24


@pytest.mark.parametrize("remarked", REMARKED.values(), ids=REMARKED.keys())
def test_what_is_worth_knowing_is_told_at_its_line(tmp_path: Path, torch_runs: Forks, remarked: Remarked) -> None:
    report = watch(tmp_path, torch_runs, remarked.script)
    expected = next(number for number, line in enumerate(remarked.script.splitlines(), 1) if line.endswith("# here"))
    assert [each.line for each in report.remarks if each.code == remarked.code] == [expected], (report.remarks, report.run.text("output"))
    well = watch(tmp_path, torch_runs, remarked.healthy)
    assert [each for each in well.remarks if each.code == remarked.code] == []
    assert well.diagnoses == () and len(well.run.steps) == 24


def test_gradients_of_a_closure_are_looked_at_after_it(tmp_path: Path, torch_runs: Forks) -> None:
    rows = watch(tmp_path, torch_runs, CLOSURE).run.facts["gradients"]
    assert {row["name"] for row in rows} == {"0.weight", "0.bias", "2.weight", "2.bias"}  # type: ignore[attr-defined]
    assert all(row["number"] and row["computed"] == "bfloat16" for row in rows)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scaled_gradients_may_fill_their_range(tmp_path: Path, torch_runs: Forks, seed: int) -> None:
    scale_decides = HEALTHY["a scale too large at first"].replace("2.0**24", f"{0.9 + seed / 10} * 2.0**20")
    assert watch(tmp_path, torch_runs, scale_decides, seed).diagnoses == ()
