"""Models as exporters write them: torch by both of its exporters, Keras by its own, TensorFlow by tf2onnx. Small, with random weights."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from hard_case import Array
from torch import Tensor, nn
from torch.nn import functional

Inputs = tuple[Tensor, ...]


class Residual(nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(wide, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide), nn.SiLU(), nn.Conv2d(wide, wide, 1)
        )
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, wide, 1), nn.Hardsigmoid())

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return x + y * self.gate(y)


class ConvNet(nn.Module):
    """Squeeze and excitation, group and instance norms, a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.blocks = nn.Sequential(Residual(16), nn.GroupNorm(4, 16), Residual(16), nn.InstanceNorm2d(16, affine=True))
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(self.blocks(self.stem(x)))
        return self.head(functional.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False))


class Encoder(nn.Module):
    """Embeddings, positions, padding mask, and torch's own transformer layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(64, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 5)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        y = self.layers(x, src_key_padding_mask=mask == 0)
        kept = mask.unsqueeze(-1).to(y.dtype)
        return self.head((y * kept).sum(1) / kept.sum(1).clamp(min=1e-9))


class Norm(nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(wide))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class Decoder(nn.Module):
    """A language model of today: RMS norms, rotary positions, grouped heads, gated layers, a causal mask, tied embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(60, 32)
        sizes = {"q": (32, 32), "kv": (32, 32), "o": (32, 32), "up": (32, 128), "down": (64, 32)}
        self.layers = nn.ModuleList(
            nn.ModuleDict({"one": Norm(32), "two": Norm(32)} | {name: nn.Linear(*size, bias=False) for name, size in sizes.items()})
            for _ in range(2)
        )
        self.last = Norm(32)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        batch, length, _ = x.shape
        angle = torch.arange(length)[:, None] * (10000.0 ** (-torch.arange(0, 4) / 4.0))[None]
        cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)

        def turn(y: Tensor) -> Tensor:
            one, two = y.chunk(2, -1)
            return y * cos + torch.cat([-two, one], -1) * sin

        mask = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
        for layer in self.layers:
            y = layer["one"](x)
            q = layer["q"](y).view(batch, length, 4, 8).transpose(1, 2)
            k, v = layer["kv"](y).view(batch, length, 2, 2, 8).permute(2, 0, 3, 1, 4)
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
            scores = turn(q) @ turn(k).transpose(-1, -2) / 8**0.5 + mask
            y = (torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype) @ v).transpose(1, 2).reshape(batch, length, 32)
            x = x + layer["o"](y)
            gate, up = layer["up"](layer["two"](x)).chunk(2, -1)
            x = x + layer["down"](functional.silu(gate) * up)
        return self.last(x) @ self.words.weight.T


