"""The programs whose loss the fix takes on logits learn as before, and their probabilities stay probabilities."""

from __future__ import annotations

from typing import Any

import pytest
from migrated import program

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def batches() -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(32, 8, generator=generator) for _ in range(12)]
    return [(x, (x.sum(1) > 0).float()) for x in inputs]


@pytest.mark.parametrize("name", ["model_ends_in_sigmoid", "sequential_ends_in_sigmoid"])
def test_losses_and_probabilities_are_those_of_the_program_before(name: str) -> None:
    losses, *before = program(f"MP206/bad_{name}.py")["main"](batches())
    fixed, *after = program(f"MP206/bad_{name}.fixed.py")["main"](batches())
    assert fixed == pytest.approx(losses, abs=0.02)
    assert fixed[-1] < fixed[0]
    probabilities = after[-1].detach()
    assert 0.0 <= probabilities.min() < 0.5 < probabilities.max() <= 1.0
    assert probabilities.flatten().tolist() == pytest.approx(before[-1].detach().flatten().tolist(), abs=0.02)


@pytest.mark.parametrize("name", ["with_named_logits", "without_a_name"])
def test_probabilities_that_are_read_are_still_there(name: str) -> None:
    model = torch.nn.Linear(8, 1)
    x, y = batches()[0]
    loss, share = program("MP206/bad_probabilities_are_read.py")[name](model, x, y[:, None])
    fixed, shared = program("MP206/bad_probabilities_are_read.fixed.py")[name](model, x, y[:, None])
    assert fixed.item() == pytest.approx(loss.item(), rel=0.01)
    assert shared == share
