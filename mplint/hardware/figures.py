"""How much a device holds and how fast it is, from the device table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mplint.hardware.lookup import rows_of
from mplint.hardware.values import Target


class Figures(NamedTuple):
    """What the table says of a device.

    `memory`: bytes of each variant that is sold, the smallest first. `bandwidth`: bytes a second. `rates`: the largest number of
    floating-point operations a second by what is multiplied: "float32" by the plain cores, "tf32", "float16" and "bfloat16" by matrix
    units; a rate that the device has no units for is missing. `certainty` is that of the row.
    """

    name: str
    memory: tuple[int, ...]
    bandwidth: float
    rates: Mapping[str, float]
    certainty: str


def figures_of(target: Target) -> Figures | None:
    """The figures of a target, of the slowest device where its name fits several; None for a capability and for what the table omits."""
    found = [made for row in rows_of(target.name) if (made := _figures(row.target.name, row.figures, row.target.certainty)) is not None]
    return min(found, key=lambda device: (device.bandwidth, device.rates["float32"]), default=None)


def _figures(name: str, row: Mapping[str, object], certainty: str) -> Figures | None:
    memory = row.get("memory_gb")
    sizes = memory if isinstance(memory, list) else [memory]
    bandwidth, plain = _number(row.get("bandwidth_gbs")), _number(row.get("fp32"))
    if not bandwidth or not plain:
        return None
    named = (("float32", "fp32"), ("tf32", "tf32"), ("float16", "fp16"), ("bfloat16", "bf16"))
    rates = {dtype: value * 1e12 for dtype, key in named if (value := _number(row.get(key)))}
    return Figures(name, tuple(sorted(int(size * 1e9) for size in map(_number, sizes) if size)), bandwidth * 1e9, rates, certainty)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
