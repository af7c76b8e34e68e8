"""The pre-commit hooks run from a repository as pre-commit installs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow
CONFIGURATION = '{"train_batch_size": 8, "zero_optimization": {"stage": 1}, "bfloat16": {"enabled": true}}\n'
BAD = "import torch\n\nscaler = torch.cuda.amp.GradScaler(1024.0)\n"


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments], cwd=folder, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet")
    return folder


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that holds this project as it stands."""
    folder = repository(tmp_path_factory.mktemp("hooks") / "mplint")
    for name in ("mplint", "rules"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", ".pre-commit-hooks.yaml"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "hooks")
    return folder


def try_hook(hooks: Path, project: Path, hook: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pre_commit", "try-repo", str(hooks), hook, "--all-files", "--verbose"]
    return subprocess.run(
        command, cwd=project, capture_output=True, text=True, env={**os.environ, "PRE_COMMIT_HOME": str(hooks.parent / "cache")}
    )


def test_check_hook_fails_on_a_finding_and_fix_hook_rewrites_it(hooks: Path, tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    program = project / "train.py"
    program.write_text(BAD)
    (project / "ds.json").write_text(CONFIGURATION)
    git(project, "add", "--all")
    checked = try_hook(hooks, project, "mplint")
    assert checked.returncode == 1
    assert "MP101" in checked.stdout
    assert "MP110" in checked.stdout
    fixed = try_hook(hooks, project, "mplint-fix")
    assert fixed.returncode == 1, fixed.stdout  # pre-commit fails where a hook changes a file
    assert 'torch.amp.GradScaler("cuda", init_scale=1024.0)' in program.read_text()
    assert (project / "ds.json").read_text() == CONFIGURATION.replace("bfloat16", "bf16")
    program.write_text(BAD)
    (project / "mplint.toml").write_text('exclude = ["train.py"]\n')
    git(project, "add", "--all")
    assert try_hook(hooks, project, "mplint").returncode == 0
