"""The table of trainers, and the questions that rules ask about the trainers of a program."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from mplint.configs.trainers.duties import OBJECTS, PACKAGES, PREPARES, kind_of, kinds
from mplint.python.document import Document
from mplint.source.file import SourceFile
from mplint.source.torch.trainers import Trainers
from mplint.targets import Targets

TABLE = tomllib.loads((Path(__file__).parents[2] / "mplint" / "data" / "trainer_duties.toml").read_text("utf-8"))


def read(text: str) -> SourceFile:
    return SourceFile(Document("src/program.py", text), ast.parse(text), Targets())


def test_what_the_program_reads_first_agrees_with_the_table() -> None:
    assert {home.partition(".")[0] for kind in kinds() for home in kind.homes} == PACKAGES
    assert {name for kind in kinds() for name in kind.objects} == OBJECTS
    assert {name for kind in kinds() for name in kind.prepares} == PREPARES


def test_every_trainer_says_where_it_was_read_and_what_it_does() -> None:
    for name, section in TABLE.items():
        if isinstance(section, dict):
            assert section["source"].rstrip().endswith(")") or section["source"] == "memory", name
            assert set(section["does"]) <= {"autocast", "scale", "unscale", "step", "save"}, name


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("lightning.pytorch.Trainer", "lightning"),
        ("lightning.fabric.Fabric", "fabric"),
        ("lightning.Fabric", "fabric"),
        ("pytorch_lightning.LightningModule", "lightning"),
        ("accelerate.Accelerator", "accelerate"),
        ("trl.SFTTrainer", "transformers"),
        ("mmengine.optim.AmpOptimWrapper", "mmengine"),
        ("torch.optim.Adam", None),
        ("lightning_utilities.core", None),
    ],
)
def test_a_name_belongs_to_its_trainer(name: str, key: str | None) -> None:
    kind = kind_of(name)
    assert (kind.key if kind is not None else None) == key


@pytest.mark.parametrize(
    ("program", "present"),
    [
        ("from accelerate.utils import set_seed", []),
        ("from accelerate import Accelerator", ["accelerate"]),
        ("from pytorch_lightning import seed_everything", []),
        ("import pytorch_lightning as pl", ["lightning"]),
        ("from ignite.engine import Engine", []),
        ("from ignite.engine import create_supervised_trainer", ["ignite"]),
        ("from transformers import AutoModel", []),
        ("from transformers import Trainer", ["transformers"]),
        ("from mmengine import Config", []),
        ("from deepspeed.ops.adam import FusedAdam", []),
    ],
)
def test_a_trainer_is_present_where_what_is_imported_takes_part_in_training(program: str, present: list[str]) -> None:
    assert [kind.key for kind in read(program).fact(Trainers).present] == present


@pytest.mark.parametrize(
    ("program", "dtypes"),
    [
        ("from lightning import Trainer\nTrainer()", {"float32"}),
        ("from lightning import Trainer\nTrainer(precision='16-mixed')", {"float16"}),
        ("import lightning as L\nL.Trainer(precision=16)", {"float16"}),
        ("import lightning as L\nL.Trainer(precision='16-true')", {"pure float16"}),
        ("from accelerate import Accelerator\nAccelerator()", {"?"}),
        ("from accelerate import Accelerator\nAccelerator(mixed_precision='bf16')", {"bfloat16"}),
        ("from accelerate import Accelerator\nAccelerator(mixed_precision=mode)", {"?"}),
        ("from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments('o', fp16=True))", {"float16"}),
        ("from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments('o'))", {"float32"}),
        ("from transformers import Trainer\nclass Mine(Trainer): ...\nMine(args=args)", {"?"}),
    ],
)
def test_the_precision_of_a_trainer_is_what_its_arguments_say(program: str, dtypes: set[str]) -> None:
    (built,) = read(program).fact(Trainers).built
    assert built.dtypes == dtypes


MODULE = """
import {package} as base

class Net({base}):
    def __init__(self):
        {switch}

    def training_step(self, batch):
        return self.net(batch)

    def configure_optimizers(self):
        return opt
"""


@pytest.mark.parametrize(
    ("package", "base", "switch", "does_unscale"),
    [
        ("pytorch_lightning", "base.LightningModule", "pass", True),
        ("pytorch_lightning", "base.LightningModule", "self.automatic_optimization = False", False),
        ("project.modules", "base.TaskModule", "pass", True),
        ("project.modules", "object", "pass", None),
    ],
)
def test_code_of_a_module_knows_what_the_trainer_does_around_it(package: str, base: str, switch: str, does_unscale: bool | None) -> None:
    file = read(MODULE.format(package=package, base=base, switch=switch))
    does = file.fact(Trainers).does(file.syntax.all(ast.Return)[0])
    assert does_unscale is ("unscale" in does if does else None)