class Tagger(nn.Module):
    """Recurrent layers in both directions and a GRU after them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 16)
        self.one = nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True)
        self.two = nn.GRU(24, 10, batch_first=True)
        self.head = nn.Linear(10, 7)

    def forward(self, ids: Tensor) -> Tensor:
        y, _ = self.one(self.words(ids))
        y, last = self.two(y)
        return torch.log_softmax(self.head(y) + self.head(last[-1])[:, None], -1)


class Autoencoder(nn.Module):
    """A vector-quantized autoencoder: distances to a codebook and the nearest row of it."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv1d(4, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv1d(16, 8, 4, 2, 1))
        self.book = nn.Parameter(torch.randn(32, 8) * 4)
        self.up = nn.Sequential(nn.ConvTranspose1d(8, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(16, 4, 4, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(x).transpose(1, 2)
        far = y.pow(2).sum(-1, keepdim=True) - 2 * y @ self.book.T + self.book.pow(2).sum(-1)
        return self.up(functional.embedding(far.argmin(-1), self.book).transpose(1, 2)) + self.up(y.transpose(1, 2))


class Mixture(nn.Module):
    """Experts chosen by top-k, and a scatter of their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.one, self.two = nn.Linear(16, 4), nn.Parameter(torch.randn(4, 16, 32) / 4), nn.Parameter(torch.randn(4, 32, 16) / 6)

    def forward(self, x: Tensor) -> Tensor:
        score, chosen = self.gate(x).topk(2, -1)
        weight = torch.zeros(x.shape[0], 4).scatter(1, chosen, score.softmax(-1))
        y = torch.einsum("bd,edh->beh", x, self.one).relu()
        return torch.einsum("beh,ehd,be->bd", y, self.two, weight)


class Transformed(nn.Module):
    """A spatial transformer: an affine grid of a predicted matrix samples the image."""

    def __init__(self) -> None:
        super().__init__()
        self.see, self.move, self.head = nn.Conv2d(1, 4, 5, 2), nn.Linear(4, 6), nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.tanh(self.move(self.see(x).mean((2, 3)))).view(-1, 2, 3) * 0.2 + torch.eye(2, 3)
        y = functional.grid_sample(x, functional.affine_grid(t, [2, 1, 16, 16], align_corners=False), align_corners=False)
        return self.head(functional.layer_norm(y.flatten(1), (256,)))


class Graph(nn.Module):
    """Messages along the edges of a graph, added at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        degree = torch.zeros(6).scatter_add(0, edges[1], torch.ones(14)).clamp(min=1.0)
        for layer in (self.one, self.two):
            sent = layer(x)[edges[0]]
            x = torch.zeros(6, sent.shape[1]).scatter_add(0, edges[1][:, None].expand_as(sent), sent) / degree[:, None]
            x = functional.elu(x)
        return x


class Scripted(nn.Module):
    """A loop and a branch that the script keeps: the number of steps depends on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        for _ in range(int(steps)):
            if bool(x.abs().mean() > 0.5):
                x = torch.tanh(self.step(x))
            else:
                x = x + self.step(x) * 0.5
        return self.out(x)


class Image(nn.Module):
    """Raw bytes, brought into range by mean and deviation within the model."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([123.7, 116.3, 103.5]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([58.4, 57.1, 57.4]).view(1, 3, 1, 1))
        self.conv, self.head = nn.Conv2d(3, 8, 3, 2), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = (x.permute(0, 3, 1, 2).float() - self.mean) / self.std  # type: ignore[operator]
        return self.head(functional.relu6(self.conv(y)).mean((2, 3))).softmax(-1)


def _ids(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape)


def _mask() -> Tensor:
    return torch.tensor([[1] * 8, [1] * 5 + [0] * 3])


TORCH: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs], list[str]]] = {
    "conv_net": (ConvNet, lambda: (torch.randn(1, 3, 16, 16),), ["x"]),
    "encoder": (Encoder, lambda: (_ids(50, 2, 8), _mask()), ["ids", "mask"]),
    "decoder": (Decoder, lambda: (_ids(60, 2, 8),), ["ids"]),
    "tagger": (Tagger, lambda: (_ids(40, 2, 8),), ["ids"]),
    "autoencoder": (Autoencoder, lambda: (torch.randn(2, 4, 16),), ["x"]),
    "mixture": (Mixture, lambda: (torch.randn(6, 16),), ["x"]),
    "transformed": (Transformed, lambda: (torch.rand(2, 1, 16, 16),), ["x"]),
    "graph": (Graph, lambda: (torch.randn(6, 8), _ids(6, 2, 14)), ["x", "edges"]),
    "image": (Image, lambda: (torch.randint(0, 255, (1, 16, 16, 3), dtype=torch.uint8),), ["x"]),
}


