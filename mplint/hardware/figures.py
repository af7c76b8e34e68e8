"""How much a device holds and how fast it is, from the device table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mplint.hardware.lookup import rows_of
from mplint.hardware.table import derivations, sources
from mplint.hardware.values import Target

_RATES = {"float32": "fp32", "tf32": "tf32", "float16": "fp16", "bfloat16": "bf16"}
_ON_MATRIX_UNITS = ("tf32", "fp16", "bf16")


class Figures(NamedTuple):
    """What the table says of a device.

    `memory`: bytes of each variant that is sold, the smallest first. `bandwidth`: bytes a second. `rates`: the largest number of
    floating-point operations a second by what is multiplied: "float32" by the plain cores, "tf32", "float16" and "bfloat16" by matrix
    units; a rate that the device has no units for is missing. `sources` says where each of them is from, for "memory", "bandwidth" and
    the names of `rates`.
    """

    name: str
    memory: tuple[int, ...]
    bandwidth: float
    rates: Mapping[str, float]
    sources: Mapping[str, str]


def figures_of(target: Target) -> Figures | None:
    """The figures of a target, of the slowest device where its name fits several; None for a capability and for what the table omits."""
    found = [made for row in rows_of(target.name) if (made := _figures(row.target.name, row.figures)) is not None]
    return min(found, key=lambda device: (device.bandwidth, device.rates["float32"]), default=None)


def _figures(name: str, row: Mapping[str, object]) -> Figures | None:
    memory = row.get("memory_gb")
    sizes = memory if isinstance(memory, list) else [memory]
    bandwidth, plain = _number(row.get("bandwidth_gbs")), _number(row.get("fp32"))
    if not bandwidth or not plain:
        return None
    rates = {dtype: value * 1e12 for dtype, key in _RATES.items() if (value := _number(row.get(key)))}
    held = tuple(sorted(int(size * 1e9) for size in map(_number, sizes) if size))
    known = ("memory", "bandwidth", *rates)
    return Figures(name, held, bandwidth * 1e9, rates, {what: text for what, text in _origins(row) if what in known})


def _origins(row: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Where each figure of a row is from."""
    for name, key in {**_RATES, "bandwidth": "bandwidth", "memory": "memory"}.items():
        if found := list(origins(row, key)):
            yield name, "; ".join(found)


def origins(row: Mapping[str, object], key: str) -> Iterator[str]:
    """What a figure of a row of the device table agrees with, or is reckoned from; "cc", "bandwidth", "memory" or a rate's key."""
    known = sources()
    yield from (known[source] for source in known if source != "table" and key in _listed(row, source))
    if key in _listed(row, "checked") or (key in _ON_MATRIX_UNITS and "tc" in _listed(row, "checked")):
        yield known["table"]
    for each in _listed(row, "cited"):
        if isinstance(each, dict) and key in each["figures"]:
            yield str(each["by"])
    way = derivations().get(str(row.get("derived")), {})
    if key in way:
        yield f"derived: {row['sms']} SMs at {row['boost_mhz']} MHz (TechPowerUp) with {way[key]} operations a clock each, as {way['as']}"


def _listed(row: Mapping[str, object], key: str) -> list[object]:
    value = row.get(key)
    return value if isinstance(value, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
