"""No more workers than the container grants processors, or than were asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mplint.cli.main import main
from mplint.config import Config
from mplint.engine import run as running
from mplint.processors import processors, quotas

AVAILABLE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def groups(folder: Path, told: str, **files: str) -> tuple[str, str]:
    """A tree of control groups, of paths with `__` for a slash, and what a process is told of its own."""
    (folder / "own").write_text(told)
    for name, text in files.items():
        path = folder / "cgroup" / name.replace("__", "/").replace("-", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder / "cgroup"), str(folder / "own")


@pytest.mark.parametrize(
    ("told", "files", "granted"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, [2]),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, [1]),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, [2]),
        ("0::/\n", {"cpu.max": "max 100000\n"}, []),
        ("0::/\n", {"cpu.max": "nonsense"}, []),
        ("0::/pod/one\n", {"pod__cpu.max": "300000 100000\n", "pod__one__cpu.max": "max 100000"}, [3]),
        ("4:cpu,cpuacct:/box\n3:memory:/box\n", {"cpu__box__cpu.cfs_quota_us": "400000\n", "cpu__box__cpu.cfs_period_us": "100000\n"}, [4]),
        ("4:cpu:/\n", {"cpu__cpu.cfs_quota_us": "-1\n", "cpu__cpu.cfs_period_us": "100000\n"}, []),
        ("", {}, []),
    ],
)
def test_the_quota_of_every_group_counts(tmp_path: Path, told: str, files: dict[str, str], granted: list[int]) -> None:
    root, own = groups(tmp_path, told, **files)
    assert quotas(root, own) == granted
    assert processors(root, own) == min([AVAILABLE, *granted])


def test_processors_are_asked_for_and_jobs_bound_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PARALLEL_BYTES", 1)
    monkeypatch.setattr(running, "processors", lambda: 3)
    files = [str(tmp_path / name) for name in ("a.py", "b.py")]
    for file in files:
        Path(file).write_text("import torch\n")
    assert running.workers_for(files, Config()) == 3
    assert running.workers_for(files, Config(jobs=1)) == 1
    assert running.workers_for(files, Config(jobs=20)) == 20
    assert running.workers_for(files[:1], Config()) == 1


@pytest.mark.parametrize("number", ["0", "-1", "two"])
def test_jobs_are_a_number(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--jobs", number]) == 2
    assert "1 or more" in capsys.readouterr().err or number == "-1"
