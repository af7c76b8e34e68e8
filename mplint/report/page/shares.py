"""In which dtypes the work and the memory of a model are, as bars."""

from __future__ import annotations

from typing import NamedTuple

from mplint.graph.model import BITS
from mplint.graph.profile import Profile
from mplint.graph.profile import Shares as Sums
from mplint.report.page.units import number, size


class Part(NamedTuple):
    """A dtype, its share of 1, and the amount in words."""

    dtype: str
    share: float
    amount: str


class Shares(NamedTuple):
    """A measure of a model (`title`) with its total in words, by dtype, the largest first. `weight` is the total as a number."""

    title: str
    total: str
    parts: tuple[Part, ...]
    weight: float


def shares_of(profile: Profile) -> tuple[Shares, ...]:
    """Work, weights and activations of a model, as far as they are known."""
    weights = tuple((dtype, count * BITS[dtype] / 8) for dtype, count in profile.parameters if dtype in BITS)
    measures = (("Work", profile.flops, "FLOPs"), ("Weights", weights, ""), ("Activations", profile.activations, ""))
    return tuple(found for title, sums, unit in measures if (found := _shares(title, sums, unit)) is not None)


def _shares(title: str, sums: Sums | tuple[tuple[str, float], ...], unit: str) -> Shares | None:
    def said(amount: float) -> str:
        count = number(amount)
        return f"{count}{'' if count[-1].isalpha() else ' '}{unit}" if unit else size(amount)

    total = sum(amount for _, amount in sums)
    if not total:
        return None
    ordered = sorted(sums, key=lambda item: (-item[1], item[0]))
    return Shares(title, said(total), tuple(Part(dtype, amount / total, said(amount)) for dtype, amount in ordered), float(total))
