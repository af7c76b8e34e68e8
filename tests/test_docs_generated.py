"""The pages, the table of rules and the example reports are what the rules and the command give today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_generated_documentation_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"run `python docs/generate.py`; out of date:\n{done.stdout}{done.stderr}"


def test_readme_opens_with_the_two_commands_and_the_check_script_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "python -m pip install . && mplint check fixtures/quickstart" in readme
    test_command = 'python -m pip install -e ".[dev]" && python -m pytest -n 2 --dist worksteal'
    assert test_command in readme
    assert test_command in (ROOT / ".ci" / "run").read_text()
