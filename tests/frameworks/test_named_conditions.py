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
    "what every run has to say": (
        """
parser.add_argument("--images", default="")
args = parser.parse_args()
if not args.images:
    parser.error("say where the images are")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.load(args.images):
    with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
""",
        " when `--amp` is given",
    ),
    "one of two that every run has to say": (
        """
parser.add_argument("--table", default="")
parser.add_argument("--list", default="")
args = parser.parse_args()
if not (args.table or args.list):
    raise SystemExit("say where the images are")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.load(args.table or args.list):
    with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
""",
        " when `--amp` is given",
    ),
    "what a launcher gives": (
        """
import os
rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
assert 16 % world_size == 0
if rank == 0:
    print(args)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.load("batches"):
    with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
""",
        " when `--amp` is given",
    ),
    "what is on unless full precision is asked for": (
        """
from settings import cfg

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.load("batches"):
    with torch.autocast("cuda", dtype=torch.float16, enabled=cfg.run.precision != "fp32"):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
""",
        " when `settings.cfg.run.precision != 'fp32'`",
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
    assert found.message.endswith("nothing scales the loss when conf/train.yaml says `train.amp: true` (now `false`)")


def test_flags_of_a_base_are_options_and_the_deciding_one_is_named() -> None:
    text = """
from dataclasses import dataclass
import torch
from transformers import AutoModel, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Arguments(TrainingArguments):
    groups: bool = False

def main():
    (arguments,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()
    dtype = torch.bfloat16 if arguments.bf16 else torch.float16 if arguments.fp16 else torch.float32
    model = AutoModel.from_pretrained("encoder", torch_dtype=dtype)
    Trainer(model=model, args=arguments).train()

if __name__ == "__main__":
    main()
"""
    (found,) = [finding for finding in check_text(text, "train.py") if finding.code == "MP210"]
    assert found.message.endswith("in float16 when `--fp16` is given")


def test_either_of_two_settings_is_named_where_nobody_knows_their_defaults() -> None:
    text = """
import torch

class Loop:
    def __init__(self, model, optimizer, args=None):
        self.model, self.optimizer, self.args = model, optimizer, args
        self.scales = False
        if args.fp16 or args.bf16:
            self.scales = True
        self.scaler = torch.amp.GradScaler("cuda")

    def step(self, batch):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.model(batch).mean()
        if self.scales:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if self.scales:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
"""
    (found,) = [finding for finding in check_text(text, "loop.py") if finding.code == "MP304"]
    assert found.message.endswith("loss scale when `args.bf16` is set or `args.fp16` is set")


@pytest.mark.parametrize(("option", "named"), [("config", True), ("annotations", False)])
def test_settings_in_json_are_told_from_data_by_what_names_the_file(option: str, named: bool) -> None:
    text = f"""
import argparse, json
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--{option}", required=True)
with open(parser.parse_args().{option}) as file:
    read = json.load(file)
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.load("batches"):
    with torch.autocast("cuda", dtype=torch.float16, enabled=read["half"]):
        loss = model(x).mean()
    loss.backward()
    optimizer.step()
"""
    messages = [finding.message for finding in check_text(text, "train.py") if finding.code == "MP301"]
    assert all(message.endswith(" when `read.half` is set") == named for message in messages)
    assert bool(messages) or not named


def test_a_scaler_that_a_function_is_given_is_on_when_the_file_turns_it_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        """\
import argparse
import torch


def train(model, loader, optimizer, scaler):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def begin(args):
    return torch.amp.GradScaler("cuda", enabled=args.dtype == "float16")
"""
    )
    (found,) = [f for f in check([str(tmp_path)], Config(cache=False, isolated=True)).findings if f.code == "MP304"]
    assert found.message.endswith("multiplied by the loss scale when `args.dtype == 'float16'`")


RESUMED = """\
import os
import torch
{imports}

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{made}
if os.path.exists("last.pt"):
    optimizer.load_state_dict(torch.load("last.pt")["optimizer"])
for x, y in torch.load("batches.pt"):
    loss = torch.nn.functional.mse_loss(model(x), y)
    {backward}
    optimizer.step()
    optimizer.zero_grad()
    torch.save({{"optimizer": optimizer.state_dict()}}, "last.pt")
"""


