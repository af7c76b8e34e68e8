"""`mplint dev new-rule` writes a rule that works, and refuses what is taken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mplint.dev.new_rule import files_of
from mplint.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("mplint", "rules", "docs", "fixtures/quickstart", "fixtures/MP304", "tests/witness")
FILES = ("README.md", "pyproject.toml", "tests/conftest.py", "tests/fixture_files.py", "tests/test_rule_docs.py", "tests/test_fixtures.py")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("clone")
    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, root / name)
    done = in_copy(root, "-m", "mplint", "dev", "new-rule", "MP998", "made-up-mistake", "--family", "numerics", "--severity", "error")
    assert done.returncode == 0, done.stderr
    assert "wrote rules/numerics/made_up_mistake.py" in done.stdout and "docs/rules/made-up-mistake.md" in done.stdout
    return root


def in_copy(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run([sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True)


def test_the_rule_is_found_and_its_fixtures_and_documentation_pass(copy: Path) -> None:
    tests = ("tests/test_rule_docs.py", "tests/test_fixtures.py", "tests/witness/test_mp998.py")
    done = in_copy(copy, "-m", "pytest", "-p", "no:cacheprovider", *tests, "-k", "MP998 or mp998")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout or "........" in done.stdout


def test_the_documentation_of_the_copy_is_up_to_date(copy: Path) -> None:
    done = in_copy(copy, "docs/generate.py", "--check")
    assert done.returncode == 0, done.stdout
    assert "| MP998 | [made-up-mistake]" in (copy / "docs" / "rules" / "index.md").read_text()


def test_it_is_refused_the_second_time(copy: Path) -> None:
    done = in_copy(copy, "-m", "mplint", "dev", "new-rule", "MP998", "another-mistake", "--family", "numerics")
    assert done.returncode == 2
    assert "MP998 made-up-mistake is there already" in done.stderr


@pytest.mark.parametrize(
    ("code", "name", "family", "message"),
    [
        ("MP304", "made-up-mistake", "training", "MP304 clip-before-unscale is there already"),
        ("MP998", "clip-before-unscale", "training", "MP304 clip-before-unscale is there already"),
        ("MP9", "made-up-mistake", "training", "is no code"),
        ("MP998", "Mistake", "training", "is no name"),
        ("MP998", "made-up-mistake", "nowhere", "unknown family"),
    ],
)
def test_what_is_taken_or_misspelt_is_refused(code: str, name: str, family: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        files_of(ROOT, code, name, family, "warning")
