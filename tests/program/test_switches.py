"""What one switch decides at several places is decided the same way everywhere, however each place asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.api import check, check_text
from mplint.config import Config

HEAD = """
import argparse
from contextlib import nullcontext
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--cpu", action="store_true")
parser.add_argument("--precision", default="fp32", choices=["fp32", "fp16", "bf16"])
parser.add_argument("--every", type=int, default=1)
args = parser.parse_args()
model = nn.Linear(64, 8)
optimizer = torch.optim.AdamW(model.parameters())
batches = torch.load("batches")
"""

CLASS = """
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Optional
import torch
from torch import nn

@dataclass
class Settings:
    half: bool = True
    device: Optional[str] = None
    every: int = 1
    limit: float = 1.0
    noise: float = 0.0
"""

GOOD = {
    "a device type that several things decide": CLASS
    + """
class Loop:
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, batches, settings: Settings):
        self.model, self.optimizer, self.batches, self.settings = model, optimizer, batches, settings
        self.device = self.find_device()
        self.region = None
        if settings.half and self.device.type in ("cuda", "mps"):
            self.region = self.device.type
        if self.region == "cuda":
            try:
                self.scaler = torch.amp.GradScaler("cuda")
            except AttributeError:
                self.scaler = torch.cuda.amp.GradScaler(enabled=True)
        else:
            self.scaler = None

    def find_device(self):
        if self.settings.device:
            return torch.device(self.settings.device)
        if torch.backends.mps.is_available():
            return torch.device("mps")
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("cpu")

    def run(self):
        for number, (x, y) in enumerate(self.batches, start=1):
            region = nullcontext()
            if self.region == "cuda":
                region = torch.autocast("cuda")
            elif self.region == "mps":
                region = torch.autocast("mps", dtype=torch.float16)
            with region:
                loss = nn.functional.cross_entropy(self.model(x), y) / self.settings.every
                if self.settings.noise > 0:
                    loss = 0.5 * (loss + nn.functional.cross_entropy(self.model(x + self.settings.noise), y))
            if not torch.isfinite(loss):
                raise RuntimeError(f"no finite loss at {number}")
            if self.region == "cuda" and self.scaler:
                self.scaler.scale(loss).backward()
            else:
                loss.backward()
            if number % self.settings.every == 0:
                if self.region == "cuda" and self.scaler:
                    self.scaler.unscale_(self.optimizer)
                    nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.limit)
                    self.scaler.step(self.optimizer)
                    self.scaler.update()
                else:
                    nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.limit)
                    self.optimizer.step()
                self.optimizer.zero_grad()
""",
    "the scaler is asked, where three flags made it": HEAD
    + """
use_half = args.amp and torch.cuda.is_available() and not args.cpu
scaler = torch.cuda.amp.GradScaler() if use_half else None
for x, y in batches:
    with torch.autocast("cuda", dtype=torch.float16, enabled=use_half):
        loss = nn.functional.cross_entropy(model(x), y)
    if args.amp and torch.cuda.is_available() and not args.cpu:
        scaler.scale(loss).backward()
    else:
        loss.backward()
    if scaler is not None:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
""",
    "the scaler is asked first, then the flags": HEAD
    + """
use_half = args.precision == "fp16" and torch.cuda.is_available() and not args.cpu
scaler = None
if use_half:
    scaler = torch.amp.GradScaler()
for x, y in batches:
    with torch.autocast("cuda", dtype=torch.float16) if use_half else nullcontext():
        loss = nn.functional.cross_entropy(model(x), y)
    if scaler:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
    else:
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if use_half:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
""",
    "three flags that exclude each other": """
import torch
from torch import nn

def pick(params):
    half = params.get("precision", "auto")
    if half == "auto":
        half = "bf16" if torch.cuda.is_bf16_supported() else "fp16"
    return half == "fp16", half == "bf16", half == "fp32"

