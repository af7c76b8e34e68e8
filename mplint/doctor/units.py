"""Which powers of the loss scale values carry: what is added to scaled gradients, or compared with them, must carry the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from mplint.doctor.values import Operation, Place, Tensors

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
REPLACING = ("nan_to_num",)
TIMES = ("mul", "mm", "bmm", "dot", "mv", "matmul", "_foreach_mul")
DIVIDING = ("div", "_foreach_div")


class Units:
    """Follows powers of the scale through the operations between a backward pass and the step; `tell` gets what does not fit."""

    def __init__(self, tell: Callable[[str, dict[str, object]], None], tensors: Tensors) -> None:
        self._tell = tell
        self._tensors = tensors
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

    def known(self, value: Any) -> float | None:
        """How many powers a tensor carries, None for one that was not followed."""
        known = self._powers.get(id(value))
        return known[1] if known is not None and known[0]() is value else None

    def of(self, value: Any) -> float | None:
        """How many powers a tensor or a number carries that was not followed as well; None for one that fits everything."""
        known = self.known(value)
        if known is not None:
            return known
        if isinstance(value, int | float):
            return self._power_of(float(value))
        single = all(size == 1 for size in self._tensors.shape(value))
        return self._power_of(self._tensors.ends(value)[1]) if single else 0.0

    def look(self, operation: Operation, place: Place | None) -> None:
        """Follow an operation; `place` is None where the framework runs it by itself."""
        name = operation.name.rstrip("_") if operation.name != "_" else operation.name
        known = [self.known(value) for value in operation.given]
        if name == "_local_scalar_dense":
            if any(known) and place is not None:
                self._tell("scaled-value-read", {"scale": self.scale})
            return
        taken = name in (*TIMES, *DIVIDING) and any(map(self._power_of, operation.numbers))
        if not any(known) and not taken:
            return
        powers = [self.of(value) for value in operation.given]
        found = self._joined(name, operation, powers, place)
        if found is not None:
            for tensor in operation.results:
                self.mark(tensor, found)

    def _joined(self, name: str, operation: Operation, powers: Sequence[float | None], place: Place | None) -> float | None:
        """What the results of an operation carry, None where nobody can tell."""
        numbers = [self._power_of(value) for value in operation.numbers]
        if name in TIMES:
            return sum(power or 0.0 for power in (*powers[:2], *numbers[:1]))
        first = powers[0] or 0.0
        if name in DIVIDING:
            return first - ([*powers[1:], *numbers, 0.0][0] or 0.0)
        if name == "pow" and operation.numbers:
            return first * operation.numbers[0]
        if name in ("sqrt", "square", "reciprocal"):
            return first * {"sqrt": 0.5, "square": 2.0, "reciprocal": -1.0}[name]
        if name in REPLACING:
            self._fit(name, (first, 0.0), place)
            return first
        if name in (*JOINING, *JOINING_LISTS, *COMPARING):
            others = powers[-2:] if name == "where" else powers
            axes = name in ("cat", "stack") or (name in ("add", "sub") and len(powers) > 1)  # or the factor of the second
            return self._fit(name, others if axes else (*others, *numbers), place)
        return max(power or 0.0 for power in powers) if name in SAME else None

    def _fit(self, name: str, powers: Sequence[float | None], place: Place | None) -> float | None:
        known = [power for power in powers if power is not None]
        if place is not None and len(set(known)) > 1:
            self._tell("scaled-gradients-changed", {"operation": name, "scale": self.scale})
        return None if name in COMPARING or not known else max(known)

    def _power_of(self, number: float) -> float | None:
        """What a number carries that the program gives: None for one that fits everything."""
        if number == 0 or number in (float("inf"), float("-inf")):
            return None
        if abs(number) == self.scale:
            return 1.0
        return -1.0 if abs(number * self.scale - 1.0) < 1e-6 else 0.0
