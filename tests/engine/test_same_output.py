"""Two runs say the same, and a broken or odd file changes nothing but its own findings."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mplint.config import Config
from mplint.engine import run
from mplint.engine.run import check_paths
from mplint.findings import Finding

NET = """
import torch
from torch import nn


class Net{number}(nn.Module):
    def forward(self, x, y, mask):
        scores = torch.matmul(x, y)
        return scores.masked_fill(mask, -1e9)
"""
TRAIN = """
import torch
import models


def main(name, batches):
    model = getattr(models, name)()
    scaler = torch.cuda.amp.GradScaler()
    for x, y, mask in batches:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x, y, mask).sum()
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with findings of its own in every file, and findings that rest on other files."""
    (tmp_path / "models").mkdir()
    for number in range(12):
        (tmp_path / "models" / f"net{number}.py").write_text(NET.format(number=number))
    (tmp_path / "models" / "__init__.py").write_text("".join(f"from .net{n} import Net{n}\n" for n in range(12)))
    for name in ("train_a.py", "train_b.py"):
        (tmp_path / name).write_text(TRAIN)
    return tmp_path


def checked(folder: Path, paths: list[str] | None = None, cache: bool = False, jobs: int | None = None) -> tuple[Finding, ...]:
    """The findings of a project, with the rules that this test speaks of."""
    config = Config(select=("MP101", "MP204", "MP304"), cache=cache, isolated=True, root=str(folder), jobs=jobs)
    result = check_paths(paths or [str(folder)], config)
    assert result.faults == ()
    return result.findings


def test_findings_are_those_of_the_whole_project(project: Path) -> None:
    codes = [finding.code for finding in checked(project)]
    assert [codes.count(code) for code in ("MP101", "MP204", "MP304")] == [2, 12, 2]


def test_the_order_of_the_files_makes_no_difference(project: Path) -> None:
    expected = checked(project)
    files = [str(path) for path in project.rglob("*.py")]
    for seed in range(4):
        random.Random(seed).shuffle(files)
        assert checked(project, files) == expected


def test_the_number_of_workers_makes_no_difference(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = checked(project)
    monkeypatch.setattr(run, "PARALLEL_BYTES", 0)
    for workers in (2, 3, 5):
        assert checked(project, jobs=workers) == expected


def test_a_warm_cache_makes_no_difference(project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    expected = checked(project)
    assert checked(project, cache=True) == expected
    assert checked(project, cache=True) == expected
    train = project / "train_a.py"
    train.write_text("# one line more\n" + train.read_text())
    assert checked(project, cache=True) == checked(project) != expected


def test_a_warm_cache_reads_no_file_twice(project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    expected = checked(project, cache=True)
    monkeypatch.setattr("mplint.engine.tracing.interpret", None)
    assert checked(project, cache=True) == expected


@pytest.mark.parametrize("report", ["text", "json", "sarif", "concise"])
def test_two_runs_print_the_same_bytes_whatever_the_order_of_hashes(project: Path, report: str) -> None:
    printed = {
        subprocess.run(
            [
                sys.executable,
                "-m",
                "mplint",
                "check",
                ".",
                "--no-cache",
                "--isolated",
                "--select",
                "MP204,MP304",
                "--output-format",
                report,
            ],
            cwd=project,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=False,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(printed) == 1 and b"MP204" in printed.pop()


@pytest.mark.parametrize("report", ["text", "json", "sarif"])
def test_every_report_shows_the_chain(project: Path, report: str) -> None:
    command = [sys.executable, "-m", "mplint", "check", ".", "--no-cache", "--isolated", "--select", "MP204", "--output-format", report]
    printed = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False).stdout
    if report == "json":
        places = [[f"{r['path']}:{r['line']}" for r in f["related"]] for f in json.loads(printed)["findings"]]
        assert len(places) == 12 and all(place[0] == "train_a.py:10" for place in places)
    elif report == "sarif":
        results = json.loads(printed)["runs"][0]["results"]
        first = [r["relatedLocations"][0]["physicalLocation"] for r in results]
        assert {p["artifactLocation"]["uri"] for p in first} == {"train_a.py"} and {p["region"]["startLine"] for p in first} == {10}
    else:
        assert printed.count("train_a.py:10") >= 12 and "autocast runs in float16 here" in printed


def test_a_file_that_is_checked_alone_says_what_it_shows_by_itself(project: Path) -> None:
    whole = {finding for finding in checked(project) if not finding.related or finding.code != "MP204"}
    alone = {finding for path in project.rglob("*.py") for finding in checked(project, [str(path)])}
    assert alone == whole


def test_checking_a_folder_leaves_out_only_what_rests_on_files_outside(project: Path) -> None:
    assert checked(project, [str(project / "models")]) == ()
    assert checked(project, [str(project / "models"), str(project / "train_a.py")]) == tuple(
        finding for finding in checked(project) if "train_b" not in finding.location.path
    )


ODD: dict[str, Mapping[str, str]] = {
    "a broken file": {"models/broken.py": "class Net(:\n", "models/__init__.py": "from .broken import Net\n"},
    "a file that is no text": {"models/odd.py": "\udcff\udcfe = 1\n"},
    "a cycle": {"models/one.py": "from .two import *\nfrom .one import *\n", "models/two.py": "from .one import *\nfrom . import *\n"},
    "a class that derives from itself": {"models/self.py": "from .self import A\n\n\nclass A(A):\n    pass\n"},
    "a name that is itself": {"models/name.py": "from .name import x\n\ny = x\nx = y\n"},
    "another models": {"other/models/__init__.py": "class Net0:\n    pass\n", "other/models.py": "class Net0:\n    pass\n"},
    "a function that returns itself": {
        "models/loop.py": "def build(x):\n    return build(x)\n\n\ndef a(f):\n    return b(f)\n\n\ndef b(f):\n    return a(f)()\n"
    },
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_files_change_nothing_but_their_own_findings(kind: str, project: Path) -> None:
    expected = checked(project)
    for name, text in ODD[kind].items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        old = path.read_text() if path.exists() else ""
        path.write_bytes((old + text).encode("utf-8", "surrogateescape"))
    assert tuple(f for f in checked(project) if f.code != "MP001") == expected


def test_a_broken_file_in_the_middle_of_a_chain_costs_what_comes_after_it(project: Path) -> None:
    expected = checked(project)
    (project / "models" / "net3.py").write_text("class Net3(:\n")
    found = checked(project)
    assert [f for f in found if f.code == "MP001" and f.location.path.endswith("net3.py")]
    assert [f for f in found if f.code != "MP001"] == [f for f in expected if not f.location.path.endswith("net3.py")]


def test_a_package_of_a_thousand_files_is_linked(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    names = [f"m{number}" for number in range(1000)]
    for number, name in enumerate(names):
        (tmp_path / "models" / f"{name}.py").write_text(
            f"from .m{(number + 1) % 1000} import *\nfrom . import m{(number * 7) % 1000}\nx{number} = 1\n"
        )
    (tmp_path / "models" / "net.py").write_text(NET.format(number=0) + "from .m1 import *\n")
    (tmp_path / "models" / "__init__.py").write_text("from .m0 import *\nfrom .net import *\n")
    (tmp_path / "train.py").write_text(TRAIN)
    assert [finding.code for finding in checked(tmp_path) if finding.location.path.endswith("net.py")] == ["MP204"]
