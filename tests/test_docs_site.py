"""The documentation as a site: it builds without a warning, fetches nothing, and what its pages show is true."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from mplint.cli.main import _module, parse_arguments
from mplint.errors import UsageError
from mplint.rule import registry

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "start").glob("*.md"))]


def script(name: str) -> ModuleType:
    """One of the scripts beside the documentation."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material, of the extra docs, is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(registry()) + 15
    fetched = re.compile(r'<(?:script|img|link)[^>]*(?:src|href)="?(https?:)?//(?!mplint\.github\.io)')
    assert not [page for page in pages if fetched.search(page.read_text(encoding="utf-8"))]


def test_evidence_holds_what_every_witness_claims() -> None:
    evidence = script("evidence")
    rules = json.loads((DOCS / "evidence.json").read_text(encoding="utf-8"))["rules"]
    claimed = {(seen["file"], seen["claim"].partition(" (")[0]) for tests in rules.values() for seen in tests}
    wanted = {
        (path.name, evidence.claim(test)) for paths in evidence.witnesses().values() for path in paths for test in evidence.tests_of(path)
    }
    assert sorted(wanted - claimed) == [], "run `python docs/evidence.py CODE`"


def test_pages_of_rules_show_what_the_witness_saw_and_the_field() -> None:
    page = (DOCS / "rules" / "clip-before-unscale.md").read_text(encoding="utf-8")
    assert "- Clip before unscale shrinks the update by the scale.\n    - `update_size(unscale_first=False) ==" in page
    counted = script("counted")
    found, of = counted.bugs("MP304")["file"]
    assert f"it found, when it met them: {found} of {of} that one file decides" in page
    read = counted.readings()["MP304"]
    assert f"{read['findings']} were read in their source: {read['wrong']} wrong" in page
    assert page.index("## What the witness saw") < page.index("## In the field") < page.index("## References")


def test_every_rule_says_how_it_did_in_the_field() -> None:
    silent = [code for code, rule in registry().items() if "## In the field" not in (DOCS / "rules" / f"{rule.name}.md").read_text("utf-8")]
    assert silent == []
    unmet = (DOCS / "rules" / "policy-name-as-dtype.md").read_text(encoding="utf-8")
    assert "Nothing is known of it in the field" in unmet


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_the_pages_are_understood(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"^(?:    |\$ )(mplint [^\n#]+)", text, re.M) + re.findall(r"`(mplint [a-z]+ [^`\n]*)`", text)
    for command in shown:
        words = re.findall(r'"[^"]*"|\S+', command.split(" && ")[0].split(" > ")[0].split("; ")[0].strip())[1:]
        words = [word.strip('"') for word in words]
        if words[0] == "COMMAND":
            continue
        try:
            parse_arguments(words[0], _module(words[0]), words[1:])
        except UsageError as error:
            pytest.fail(f"{page.name}: {command}: {error}")


@pytest.mark.slow
def test_what_the_onnx_page_shows_is_what_happens(tmp_path: Path) -> None:
    for package in ("onnx", "onnxruntime", "scipy"):
        pytest.importorskip(package)
    page = (DOCS / "start" / "onnx.md").read_text(encoding="utf-8")
    (made,) = re.findall(r"```python\n(.*?)```", page, re.S)
    subprocess.run([sys.executable, "-c", made], cwd=tmp_path, check=True)
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    for command, shown in re.findall(r"```console\n\$ mplint ([^\n]+)\n(.*?)```", page, re.S):
        done = subprocess.run(
            [sys.executable, "-m", "mplint", *command.split()], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        # What differs with the processor and the version of ONNX Runtime: errors, and which sample has the largest.
        error = re.compile(r"((?:moves an output by|move the outputs by about) |largest error of an output: )[\d.e-]+(?:, y on [^(]+)?")
        assert error.sub(r"\1", done.stdout + done.stderr) == error.sub(r"\1", shown), command


def test_the_container_copies_what_is_there_and_installs_extras_that_exist() -> None:
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert all(f"!{name}" in kept for name in copied)
    (extras,) = re.findall(r'pip install --no-cache-dir "\.\[([\w,]+)\]"', "\n".join(lines))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert {line.split()[0] for line in lines if line and not line.startswith(("#", " "))} <= {
        *("FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD")
    }


def test_every_hook_is_told_and_every_hook_told_is_there() -> None:
    hooks = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    told = set(re.findall(r"- id: ([\w-]+)", (DOCS / "continuous-integration.md").read_text(encoding="utf-8")))
    assert hooks == told
