"""8-bit floats as frameworks write them: scaled products, values rounded and widened again, weights that are only stored so."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import mplint
from mplint.config import Config

pytestmark = pytest.mark.framework


def severities(path: Path, target: str = "Tesla T4") -> list[str]:
    """How bad MP501 says it is."""
    config = Config(cache=False, isolated=True, select=("MP501",), target=target)
    return [finding.severity.value for finding in mplint.check(path, config).findings]


def test_torch_products_in_exported_programs_and_torchscript(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    narrow, half = torch.float8_e4m3fn, torch.bfloat16

    class Base(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.zeros(64, 64).to(narrow))
            self.register_buffer("scale", torch.tensor(0.5))
            self.register_buffer("rows", torch.ones(64, 1, dtype=half))

    class Scaled(Base):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
            return torch._scaled_mm(x.to(narrow), self.weight.t(), self.scale, self.scale, out_dtype=half)

    class Rounded(Base):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
            y = (x / self.scale.to(half)).to(narrow).to(half) * self.scale.to(half)
            return torch.nn.functional.linear(y, self.weight.to(half) * self.rows)

    class Kept(Base):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
            return torch.nn.functional.linear(x, self.weight.to(half) * self.rows)

    inputs = (torch.zeros(16, 64, dtype=half),)
    for kind, expected in ((Scaled, "error"), (Rounded, "warning"), (Kept, "info")):
        model = kind().eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.save(torch.export.export(model, inputs), tmp_path / "m.pt2")
            torch.jit.save(torch.jit.trace(model, inputs), tmp_path / "m.pt")
        for path in (tmp_path / "m.pt2", tmp_path / "m.pt"):
            assert severities(path) == [expected], (kind, path)
            assert severities(path, "H100") == [], (kind, path)


def test_keras_layers_with_a_float8_policy(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(16)])
        plain = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(16)])
    finally:
        keras.config.set_dtype_policy(policy)
    model.quantize("float8")
    model.save(tmp_path / "m.keras")
    plain.save(tmp_path / "plain.keras")
    assert severities(tmp_path / "m.keras") == ["warning"]
    assert severities(tmp_path / "plain.keras") == []
