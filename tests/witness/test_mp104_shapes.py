"""Every shape of apex program that the fix migrates trains on the CPU as the same program does in float32."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from migrated import apex_in_float32, options, program

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def batches(count: int = 8) -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(32, 8, generator=generator) for _ in range(count)]
    return [(x, x[:, :4] * 0.5 + 0.1) for x in inputs]


def network(inputs: int = 8, outputs: int = 4, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(inputs, 32), torch.nn.Tanh(), torch.nn.Linear(32, outputs))


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.05)


def clip_in_every_round(scope: dict[str, Any]) -> list[float]:
    model = network()
    losses = []
    for _ in range(4):
        scope["train"](model, batches(4), sgd(model), 1)
        losses.append(torch.nn.functional.mse_loss(model(batches()[0][0]), batches()[0][1]).item())
    return losses


def clip_in_the_scaled_arm(scope: dict[str, Any]) -> list[float]:
    return list(scope["main"](options(fp16=True, fp16_opt_level="O1", steps=2, max_norm=1.0), network(), batches()))


def adversarial_lists(scope: dict[str, Any]) -> list[float]:
    rounds = [(x, x[:, :2]) for x, _ in batches()]
    return list(scope["train"](network(8, 1), network(2, 8, seed=2), rounds))


def two_optimizers_one_backward(scope: dict[str, Any]) -> list[float]:
    trainer = scope["Trainer"](network(8, 16), network(16, 4, seed=2))
    return [trainer.step(x, y) for x, y in batches()]


def delayed_unscaling(scope: dict[str, Any]) -> list[float]:
    reduced: list[int] = []
    losses = scope["train"](options(fp16=True, steps=2, max_norm=1.0), network(), batches(), lambda grads: reduced.append(len(grads)))
    assert reduced == [4] * 4
    return list(losses)


def backward_in_a_method(scope: dict[str, Any]) -> list[float]:
    return list(scope["Learner"](network()).fit(batches()))


def distributed_script(scope: dict[str, Any]) -> list[float]:
    torch.manual_seed(0)
    args = options(opt_level="O1", keep_batchnorm_fp32=None, loss_scale="128", sync_bn=False, distributed=False, resume="")
    torch_save, torch.save = torch.save, lambda state, path: saved.append(state)
    saved: list[Any] = []
    try:
        losses = scope["main"](args, [(x, x.argmax(1) % 4) for x, _ in batches()])
    finally:
        torch.save = torch_save
    assert set(saved[0]) == {"model", "optimizer", "amp"}
    assert "apex" in sys.modules or saved[0]["amp"]["scale"] == 128.0
    return list(losses)


def level_o0(scope: dict[str, Any]) -> list[float]:
    return list(scope["train"](network(), batches()))


def new_names(scope: dict[str, Any]) -> list[float]:
    return list(scope["Solver"](network(), options(rate=0.05)).run(batches()))


def branch_with_more(scope: dict[str, Any]) -> list[float]:
    def build() -> Any:
        class Two(torch.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.one, self.two = network(), network(seed=2)
                self.first, self.second = sgd(self.one), sgd(self.two)

            def forward(self, x: Any) -> tuple[Any, Any]:
                return self.one(x).square(), self.two(x).square()

        return Two()

    return list(scope["main"](options(fp16=True, gpu_ids=[]), build, [x for x, _ in batches()]))


def function_of_a_function(scope: dict[str, Any]) -> list[float]:
    class Twice(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, batch: Any) -> tuple[Any, ...]:
            loss = torch.nn.functional.mse_loss(self.inner(batch[0]), batch[1])
            return loss, loss * 0.5, None

    return list(scope["train"](options(lr=0.05, fp16="O1", first=1.0, second=1.0, steps=2), Twice, batches()))


def registered_half_function(scope: dict[str, Any]) -> list[float]:
    class Named(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    return list(scope["main"](options(lr=0.05, fp16=True, fp16_opt_level="O1", steps=10, width=8), Named(), batches()))


def level_by_option(scope: dict[str, Any]) -> list[float]:
    return list(scope["main"](network(), batches(), ["--loss-scale", "128"]))


def clip_by_option(scope: dict[str, Any]) -> list[float]:
    return list(scope["Trainer"](options(fp16=True, steps=2, max_norm=1.0), network()).fit(batches()))


SHAPES: list[Callable[[dict[str, Any]], list[float]]] = [
    clip_in_every_round, clip_in_the_scaled_arm, adversarial_lists, two_optimizers_one_backward, delayed_unscaling, backward_in_a_method,
    distributed_script, level_o0, new_names, branch_with_more, function_of_a_function, registered_half_function, level_by_option,
    clip_by_option,
]  # fmt: skip


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of the program's own that runs a function over batches."""

    class Engine:
        def __init__(self, update: Callable[..., float]) -> None:
            self.update, self.iteration = update, 0

        def run(self, loader: list[Any]) -> list[float]:
            losses = []
            for batch in loader:
                self.iteration += 1
                losses.append(self.update(self, batch))
            return losses

    module = ModuleType("engine")
    module.Engine = Engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "engine", module)


@pytest.mark.parametrize("run", SHAPES, ids=lambda run: run.__name__)
@pytest.mark.usefixtures("engine")
def test_migrated_program_gives_the_losses_of_the_program_in_float32(run: Callable[[dict[str, Any]], list[float]]) -> None:
    migrated = run(program(f"MP104/bad_{run.__name__}.fixed.py"))
    with apex_in_float32():
        before = run(program(f"MP104/bad_{run.__name__}.py"))
    assert migrated == pytest.approx(before, abs=0.015)  # the first steps may be skipped, where the scale is still too large
    assert migrated[-1] < migrated[0]
