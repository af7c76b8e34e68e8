"""What becomes of gradients and weights: gradients that half precision makes zero, updates that rounding loses, weights that never move."""

from __future__ import annotations

from typing import Any

import torch

from mplint.runs.record import Recorder

ZERO = 2.0**-25  # a float16 number up to this is rounded to zero
SUBNORMAL = 2.0**-14  # a float16 number below this loses bits
SHOWN = 12


class Layer:
    """Counts of the gradients of one parameter: all, zero ones, and those that float16 would lose without the scale, and with it."""

    __slots__ = ("lost", "lost_scaled", "nonfinite", "number", "still", "zero")

    def __init__(self) -> None:
        self.number = self.zero = self.lost = self.lost_scaled = self.nonfinite = self.still = 0


class Parameters:
    """Looks at the gradients of every optimizer right before it steps, and at half weights right after."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._names: dict[int, str] = {}
        self._layers: dict[str, Layer] = {}
        self._first: dict[int, tuple[Any, float, float]] = {}
        self._before: dict[int, torch.Tensor] = {}

    def name(self, module: torch.nn.Module) -> None:
        """Learn the names of a model's parameters."""
        for name, parameter in module.named_parameters():
            self._names.setdefault(id(parameter), name)

    def before(self, optimizer: Any, scale: float | None, *, scaled: bool) -> None:
        """An optimizer is about to step; `scale` is the loss scale, `scaled` says that the gradients are still multiplied by it."""
        for parameter in _trained(optimizer):
            if id(parameter) not in self._first:
                self._first[id(parameter)] = (parameter, *_print_of(parameter))
            gradient = parameter.grad
            if gradient is None or gradient.is_sparse:
                continue
            self._add(parameter, gradient.detach().abs().float(), scale or 1.0, scaled=scaled)
            if parameter.dtype in (torch.float16, torch.bfloat16):
                self._before[id(parameter)] = parameter.detach().clone()

    def _add(self, parameter: torch.Tensor, size: torch.Tensor, scale: float, *, scaled: bool) -> None:
        real = size / scale if scaled else size
        computed = size if scaled else size * scale
        layer = self._layers.setdefault(self._named(parameter), Layer())
        layer.number += size.numel()
        layer.zero += int((size == 0).sum())
        layer.lost += int(((real > 0) & (real <= ZERO)).sum())
        layer.lost_scaled += int(((computed > 0) & (computed < SUBNORMAL)).sum())
        layer.nonfinite += int((~torch.isfinite(size)).sum())

    def after(self, optimizer: Any) -> None:
        """An optimizer has stepped."""
        for parameter in _trained(optimizer):
            before = self._before.pop(id(parameter), None)
            if before is not None and parameter.grad is not None:
                moved = parameter.grad.detach() != 0
                self._layers[self._named(parameter)].still += int((moved & (before == parameter.detach())).sum())

    def _named(self, parameter: torch.Tensor) -> str:
        return self._names.get(id(parameter), f"a parameter of shape {tuple(parameter.shape)}")

    def end(self) -> None:
        """Tell what was seen."""
        rows = [{"name": name, **{key: getattr(layer, key) for key in Layer.__slots__}} for name, layer in self._layers.items()]
        rows.sort(key=lambda row: -(row["lost"] + row["still"] + row["nonfinite"]) / max(1, row["number"]))
        self._recorder.fact("gradients", rows[:SHOWN])
        unmoved = [self._named(parameter) for parameter, *first in self._first.values() if tuple(first) == _print_of(parameter)]
        self._recorder.fact("unmoved", unmoved[:SHOWN])
        self._recorder.fact("unmoved_of", [len(unmoved), len(self._first)])


def _trained(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad]


def _print_of(parameter: torch.Tensor) -> tuple[float, float]:
    """Two sums that change where any element does."""
    values = parameter.detach().double()
    weights = torch.arange(1, values.numel() + 1, dtype=torch.float64, device=values.device)
    return float(values.sum()), float((values.reshape(-1) * weights).sum())
