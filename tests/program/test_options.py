"""What a user has to turn for something to happen, as the interpreter tells it."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from mplint.frameworks.known import frameworks
from mplint.program.entries import trace
from mplint.program.lower import IR, line_of, lower
from mplint.program.project import Project

SCALER = "import torch\nS = torch.amp.GradScaler\n"


def conditions(*texts: str) -> list[str]:
    """For each scaler that the programs `m0.py`, `m1.py` … make, in order: the condition, or "dead"."""
    files = {f"m{n}.py": SCALER + textwrap.dedent(text) for n, text in enumerate(texts)}

    def lowered(path: str) -> IR | None:
        return lower(ast.parse(files[path])) if path in files else None

    found = trace(Project(list(files), lowered, frozenset({"torch"})), frameworks(), lambda words: True, list(files))
    assert not found.faults
    told = []
    for entry in found.entries:
        for event in sorted(entry.of("scaler made"), key=lambda e: (e.place.path, line_of(e.place.position))):
            told.append(found.verdict(entry, event.path).condition().removeprefix(" when "))
    return told


@pytest.mark.parametrize(
    ("declared", "test", "condition"),
    [
        ('"--amp", action="store_true"', "args.amp", "`--amp` is given"),
        ('"--amp", action="store_true"', "not args.amp", ""),
        ('"--no-amp", dest="amp", action="store_false"', "args.amp", ""),
        ('"--no-amp", dest="amp", action="store_false"', "not args.amp", "`--no-amp` is given"),
        ('"--use-amp", action=argparse.BooleanOptionalAction, default=True', "not args.use_amp", "`--no-use-amp` is given"),
        ('"--precision", default="fp32"', 'args.precision == "fp16"', "`--precision` is `fp16`"),
        ('"--precision", default="fp32"', 'args.precision.lower() in ("fp16", "bf16")', "`--precision` is `bf16` or `fp16`"),
        ('"--precision", default="fp16"', 'args.precision == "fp16"', ""),
        ('"--precision", default="fp32", choices=["fp32", "fp16"]', 'args.precision != "fp32"', "`--precision` is `fp16`"),
        ('"--precision", default="32"', '"16" in args.precision', "`--precision contains '16'`"),
        ('"--level", type=int, default=0', "args.level > 1", "`--level > 1`"),
        ('"--amp", type=bool, default=False', "vars(args)['amp'] is True", "`--amp` is given"),
        ('"--precision", required=True', 'args.precision == "fp16"', "`--precision` is `fp16`"),
    ],
)
def test_option_of_a_parser(declared: str, test: str, condition: str) -> None:
    program = f"""
        import argparse

        def parse():
            parser = argparse.ArgumentParser()
            group = parser.add_argument_group("training")
            group.add_argument({declared})
            return parser.parse_args()

        def train(args):
            if {test}:
                S("cuda")

        if __name__ == "__main__":
            train(parse())
    """
    assert conditions(program) == [condition]


def test_choice_that_a_parser_does_not_offer_never_holds() -> None:
    program = """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
        if parser.parse_args().precision == "fp16":
            S("cuda")
    """
    assert conditions(program) == []


def test_option_is_the_same_in_a_file_that_gets_the_namespace_from_outside() -> None:
    options = """
        import argparse
        from m1 import train
        parser = argparse.ArgumentParser()
        parser.add_argument("--amp", action="store_true")
        S("cuda", enabled=parser.parse_args().amp)
    """
    trainer = """
        def train(args):
            if args.amp:
                S("cuda")
    """
    assert conditions(options, trainer) == ["", "`--amp` is given"]


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (
            """
            import click
            @click.command()
            @click.option("--amp/--no-amp", default=True)
            @click.option("--precision", type=click.Choice(["fp32", "fp16"]), default="fp32")
            def main(amp, precision):
                if not amp:
                    S("cuda")
                if precision == "fp16":
                    S("cuda")
            main()
            """,
            ["`--no-amp` is given", "`--precision` is `fp16`"],
        ),
        (
            """
            import typer
            app = typer.Typer()
            @app.command()
            def main(amp: bool = typer.Option(False, "--amp"), half: bool = False):
                if amp or half:
                    S("cuda")
            app()
            """,
            ["`--amp` is given or `--half` is given"],
        ),
        (
            """
            import fire
            def main(use_amp=False):
                if use_amp:
                    S("cuda")
            fire.Fire(main)
            """,
            ["`--use-amp` is given"],
        ),
        (
            """
            from absl import app, flags
            FLAGS = flags.FLAGS
            flags.DEFINE_bool("amp", False, "")
            HALF = flags.DEFINE_enum("half", "no", ["no", "fp16"], "")
            def main(argv):
                if FLAGS.amp:
                    S("cuda")
                if HALF.value == "fp16":
                    S("cuda")
            app.run(main)
            """,
            ["`--amp` is given", "`--half` is `fp16`"],
        ),
        (
            """
            from dataclasses import dataclass, field
            import tyro
            @dataclass
            class Train:
                amp: bool = False
            @dataclass
            class Config:
                train: Train = field(default_factory=Train)
                precision: str = "fp16"
            config = tyro.cli(Config)
            if config.train.amp:
                S("cuda")
            if config.precision == "fp16":
                S("cuda")
            """,
            ["`--train.amp` is given", ""],
        ),
        (
            """
            from yacs.config import CfgNode as CN
            _C = CN()
            _C.TRAIN = CN()
            _C.TRAIN.AMP = False
            cfg = _C.clone()
            cfg.merge_from_file(input())
            if cfg.TRAIN.AMP:
                S("cuda")
            """,
            ["`TRAIN.AMP` is set"],
        ),
        (
            """
            import os
            if os.environ.get("AMP", "0") == "1":
                S("cuda")
            """,
            ["`$AMP` is `1`"],
        ),
    ],
)
def test_options_of_other_libraries(program: str, told: list[str]) -> None:
    assert conditions(program) == told


def test_instance_of_a_settings_class_holds_what_its_program_gives_it() -> None:
    program = """
        from dataclasses import dataclass
        @dataclass
        class Config:
            fast: bool = False
            half: bool = True
        if Config().fast:
            S("cuda")
        if Config(fast=True).fast and Config().half:
            S("cuda")
    """
    assert conditions(program) == [""]


def test_flag_for_half_precision_that_is_off_is_left_to_who_edits_the_program() -> None:
    program = """
        from dataclasses import dataclass
        @dataclass
        class Config:
            amp: bool = False
        USE_FP16 = False
        if Config().amp:
            S("cuda")
        if Config(amp=False).amp:
            S("cuda")
        if USE_FP16:
            S("cuda")
    """
    assert conditions(program) == ["`Config.amp` is set", "`USE_FP16` is set"]


def test_parameter_that_no_caller_gives_proves_nothing() -> None:
    library = """
        class Trainer:
            def __init__(self, model, amp=False, half=False):
                self.amp, self.half = amp, half

            def begin(self):
                if self.amp:
                    S("cuda")
                if self.half:
                    S("cuda", init_scale=4.0)
    """
    script = "from m0 import Trainer\nTrainer(None, half=True)\n"
    assert conditions(library) == ["`amp` is set", "`half` is set"]
    assert conditions(library, script) == ["`half` is set"]


def test_hydra_and_yaml_files_give_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "train").mkdir(parents=True)
    (tmp_path / "conf" / "config.yaml").write_text("defaults:\n  - train: base\namp: false\n")
    (tmp_path / "conf" / "train" / "base.yaml").write_text("precision: fp16\n")
    program = """
        import hydra, yaml
        @hydra.main(config_path="conf", config_name="config")
        def main(cfg):
            if cfg.amp:
                S("cuda")
            if cfg.train.precision == "fp16":
                S("cuda")
            if cfg["train"]["precision"] == "bf16":
                S("cuda")
            with open("conf/config.yaml") as stream:
                if yaml.safe_load(stream)["amp"]:
                    S("cuda")
        main()
    """
    assert conditions(program) == ["`amp` is set", "", "`train.precision` is `bf16`", "conf/config.yaml says `amp: true` (now `false`)"]
