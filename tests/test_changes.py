"""`check --since` and `--staged`: what a change has to answer for, and nothing that was there before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import mplint
from mplint.cli.main import main
from mplint.program.trace import Trace

OLD = "with torch.cuda.amp.autocast():\n    pass\n"
PROGRAM = f"import torch\n\n{OLD}"
MODEL = """\
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x)
"""
LOSS = "import torch.nn.functional as F\n\n\ndef criterion(output, target):\n    return F.binary_cross_entropy(output.sigmoid(), target)\n"
TRAIN = """\
import torch

from loss import criterion
from net import Net


def main(loader):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=False):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    main(torch.utils.data.DataLoader([]))
"""

Run = Callable[..., tuple[int, list[str], str]]


def git(*arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(PROGRAM)
    (tmp_path / "b.py").write_text(PROGRAM)
    git("init", "--quiet", "--initial-branch", "main")
    git("add", "--all")
    git("commit", "--quiet", "--message", "first")

    def call(*argv: str) -> tuple[int, list[str], str]:
        code = main(["check", "--output-format", "concise", "--no-cache", *argv])
        captured = capsys.readouterr()
        return code, [line.split(": ")[0] + " " + line.split(": ")[1][:5] for line in captured.out.splitlines()], captured.err

    return call


def test_nothing_changed_is_clean_though_there_are_old_findings(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(run()[1]) == 2
    assert run("--since", "HEAD") == run("--staged") == (0, [], "")
    main(["check", "--since", "HEAD"])
    assert capsys.readouterr().out == "No new mixed-precision mistakes found in 2 files; 2 were there before the\nchange.\n"


def test_a_finding_is_told_that_is_new_or_on_a_changed_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"import os\nimport torch\n\n{OLD}x = 1\n{OLD}")
    assert run("--since", "HEAD")[1] == ["a.py:7:6 MP101"]
    (tmp_path / "a.py").write_text(PROGRAM.replace("autocast():", "autocast():  # why"))
    assert run("--since", "HEAD")[1] == ["a.py:3:6 MP101"]


def test_untracked_files_are_new(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(PROGRAM)
    assert run("--since", "HEAD")[1] == ["c.py:3:6 MP101"]
    assert run("--since", "HEAD", "a.py")[1] == []


def test_since_counts_from_the_commit_where_the_branches_parted(run: Run, tmp_path: Path) -> None:
    git("checkout", "--quiet", "-b", "work")
    (tmp_path / "c.py").write_text(PROGRAM)
    git("add", "--all")
    git("commit", "--quiet", "--message", "second")
    git("checkout", "--quiet", "main")
    (tmp_path / "a.py").write_text("import torch\n")
    git("commit", "--quiet", "--all", "--message", "mended")
    git("checkout", "--quiet", "work")
    assert run("--since", "main")[1] == ["c.py:3:6 MP101"]


def test_a_change_elsewhere_brings_a_finding_to_an_unchanged_line(run: Run, tmp_path: Path) -> None:
    for name, text in (("net.py", MODEL), ("loss.py", LOSS), ("train.py", TRAIN)):
        (tmp_path / name).write_text(text)
    git("add", "--all")
    git("commit", "--quiet", "--message", "second")
    (tmp_path / "train.py").write_text(TRAIN.replace(", enabled=False", ""))
    assert run("--since", "HEAD")[1] == ["loss.py:5:12 MP206"]
    assert run("--staged")[1] == []
    git("add", "--all")
    assert run("--staged")[1] == ["loss.py:5:12 MP206"]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many programs were named in each interpretation."""
    from mplint.engine import tracing

    traced, found = tracing.traced, []

    def counted(programs: tracing.Programs, named: Sequence[str]) -> Trace:
        found.append(len(named))
        return traced(programs, named)

    monkeypatch.setattr(tracing, "traced", counted)
    return found


def test_what_unchanged_files_show_by_themselves_asks_for_no_second_look(run: Run, tmp_path: Path, interpreted: list[int]) -> None:
    (tmp_path / "c.py").write_text(PROGRAM)
    assert run("--since", "HEAD")[1] == ["c.py:3:6 MP101"]
    assert len(interpreted) == 1
    for name, text in (("net.py", MODEL), ("loss.py", LOSS), ("train.py", TRAIN.replace(", enabled=False", ""))):
        (tmp_path / name).write_text(text)
    git("add", "--all")
    git("commit", "--quiet", "--message", "second")
    (tmp_path / "d.py").write_text(PROGRAM)
    del interpreted[:]
    assert run("--since", "HEAD")[1] == ["d.py:3:6 MP101"]
    assert len(interpreted) == 2  # that MP206 was there before can't be told from its file alone


