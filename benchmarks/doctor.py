"""What `mplint doctor` costs: the processor time of training loops alone and under it, in turns.

    python benchmarks/doctor.py [--repeats 3] [--only NAME,NAME] [--limit 900]

Each model is a script of its own that trains on made-up data and notes the processor time (user and system, of all threads) of its loop.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

TORCH = """import sys, time
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
{model}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu")
loss_fn = nn.CrossEntropyLoss()
began = time.process_time()
for _ in range({steps}):
    with torch.autocast("cpu", torch.{dtype}):
        loss = loss_fn(model({inputs}), torch.randint(0, 10, ({batch},)))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
open(sys.argv[1], "w").write(str(time.process_time() - began))
"""
KERAS = """import sys, time
import keras
import numpy as np

keras.utils.set_random_seed(0)
keras.mixed_precision.set_global_policy("mixed_float16")
model = keras.Sequential([
    {model}
    keras.layers.Dense(10, dtype="float32"),
])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x = np.random.default_rng(0).normal(size=({steps} * {batch}, *{shape})).astype("float32")
y = np.random.default_rng(1).integers(0, 10, {steps} * {batch})
began = time.process_time()
model.fit(x, y, batch_size={batch}, epochs=1, verbose=0)
open(sys.argv[1], "w").write(str(time.process_time() - began))
"""
NORMED = "model = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(32, 32), nn.LayerNorm(32), nn.ReLU())], nn.Linear(32, 10))"
WIDE = "model = nn.Sequential(*[m for _ in range(7) for m in (nn.Linear(512, 512), nn.ReLU())], nn.Linear(512, 10))"
PICTURES = """def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, 1, 1), nn.BatchNorm2d(b), nn.ReLU())

model = nn.Sequential(block(3, 16), block(16, 32), block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))"""
ATTENTION = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.embed, self.body, self.head = nn.Embedding(1000, 64), nn.TransformerEncoder(layer, 4), nn.Linear(64, 10)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)).mean(1))

model = Net()"""
RECURRENT = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(32, 64), nn.Linear(64, 10)

    def forward(self, values):
        state = values.new_zeros(len(values), 64)
        for step in values.unbind(1):
            state = self.cell(step, state)
        return self.head(state)

model = Net()"""


class Case(NamedTuple):
    """A training: its script, and how many steps it makes."""

    script: str
    steps: int


def of_torch(model: str, inputs: str, steps: int, batch: int, dtype: str = "bfloat16") -> Case:
    return Case(TORCH.format(model=model, inputs=inputs, steps=steps, batch=batch, dtype=dtype), steps)


def of_keras(model: str, shape: str, steps: int, batch: int) -> Case:
    return Case(KERAS.format(model=model, shape=shape, steps=steps, batch=batch), steps)


CASES = {
    "torch: 12 Linear of 32, norms": of_torch(NORMED, "torch.randn(32, 32)", 800, 32),
    "torch: 7 Linear of 512": of_torch(WIDE, "torch.randn(256, 512)", 150, 256),
    "torch: convolutions": of_torch(PICTURES, "torch.randn(32, 3, 32, 32)", 150, 32),
    "torch: 4 layers of attention": of_torch(ATTENTION, "torch.randint(0, 1000, (16, 32))", 150, 16),
    "torch: GRU cell, 24 steps": of_torch(RECURRENT, "torch.randn(32, 24, 32)", 150, 32),
    "keras: 5 Dense of 512": of_keras("*[keras.layers.Dense(512, activation='relu') for _ in range(5)],", "(128,)", 300, 128),
    "keras: convolutions": of_keras(
        "*[keras.layers.Conv2D(16, 3, activation='relu') for _ in range(3)], keras.layers.GlobalAveragePooling2D(),", "(16, 16, 3)", 200, 32
    ),
    "keras: LSTM": of_keras("keras.layers.LSTM(32),", "(24, 16)", 200, 32),
}


class Spent(NamedTuple):
    """Seconds of a processor: of the loop alone, and of all processes from start to end."""

    loop: float
    whole: float


def run(case: Case, folder: Path, watched: bool, limit: float) -> tuple[Spent, int]:
    """One run, and how many steps were looked at."""
    (folder / "pyproject.toml").touch()
    (folder / "train.py").write_text(case.script, encoding="utf-8")
    told, seen = folder / "seconds", folder / "run.json"
    command = [sys.executable, "train.py", str(told)]
    if watched:
        asked = ["--steps", str(case.steps * 2), "--limit", str(limit), "--output-format", "json", "--output-file", str(seen)]
        command = [sys.executable, "-m", "mplint", "doctor", "train.py", *asked, "--", str(told)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, cwd=folder, check=False, capture_output=True, env={**os.environ, **quiet}, timeout=limit * 2)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    looked_at = int(json.loads(seen.read_text(encoding="utf-8"))["facts"]["looked_at"]) if watched else 0
    if not told.exists():
        raise SystemExit(f"the training did not come to its end within {limit:g} s of the clock: give it more by --limit")
    return Spent(float(told.read_text(encoding="utf-8")), whole), looked_at


def main() -> int:
    """Print a table with a line a model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a run may take, on the clock")
    asked = parser.parse_args()
    wanted = [name for name in CASES if any(part in name for part in asked.only.split(",")) or not asked.only]
    print("| model | steps | loop alone, s | under the doctor, s | times | least to most | steps looked at | whole run, times |")
    print("|---|--:|--:|--:|--:|---|---|--:|", flush=True)
    for name in wanted:
        pairs, looked = [], []
        for _ in range(asked.repeats):
            with tempfile.TemporaryDirectory() as alone, tempfile.TemporaryDirectory() as watched:
                plain, _ = run(CASES[name], Path(alone), False, asked.limit)
                under, at = run(CASES[name], Path(watched), True, asked.limit)
            pairs.append((plain, under))
            looked.append(at)
        ratios = [under.loop / plain.loop for plain, under in pairs]
        loops = [statistics.median(each.loop for each in side) for side in zip(*pairs, strict=True)]
        wholes = [statistics.median(each.whole for each in side) for side in zip(*pairs, strict=True)]
        figures = f"{loops[0]:.1f} | {loops[1]:.1f} | {statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f}"
        print(f"| {name} | {CASES[name].steps} | {figures} | {min(looked)} to {max(looked)} | {wholes[1] / wholes[0]:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
