"""Two files that hold one mistake between them: a scaler, and the training that clips before it unscales; and runs over such files."""

from __future__ import annotations

import subprocess

SCALER = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"
TRAIN = """\
import torch
from {module} import scaler

def train(model, loader, optimizer):
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""


def training(module: str) -> str:
    """A training with the scaler of a module."""
    return TRAIN.format(module=module)


def ended(run: subprocess.Popen[str], limit: float = 240) -> tuple[int, str, str]:
    """The exit code of a run that ends within so many seconds, and what it wrote to both streams."""
    out, err = run.communicate(timeout=limit)
    return run.returncode, out, err
