"""Configuration files that name others: an accelerate configuration and the DeepSpeed file of its settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mplint.config import Config
from mplint.engine.fix import fix_paths
from mplint.engine.run import check_paths
from mplint.findings import Finding

ACCELERATE = """compute_environment: LOCAL_MACHINE
deepspeed_config:
  deepspeed_config_file: {file}
  zero3_init_flag: true
distributed_type: DEEPSPEED
{precision}main_training_function: main
num_processes: 8
"""


def project(folder: Path, precision: str, deepspeed: object, file: str = "ds/zero3.json") -> list[Finding]:
    """The findings in a project whose accelerate configuration names a DeepSpeed file."""
    (folder / "configs").mkdir(exist_ok=True)
    (folder / "ds").mkdir(exist_ok=True)
    line = f"mixed_precision: {precision}\n" if precision else ""
    (folder / "configs" / "accelerate.yaml").write_text(ACCELERATE.format(file=file, precision=line))
    (folder / "ds" / "zero3.json").write_text(json.dumps(deepspeed))
    result = check_paths([str(folder)], Config(root=str(folder), cache=False))
    assert not result.faults
    return list(result.findings)


def test_a_precision_beside_a_deepspeed_file_is_refused_by_accelerate(tmp_path: Path) -> None:
    (found,) = project(tmp_path, "fp16", {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}})
    assert (found.code, found.severity.value, Path(found.location.path).name, found.location.line) == (
        "MP109",
        "error",
        "accelerate.yaml",
        6,
    )
    assert "which enables `bf16`" in found.message
    assert [(Path(r.location.path).name, r.location.line) for r in found.related] == [("accelerate.yaml", 3), ("zero3.json", 1)]
    assert found.fix is not None and found.fix.applicability.value == "unsafe"


def test_the_same_precision_twice_is_taken_out_safely(tmp_path: Path) -> None:
    (found,) = project(tmp_path, "bf16", {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}})
    assert found.fix is not None and found.fix.applicability.value == "safe"
    fix_paths([str(tmp_path)], Config(root=str(tmp_path), cache=False), unsafe=False, apply=True)
    assert "mixed_precision" not in (tmp_path / "configs" / "accelerate.yaml").read_text()
    assert check_paths([str(tmp_path)], Config(root=str(tmp_path), cache=False)).findings == ()


@pytest.mark.parametrize("deepspeed", [{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}, [], {"zero_optimization": {}}])
def test_where_the_file_does_not_say_there_is_no_fix(tmp_path: Path, deepspeed: object) -> None:
    (found,) = project(tmp_path, "'no'", deepspeed)
    assert found.code == "MP109" and found.fix is None


def test_a_file_that_is_not_there_is_no_reason_to_be_silent(tmp_path: Path) -> None:
    (found,) = project(tmp_path, "bf16", {}, file="elsewhere.json")
    assert found.code == "MP109" and found.fix is None and len(found.related) == 1


def test_no_precision_beside_the_file_is_right(tmp_path: Path) -> None:
    assert project(tmp_path, "", {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}) == []


def test_an_old_accelerate_reads_the_file_alone(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("accelerate==0.15.0\n")
    assert project(tmp_path, "fp16", {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}) == []


def test_a_change_of_the_named_file_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "project"
    folder.mkdir()
    project(folder, "fp16", {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}})
    seen = []
    for mode in ("bf16", "fp16"):
        (folder / "ds" / "zero3.json").write_text(json.dumps({mode: {"enabled": True}, "zero_optimization": {"stage": 3}}))
        (found,) = check_paths([str(folder)], Config(root=str(folder))).findings
        seen.append(found.fix.applicability.value if found.fix else None)
    assert seen == ["unsafe", "safe"]