def exported(name: str, *, dynamo: bool) -> tuple[onnx.ModelProto, Callable[[int], dict[str, Array]]]:
    """A torch model through one of torch's exporters, with what makes its inputs from a seed."""
    make, inputs, names = TORCH[name]
    torch.manual_seed(0)
    module = make().eval()

    def feed(seed: int) -> dict[str, Array]:
        torch.manual_seed(seed)
        return dict(zip(names, (value.numpy() for value in inputs()), strict=True))

    torch.manual_seed(9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        if dynamo:
            program = torch.onnx.export(module, inputs(), dynamo=True, verbose=False, input_names=names)
            assert program is not None
            return program.model_proto, feed
        file = io.BytesIO()
        torch.onnx.export(module, inputs(), file, dynamo=False, opset_version=20 if name == "transformed" else 17, input_names=names)
    return onnx.load_model_from_string(file.getvalue()), feed


def scripted() -> tuple[onnx.ModelProto, Callable[[int], dict[str, Array]]]:
    """A scripted torch module, whose loop and branches stay in the ONNX model."""
    torch.manual_seed(0)
    file = io.BytesIO()

    def feed(seed: int) -> dict[str, Array]:
        return {"x": np.random.default_rng(seed).normal(0, 1, (4, 8)).astype(np.float32), "steps": np.asarray(4)}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.script(Scripted().eval())
        given = (torch.randn(4, 8), torch.tensor(4))
        torch.onnx.export(module, given, file, dynamo=False, opset_version=17, input_names=["x", "steps"])
    return onnx.load_model_from_string(file.getvalue()), feed


KERAS = """
import os, sys
os.environ["KERAS_BACKEND"] = {backend!r}
import keras, numpy as np
from keras import layers as L, ops
keras.utils.set_random_seed(0)
def image():
    x = i = keras.Input((32, 32, 3), batch_size=1, name="x")
    x = L.Conv2D(8, 3, strides=2, use_bias=False)(x); x = L.BatchNormalization()(x); x = L.ReLU(6.0)(x)
    x = L.DepthwiseConv2D(3, padding="same")(x); x = L.GroupNormalization(2)(x); x = L.Conv2DTranspose(4, 2, strides=2)(x)
    x = L.UpSampling2D(interpolation="bilinear")(x); x = L.GlobalAveragePooling2D()(x)
    return keras.Model(i, L.Dense(5, activation="softmax")(x))
def text():
    i = keras.Input((12,), batch_size=2, dtype="int32", name="x")
    x = L.Embedding(30, 16)(i); x = x + L.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True); x = L.UnitNormalization()(x)
    x = L.Dense(32, activation="silu")(x); x = L.GlobalMaxPooling1D()(x)
    return keras.Model(i, L.Dense(3)(x))
def series():
    i = keras.Input((10, 4), batch_size=2, name="x")
    x = L.Bidirectional(L.LSTM(6, return_sequences=True))(i); x = L.GRU(5)(x)
    return keras.Model(i, L.Dense(2, activation="sigmoid")(x))
m = {name}()
if {backend!r} == "torch":
    m(np.zeros(m.inputs[0].shape, m.inputs[0].dtype)); m.export(sys.argv[1], format="onnx", verbose=False)
else:
    import tensorflow as tf, tf2onnx
    spec = [tf.TensorSpec(m.inputs[0].shape, m.inputs[0].dtype, name="x")]
    tf2onnx.convert.from_function(tf.function(lambda x: m(x)), input_signature=spec, opset=17, output_path=sys.argv[1])
"""
KERAS_INPUTS: dict[str, Callable[[np.random.Generator], Array]] = {
    "image": lambda rng: rng.uniform(-1, 1, (1, 32, 32, 3)).astype(np.float32),
    "text": lambda rng: rng.integers(0, 30, (2, 12)).astype(np.int32),
    "series": lambda rng: rng.normal(0, 1, (2, 10, 4)).astype(np.float32),
}


def from_keras(name: str, backend: str, folder: Path) -> tuple[onnx.ModelProto, Callable[[int], dict[str, Array]]]:
    """A Keras model, written by Keras on the torch backend, or by tf2onnx from TensorFlow; in a process of its own."""
    target = folder / f"{name}_{backend}.onnx"
    code = KERAS.format(backend=backend, name=name)
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", code, str(target)], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-800:])
    model = onnx.load(target)
    given = model.graph.input[0].name
    return model, lambda seed: {given: KERAS_INPUTS[name](np.random.default_rng(seed))}
