"""Which powers of the loss scale values carry: what is added to scaled gradients, or compared with them, must carry the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from mplint.doctor.values import Operation, Place

# Operations by the names of torch.
SAME = (
    *(
        "_to_copy",
        "cast",
        "clone",
        "abs",
        "neg",
        "sum",
        "mean",
        "amax",
        "amin",
        "max",
        "min",
        "norm",
        "linalg_vector_norm",
        "_foreach_norm",
    ),
    *("_foreach_abs", "detach", "view", "reshape", "squeeze", "unsqueeze", "expand", "t", "transpose", "_unsafe_view", "slice", "select"),
    *("l2_loss_root", "identity", "median", "std", "copy", "_foreach_neg", "unbind", "alias", "permute", "relu"),
)
JOINING = ("cat", "stack", "add", "sub", "maximum", "minimum", "where", "clamp", "clamp_min", "clamp_max", "copy", "masked_fill")
JOINING_LISTS = ("_foreach_add", "_foreach_sub", "_foreach_clamp_min", "_foreach_clamp_max", "addn")
COMPARING = ("gt", "lt", "ge", "le")
TIMES = ("mul", "mm", "bmm", "dot", "mv", "matmul", "_foreach_mul")
DIVIDING = ("div", "_foreach_div")


class Units:
    """Follows powers of the scale through the operations between a backward pass and the step; `tell` gets what does not fit."""

    def __init__(self, tell: Callable[[str, dict[str, object]], None]) -> None:
        self._tell = tell
        self._powers: dict[int, tuple[weakref.ref[Any], float]] = {}
        self.scale = 1.0
        self.paused = False  # the framework itself computes gradients

    def forget(self) -> None:
        """The gradients carry no scale any more."""
        self._powers.clear()

    @property
    def any(self) -> bool:
        """Whether something carries the scale."""
        return bool(self._powers) and self.scale != 1.0 and not self.paused

    def mark(self, tensor: Any, power: float) -> None:
        """A tensor carries so many powers of the scale."""
        self._powers[id(tensor)] = (weakref.ref(tensor), power)

    def of(self, value: Any) -> float:
        """How many powers a tensor carries."""
        known = self._powers.get(id(value))
        return known[1] if known is not None and known[0]() is value else 0.0

    def look(self, operation: Operation, place: Place | None) -> None:
        """Follow an operation; `place` is None where the framework runs it by itself."""
        name = operation.name.rstrip("_") if operation.name != "_" else operation.name
        powers = [self.of(value) for value in operation.given]
        if name == "_local_scalar_dense":
            if any(powers) and place is not None:
                self._tell("scaled-value-read", {"scale": self.scale})
            return
        if not any(powers):
            return
        found = self._joined(name, operation, powers, place)
        if found is not None:
            for tensor in operation.results:
                self.mark(tensor, found)

    def _joined(self, name: str, operation: Operation, powers: Sequence[float], place: Place | None) -> float | None:
        """What the results of an operation carry, None where nobody can tell."""
        numbers = [self._power_of(value) for value in operation.numbers]
        if name in TIMES:
            return sum(powers[:2]) + sum(power or 0.0 for power in numbers[:1])
        if name in DIVIDING:
            below = powers[1] if len(powers) > 1 else (numbers[0] or 0.0) if numbers else 0.0
            return powers[0] - below
        if name == "pow" and operation.numbers:
            return powers[0] * operation.numbers[0]
        if name in ("sqrt", "square", "reciprocal"):
            return powers[0] * {"sqrt": 0.5, "square": 2.0, "reciprocal": -1.0}[name]
        if name in (*JOINING, *JOINING_LISTS, *COMPARING):
            others = powers if name != "where" else powers[-2:] if len(powers) > 2 else powers
            constants = numbers if name not in ("cat", "stack") else []  # there they are axes
            return self._fit(name, operation, others, [power for power in constants if power is not None], place)
        return max(powers) if name in SAME else None

    def _fit(
        self, name: str, operation: Operation, powers: Sequence[float], constants: Sequence[float], place: Place | None
    ) -> float | None:
        if name in ("add", "sub") and len(powers) > 1:
            constants = []  # the factor of the second
        if place is not None and len({*powers, *constants}) > 1:
            self._tell("scaled-gradients-changed", {"operation": name, "scale": self.scale})
        return None if name in COMPARING else max(powers)

    def _power_of(self, number: float) -> float | None:
        """What a number carries that the program gives: None for one that fits everything."""
        if number == 0 or number in (float("inf"), float("-inf")):
            return None
        if abs(number) == self.scale:
            return 1.0
        return -1.0 if abs(number * self.scale - 1.0) < 1e-6 else 0.0
