"""How much a device holds and how fast it is, from the device table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mplint.hardware.lookup import rows_of
from mplint.hardware.table import sources
from mplint.hardware.values import Target

_RATES = {"float32": "fp32", "tf32": "tf32", "float16": "fp16", "bfloat16": "bf16"}
_ON_MATRIX_UNITS = ("tf32", "fp16", "bf16")


class Figures(NamedTuple):
    """What the table says of a device.

    `memory`: bytes of each variant that is sold, the smallest first. `bandwidth`: bytes a second. `rates`: the largest number of
    floating-point operations a second by what is multiplied: "float32" by the plain cores, "tf32", "float16" and "bfloat16" by matrix
    units; a rate that the device has no units for is missing. `certainty` is that of the row. `sources` says what each of them was
    compared with, for "memory", "bandwidth" and the names of `rates`; one that was compared with nothing is missing.
    """

    name: str
    memory: tuple[int, ...]
    bandwidth: float
    rates: Mapping[str, float]
    certainty: str
    sources: Mapping[str, str]


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
    rates = {dtype: value * 1e12 for dtype, key in _RATES.items() if (value := _number(row.get(key)))}
    held = tuple(sorted(int(size * 1e9) for size in map(_number, sizes) if size))
    known = ("memory", "bandwidth", *rates)
    return Figures(name, held, bandwidth * 1e9, rates, certainty, {what: text for what, text in _compared(row) if what in known})


def _compared(row: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """What each figure of a row was compared with."""
    known = sources()
    for name, key in {**_RATES, "bandwidth": "bandwidth", "memory": "memory"}.items():
        found = [known[source] for source in ("torch", "lightning", "techpowerup") if key in _listed(row, source)]
        if key in _listed(row, "checked") or (key in _ON_MATRIX_UNITS and "tc" in _listed(row, "checked")):
            found.append(known["table"])
        if found:
            yield name, "; ".join(found)


def _listed(row: Mapping[str, object], key: str) -> list[object]:
    value = row.get(key)
    return value if isinstance(value, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
