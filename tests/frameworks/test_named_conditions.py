"""Messages name the switches that a mistake needs, and no other that stands on the way to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.api import check, check_text
from mplint.config import Config

LOOP = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
parser.add_argument("--adam", action="store_true")
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(64, 8).cuda()
"""

CASES = {
    "either optimizer": (
        """
if args.adam:
    optimizer = torch.optim.Adam(model.parameters())
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.load("batches"):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
""",
        "",
    ),
    "either optimizer, under an option": (
        """
optimizer = torch.optim.Adam(model.parameters()) if args.adam else torch.optim.SGD(model.parameters(), lr=0.1)
if args.resume:
    model.load_state_dict(torch.load("model.pt"))
    optimizer.load_state_dict(torch.load("optimizer.pt"))
for x, y in torch.load("batches"):
    with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
""",
        " when `--amp` is given",
    ),
    "one of two": (
        """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.load("batches"):
    if args.resume:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
    else:
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
""",
        " when `--resume` is given",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_condition(name: str) -> None:
    text, condition = CASES[name]
    (found,) = [finding for finding in check_text(LOOP + text, "train.py") if finding.code == "MP301"]
    assert found.message.endswith(f"nothing scales the loss{condition}")


def test_a_setting_of_a_file_is_shown_as_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "train.yaml").write_text("train:\n  amp: false\n")
    (tmp_path / "train.py").write_text(
        """
import torch
from omegaconf import OmegaConf

cfg = OmegaConf.load("conf/train.yaml")
model = torch.nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.load("batches"):
    with torch.autocast("cuda", dtype=torch.float16, enabled=cfg.train.amp):
        loss = model(batch).mean()
    loss.backward()
    optimizer.step()
"""
    )
    monkeypatch.chdir(tmp_path)
    (found,) = check(["train.py"], Config(select=("MP301",), cache=False, isolated=True)).findings
    assert found.message.endswith("nothing scales the loss when conf/train.yaml says `train.amp: true`")
