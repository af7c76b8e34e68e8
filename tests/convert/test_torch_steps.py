"""Recurrent operators of torch in half: each state is stored, as a GPU does, and what adds up over many steps shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import mplint

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.framework


def counting() -> torch.nn.Module:
    """A recurrent layer whose state is the sum of what it took."""
    import torch

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = torch.nn.RNN(1, 1, nonlinearity="relu", batch_first=True), torch.nn.Linear(1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.inner(x)[0][:, -1])

    module = Counting()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.fill_("weight" in name)
    return module.eval()


@pytest.mark.parametrize(("length", "half"), [(6, True), (120, False)])
def test_steps_that_half_rounds_away_one_by_one_keep_a_layer_in_float32(length: int, half: bool) -> None:
    import torch

    x = torch.full((1, length, 1), 0.4)
    x[:, 0] = 1024  # behind which half has whole numbers alone
    result = mplint.convert(counting(), example_inputs=x)
    assert result.proven or not half
    assert any(name.startswith("rnn") for name, _ in result.kept) is not half


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("both", [False, True])
def test_by_steps_an_operator_gives_what_it_gives_as_a_whole(name: str, both: bool) -> None:
    import torch

    from mplint.conversion.torch.steps import by_steps

    torch.manual_seed(0)
    layer = getattr(torch.nn, name)(5, 4, 2, batch_first=True, bidirectional=both).eval()
    x = torch.randn(3, 7, 5)
    program = torch.export.export(layer, (x,))
    node = next(one for one in program.graph.nodes if str(one.target).endswith(".input"))
    state = torch.zeros(2 * (2 if both else 1), 3, 4)
    args = (x, [state, state] if name == "LSTM" else state, list(layer._flat_weights), True, 2, 0.0, False, both, True)
    with torch.no_grad():
        whole, stepped = node.target(*args), by_steps(node.target, args, torch.float32)
        rounded = by_steps(node.target, args, torch.bfloat16)
    for one, other in zip(whole, stepped, strict=True):
        torch.testing.assert_close(one, other)
    assert 1e-4 < float((rounded[0] - whole[0]).abs().max()) < 0.05
