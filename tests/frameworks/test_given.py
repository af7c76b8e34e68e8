"""What a project's own files give to a setting, and the conditions that they decide where all of them agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.api import check
from mplint.config import Config
from mplint.findings import Confidence, Finding
from mplint.frameworks.given import Written, is_telling, last_name
from mplint.frameworks.settings import OPEN, Given, given_in

RATES = """\
import argparse
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.args = args

    def forward(self, x):
        x = self.linear(x)
        if self.args.linear_scale:
            return x / (x.abs().mean() + 1e-9)
        return x

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--linear_scale", action="store_true")
    parser.add_argument("--half_dtype", default="fp16", choices=["fp16", "bf16"])
    args = parser.parse_args()
    model = Net(args).cuda()
    dtype = torch.float16 if args.half_dtype == "fp16" else torch.bfloat16
    for x in torch.load("data.pt"):
        with torch.autocast("cuda", dtype=dtype):
            print(model(x).mean())

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("place", "text", "values"),
    [
        ("a.yaml", "model:\n  use_gate: true\n", {("model.use_gate", True)}),
        ("a.json", '{"model": {"use_gate": false, "other": 1}}', {("model.use_gate", False)}),
        ("model/config.json", '{"architectures": ["Net"], "use_gate": false}', set()),
        ("a.toml", "[model]\nuse_gate = true\n", {("model.use_gate", True)}),
        ("a.gin", "Model.use_gate = False  # off\n", {("Model.use_gate", False)}),
        (
            "sweep.yaml",
            "parameters:\n  use_gate:\n    values: [true, false]\n",
            {("parameters.use_gate", True), ("parameters.use_gate", False)},
        ),
        ("a.yaml", "use_gate: ${gate}\n", {("use_gate", OPEN)}),
        ("a.yaml", "use_gate: [true]\n", {("use_gate", OPEN)}),
        ("a.yaml", "use_gate: {broken\n", set()),
        ("run.sh", "python train.py \\\n  --use-gate --lr 1\n", {("use_gate", True)}),
        ("run.sh", "python -m tool.train --use_gate=false\n", {("use_gate", False)}),
        ("run.sh", "python train.py --no-use-gate\n", {("use_gate", False)}),
        ("run.sh", "python train.py --use_gate $GATE\n", {("use_gate", OPEN)}),
        ("run.sh", "python train.py model.use_gate=True\n", {("model.use_gate", True)}),
        ("run.sh", "python train.py --use_gate\npython train.py\npython test.py\n", {("use_gate", True), ("", None)}),
        ("README.md", "The option `--use_gate` turns the gate on.\n", set()),
        ("README.md", "    $ python train.py [--use_gate]\n", {("use_gate", OPEN)}),
        ("README.md", "    $ python train.py --use_gates\n", set()),
    ],
)
def test_each_kind_of_file_gives_values(place: str, text: str, values: set[tuple[str, object]]) -> None:
    assert {(given.dotted, given.value) for given in given_in(place, text, "use_gate", {})} == values


def test_programs_and_notebooks_give_values() -> None:
    assert Written("use_gate")(b"net = Net(use_gate=True)\ncfg.use_gate = args.use_gate\n") == (Given("use_gate", True),)
    assert Written("use_gate")(b'"!python train.py --use_gate no\\n",') == (Given("use_gate", False, "train"),)
    assert Written("use_gate")(b"use_gates = True\n") == ()


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("cfg.model.use_gate\0file", "use_gate"),
        ("h.get('use_gate')\0a", "use_gate"),
        ("cfg['use-gate']\0a", ""),
        ("args.use_gate\0a", "use_gate"),
        ("len(x)\0a", ""),
    ],
)
def test_the_name_of_what_a_symbol_reads(symbol: str, name: str) -> None:
    assert last_name(symbol) == name


def test_names_of_one_word_and_of_single_runs_tell_nothing() -> None:
    assert is_telling("use_gate")
    assert not any(is_telling(name) for name in ("gate", "resume_from", "eval_only", "load_model"))


def epsilons(folder: Path, **files: str) -> list[Finding]:
    """What is told of epsilons in a program with these files beside it."""
    (folder / "train.py").write_text(RATES)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    config = Config(select=("MP205",), cache=False, isolated=True, min_confidence=Confidence.LOW)
    return check([str(folder)], config).findings


def test_what_no_file_sets_is_told(tmp_path: Path) -> None:
    assert [f.confidence for f in epsilons(tmp_path)] == [Confidence.MEDIUM]


def test_what_every_file_sets_otherwise_is_less_sure(tmp_path: Path) -> None:
    found = epsilons(tmp_path, run_sh="python train.py --linear_scale --half_dtype bf16\n", more_sh="python train.py --half_dtype bf16\n")
    assert [f.confidence for f in found] == [Confidence.LOW]
    assert "half_dtype" in found[0].why


def test_one_file_that_sets_it_so_is_enough(tmp_path: Path) -> None:
    found = epsilons(tmp_path, run_sh="python train.py --linear_scale --half_dtype bf16\n", more_sh="python train.py --half_dtype fp16\n")
    assert [f.confidence for f in found] == [Confidence.MEDIUM]


def test_command_lines_that_leave_an_option_out_show_its_default(tmp_path: Path) -> None:
    found = epsilons(tmp_path, run_sh="python train.py --linear_scale --half_dtype bf16\npython train.py --linear_scale\n")
    assert [f.confidence for f in found] == [Confidence.MEDIUM]


SECTIONS = """\
import torch
import yaml
from torch import nn

class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.linear_scale = cfg.net.get("linear_scale", False)

    def forward(self, x):
        x = self.linear(x)
        return x / (x.abs().mean() + 1e-9) if self.linear_scale else x

def train(cfg):
    model = Net(cfg).cuda()
    for x in torch.load("data.pt"):
        with torch.autocast("cuda", dtype=torch.float16):
            print(model(x).mean())
"""


@pytest.mark.parametrize(
    ("said", "confidence"),
    [
        ("net:\n  width: 8\n", Confidence.LOW),
        ("net:\n  width: 8\n  linear_scale: true\n", Confidence.MEDIUM),
        ("other:\n  width: 8\n", Confidence.MEDIUM),
    ],
)
def test_a_flag_that_files_leave_out_of_its_section_is_less_sure(tmp_path: Path, said: str, confidence: Confidence) -> None:
    (tmp_path / "train.py").write_text(SECTIONS)
    (tmp_path / "base.yaml").write_text(said)
    config = Config(select=("MP205",), cache=False, isolated=True, min_confidence=Confidence.LOW)
    assert [finding.confidence for finding in check([str(tmp_path)], config).findings] == [confidence]


def test_settings_are_called_as_the_program_calls_them(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        """\
import sys
import torch
import yaml

conf = yaml.safe_load(open(sys.argv[1]))
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=conf["rate"])
for x, y in torch.load("data.pt"):
    with torch.autocast("cuda", dtype=torch.float16, enabled=conf["amp"]):
        loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""
    )
    config = Config(select=("MP301",), cache=False, isolated=True)
    (found,) = check([str(tmp_path)], config).findings
    assert found.message.endswith("when `conf.amp` is set")
