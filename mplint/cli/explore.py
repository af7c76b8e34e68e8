"""How much of a model can be half for how large an error: conversions to one tolerance after the other, from wide to narrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mplint.conversion.result import Conversion, Verdict

WIDEST, ROUNDS = 0.9, 8
ENOUGH = 1e-5  # an error that asks for no smaller one


def curve(convert: Callable[[float], Conversion]) -> Iterator[Conversion]:
    """The conversions with less and less error, each of another division; the last one has nothing in half, or can't be had.

    A plan takes at most 0.65 of the tolerance, so the error of one is the tolerance for the next.
    """
    tolerance, known = WIDEST, (-1, -1)
    for _ in range(ROUNDS):
        result = convert(tolerance)
        shape = (result.heavy_half, result.operations_half)
        if shape != known:
            yield result
        if result.verdict is not Verdict.PROVEN or result.error is None or result.error < ENOUGH or not result.operations_half:
            return
        known, tolerance = shape, min(result.error, tolerance / 2)
