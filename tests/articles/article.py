"""One founding article: its code in fixtures/articles, and the commands on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fixture_files import FIXTURES, expectations, targets

from mplint.api import check_text, fix_text

ARTICLES = FIXTURES / "articles"
ROOT = FIXTURES.parent


def program(name: str) -> str:
    return (ARTICLES / name).read_text(encoding="utf-8")


def found(name: str, **more: str) -> list[tuple[int | None, str, str]]:
    """The findings of a program, of whatever severity: line, code, severity."""
    text = program(name)
    findings = check_text(text, f"src/{Path(name).name}", {**targets(text), **more})
    return sorted((f.location.line, f.code, f.severity.value) for f in findings)


def expected(name: str) -> list[tuple[int, str, str | None]]:
    """The findings that are written beside its lines."""
    return sorted((e.line, e.code, e.severity) for e in expectations(program(name)))


def fixed(name: str) -> str:
    return fix_text(program(name), f"src/{Path(name).name}")


def run(command: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mplint", command, *arguments]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=1500, env=environment, check=False)


def assert_adopted(name: str, tmp_path: Path) -> None:
    """`convert` makes of the float32 training exactly the program beside it, in which `check` finds nothing but advice."""
    target = tmp_path / "train.py"
    done = run("convert", str(ARTICLES / name / "train.py"), "--policy", "mixed_float16", "-o", str(target))
    assert done.returncode == 0, done.stderr
    assert target.read_text(encoding="utf-8") == program(f"{name}/adopted.py")
    assert [code for _, code, severity in found(f"{name}/adopted.py") if severity != "info"] == []


def assert_compared(name: str, steps: int) -> dict[str, Any]:
    """Both precisions train on the same data, to the same loss."""
    options = ("--policies", "mixed_float16", "--steps", str(steps), "--repeats", "1", "--output-format", "json")
    done = run("compare", str(ARTICLES / name / "train.py"), *options)
    assert done.returncode == 0, done.stderr
    policies: dict[str, Any] = json.loads(done.stdout)["policies"]
    full, half = policies["float32"], policies["mixed_float16"]
    assert (full["half"], half["half"]) == (False, True)
    assert full["steps"] == half["steps"] == steps
    assert half["losses"] != full["losses"]
    assert sum(half["losses"]) == pytest.approx(sum(full["losses"]), rel=0.05)
    return policies


def assert_healthy(name: str, steps: int, tmp_path: Path) -> dict[str, Any]:
    """The adopted training, a project of its own, runs under instruments, and nothing is wrong with it."""
    script = shutil.copy(ARTICLES / name / "adopted.py", tmp_path)
    done = run("doctor", script, "--steps", str(steps), "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def estimated(factory: str, target: str, batch: int) -> dict[str, Any]:
    """What `estimate` says of the model of an article at its own size, by policy."""
    from importlib import import_module

    from mplint.estimate.estimate import estimate
    from mplint.estimate.sizes import sized
    from mplint.graph.load import load_graph
    from mplint.hardware import resolve_target
    from mplint.hardware.figures import figures_of

    module, _, function = factory.partition(":")
    made = getattr(import_module(f"fixtures.articles.{module}.model"), function)()
    model, inputs = made if isinstance(made, tuple) else (made, None)
    device = resolve_target(target)
    report = estimate(sized(load_graph(model, inputs), batch, {}), "adam", device, figures_of(device))
    return {each.policy: each for each in report.estimates}
