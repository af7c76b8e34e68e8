"""Repositories beside each other: each is checked as if it were alone, in as many processes as there may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.config import Config
from mplint.engine import run
from mplint.engine.pins import project_pins
from mplint.engine.repositories import by_repository
from mplint.engine.run import check_paths
from mplint.findings import Finding
from mplint.versions import parse_versions

STEPS = """\
import torch

def finish(scaler, optimizer, model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
TRAIN = """\
import torch
from steps import finish

def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        finish(scaler, optimizer, model)
"""
NAMES = ("first", "second", "third")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three repositories in one folder; the third imports a module that only the others have."""
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "shelf"
    for name in NAMES:
        (folder / name / ".git").mkdir(parents=True)
        (folder / name / "train.py").write_text(TRAIN)
    (folder / "third" / "setup.py").write_text("")
    for name in NAMES[:2]:
        (folder / name / "steps.py").write_text(STEPS)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(run, "PARALLEL_BYTES", 0)
    return folder


def checked(*paths: str, cache: bool = False, jobs: int = 1) -> tuple[Finding, ...]:
    result = check_paths(paths, Config(select=("MP304",), isolated=True, cache=cache, jobs=jobs))
    assert result.faults == ()
    return result.findings


def test_what_lies_in_another_repository_is_no_part_of_a_program(shelf: Path) -> None:
    alone = [finding for name in NAMES for finding in checked(name)]
    assert [finding.location.path for finding in alone] == ["first/steps.py", "second/steps.py"]
    assert list(checked(".")) == alone


def test_the_number_of_workers_makes_no_difference(shelf: Path) -> None:
    expected = checked(".")
    for jobs in (2, 3, 5):
        assert checked(".", jobs=jobs) == expected
        assert checked(".", jobs=jobs, cache=True) == expected


def test_an_edit_checks_only_its_own_repository_again(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mplint.engine.cache.SETTLED", -(10**12))
    checked(".", cache=True)
    again: list[str] = []
    examine = run.examine_files

    def noted(files: tuple[str, ...], *rest: object) -> object:
        again.extend(files)
        return examine(files, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "examine_files", noted)
    (shelf / "second" / "steps.py").write_text(STEPS.replace("    torch.nn", "    scaler.unscale_(optimizer)\n    torch.nn"))
    assert [finding.location.path for finding in checked(".", cache=True)] == ["first/steps.py"]
    assert sorted(again) == ["second/steps.py", "second/train.py"]


def test_folders_around_a_repository_are_nothing_that_its_answer_stands_on(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mplint.engine.cache.SETTLED", -(10**12))
    (shelf.parent / "loose").mkdir()
    (shelf.parent / "loose" / "train.py").write_text("import torch\n\nscaler = torch.cuda.amp.GradScaler()\n")
    check_paths(("../loose",), Config(select=("MP101",), isolated=True, cache=False))  # pins are looked for in all folders around it
    expected = checked(".", cache=True)
    (shelf.parent / "new").mkdir()
    monkeypatch.setattr(run, "examine_files", lambda *_: pytest.fail("a repository is checked again"))
    assert checked(".", cache=True) == expected


def test_what_was_read_for_one_repository_is_nothing_that_the_answer_of_another_stands_on(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mplint.engine.cache.SETTLED", -(10**12))
    pins = shelf / "second" / "requirements.txt"
    pins.write_text("torch>=2.0\n")
    assert project_pins("second").torch == parse_versions(">=2.0")
    expected = checked("first", cache=True)
    pins.write_text("torch>=2.4\n")
    monkeypatch.setattr(run, "examine_files", None)  # nothing is examined again
    assert checked("first", cache=True) == expected


def test_a_repository_within_another_belongs_to_it(tmp_path: Path) -> None:
    for name in ("outer/.git", "outer/inner/.git", "beside/.git"):
        (tmp_path / name).mkdir(parents=True)
    paths = [str(tmp_path / name) for name in ("outer/a.py", "outer/inner/b.py", "beside/c.py", "d.py")]
    assert list(by_repository(paths).values()) == [paths[:2], paths[2:3], paths[3:]]
