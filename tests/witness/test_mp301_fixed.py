"""The PyTorch loops that the fix gives a scaler train on the CPU as they do in float32, and resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from migrated import options, program

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def batches(count: int = 8) -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(32, 8, generator=generator) for _ in range(count)]
    return [(x, x[:, :4] * 0.5 + 0.1) for x in inputs]


def network(inputs: int = 8, outputs: int = 4, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(inputs, 32), torch.nn.Tanh(), torch.nn.Linear(32, outputs))


def accumulation(scope: dict[str, Any], folder: Path) -> list[float]:
    args = options(lr=0.02, path=str(folder / "last.pt"), epochs=2, steps=2, max_norm=1.0)
    losses = scope["train"](args, network(), batches())
    args.epochs = 3
    return [*losses, *scope["train"](args, network(seed=7), batches())]


def epoch_function(scope: dict[str, Any], folder: Path) -> list[float]:
    return list(scope["main"](network(), batches(), 4))


def trainer_methods(scope: dict[str, Any], folder: Path) -> list[float]:
    config = options(amp=True, steps=2, lr=0.05)
    trainer = scope["Trainer"](network(), config)
    losses = trainer.fit(batches())
    trainer.save(folder / "state.pt")
    again = scope["Trainer"](network(seed=7), config)
    again.resume(folder / "state.pt")
    return [*losses, *again.fit(batches())]


def two_optimizers(scope: dict[str, Any], folder: Path) -> list[float]:
    return list(scope["train"](network(8, 16), network(16, 4, seed=2), batches()))


def flag(scope: dict[str, Any], folder: Path) -> list[float]:
    class Loss(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.losses = network(), []

        def forward(self, batch: Any) -> Any:
            self.losses.append(torch.nn.functional.mse_loss(self.inner(batch[0]), batch[1]))
            return self.losses[-1]

    model = Loss()
    scope["main"](options(amp=True), model, batches())
    return [loss.item() for loss in model.losses]


def rest_after_the_loop(scope: dict[str, Any], folder: Path) -> list[float]:
    return list(scope["train"](network(), batches(7), 2))


def dtype_by_option(scope: dict[str, Any], folder: Path) -> list[float]:
    return list(scope["train"](options(dtype="float16", device="any"), network(), batches()))


def in_float32(scope: dict[str, Any]) -> dict[str, Any]:
    """A program whose autocast is off."""
    real = torch.autocast
    scope["torch"] = type("torch", (), {"__getattr__": lambda _, name: getattr(torch, name)})()
    scope["torch"].__dict__["autocast"] = lambda device, **_: real(device, enabled=False)
    return scope


LOOPS: list[Callable[[dict[str, Any], Path], list[float]]] = [
    accumulation, epoch_function, trainer_methods, two_optimizers, flag, rest_after_the_loop, dtype_by_option,
]  # fmt: skip


@pytest.mark.parametrize("run", LOOPS, ids=lambda run: run.__name__)
def test_fixed_loop_gives_the_losses_of_the_loop_in_float32(run: Callable[[dict[str, Any], Path], list[float]], tmp_path: Path) -> None:
    for name in ("half", "float32"):
        (tmp_path / name).mkdir()
    half = run(program(f"MP301/bad_torch_{run.__name__}.fixed.py"), tmp_path / "half")
    float32 = run(in_float32(program(f"MP301/bad_torch_{run.__name__}.py")), tmp_path / "float32")
    assert half == pytest.approx(float32, abs=0.01)
    assert half[-1] < half[0]
