"""The conditions that messages name are those of the evidence, all of them and no others."""

from __future__ import annotations

import pytest

from mplint.api import check_text

FIXED = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
parser.add_argument("--half", type=bool, default=False)
args = parser.parse_args({words})
{then}
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.load("batches"):
    with torch.autocast("cuda", enabled=args.amp):
        loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

MEASURED = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--accum", type=int, default={accum})
parser.add_argument("--log-grad", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for i, (x, y) in enumerate(torch.load("batches")):
    with torch.autocast("cuda"):
        loss = torch.nn.functional.mse_loss(model(x), y) / args.accum
    scaler.scale(loss).backward()
    if (i + 1) % args.accum == 0:
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    if args.log_grad:
        print([p.grad.norm() for p in model.parameters()])
    if (i + 1) % args.accum == 0:
        optimizer.zero_grad()
"""

PURE = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--precision", default="amp", choices=["amp", "amp_bf16", "bf16", "fp16", "fp32"])
args = parser.parse_args()
model = torch.nn.Linear(8, 8)
if args.precision in ("fp16", "bf16"):
    model.to(torch.bfloat16 if args.precision == "bf16" else torch.float16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda") if args.precision == "amp" else None
for x, y in torch.load("batches"):
    dtype = torch.float16 if args.precision == "amp" else torch.bfloat16
    with torch.autocast("cuda", enabled=args.precision.startswith("amp"), dtype=dtype):
        loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    if scaler is not None:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
"""

MERGED = """
import argparse
import torch
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--size", default="nano")
args = parser.parse_args()


def merged(base, over):
    made = dict(base)
    for key, value in over.items():
        made[key] = value
    return made


config = merged(merged({}, yaml.safe_load(open("base.yaml"))), {"size": args.size})
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.load("batches"):
    with torch.autocast("cuda"):
        if config["attention"] == "tiled":
            scores = model(x).masked_fill(y > 0, -1e9)
        else:
            scores = model(x)
"""

TACOTRON = """
import tensorflow as tf
import torch
from apex import amp


def make(words):
    found = tf.contrib.training.HParams(fp16_run=False, rate=0.1)
    if words:
        found.parse(words)
    return found


def train(hparams, path):
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=hparams.rate)
    if hparams.fp16_run:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    if path:
        held = torch.load(path)
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
    for x, y in torch.load("batches"):
        loss = torch.nn.functional.mse_loss(model(x), y)
        if hparams.fp16_run:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


train(make("rate=0.2"), "last.pt")
"""

SET_LATER = """
import yaml

for name, value in yaml.safe_load(open("run.yaml")).items():
    setattr(args, name, value)
"""


@pytest.mark.parametrize(
    ("text", "code", "ends"),
    [
        (FIXED.format(words="", then=""), "MP301", "when `--amp` is given"),
        (FIXED.format(words="[]", then=SET_LATER), "MP301", "when `args.amp` is set"),
        (FIXED.format(words='["--amp"]', then=""), "MP301", ""),
        (MEASURED.format(accum=1), "MP304", "when `--accum` is not `1` and `--log-grad` is given"),
        (MEASURED.format(accum=4), "MP304", "when `--log-grad` is given"),
        (PURE, "MP105", "when `--precision` is `fp16`"),
        (MERGED, "MP204", "when `attention` is `tiled`"),
        (TACOTRON, "MP307", "when `fp16_run` is set"),
    ],
)
def test_the_condition_is_that_of_the_evidence(text: str, code: str, ends: str) -> None:
    (finding,) = (finding for finding in check_text(text, "train.py") if finding.code == code)
    assert finding.message.partition(" when ")[2] == ends.removeprefix("when "), finding.message


@pytest.mark.parametrize("text", [FIXED.format(words="[]", then=""), FIXED.format(words='""', then="")])
def test_what_the_program_itself_leaves_off_is_not_told(text: str) -> None:
    assert not [finding for finding in check_text(text, "train.py") if finding.code == "MP301"]


DEVICE = """import torch


class Trainer:
    def __init__(self, model, device=None, use_amp=True):
        self.model = model
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.use_amp = use_amp and self.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.use_amp)

    def resume(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)

    def fit(self, loader):
        for x in loader:
            with torch.autocast("cuda", enabled=self.use_amp):
                loss = self.model(x).mean()
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
"""


def test_of_two_ways_that_lead_to_a_mistake_the_one_is_told_that_asks_for_nothing() -> None:
    (found,) = [finding for finding in check_text(DEVICE, "train.py", {}) if finding.code == "MP307"]
    assert " when " not in found.message
