"""Small numbers that are to guard a division, a logarithm or a root, and that half precision loses."""

from __future__ import annotations

from mplint.limits import FLOAT16_SMALLEST_NORMAL, FLOAT16_ZERO
from mplint.program.machine import Machine
from mplint.program.values import Atom, Place, Tensor

NEARLY_ONE = 1 - 2.0**-12  # numbers between this and 1 are 1 in float16
GUARDED = {
    "log": "logarithm",
    "log2": "logarithm",
    "log10": "logarithm",
    "sqrt": "square root",
    "rsqrt": "division",
    "reciprocal": "division",
}  # operations, and what an epsilon in their argument is to guard
ENDS = {  # operations that are infinite, or whose gradient is, at 1
    **dict.fromkeys(("acos", "arccos"), "arc cosine"),
    **dict.fromkeys(("asin", "arcsin"), "arc sine"),
    **dict.fromkeys(("atanh", "arctanh"), "inverse hyperbolic tangent"),
    "erfinv": "inverse error function",
    "logit": "logit",
}
INFINITE = frozenset({"atanh", "arctanh", "erfinv", "logit"})  # those of them that are infinite themselves
DIVISIONS = frozenset({"div", "truediv", "true_divide", "divide", "/"})


def is_lost(value: float | None) -> bool:
    """Whether an epsilon is one that float16 makes 0 or subnormal."""
    return value is not None and 0 < value < FLOAT16_SMALLEST_NORMAL


def lost(m: Machine, tensor: Tensor, guard: str, place: Place, above: Atom | None = None) -> None:
    """Note a guard whose epsilon float16 has lost."""
    assert tensor.epsilon is not None
    value = float(tensor.epsilon.words)
    m.emit(
        "epsilon lost",
        tensor.epsilon.place,
        value=value,
        zero=value <= FLOAT16_ZERO or value > NEARLY_ONE,
        guard=guard,
        guarded=place,
        tensor=tensor,
        above=above,
    )
