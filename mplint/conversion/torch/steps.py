"""Recurrent operators in half, one step at a time: the state of each step is stored, and the next one takes that, as on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from mplint.conversion.torch.operators import RECURRENT, base_name


def is_recurrent(node: fx.Node) -> bool:
    """Whether a node is a recurrent operator on one dense sequence for all of a batch."""
    return base_name(node.target) in RECURRENT and getattr(node.target, "_overloadname", "") == "input"


def by_steps(target: Any, args: Sequence[Any], half: torch.dtype) -> tuple[torch.Tensor, ...]:
    """The outputs and last states, in float32, of a recurrent operator that stores each of its states in half.

    A cell computes a step in float32. What is dropped in training is not: there the operator runs as a whole.
    """
    given, states, params, biases, layers, dropout, train, both, batches_first = args
    if train and dropout:
        found: tuple[torch.Tensor, ...] = target(*args)
        return found
    many = isinstance(states, list | tuple)  # an LSTM has two states
    rows = given.transpose(0, 1) if batches_first else given
    ways = 2 if both else 1
    each = len(params) // (layers * ways)
    ends: list[list[torch.Tensor]] = []
    for layer in range(layers):
        made = []
        for number in range(layer * ways, (layer + 1) * ways):
            own = params[number * each : (number + 1) * each]
            state = [_stored(one[number : number + 1], half) for one in (states if many else (states,))]
            outputs: list[torch.Tensor] = []
            backwards = number % ways == 1
            with torch.backends.mkldnn.flags(enabled=False):  # it prepares the weights anew for each call
                for row in reversed(rows) if backwards else rows:
                    _, *after = target(row[None], state if many else state[0], own, biases, 1, 0.0, False, False, False)
                    state = [_stored(one, half) for one in after]
                    outputs.append(state[0])  # of the one layer, for the one step
            made.append(torch.cat(outputs[::-1] if backwards else outputs))
            ends.append(state)
        rows = torch.cat(made, 2)
    last = (torch.cat(one) for one in zip(*ends, strict=True))
    return (rows.transpose(0, 1) if batches_first else rows, *last)


def _stored(value: torch.Tensor, half: torch.dtype) -> torch.Tensor:
    return value.to(half).to(torch.float32)