def fit(model, batches, params):
    fp16, bf16, fp32 = pick(params)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=fp16)
    kind = torch.bfloat16 if bf16 else torch.float16
    for x, y in batches:
        with torch.autocast("cuda", dtype=kind, enabled=not fp32):
            loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    "the same region around the loss": """
from contextlib import nullcontext
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class Options:
    precision: str = "bf16"
    device: str = "cuda"

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 32)
        self.outer = nn.Linear(32, 8)

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)))

def criterion(logits, y):
    return nn.functional.cross_entropy(logits, y)

class Fit:
    def __init__(self, options: Options):
        self.options = options
        self.model = Net().to(options.device)
        self.kind = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(options.precision, torch.float32)
        self.half = options.precision in ("fp16", "bf16")
        self.scaler = torch.amp.GradScaler("cuda", enabled=options.precision == "fp16")
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self, x, y):
        with torch.autocast("cuda", dtype=self.kind, enabled=self.half):
            logits = self.model(x)
        with torch.autocast("cuda", dtype=self.kind, enabled=self.half):
            loss = criterion(logits, y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

if __name__ == "__main__":
    fit = Fit(Options())
    for x, y in torch.load("batches"):
        fit.step(x, y)
""",
    "a property asks for the flags": """
import torch
from torch import nn

class Runner:
    def __init__(self, model, optimizer, amp=False, device="cuda", ema=None):
        self.model, self.optimizer = model, optimizer
        self.amp, self.device, self.ema = amp, torch.device(device), ema
        self.scaler = torch.cuda.amp.GradScaler() if self.mixed else None

    @property
    def mixed(self):
        return self.amp and self.device.type == "cuda" and torch.cuda.is_available()

    def step(self, x, y):
        with torch.autocast("cuda", enabled=self.mixed):
            loss = nn.functional.cross_entropy(self.model(x), y)
        if self.mixed:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()
        if self.ema is not None:
            self.ema.update(self.model)
        if self.mixed:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad()
""",
    "flags out of a dict with defaults": """
import json
import torch
from torch import nn

def fit(model, batches):
    config = json.load(open("config.json"))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.get("lr", 0.1))
    if config.get("amp", False) and config.get("device", "cuda") == "cuda":
        scaler = torch.cuda.amp.GradScaler()
    else:
        scaler = None
    for number, (x, y) in enumerate(batches):
        with torch.autocast("cuda", enabled=config.get("amp", False) and config.get("device", "cuda") == "cuda"):
            loss = nn.functional.cross_entropy(model(x), y)
        if scaler is None:
            loss.backward()
        else:
            scaler.scale(loss).backward()
        if (number + 1) % config.get("every", 4):
            continue
        if config.get("amp", False) and config.get("device", "cuda") == "cuda":
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()
""",
    "an exception on the way": HEAD
    + """
use_half = args.amp and torch.cuda.is_available() and not args.cpu
scaler = torch.amp.GradScaler() if use_half else None
for x, y in batches:
    try:
        with torch.autocast("cuda", enabled=use_half):
            loss = nn.functional.cross_entropy(model(x), y)
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        else:
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if use_half:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        torch.cuda.empty_cache()
    optimizer.zero_grad(set_to_none=True)
""",
    "a helper does the step": HEAD
    + """
def backward(loss, scaler):
    if scaler is None:
        loss.backward()
        return
    scaler.scale(loss).backward()

def step(optimizer, half, scaler, parameters):
    if half:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(parameters, 1.0)
    if not half:
        optimizer.step()
        return
    scaler.step(optimizer)
    scaler.update()

half = args.precision == "fp16" and torch.cuda.is_available() and not (args.cpu or args.compile)
scaler = torch.amp.GradScaler("cuda") if half else None
for number, (x, y) in enumerate(batches):
    with torch.autocast("cuda", dtype=torch.float16, enabled=half):
        loss = nn.functional.cross_entropy(model(x), y)
    backward(loss / args.every, scaler)
    if (number + 1) % args.every == 0 or number + 1 == len(batches):
        step(optimizer, half, scaler, model.parameters())
        optimizer.zero_grad()
""",
    "keras: the optimizer of the policy": """
import os
import tensorflow as tf
from tensorflow.keras import layers, mixed_precision

def half_asked(config):
    return config.get("mixed", False) and config.get("device", "gpu") == "gpu" and not os.environ.get("NO_HALF")

def train(config, data):
    half = half_asked(config)
    if half:
        mixed_precision.set_global_policy("mixed_float16")
    model = tf.keras.Sequential([layers.Dense(64, activation="relu"), layers.Dense(8), layers.Activation("softmax", dtype="float32")])
    optimizer = tf.keras.optimizers.Adam()
    if half_asked(config):
        optimizer = mixed_precision.LossScaleOptimizer(optimizer)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
    for x, y in data:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
            scaled = optimizer.get_scaled_loss(loss) if half else loss
        gradients = tape.gradient(scaled, model.trainable_variables)
        if half:
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
""",
    "keras: an epsilon by the dtype of the policy": """
import tensorflow as tf
from tensorflow.keras import layers, mixed_precision

class Norm(layers.Layer):
    def __init__(self, dtype="float32", name=None):
        super().__init__(dtype=dtype, name=name)
        self.small = 1e-8 if self._dtype_policy.compute_dtype == "float32" else 1e-3

    def call(self, x):
        return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), axis=-1, keepdims=True) + self.small)

def build(config):
    half = config.get("use_half", True)
    policy = mixed_precision.Policy("mixed_float16") if half else "float32"
    return tf.keras.Sequential([layers.Dense(64, dtype=policy), Norm(dtype=policy), layers.Dense(8, dtype="float32")])

model = build({})
""",
    "keras: a constant in the dtype of the policy": """
import tensorflow as tf
from tensorflow.keras import layers, mixed_precision

def kind_of(half):
    return mixed_precision.Policy("mixed_float16").compute_dtype if half else "float32"

class Gain(layers.Layer):
    def __init__(self, gain=1.5, dtype="float32"):
        super().__init__(dtype=dtype)
        self.in_single = self._dtype_policy.compute_dtype == "float32"
        self.gain = tf.constant(gain, dtype="float32" if self.in_single else "float16")

    def call(self, x):
        return self.gain * tf.nn.relu(x)

class Net(tf.keras.Model):
    def __init__(self, config):
        super().__init__(dtype=mixed_precision.Policy("mixed_float16") if config.get("half", False) else "float32")
        self.kind = kind_of(config.get("half", False))
        self.inner = layers.Dense(64)
        self.gain = Gain(dtype=mixed_precision.Policy("mixed_float16") if config.get("half", False) else "float32")
        self.ones = tf.ones([1, 64], dtype=self.kind)

    def call(self, x):
        return self.gain(self.inner(x)) * self.ones
""",
}

