"""The GitHub Action: its shell, run as the runner runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
OLD = "import torch\n\nwith torch.cuda.amp.autocast():\n    pass\n"


def run(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The last step of the action, with mplint as an executable on the path."""
    step = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][-1]
    binary = folder / "bin"
    binary.mkdir(exist_ok=True)
    (binary / "mplint").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mplint "$@"\n')
    (binary / "mplint").chmod(0o755)
    path = os.pathsep.join((str(binary), os.environ["PATH"]))
    given = {"MPLINT_PATHS": ".", "MPLINT_ARGUMENTS": "", "MPLINT_SINCE": "", "PYTHONPATH": str(ROOT), "PATH": path}
    environment = os.environ | given | inputs
    return subprocess.run(["bash", "-c", step["run"]], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_it_annotates_fails_and_writes_the_summary_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "a b.py").write_text(OLD)
    summary = tmp_path / "summary.md"
    done = run(tmp_path, GITHUB_STEP_SUMMARY=str(summary), MPLINT_ARGUMENTS='--no-cache --target "Tesla T4"')
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::warning file=a b.py,line=3") and "| MP101" not in done.stdout
    assert "**Found 1 warning in 1 file.**" in summary.read_text()


def test_it_passes_where_nothing_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert run(tmp_path).returncode == 0


@pytest.mark.parametrize("name", ["paths", "arguments", "since", "version"])
def test_every_input_reaches_the_shell(name: str) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert name in action["inputs"]
    assert any(f"inputs.{name} " in value for step in action["runs"]["steps"] for value in step["env"].values())
