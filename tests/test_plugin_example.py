"""The package of docs/examples is built, installed and named in a configuration, and its rules run beside ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "docs" / "examples" / "mplint-acme"
TRAIN = """\
import torch

FIRST = 2.0**20


def scaler_for(scale):
    return torch.amp.GradScaler("cuda", init_scale=scale)


def train(model, loader, optimizer):
    scaler = scaler_for(FIRST)
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package."""
    folder = tmp_path_factory.mktemp("acme")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder / "site"), str(PACKAGE)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    for left in ("build", "src/mplint_acme.egg-info"):
        subprocess.run(["rm", "-rf", str(PACKAGE / left)], check=True)
    return folder / "site"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "mplint.toml").write_text('plugins = ["acme"]\n')
    return tmp_path


def mplint(site: Path, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "MPLINT_CACHE_DIR": str(project / ".cache")}
    return subprocess.run([sys.executable, "-m", "mplint", *arguments], cwd=project, env=environment, capture_output=True, text=True)


def codes(done: subprocess.CompletedProcess[str]) -> list[str]:
    return sorted({finding["code"] for finding in json.loads(done.stdout)["findings"]})


def test_its_rules_are_checked_beside_ours(installed: Path, project: Path) -> None:
    done = mplint(installed, project, "check", ".", "--output-format", "json")
    assert codes(done) == ["ACME001", "ACME002", "MP304"], done.stderr
    found = {finding["code"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["ACME002"]["message"] == "the loss scale starts at 1.04858e+06"
    assert found["ACME001"]["url"] == "" and found["MP304"]["url"].endswith("clip-before-unscale.md")


def test_its_rules_are_selected_ignored_set_and_explained(installed: Path, project: Path) -> None:
    assert codes(mplint(installed, project, "check", ".", "--output-format", "json", "--select", "ACME")) == ["ACME001", "ACME002"]
    assert "ACME001" in mplint(installed, project, "explain", "autocast-by-hand").stdout
    (project / "mplint.toml").write_text('plugins = ["acme"]\nignore = ["ACME001"]\noptions = {ACME002 = {highest = 2000000}}\n')
    assert codes(mplint(installed, project, "check", ".", "--output-format", "json")) == ["MP304"]


def test_its_fix_is_applied(installed: Path, project: Path) -> None:
    done = mplint(installed, project, "fix", "--apply", "--unsafe-fixes", "--select", "ACME001", ".")
    assert done.returncode == 0, done.stderr
    text = (project / "train.py").read_text()
    assert "with acme.precision.region():" in text and "import acme.precision\n" in text


def test_a_plugin_may_be_named_by_its_module_and_one_that_is_not_there_is_told(installed: Path, project: Path) -> None:
    (project / "mplint.toml").write_text('plugins = ["mplint_acme.rules"]\n')
    assert "ACME002" in codes(mplint(installed, project, "check", ".", "--output-format", "json"))
    (project / "mplint.toml").write_text('plugins = ["acmee"]\n')
    done = mplint(installed, project, "check", ".")
    assert done.returncode == 2 and "plugins: No module named 'acmee'" in done.stderr