def test_a_change_that_no_program_of_a_finding_comes_by_asks_for_no_second_look(run: Run, tmp_path: Path, interpreted: list[int]) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "sizes.py").write_text("import torch\nSIZE = 1\n")
    for name, text in (("net.py", MODEL), ("loss.py", LOSS), ("train.py", TRAIN.replace(", enabled=False", ""))):
        (tmp_path / name).write_text(text)
    git("add", "--all")
    git("commit", "--quiet", "--message", "second")
    (tmp_path / "tools" / "sizes.py").write_text("import torch\nSIZE = torch.ones(2)\n")
    assert run("--since", "HEAD")[1] == []
    assert len(interpreted) == 1
    (tmp_path / "net.py").write_text(MODEL.replace("8, 8", "8, 16"))
    del interpreted[:]
    assert run("--since", "HEAD")[1] == []
    assert len(interpreted) == 2  # train.py comes by it, which enters autocast


def test_what_is_gone_is_looked_at_where_it_was(run: Run, tmp_path: Path) -> None:
    unused = LOSS.replace("output.sigmoid()", "output").replace("binary_cross_entropy", "binary_cross_entropy_with_logits")
    for name, text in (("net.py", MODEL), ("loss.py", LOSS), ("train.py", TRAIN.replace("loss import", "safe import"))):
        (tmp_path / name).write_text(text)
    (tmp_path / "safe.py").write_text(unused)
    git("add", "--all")
    git("commit", "--quiet", "--message", "second")
    (tmp_path / "safe.py").unlink()
    (tmp_path / "train.py").write_text(TRAIN.replace(", enabled=False", ""))
    assert run("--since", "HEAD")[1] == ["loss.py:5:12 MP206"]


def test_the_state_before_is_kept_from_the_run_that_led_to_it(run: Run, tmp_path: Path, interpreted: list[int]) -> None:
    def check(*argv: str) -> list[str]:
        main(["check", "--output-format", "concise", "--output-file", "found.txt", *argv])
        return [line.rpartition("[")[0] for line in (tmp_path / "found.txt").read_text().splitlines()]

    for name, text in (("net.py", MODEL), ("loss.py", LOSS), ("train.py", TRAIN.replace(", enabled=False", ""))):
        (tmp_path / name).write_text(text)
    git("add", "--all")
    assert "loss.py:5:12: MP206" in check("--staged")
    git("commit", "--quiet", "--message", "second")
    (tmp_path / "train.py").write_text(TRAIN.replace(", enabled=False", "").replace("lr=0.1", "lr=0.2"))
    git("add", "--all")
    del interpreted[:]
    assert check("--staged") == []
    assert len(interpreted) == 1
    assert check("--staged") == []
    assert len(interpreted) == 1
    (tmp_path / "train.py").write_text(TRAIN)  # not staged: what is kept of the index says nothing of it
    assert "loss.py:5:12: MP206" not in check(".")
    assert len(interpreted) == 2


def test_a_file_that_was_moved_or_deleted_is_no_riddle(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").unlink()
    assert run("--since", "HEAD") == (0, [], "")
    assert run("--staged") == (0, [], "")
    git("mv", "b.py", "new name.py")
    assert run("--since", "HEAD")[1] == run("--staged")[1] == ["new name.py:3:6 MP101"]


def test_staged_reads_the_index_and_not_the_working_tree(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"{PROGRAM}x = 1\n{OLD}")
    git("add", "--all")
    (tmp_path / "a.py").write_text("import torch\n")
    (tmp_path / "b.py").write_text(f"{PROGRAM}x = 1\n{OLD}")
    (tmp_path / "untracked.py").write_text(PROGRAM)
    assert run("--staged")[1] == ["a.py:6:6 MP101"]
    assert run("--since", "HEAD")[1] == ["b.py:6:6 MP101", "untracked.py:3:6 MP101"]


def test_the_first_commit_can_be_staged(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    git("init", "--quiet")
    (other / "a.py").write_text(PROGRAM)
    git("add", "--all")
    assert run("--staged")[1] == ["a.py:3:6 MP101"]


def test_lines_of_a_notebook_are_those_of_its_cells(run: Run, tmp_path: Path) -> None:
    import json

    def notebook(*cells: str) -> str:
        listed = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": cell} for cell in cells]
        return json.dumps({"cells": listed, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})

    (tmp_path / "n.ipynb").write_text(notebook("import torch", OLD))
    git("add", "--all")
    git("commit", "--quiet", "--message", "second")
    (tmp_path / "n.ipynb").write_text(notebook("import os\nimport torch", OLD))
    assert run("--since", "HEAD")[1] == []
    (tmp_path / "n.ipynb").write_text(notebook("import torch", OLD, OLD))
    assert run("--since", "HEAD")[1] == ["n.ipynb:cell 2:1:6 MP101"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--since", "nope"), '--since: git knows no commit "nope"'),
        (("--since", "HEAD", "--staged"), "--since and --staged exclude each other"),
        (("--staged", "-"), "--staged goes with files, not with --model or standard input"),
    ],
)
def test_misuse_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], message: str) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert run(*argv) == (2, [], f"mplint: error: {message}\n")


