"""Settings that no parser declares have names, and defaults where all files of a project agree, so that messages name what must differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.api import check
from mplint.config import Config
from mplint.findings import Confidence, Finding
from mplint.frameworks.stated import Tree

LOOP = """
import torch
from settings import load

cfg = load()
model = torch.nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=cfg.train.use_amp)
for index, batch in enumerate(torch.load("batches")):
    with torch.autocast("cuda", dtype=torch.float16, enabled=cfg.train.use_amp):
        loss = model(batch).mean()
    scaler.scale(loss).backward()
    if cfg.train.bounded.enable:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
    if (index + 1) % 4 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
LOAD = "def load():\n    import somewhere\n    return somewhere.read()\n"


def found(tmp_path: Path, configs: dict[str, str], code: str = "MP310") -> list[Finding]:
    (tmp_path / "configs").mkdir()
    for name, text in configs.items():
        (tmp_path / "configs" / name).write_text(text)
    (tmp_path / "settings.py").write_text(LOAD)
    (tmp_path / "train.py").write_text(LOOP)
    report = check([str(tmp_path)], Config())
    return [finding for finding in report.findings if finding.code == code]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("base.py", "train = dict(use_amp=True, bounded=dict(enable=False, most=1.0))\n"),
        ("base.yaml", "train:\n  use_amp: true\n  bounded:\n    enable: false\n"),
    ],
)
def test_what_files_leave_off_is_named(tmp_path: Path, name: str, text: str) -> None:
    (finding,) = found(tmp_path, {name: text})
    assert finding.message.endswith(" when `train.bounded.enable` is set")
    assert finding.confidence is Confidence.MEDIUM


def test_what_files_turn_on_is_not(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, {"base.py": "train = dict(use_amp=True, bounded=dict(enable=True))\n"})
    assert "when" not in finding.message


def test_what_turns_half_precision_on_is_named_where_files_differ(tmp_path: Path) -> None:
    configs = {f"{on}.yaml": f"train:\n  use_amp: {on}\n  bounded:\n    enable: true\n" for on in ("true", "false")}
    (finding,) = found(tmp_path, configs)
    assert finding.message.endswith(" when `train.use_amp` is set")


def test_only_programs_of_settings_give_values() -> None:
    assert [given.dotted for given in Tree("enable")(b"train = dict(clip=dict(enable=False), ema={'enable': True})")] == [
        "train.clip.enable",
        "train.ema.enable",
    ]
    assert not Tree("enable")(b"train = dict(enable=False)\ndef run(): ...\n")
    assert not Tree("enable")(b"train = dict(enable=")
