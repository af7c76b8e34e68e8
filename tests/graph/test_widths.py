"""Widths and heads in the graphs that frameworks write: the layer that is named makes the width, whatever the container notes of shapes."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path

import pytest

import mplint
from mplint.config import Config

ISOLATED = Config(cache=False, isolated=True, select=("MP401", "MP403"))
pytestmark = pytest.mark.framework


def widths(path: Path) -> list[tuple[str, str, str]]:
    """The code of every finding, the layer that it names, and the number in it."""
    found = []
    for finding in mplint.check(path, ISOLATED).findings:
        number = finding.message.split(" is " if finding.code == "MP401" else "scores " if "scores" in finding.message else " has ")[1]
        found.append((finding.code, finding.message.split(" which is")[0], number.split()[0]))
    return found


def torch_files(model: object, inputs: object, folder: Path) -> dict[str, Path]:
    torch = pytest.importorskip("torch")
    places = {kind: folder / name for kind, name in (("script", "s.pt"), ("trace", "t.pt"), ("export", "e.pt2"), ("onnx", "o.onnx"))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(model), places["script"])
        torch.jit.save(torch.jit.trace(model, inputs), places["trace"])
        torch.export.save(torch.export.export(model, inputs), places["export"])
        torch.onnx.export(model, inputs, str(places["onnx"]), dynamo=False)
    return places


def test_linears_name_the_layer_that_makes_the_width(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    widths_of = (64, 256, 1001, 256, 10)
    model = nn.Sequential(*(layer for a, b in pairwise(widths_of) for layer in (nn.Linear(a, b), nn.ReLU())))
    for kind, path in torch_files(model.half().eval(), (torch.zeros(2, 64, dtype=torch.float16),), tmp_path).items():
        ((code, text, number),) = widths(path)
        assert (code, number) == ("MP401", "1001"), kind
        assert "in 2 is" in text or "/2/Gemm" in text, kind
        assert "do 96 % of the work" in mplint.check(path, ISOLATED).findings[0].message, kind


def test_convolutions_are_judged_by_their_kernels(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.Conv2d(32, 100, 3),
        nn.Conv2d(100, 64, 3),
        nn.Conv2d(64, 64, 3, groups=64),
        nn.ConvTranspose2d(64, 36, 2),
        nn.Conv2d(36, 32, 1),
    )
    for kind, path in torch_files(model.half().eval(), (torch.zeros(2, 3, 32, 32, dtype=torch.float16),), tmp_path).items():
        assert [(code, number) for code, _, number in widths(path)] == [("MP401", "100"), ("MP401", "36")], kind


def test_recurrent_layers_are_as_wide_as_their_state(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = torch.nn.LSTM(64, 130, batch_first=True), torch.nn.Linear(130, 9)

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
            return self.out(self.rnn(x)[0])

    for kind, path in torch_files(Model().half().eval(), (torch.zeros(2, 7, 64, dtype=torch.float16),), tmp_path).items():
        assert [(code, number) for code, _, number in widths(path)] == [("MP401", "130")], kind


def test_keras_layers_in_all_their_files(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    layers = keras.layers
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = keras.Sequential([
            keras.Input((7, 64)),
            layers.Dense(1001, activation="relu"),
            layers.EinsumDense("abc,cd->abd", output_shape=(None, 130)),
            layers.Dense(64),
            layers.Dense(5003),
            layers.Activation("softmax", dtype="float32"),
        ])  # fmt: skip
    finally:
        keras.config.set_dtype_policy(policy)
    model.save(tmp_path / "m.keras")
    model.save(tmp_path / "m.h5")
    model.export(str(tmp_path / "m"))
    for path in (tmp_path / "m.keras", tmp_path / "m.h5", tmp_path / "m" / "saved_model.pb"):
        found = [(code, number) for code, _, number in widths(path)]
        assert sorted(found) == [("MP401", "1001"), ("MP401", "130"), ("MP403", "5003")], path
