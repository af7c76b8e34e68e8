"""Several runs that share one cache say what each would say alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pair import SCALER, ended, training


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for number in range(12):
        (folder / f"part{number}.py").write_text(SCALER)
        (folder / f"train{number}.py").write_text(training(f"part{number}"))
    return folder


def begun(project: Path, cache: Path) -> subprocess.Popen[str]:
    """A run of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "mplint", "check", ".", "--output-format", "concise", "--isolated"],
        cwd=project,
        env={**os.environ, "MPLINT_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_runs_at_once_on_one_cache_give_the_same(project: Path, tmp_path: Path) -> None:
    alone = ended(begun(project, tmp_path / "own"))
    assert alone[0] == 1 and alone[1].count("MP304") == 12 and alone[2] == ""
    for _ in range(2):  # without a cache at first, then with the one that the first four left
        runs = [begun(project, tmp_path / "shared") for _ in range(4)]
        assert [ended(run) for run in runs] == [alone] * 4
    assert not [path for path in (tmp_path / "shared").iterdir() if path.suffix not in (".pickle", ".answer", ".sqlite")]


@pytest.mark.parametrize("left", [b"", b"\x80\x05nonsense", b"\x80\x05}\x94."])
def test_a_broken_cache_is_made_anew(project: Path, tmp_path: Path, left: bytes) -> None:
    first = ended(begun(project, tmp_path / "cache"))
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(left)
    (project / "part0.py").write_text(SCALER + "x = 1\n")
    assert ended(begun(project, tmp_path / "cache")) == first


def test_a_cache_that_can_not_be_written_is_no_error(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert ended(begun(project, tmp_path / "file" / "cache"))[0] == 1