def test_the_python_api_takes_a_commit_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(PROGRAM)
    assert [finding.location.path for finding in mplint.check(".", since="HEAD").findings] == ["c.py"]


def test_outside_a_repository_is_misuse(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert run("--since", "HEAD") == (2, [], "mplint: error: --since and --staged need a git repository, and git\n")


def test_a_shallow_clone_is_told_how_to_fetch_its_history(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git("checkout", "--quiet", "-b", "work")
    (tmp_path / "c.py").write_text(PROGRAM)
    git("add", "--all")
    git("commit", "--quiet", "--message", "second")
    (tmp_path / "c.py").write_text(OLD)
    git("commit", "--quiet", "--all", "--message", "third")
    git("clone", "--quiet", "--depth", "1", "--no-single-branch", "--branch", "work", tmp_path.as_uri(), str(tmp_path / "shallow"))
    monkeypatch.chdir(tmp_path / "shallow")
    for ref, what in (("HEAD~1", 'no commit "HEAD~1"'), ("origin/main", 'no commit that "origin/main" and HEAD both have')):
        code, _, err = run("--since", ref)
        assert code == 2 and f"--since: git knows {what}; this clone is shallow: `git fetch --unshallow`" in err
    git("fetch", "--quiet", "--unshallow")
    assert run("--since", "origin/main")[1] == ["c.py:1:6 MP101"]


def test_a_merge_with_conflicts_is_no_commit_yet(run: Run, tmp_path: Path) -> None:
    git("checkout", "--quiet", "-b", "work")
    (tmp_path / "a.py").write_text(f"{PROGRAM}x = 1\n")
    git("commit", "--quiet", "--all", "--message", "second")
    git("checkout", "--quiet", "main")
    (tmp_path / "a.py").write_text(f"{PROGRAM}x = 2\n")
    git("commit", "--quiet", "--all", "--message", "third")
    with pytest.raises(subprocess.CalledProcessError):
        git("merge", "work")
    assert run("--staged") == (2, [], "mplint: error: --staged: a.py has conflicts of a merge that are not resolved yet\n")


def test_a_hook_judges_what_git_is_about_to_commit(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / ".git" / "cache"))
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mplint check --staged --isolated\n')
    hook.chmod(0o755)

    def commits(*arguments: str) -> bool:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        ran = subprocess.run(["git", *identity, "commit", "-qm", "x", *arguments], capture_output=True, text=True)
        assert ("MP101" in ran.stdout + ran.stderr) == (ran.returncode != 0), ran
        return ran.returncode == 0

    (tmp_path / "a.py").write_text(f"{PROGRAM}x = 1\n{OLD}")
    (tmp_path / "b.py").write_text(f"{PROGRAM}x = 1\n")
    assert not commits("--all")
    assert commits("b.py") and not commits("a.py")
    (tmp_path / "part.py").write_text("import torch\n")
    git("add", "part.py")
    (tmp_path / "part.py").write_text(PROGRAM)
    assert commits()
    git("worktree", "add", "--quiet", "--detach", str(tmp_path / "beside"))
    monkeypatch.chdir(tmp_path / "beside")
    (tmp_path / "beside" / "b.py").write_text(PROGRAM * 2)
    assert not commits("--all")
    (tmp_path / "beside" / "b.py").write_text(f"{PROGRAM}y = 2\n")
    assert commits("--all")
