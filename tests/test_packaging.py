"""A wheel carries everything, and the installed command works from any folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_every_package_is_declared() -> None:
    declared = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = set()
    for base, name in (("mplint", "mplint"), ("rules", "mplint.rules")):
        for init in (ROOT / base).rglob("__init__.py"):
            found.add(".".join([name, *init.parent.relative_to(ROOT / base).parts]))
    assert declared == found


def run(*command: str | Path, cwd: Path, expect: int = 0) -> str:
    """Run a command that must end with the exit code `expect`; its output."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, env=clean_environment())
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


def clean_environment() -> dict[str, str]:
    """The environment without what would let a source tree stand in for the installed package."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "PIP_QUIET")}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment into which the built wheel was installed."""
    work = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", work / "dist", ROOT, cwd=work)
    venv.create(work / "venv", with_pip=True)
    (wheel,) = (work / "dist").glob("*.whl")
    binaries = work / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    run(binaries / "python", "-m", "pip", "install", "--quiet", wheel, cwd=work)
    return binaries


@pytest.mark.slow
def test_the_wheel_carries_its_license_and_says_where_to_report(installed: Path) -> None:
    ask = "import importlib.metadata as m; d = m.metadata('mplint'); print(d['License-File'], *d.get_all('Project-URL'), sep='\\n')"
    told = run(installed / "python", "-c", ask, cwd=installed).splitlines()
    assert told[0] == "LICENSE" and "Issues, https://github.com/mplint/mplint/issues" in told


@pytest.mark.slow
def test_installed_wheel_finds_and_fixes_the_quickstart_from_another_folder(installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import torch\n\nscaler = torch.cuda.amp.GradScaler(1024.0)\n")
    report = json.loads(run(installed / "mplint", "check", "train.py", "--output-format", "json", cwd=tmp_path, expect=1))
    assert [f["code"] for f in report["findings"]] == ["MP101"]
    run(installed / "python", "-m", "mplint", "fix", "--apply", "train.py", cwd=tmp_path)
    assert program.read_text() == 'import torch\n\nscaler = torch.amp.GradScaler("cuda", init_scale=1024.0)\n'


@pytest.mark.slow
def test_installed_wheel_has_every_rule_and_its_tables(installed: Path, tmp_path: Path) -> None:
    rules = json.loads(run(installed / "mplint", "rules", "--output-format", "json", cwd=tmp_path))
    here = json.loads(run(sys.executable, "-m", "mplint", "rules", "--output-format", "json", cwd=ROOT))
    assert rules == here
    run(installed / "mplint", "check", "-", "--target", "Tesla T4", "--report", "page.html", cwd=tmp_path)
    assert "No mixed-precision mistakes found" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_base_install_brings_neither_frameworks_nor_onnx(installed: Path, tmp_path: Path) -> None:
    names = {item["name"].lower() for item in json.loads(run(installed / "python", "-m", "pip", "list", "--format", "json", cwd=tmp_path))}
    assert not names & {"torch", "tensorflow", "tensorflow-cpu", "keras", "onnx", "numpy"}


@pytest.mark.slow
def test_module_runs_in_a_clone_beside_the_installed_command(installed: Path) -> None:
    assert run(installed / "python", "-m", "mplint", "rules", cwd=ROOT) == run(installed / "mplint", "rules", cwd=ROOT)
