"""`mplint doctor` finds a planted mistake of a Keras program at its line, on both backends, and says nothing of healthy scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from forks import Forks
from keras_scripts import HEALTHY, ON_TORCH, PLANTED, PLANTED_ON_TORCH, REMARKED, STEPS
from training_scripts import Planted, Remarked

from mplint.doctor.diagnosis import NEAR, Report, diagnose

pytestmark = [pytest.mark.framework, pytest.mark.timeout(180)]
pytest.importorskip("keras")


@pytest.fixture(scope="module")
def tensorflow_runs() -> Iterator[Forks]:
    forks = Forks("tensorflow", "keras", KERAS_BACKEND="tensorflow")
    yield forks
    forks.close()


@pytest.fixture(scope="module")
def torch_runs() -> Iterator[Forks]:
    forks = Forks("torch", "torch._dynamo", "keras", "tensorflow", KERAS_BACKEND="torch")
    yield forks
    forks.close()


def found_at_its_line(report: Report, planted: Planted) -> None:
    expected = next((number for number, line in enumerate(planted.script.splitlines(), 1) if line.endswith("# here")), None)
    found = [each for each in report.diagnoses if each.code == planted.code]
    assert found, (report.diagnoses, report.run.text("output"))
    assert expected is None or any(each.line is not None and abs(each.line - expected) <= NEAR for each in found), found


def is_well(report: Report) -> None:
    assert report.run.text("error") == "", report.run.text("output")
    assert report.diagnoses == ()
    assert len(report.run.steps) >= STEPS


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED.keys())
def test_a_mistake_is_found_on_tensorflow(tmp_path: Path, tensorflow_runs: Forks, planted: Planted) -> None:
    found_at_its_line(diagnose(tensorflow_runs.watch(tmp_path, planted.script, STEPS, every=5), []), planted)


@pytest.mark.parametrize("name", PLANTED_ON_TORCH)
def test_a_mistake_is_found_on_torch(tmp_path: Path, torch_runs: Forks, name: str) -> None:
    found_at_its_line(diagnose(torch_runs.watch(tmp_path, PLANTED[name].script, STEPS, every=5), []), PLANTED[name])


@pytest.mark.parametrize("script", HEALTHY.values(), ids=HEALTHY.keys())
def test_a_script_on_tensorflow_is_well(tmp_path: Path, tensorflow_runs: Forks, script: str) -> None:
    is_well(diagnose(tensorflow_runs.watch(tmp_path, script, 40, every=5), []))


@pytest.mark.parametrize("name", ON_TORCH)
def test_a_script_on_torch_is_well(tmp_path: Path, torch_runs: Forks, name: str) -> None:
    is_well(diagnose(torch_runs.watch(tmp_path, HEALTHY[name], 40, every=5), []))


@pytest.mark.parametrize("remarked", REMARKED.values(), ids=REMARKED.keys())
def test_what_is_worth_knowing_is_told_at_its_line(tmp_path: Path, tensorflow_runs: Forks, remarked: Remarked) -> None:
    report = diagnose(tensorflow_runs.watch(tmp_path, remarked.script, STEPS, every=3), [])
    expected = next(number for number, line in enumerate(remarked.script.splitlines(), 1) if line.endswith("# here"))
    assert [each.line for each in report.remarks if each.code == remarked.code] == [expected], (report.remarks, report.run.text("output"))
    well = diagnose(tensorflow_runs.watch(tmp_path, remarked.healthy, STEPS, every=3), [])
    assert [each for each in well.remarks if each.code == remarked.code] == [] and well.diagnoses == ()
