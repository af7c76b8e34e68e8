"""Findings that only users outside a project meet show what tells that they run it in half precision."""

from __future__ import annotations

from pathlib import Path

from mplint import check
from mplint.config import Config
from mplint.findings import Confidence, Finding

CONFIG = Config(cache=False, isolated=True, min_confidence=Confidence.LOW)
LAYER = """\
import torch
from torch import nn


class Evened(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.half = width // 2

    def forward(self, x):
        return x / (x @ x.transpose(1, 2) + 1e-9).mean()
"""
EXAMPLE = """\
import torch
from evened import Evened

# .half() is no evidence in a comment
layer = Evened(8)
with torch.autocast("cuda", dtype=torch.float16):
    pass
"""


def library(folder: Path, layer: str = LAYER, code: str = "MP205", **files: str) -> list[Finding]:
    """What a rule finds in a library of one layer beside some files, however sure it is."""
    package = folder / "evened"
    package.mkdir()
    (folder / "setup.py").write_text("from setuptools import setup\n\nsetup(name='evened')\n")
    (package / "__init__.py").write_text("from evened.layers import Evened\n")
    (package / "layers.py").write_text(layer)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return [found for found in check([str(folder)], CONFIG).findings if found.code == code]


def test_a_place_in_a_program_is_shown_by_its_line(tmp_path: Path) -> None:
    (found,) = library(tmp_path, example_py=EXAMPLE)
    first = found.related[0]
    assert (Path(first.location.path).name, first.location.line, first.message) == ("example.py", 6, "(1) half precision is meant here")


def test_a_text_is_named_where_the_region_is_supposed(tmp_path: Path) -> None:
    (found,) = library(tmp_path, README_md="# Evened\n\nWorks with fp16.\n")
    assert found.related[0].message.endswith(
        "a caller runs this module under float16 autocast, of which " + str(tmp_path / "README.md") + " speaks"
    )


def test_who_runs_the_library_itself_is_surer_than_who_speaks_of_it(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    layer = LAYER.replace("x / (x @ x.transpose(1, 2) + 1e-9).mean()", "(x @ x.transpose(1, 2)).masked_fill(x > 0, -1e9)")
    (spoken,) = library(tmp_path / "one", layer, "MP204", README_md="# Evened\n\nWorks with fp16.\n")
    (run,) = library(tmp_path / "other", layer, "MP204", example_py=EXAMPLE)
    assert (spoken.confidence, run.confidence) == (Confidence.LOW, Confidence.MEDIUM)


def test_nobody_has_met_float16_where_only_callers_may_lose_an_epsilon(tmp_path: Path) -> None:
    (found,) = library(tmp_path, example_py=EXAMPLE)
    assert found.confidence is Confidence.LOW


def test_nothing_is_said_where_nothing_speaks_of_half_precision(tmp_path: Path) -> None:
    assert not library(tmp_path, README_md="# Evened\n\nfp16 is not supported.\n")


MODELS = """\
import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        scores = self.mix(x)
        return scores / (scores.abs() + {tiny})
"""
CHOSEN = """\
import argparse

import torch
from zoo.{module} import {name}

parser = argparse.ArgumentParser()
parser.add_argument("--model")
model = torch.load(parser.parse_args().model)
assert isinstance(model.part, {name})
with torch.autocast("cuda", dtype=torch.float16):
    print(model(torch.rand(2, 8)))
"""


def test_the_program_that_names_a_model_is_shown_and_not_another(tmp_path: Path) -> None:
    package = tmp_path / "zoo"
    package.mkdir()
    (package / "__init__.py").write_text("from zoo import early, late\n")
    (package / "early.py").write_text(MODELS.format(name="Early", tiny="0.1"))
    (package / "late.py").write_text(MODELS.format(name="Late", tiny="1e-9"))
    for module, name in (("early", "Early"), ("late", "Late")):
        (tmp_path / f"train_{module}.py").write_text(CHOSEN.format(module=module, name=name))
    found = [found for found in check([str(tmp_path)], Config(cache=False, isolated=True)).findings if found.code == "MP205"]
    assert [Path(one.related[0].location.path).name for one in found] == ["train_late.py"]
