"""Power spectra: squares of what a short-time Fourier transform gives, which grow with the length of its windows beyond float16."""

from __future__ import annotations

from collections.abc import Sequence

from mplint.program.values import Atom, Constant, Tensor

SPECTRUM = "spectrum"  # tag: what a short-time Fourier transform gives, or its magnitudes
POWER = "power spectrum"  # tag: their squares
KEPT = frozenset(  # by what moves the values of a spectrum, or adds its real and imaginary parts
    [
        *("abs", "absolute", "view_as_real", "sum", "add", "radd", "clamp", "clamp_min", "clip", "maximum", "stack", "cat", "real", "imag"),
        *("view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "t", "contiguous", "clone", "detach", "expand"),
        *("narrow", "select", "float", "double", "to", "cuda", "__getitem__"),
    ]
)


def spectral(short: str, given: Sequence[Atom], tensors: Sequence[Tensor]) -> frozenset[str]:
    """What the result of an operation has of a spectrum, as one of these tags."""
    if short == "stft":
        return frozenset({SPECTRUM})
    held = frozenset(tag for tensor in tensors for tag in tensor.tags if tag in (SPECTRUM, POWER))
    if not held:
        return held
    power = given[1].value if len(given) > 1 and type(given[1]) is Constant else None
    if held == {SPECTRUM} and (
        short == "square" or (short == "pow" and power == 2) or (short in ("mul", "multiply") and is_squared(given))
    ):
        return frozenset({POWER})
    if short == "sqrt" or (short == "pow" and power == 0.5):
        return frozenset({SPECTRUM})
    return held if short in KEPT else frozenset()


def is_squared(given: Sequence[Atom]) -> bool:
    """Whether both factors are the same spectrum, or parts of one."""
    return len(given) == 2 and all(type(atom) is Tensor and SPECTRUM in atom.tags for atom in given)
