"""What becomes of gradients and weights: gradients that a dtype makes zero, updates that rounding loses, weights that never move.

Arrays are those of numpy or of torch, flat and in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mplint.limits import HALF_SMALLEST_NORMAL, HALF_ZERO
from mplint.runs.record import Recorder

# The magnitude up to which a dtype makes a number zero, and that below which a number loses bits.
SMALL = {name: (HALF_ZERO[name], HALF_SMALLEST_NORMAL[name]) for name in HALF_ZERO} | {"float32": (2.0**-150, 2.0**-126)}
LARGE = 1.7976931348623157e308
HALF = ("float16", "bfloat16")
SHOWN = 500  # parameters that are told of
UNMOVED = 12  # of those that never move


class Parameter(NamedTuple):
    """A parameter as an optimizer is about to change it.

    `computed` is the dtype that its gradient was computed in, `kept` the one that it is kept in; `rate` the learning rate.
    """

    key: int
    name: str
    values: Callable[[], Any]
    gradient: Callable[[], Any]
    computed: str
    kept: str
    rate: float | None


class Layer:
    """Counts of the gradients of one parameter in the steps that were looked at.

    `zero` are zero, `lost` would be without the scale, `small` are subnormal with it and `small_without` without it; `still` weights
    were not moved by a gradient. `steps` were looked at; in `missing` of them it had no gradient. In `infinite` steps, looked at or
    skipped by a scaler, an element was infinite or no number.
    """

    __slots__ = (
        *("computed", "infinite", "kept", "lost", "missing", "nonfinite", "number", "rate"),
        *("small", "small_without", "steps", "still", "zero"),
    )

    def __init__(self, parameter: Parameter) -> None:
        self.computed, self.kept, self.rate = parameter.computed, parameter.kept, parameter.rate
        self.number = self.zero = self.lost = self.small = self.small_without = self.nonfinite = self.still = 0
        self.steps = self.missing = self.infinite = 0

    def add(self, size: Any, scale: float, *, scaled: bool) -> None:
        """Count magnitudes of gradients, which are multiplied by `scale`, or have been."""
        real = size / scale if scaled else size
        computed = size if scaled else size * scale
        zero, small = SMALL.get(self.computed, SMALL["float32"])
        self.number += len(size)
        self.zero += int((size == 0).sum())
        self.lost += int(((real > 0) & (real <= zero)).sum())
        self.small += int(((computed > 0) & (computed < small)).sum())
        self.small_without += int(((real > 0) & (real < small)).sum())
        nonfinite = int((~(size <= LARGE)).sum())
        self.nonfinite += nonfinite
        self.infinite += nonfinite > 0

    @property
    def unmoved_because(self) -> str:
        """Why a parameter that never moved did not."""
        if self.missing == self.steps:
            return "no gradient reaches it"
        if self.zero == self.number:
            return f"its gradients, computed in {self.computed}, are all zero" if self.computed in HALF else "its gradients are all zero"
        if self.nonfinite == self.number:
            return "its gradients are never finite"
        if self.rate == 0:
            return "its learning rate is 0"
        return f"its updates are below half an ulp of its values in {self.kept}"


class Gradients:
    """Looks at the gradients of every optimizer right before it steps, and at half weights right after."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._layers: dict[str, Layer] = {}
        self._first: dict[int, tuple[Parameter, tuple[float, ...]]] = {}
        self._before: dict[int, Any] = {}

    def before(self, parameters: Iterable[Parameter], scale: float | None, *, scaled: bool) -> None:
        """An optimizer is about to step; `scale` is the loss scale, `scaled` says that the gradients are still multiplied by it."""
        for parameter in parameters:
            if parameter.key not in self._first:
                self._first[parameter.key] = (parameter, _print_of(parameter.values()))
            layer = self._layers.setdefault(parameter.name, Layer(parameter))
            layer.steps += 1
            layer.rate = parameter.rate
            gradient = parameter.gradient()
            if gradient is None:
                layer.missing += 1
                continue
            if parameter.computed in HALF:
                layer.computed = parameter.computed
            layer.add(abs(gradient), scale or 1.0, scaled=scaled)
            if parameter.kept in HALF:
                self._before[parameter.key] = parameter.values()

    def after(self, parameters: Iterable[Parameter]) -> None:
        """An optimizer has stepped."""
        for parameter in parameters:
            before = self._before.pop(parameter.key, None)
            gradient = parameter.gradient() if before is not None else None
            if gradient is not None:
                self._layers[parameter.name].still += int(((gradient != 0) & (before == parameter.values())).sum())

    def skipped(self, parameters: Iterable[Parameter]) -> None:
        """A scaler has skipped a step: note whose gradients were not finite."""
        for parameter in parameters:
            gradient = parameter.gradient()
            if gradient is not None and not bool((abs(gradient) <= LARGE).all()):
                self._layers.setdefault(parameter.name, Layer(parameter)).infinite += 1

    def end(self) -> None:
        """Tell what was seen."""
        rows: list[dict[str, Any]] = [
            {"name": name, **{key: getattr(layer, key) for key in Layer.__slots__}} for name, layer in self._layers.items()
        ]
        rows.sort(key=lambda row: -(row["lost"] + row["still"] + row["nonfinite"] + row["small"]) / max(1, row["number"]))
        self._recorder.fact("gradients", rows[:SHOWN])
        unmoved = [parameter for parameter, first in self._first.values() if first == _print_of(parameter.values())]
        told = [[each.name, self._layers[each.name].unmoved_because] for each in unmoved[:UNMOVED]]
        self._recorder.fact("unmoved", told)
        self._recorder.fact("unmoved_of", [len(unmoved), len(self._first)])


def _print_of(values: Any) -> tuple[float, ...]:
    """Sums that change where any element does."""
    return float(values.sum()), float((values * values).sum()), float(values[::2].sum())
