"""`mplint doctor` on trainings that the trainers of other packages run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.framework, pytest.mark.timeout(180)]
NET = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

body = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
data = TensorDataset(torch.randn(512, 16), torch.randint(0, 8, (512,)))
"""
LIGHTNING = f"""{NET}
import lightning


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = body

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.body(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", devices=1, precision="bf16-mixed", gradient_clip_val=1.0, **quiet)
trainer.fit(Net(), DataLoader(data, batch_size=16))
"""
TRAINER = f"""{NET}
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = body

    def forward(self, x, labels=None):
        logits = self.body(x)
        return {{"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}}


quiet = dict(report_to=[], save_strategy="no", disable_tqdm=True)
arguments = TrainingArguments("out", per_device_train_batch_size=16, num_train_epochs=1, use_cpu=True, bf16=True, **quiet)
Trainer(Net(), arguments, train_dataset=[{{"x": x, "labels": y}} for x, y in data]).train()
"""
ACCELERATED = f"""{NET}
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(body, optimizer, DataLoader(data, batch_size=16))
for x, y in loader:
    with accelerator.accumulate(model):
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("packages", "script"),
    [(("lightning",), LIGHTNING), (("transformers", "accelerate"), TRAINER), (("accelerate",), ACCELERATED)],
    ids=["lightning", "transformers", "accelerate"],
)
def test_a_trainer_of_another_package_is_watched_and_well(tmp_path: Path, packages: tuple[str, ...], script: str) -> None:
    for package in packages:
        pytest.importorskip(package)
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "mplint", "doctor", "train.py", "--steps", "12", "--output-format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170, check=False, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["diagnoses"], found["steps"], found["ended"]) == ([], 12, "steps")
    assert set(found["facts"]["work"]) == {"bfloat16"}
    assert {row["computed"] for row in found["facts"]["gradients"]} == {"bfloat16"}