FILES = {
    "the flags stand in another file": {
        "settings.py": """
import torch

class Settings:
    def __init__(self, amp=True, dtype="float16", cpu=False):
        self.amp, self.dtype, self.cpu = amp, dtype, cpu

    def scales(self):
        return self.amp and self.dtype == "float16" and not self.cpu

    def kind(self):
        return torch.float16 if self.dtype == "float16" else torch.bfloat16
""",
        "steps.py": """
import torch

class Stepper:
    def __init__(self, optimizer, settings):
        self.optimizer, self.settings = optimizer, settings
        self.scaler = torch.amp.GradScaler("cuda") if settings.scales() else None

    def backward(self, loss):
        if self.settings.scales():
            loss = self.scaler.scale(loss)
        loss.backward()

    def step(self, parameters):
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        if self.settings.scales():
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad()
""",
        "train.py": """
import argparse
import torch
from settings import Settings
from steps import Stepper

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
parser.add_argument("--cpu", action="store_true")
parser.add_argument("--dtype", default="float16")
args = parser.parse_args()
settings = Settings(args.amp, args.dtype, args.cpu)
model = torch.nn.Linear(64, 8)
stepper = Stepper(torch.optim.AdamW(model.parameters()), settings)
for x, y in torch.load("batches"):
    with torch.autocast("cuda", dtype=settings.kind(), enabled=settings.amp and not settings.cpu):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    stepper.backward(loss)
    stepper.step(model.parameters())
""",
    },
}

