"""One training step on the CPU, and the most memory that torch allocates for it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile


class Case(NamedTuple):
    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 64, 7, 2, 3)
        self.convolutions = nn.ModuleList(nn.Conv2d(64, 64, 3, padding=1) for _ in range(6))
        self.norms = nn.ModuleList(nn.BatchNorm2d(64) for _ in range(6))
        self.head = nn.Linear(64, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.first(x))
        for place in range(0, 6, 2):
            inner = functional.relu(self.norms[place](self.convolutions[place](x)))
            x = functional.relu(x + self.norms[place + 1](self.convolutions[place + 1](inner)))
        return self.head(x.mean((2, 3)))


def convolutions() -> nn.Module:
    block = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1)]
    return nn.Sequential(*block, nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def dense() -> nn.Module:
    wide = [nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.ReLU(), nn.LayerNorm(1024)]
    return nn.Sequential(*wide, nn.Linear(1024, 10))


def transformer() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True), 2)


CASES = (
    Case("convolutions", convolutions, (16, 3, 64, 64)),
    Case("dense", dense, (256, 512)),
    Case("transformer", transformer, (8, 64, 128)),
    Case("residual", Residual, (4, 3, 96, 96)),
)


def measured_peak(case: Case, half: torch.dtype | None) -> float:
    """Bytes of weights, buffers, Adam's state and the input, and the most that one step allocates beside them."""
    torch.manual_seed(0)
    module = case.make()
    data = torch.randn(*case.shape)
    optimizer = torch.optim.Adam(module.parameters(), 1e-3, foreach=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", half or torch.bfloat16, enabled=half is not None):
            result = module(data)
        result.float().sum().backward()
        optimizer.step()

    step()
    optimizer.zero_grad(set_to_none=True)
    gc.collect()
    state = [value for slots in optimizer.state.values() for value in slots.values() if isinstance(value, torch.Tensor)]
    static = sum(tensor.numel() * tensor.element_size() for tensor in (*module.parameters(), *module.buffers(), data, *state))
    held = most = 0
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return float(static + most)