@pytest.mark.parametrize(
    ("imports", "made", "backward", "help_text"),
    [
        (
            "from apex import amp",
            'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")',
            "with amp.scale_loss(loss, optimizer) as scaled:\n        scaled.backward()",
            "Save `amp.state_dict()` too",
        ),
        (
            "from accelerate import Accelerator",
            'accelerator = Accelerator(mixed_precision="fp16")\nmodel, optimizer = accelerator.prepare(model, optimizer)',
            "accelerator.backward(loss)",
            "Save with `accelerator.save_state()`",
        ),
    ],
)
def test_help_is_in_the_words_of_the_system(imports: str, made: str, backward: str, help_text: str) -> None:
    text = RESUMED.format(imports=imports, made=made, backward=backward)
    (found,) = [finding for finding in check_text(text, "train.py") if finding.code == "MP307"]
    assert found.help.startswith(help_text)


SETTINGS = """
from yacs.config import CfgNode

_C = CfgNode()
_C.TRAIN = CfgNode()
_C.TRAIN.ROUNDS = 1


def settings(args):
    config = _C.clone()
    if args.rounds:
        config.TRAIN.ROUNDS = args.rounds
    return config
"""
ROUNDS = """
import argparse
import torch
from settings import settings

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int)
config = settings(parser.parse_args())
model = torch.nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for number, (x, y) in enumerate(torch.utils.data.DataLoader(torch.load("set.pt"))):
    with torch.autocast("cuda"):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    if config.TRAIN.ROUNDS > 1:
        scaler.unscale_(optimizer)
        if (number + 1) % config.TRAIN.ROUNDS:
            continue
    scaler.step(optimizer)
    scaler.update()
"""


def test_a_setting_that_an_option_may_replace_is_named_where_it_is_compared_with_a_number(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(SETTINGS)
    (tmp_path / "train.py").write_text(ROUNDS)
    found = check([str(tmp_path)], Config(cache=False, isolated=True, root=str(tmp_path))).findings
    assert [f.message.partition(" when ")[2] for f in found if f.code == "MP310"] == ["`TRAIN.ROUNDS > 1`"]


def test_a_conflict_of_a_trainer_names_what_it_needs() -> None:
    text = """
import argparse
import pytorch_lightning as pl

parser = argparse.ArgumentParser()
parser.add_argument("--gpus", type=int, default=1)
parser.add_argument("--half", action="store_true")
parser.add_argument("--wandb", action="store_true")
parser.add_argument("--last", default="")
args = parser.parse_args()
logger = pl.loggers.WandbLogger() if args.wandb else pl.loggers.CSVLogger("logs")
path = args.last if args.last else None
trainer = pl.Trainer(
    resume_from_checkpoint=path,
    logger=logger,
    accelerator="cpu" if args.gpus == 0 else "gpu",
    precision=16 if args.half else 32,
)
trainer.fit(torch.load("module"), torch.load("data"))
"""
    (found,) = [finding for finding in check_text(text, "train.py") if finding.code == "MP109"]
    assert found.message.endswith(" when `--gpus` is `0` and `--half` is given")


REPLICAS = """
import torch


def train(model, loader, optimizer):
    if torch.cuda.device_count() > 1:
        model = torch.nn.DataParallel(model)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = 0
{calls}
        loss.backward()
        optimizer.step()
"""


def test_of_many_ways_to_one_place_only_some_are_asked_for_what_has_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    from mplint.program import supposed
    from mplint.rule import MAX_SETTLED

    asked = []
    settled = supposed.settled
    monkeypatch.setattr(supposed, "settled", lambda *given: asked.append(given) or settled(*given))
    calls = "\n".join("            loss = loss + torch.nn.functional.cross_entropy(model(x), y)" for _ in range(3 * MAX_SETTLED))
    (found,) = [f for f in check_text(REPLICAS.format(calls=calls), "train.py", {}) if f.code == "MP112"]
    assert found.location.line == 7
    assert len(asked) == MAX_SETTLED
