"""Small torch modules of different kinds on which conversions are tried, each with its example inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Any, ...]]


class Convolutional(nn.Module):
    """Convolutions, batch normalization, transposed convolution, in-place activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.up, self.head = nn.ConvTranspose2d(8, 4, 2, 2), nn.Linear(4, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        wide = self.up(F.max_pool2d(F.relu(self.norm(self.first(image)), inplace=True), 2))
        return self.head(wide.mean((2, 3)))


class Language(nn.Module):
    """A decoder whose embedding and head share their weight, with a mask by `fill`."""

    def __init__(self, fill: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.fill = fill
        self.embed, self.norm = nn.Embedding(40, 16), nn.LayerNorm(16, eps=1e-12)
        self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 40, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        seen = torch.tril(torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool))
        weights = self.fill(q @ k.transpose(-1, -2) / math.sqrt(8), seen).softmax(-1)
        return self.head(self.norm(x + self.out((weights @ v).transpose(1, 2).flatten(2))))


class Recurrent(nn.Module):
    """An LSTM that returns its state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        every, (last, _) = self.lstm(x)
        return self.head(every), last


class Norm(nn.Module):
    """A norm by hand: the squares of what a matmul gives leave the range of float16."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return self.last(y / (y * y).sum(-1, keepdim=True).sqrt())


class Vanishing(nn.Module):
    """Constants too small for float16, which keep a logarithm finite and a divisor from being 0."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.layer(x))
        return (y + 1e-9).log() / (y.abs().amax(-1, keepdim=True) + 1e-10)


class Stateful(nn.Module):
    """Buffers and an input that change, one that shares memory with a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(8))
        self.register_buffer("part", self.layer.weight.detach()[:2])

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        self.calls.add_(1)
        self.average.mul_(0.9).add_(y.mean(0), alpha=0.1)
        state.add_(y)
        return y @ self.part.T + self.average[:2]


class Islands(nn.Module):
    """Parts in float64, bfloat16 and complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.wide, self.narrow = nn.Linear(8, 8), nn.Linear(8, 8).double(), nn.Linear(8, 8).bfloat16()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.first(x)
        return self.wide(y.double()), self.narrow(y.bfloat16()).float(), torch.fft.irfft(torch.fft.rfft(y))


class Branching(nn.Module):
    """A condition on data, and results that are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y = self.first(x)
        z = torch.cond(y.sum() > 0, lambda t: self.second(t).sin(), lambda t: t.cos() - 1, (y,))
        return {"z": z, "best": [y.argmax(-1), y.topk(2).indices], "rows": x.shape[0], "none": None}


class Positions(nn.Module):
    """Positions beyond 2048, where float16 skips integers, and a sum that grows beyond it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("steps", 1.0 / (10000 ** (torch.arange(0, 8, 2) / 8)), persistent=False)

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        angles = at.float()[:, None] * self.steps
        return self.layer(x) * torch.cat([angles.sin(), angles.cos()], -1) + at.float().cumsum(0)[:, None] * 1e-4


class Random(nn.Module):
    """Noise in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y + torch.randn_like(y) * 0.1


def _filled(scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill(~seen, -1e9)


def _chosen(scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return torch.where(seen, scores, torch.tensor(torch.finfo(torch.float32).min))


def _added(scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return scores + (1.0 - seen.float()) * -1e9


CASES: dict[str, Callable[[], Made]] = {
    "convolutional": lambda: (Convolutional(), (torch.randn(2, 3, 8, 8),)),
    "mask filled": lambda: (Language(_filled), (torch.randint(0, 40, (2, 6)),)),
    "mask chosen": lambda: (Language(_chosen), (torch.randint(0, 40, (2, 6)),)),
    "mask added": lambda: (Language(_added), (torch.randint(0, 40, (2, 6)),)),
    "recurrent": lambda: (Recurrent(), (torch.randn(2, 3, 8),)),
    "norm": lambda: (Norm(), (torch.randn(4, 16) * 200,)),
    "vanishing": lambda: (Vanishing(), (torch.randn(4, 8),)),
    "stateful": lambda: (Stateful(), (torch.randn(4, 8), torch.zeros(4, 8))),
    "islands": lambda: (Islands(), (torch.randn(3, 8),)),
    "branching": lambda: (Branching(), (torch.randn(3, 8),)),
    "positions": lambda: (Positions(), (torch.randn(4, 8), torch.tensor([0, 7, 4093, 5001]))),
    "random": lambda: (Random(), (torch.randn(4, 8),)),
}


def made(name: str) -> Made:
    """A module with weights that are always the same, and its example inputs."""
    torch.manual_seed(0)
    module, inputs = CASES[name]()
    return module.eval(), inputs


def exported(name: str, *, decomposed: bool) -> torch.export.ExportedProgram:
    """Its program, as torch.export gives it or with core operators."""
    module, inputs = made(name)
    program = torch.export.export(module, inputs)
    return program.run_decompositions() if decomposed else program