# the switches differ, or one of them is asked the wrong way round
BAD = {
    "another flag at the step": (
        HEAD
        + """
scaler = torch.amp.GradScaler() if args.amp and torch.cuda.is_available() and not args.cpu else None
for x, y in batches:
    with torch.autocast("cuda", enabled=scaler is not None):
        loss = nn.functional.cross_entropy(model(x), y)
    if scaler is not None:
        scaler.scale(loss).backward()
    else:
        loss.backward()
    if args.amp and torch.cuda.is_available() and not args.cpu and not args.compile:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
""",
        "MP302",
    ),
    "clipped before it is unscaled, by three flags": (
        HEAD
        + """
half = args.precision == "fp16" and torch.cuda.is_available() and not args.cpu
scaler = torch.amp.GradScaler() if half else None
for x, y in batches:
    with torch.autocast("cuda", enabled=half):
        loss = nn.functional.cross_entropy(model(x), y)
    if half:
        scaler.scale(loss).backward()
    else:
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if scaler is not None:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
""",
        "MP304",
    ),
    "three flags make a scaler that scales nothing": (
        HEAD
        + """
half = args.amp and torch.cuda.is_available() and not args.cpu
scaler = torch.amp.GradScaler() if half else None
for x, y in batches:
    with torch.autocast("cuda", dtype=torch.float16, enabled=half):
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    if half:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
""",
        "MP302",
    ),
    "a scaler that bfloat16 switches on as well": (
        """
import argparse
import torch
from torch import nn

def pick(precision):
    return precision == "fp16", precision == "bf16", precision == "fp32"

parser = argparse.ArgumentParser()
parser.add_argument("--precision", default="bf16", choices=["fp16", "bf16", "fp32"])
fp16, bf16, fp32 = pick(parser.parse_args().precision)
model = nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=not fp32)
kind = torch.bfloat16 if bf16 else torch.float16
for x, y in torch.load("batches"):
    with torch.autocast("cuda", dtype=kind, enabled=not fp32):
        loss = nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""",
        "MP306",
    ),
    "a device type that several things decide, clipped too early": (
        GOOD["a device type that several things decide"].replace("self.scaler.unscale_(self.optimizer)", "pass"),
        "MP304",
    ),
    "a property that asks for less": (
        GOOD["a property asks for the flags"].replace(
            "        if self.mixed:\n            self.scaler.step(",
            "        if self.mixed and self.ema is not None:\n            self.scaler.step(",
        ),
        "MP302",
    ),
    "the loss outside of the region": (
        GOOD["the same region around the loss"]
        .replace(
            '        with torch.autocast("cuda", dtype=self.kind, enabled=self.half):\n            loss = criterion(logits, y)\n',
            "        loss = criterion(logits, y)\n",
        )
        .replace('precision: str = "bf16"', 'precision: str = "fp16"'),
        "MP202",
    ),
    "flags out of a dict, clipped too early": (
        GOOD["flags out of a dict with defaults"].replace(
            "            continue\n", "            continue\n        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        ),
        "MP304",
    ),
    "keras: unscaled and never scaled": (
        GOOD["keras: the optimizer of the policy"].replace("optimizer.get_scaled_loss(loss) if half else loss", "loss"),
        "MP302",
    ),
    "keras: an epsilon asked the wrong way round": (
        GOOD["keras: an epsilon by the dtype of the policy"].replace('== "float32"', '!= "float32"'),
        "MP205",
    ),
    "keras: a constant in the other dtype": (
        GOOD["keras: a constant in the dtype of the policy"].replace('"float32" if self.in_single else "float16"', '"float32"'),
        "MP209",
    ),
}


def codes(text: str) -> set[str]:
    return {finding.code for finding in check_text(text, "train.py") if finding.severity.value != "info" and finding.code != "MP101"}


@pytest.mark.parametrize("name", GOOD)
def test_one_switch_is_silent(name: str) -> None:
    assert codes(GOOD[name]) == set()


@pytest.mark.parametrize("name", FILES)
def test_one_switch_over_files_is_silent(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, text in FILES[name].items():
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path)
    found = check(["."], Config(ignore=("MP101",), cache=False, isolated=True)).findings
    assert [f"{finding.code} {finding.message}" for finding in found if finding.severity.value != "info"] == []


@pytest.mark.parametrize("name", BAD)
def test_two_switches_are_told(name: str) -> None:
    text, code = BAD[name]
    assert codes(text) == {code}


def test_what_happens_on_cards_without_bfloat16_is_said_of_these_alone() -> None:
    text = """
import torch
from torch import nn

dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
model = nn.Sequential(nn.Linear(64, 8)).cuda().to(dtype)
optimizer = torch.optim.AdamW(model.parameters())
for x in torch.load("batches"):
    with torch.autocast("cuda", dtype=dtype):
        loss = model(x).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    (finding,) = (finding for finding in check_text(text, "train.py") if finding.code == "MP210")
    assert finding.message.endswith("when `torch.cuda.is_bf16_supported()` is false")


def test_a_setting_that_leads_to_a_mistake_is_named_beside_the_one_that_chooses_the_precision() -> None:
    text = """
import argparse
import torch
import yaml
from torch import nn


class Frames(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.framed = settings.get("framed", False)
        self.mix = nn.Linear(3, 3)

    def forward(self, x):
        x = self.mix(x)
        return torch.linalg.eigh(x.T @ x)[0] if self.framed else x


parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
parser.add_argument("--config")
args = parser.parse_args()
net = Frames(yaml.safe_load(open(args.config)))
for x in torch.load("batches"):
    with torch.autocast("cuda", enabled=args.amp):
        net(x)
"""
    (finding,) = (finding for finding in check_text(text, "train.py") if finding.code == "MP202")
    assert "`--amp` is given and " in finding.message and "framed` is set" in finding.message
