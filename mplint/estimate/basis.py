"""Every figure that an estimate is reckoned with, beside those of the model, and where each is from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mplint.estimate.roofline import LAUNCH, REACHED_ARITHMETIC, REACHED_BANDWIDTH
from mplint.hardware.figures import Figures

RESERVED = 0.75e9  # bytes that the driver, the context and the libraries of a framework take
TIGHT = 0.6  # part of the memory from which published runs began to fail although the tensors fitted

ASSUMED = "assumed"
FITTED = "fitted to the published runs that docs/estimating.md lists"


class Figure(NamedTuple):
    """A number that an estimate rests on: what it is, its value in `unit` ("" for a part of one), where it is from."""

    name: str
    value: float
    unit: str
    source: str


def figures(device: Figures) -> Iterator[Figure]:
    """The figures of a device, and what is assumed of every device."""
    if device.memory:
        yield Figure("memory", device.memory[0], "bytes", device.sources["memory"])
    yield Figure("bandwidth", device.bandwidth, "bytes/s", device.sources["bandwidth"])
    for dtype, rate in device.rates.items():
        yield Figure(dtype, rate, "FLOP/s", device.sources[dtype])
    yield Figure("memory that drivers and libraries take", RESERVED, "bytes", ASSUMED)
    yield Figure("launch of a kernel", LAUNCH, "s", ASSUMED)
    yield Figure("float32 reaches of the peak arithmetic", REACHED_ARITHMETIC, "", FITTED)
    yield Figure("float32 reaches of the bandwidth", REACHED_BANDWIDTH, "", FITTED)
    yield Figure("room to spare: memory filled at most to", TIGHT, "", FITTED)
