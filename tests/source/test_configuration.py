"""What a program's settings may be, and what they are by default."""

from __future__ import annotations

import ast

import pytest

from mplint.python.document import Document
from mplint.source.file import SourceFile
from mplint.source.torch.default_dtypes import default_dtype
from mplint.targets import Targets

ARGPARSE = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--dtype", default="float16", choices=["float16", "bfloat16"])
parser.add_argument("--half-dtype", dest="half", default="bf16")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--no-amp", dest="mixed", action="store_false")
args, _ = parser.parse_known_args()
def main(options):
    use({read})
main(args)
"""
CLASSES = """
import tyro, torch
from dataclasses import dataclass, field
from typing import Literal
@dataclass
class Base:
    dtype: str = "float16"
@dataclass
class Config(Base):
    prec: Literal["bf16", "fp16"] = field(default="bf16")
class CFG:
    dtype = "float16"
plain = Config()
given = Config(dtype="bfloat16")
spread = Config(**options)
parsed = tyro.cli(Config)
def main(handed: Config):
    use({read})
"""
DICTS = """
from types import SimpleNamespace
space = SimpleNamespace(dtype="bfloat16", other="float16")
space.other = name
entries = {{"dtype": "float16"}}
merged = {{"dtype": "float16"}}
merged.update(more)
use({read})
"""
HF = """
from dataclasses import dataclass
from transformers import HfArgumentParser
@dataclass
class Model:
    depth: int = 3
@dataclass
class Precision:
    dtype: str = "float16"
parser = HfArgumentParser((Model, Precision))
model, precision = parser.parse_args_into_dataclasses()
use({read})
"""
ABSL = """
from absl import flags
FLAGS = flags.FLAGS
flags.DEFINE_string("dtype", "float16", "help")
PRECISION = flags.DEFINE_enum("precision", "bf16", ["bf16", "fp16"], "help")
use({read})
"""
NESTED = """
from dataclasses import dataclass, field
from yacs.config import CfgNode as CN
@dataclass
class Train:
    dtype: str = "float16"
@dataclass
class Config:
    train: Train = field(default_factory=Train)
_C = CN()
_C.SOLVER = CN()
_C.SOLVER.DTYPE = "bfloat16"
_C.TEST = CN()
_C.TEST.DTYPE = "float32"
_C.SOLVER.PRECISION = "fp16"
_C.merge_from_file(path)
def main(config: Config):
    use({read})
"""
TYPER = """
import typer
app = typer.Typer()
@app.command()
def main(dtype: str = "float16", half: str = typer.Option("bf16")):
    use({read})
"""


def read(text: str, expression: str) -> tuple[SourceFile, ast.expr]:
    text = text.format(read=expression)
    file = SourceFile(Document("src/program.py", text), ast.parse(text), Targets())
    call = next(c for c in file.syntax.all(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "use")
    return file, call.args[0]


@pytest.mark.parametrize(
    ("program", "expression", "dtypes", "setting"),
    [
        (ARGPARSE, "options.dtype", {"float16", "bfloat16"}, "--dtype float16"),
        (ARGPARSE, "options.half", {"bfloat16", "?"}, "--half-dtype bf16"),
        (ARGPARSE, "getattr(torch, options.dtype)", {"float16", "bfloat16"}, "--dtype float16"),
        (ARGPARSE, "{'bf16': torch.bfloat16, 'fp16': torch.float16}[options.half]", {"bfloat16", "float16", "?"}, "--half-dtype bf16"),
        (ARGPARSE, "vars(args)['dtype']", {"float16", "bfloat16"}, "--dtype float16"),
        (CLASSES, "plain.dtype", {"float16"}, ""),
        (CLASSES, "given.dtype", {"bfloat16"}, ""),
        (CLASSES, "spread.dtype", {"float16", "?"}, "Base.dtype = float16"),
        (CLASSES, "parsed.prec", {"bfloat16", "float16"}, "Config.prec = bf16"),
        (CLASSES, "handed.dtype", {"float16", "?"}, "Base.dtype = float16"),
        (CLASSES, "CFG.dtype", {"float16"}, ""),
        (DICTS, "space.dtype", {"bfloat16"}, ""),
        (DICTS, "space.other", {"float16", "?"}, ""),
        (DICTS, "entries['dtype']", {"float16"}, ""),
        (DICTS, "merged['dtype']", {"float16", "?"}, "dtype = float16"),
        (HF, "precision.dtype", {"float16", "?"}, "Precision.dtype = float16"),
        (ABSL, "FLAGS.dtype", {"float16", "?"}, "--dtype float16"),
        (ABSL, "PRECISION.value", {"bfloat16", "float16"}, "--precision bf16"),
        (NESTED, "config.train.dtype", {"float16", "?"}, "Train.dtype = float16"),
        (NESTED, "_C.TEST.DTYPE", {"float32", "bfloat16", "?"}, ""),
        (NESTED, "_C.SOLVER.PRECISION", {"float16", "?"}, "PRECISION = fp16"),
        (TYPER, "dtype", {"float16", "?"}, "--dtype float16"),
        (TYPER, "half", {"bfloat16", "?"}, "--half bf16"),
    ],
)
def test_a_setting_names_its_default_and_what_it_may_be(program: str, expression: str, dtypes: set[str], setting: str) -> None:
    file, node = read(program, expression)
    assert file.values.dtypes(node) == dtypes
    default = default_dtype(file.values, node)
    assert (default.setting if default is not None else "") == setting


@pytest.mark.parametrize(("expression", "described"), [("options.amp", "without --amp"), ("options.mixed", "--no-amp")])
def test_a_switch_is_on_or_off_and_never_a_constant(expression: str, described: str) -> None:
    file, node = read(ARGPARSE, expression)
    (definition,) = file.values.definitions(node)
    setting = file.values.configuration.setting(definition)
    assert setting is not None and setting.switch
    assert file.values.constant_or(node, "open") == "open"
