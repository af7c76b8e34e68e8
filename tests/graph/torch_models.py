"""Small models of the families that people ship, in PyTorch: what they export to is what the graph tests read."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Convolutions, batch normalization, and a head over 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        self.blocks = nn.Sequential(Block(16, 24, 2), Block(24, 32, 2))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Attention(nn.Module):
    """Multi-head attention; with `causal`, each position sees the earlier ones, by a mask of the lowest number there is."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).reshape(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        if self.causal:
            hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, length, width))


class Layer(nn.Module):
    """A transformer layer with normalization first."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ViT(nn.Module):
    """Patches, position embeddings, two layers, a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, 32))
        self.positions = nn.Parameter(torch.zeros(1, 17, 32))
        self.layers = nn.Sequential(Layer(32, 4, False), Layer(32, 4, False))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


class GPT(nn.Module):
    """Token and position embeddings, two causal layers, a head over the vocabulary."""

    def __init__(self, vocabulary: int = 1000) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, 32), nn.Embedding(64, 32)
        self.layers = nn.Sequential(Layer(32, 4, True), Layer(32, 4, True))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.layers(x)))


class Tagger(nn.Module):
    """An LSTM over embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.lstm, self.head = nn.Embedding(200, 16), nn.LSTM(16, 24, batch_first=True), nn.Linear(24, 5)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.tokens(ids))[0]).log_softmax(-1)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "resnet": (ResNet, (torch.zeros(2, 3, 32, 32),)),
    "vit": (ViT, (torch.zeros(2, 3, 32, 32),)),
    "gpt": (GPT, (torch.zeros(2, 12, dtype=torch.int64),)),
    "tagger": (Tagger, (torch.zeros(2, 7, dtype=torch.int64),)),
}
