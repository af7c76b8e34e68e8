"""The shortest time that a training step can take on a device: each operation bound by arithmetic, by bandwidth or by its launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mplint.estimate.memory import Optimizer
from mplint.estimate.precision import FLOAT32, TORCH, Precision
from mplint.estimate.saved import Storages, total
from mplint.estimate.sizes import Sized
from mplint.graph.model import FLOATS, HALF, HEAVY, Node, OpKind
from mplint.graph.profile import multiple_for
from mplint.graph.work import Work, work
from mplint.hardware.figures import Figures

LAUNCH = 5e-6  # seconds that a kernel takes at least, started from the host; an assumption, kept low so that bounds stay bounds
# What float32 kernels reach of a device's peaks, as fitted to published training runs; a ceiling takes the half ones to reach all of it.
REACHED_ARITHMETIC, REACHED_BANDWIDTH = 0.70, 0.75
BOTH_WAYS = 3.0  # the backward pass makes two products of each
BOUNDS = ("arithmetic", "bandwidth", "launch")
QUIET = (OpKind.SHAPE, OpKind.CHECK, OpKind.CONTROL, OpKind.CALL)


class Cost(NamedTuple):
    """One operation, forward and backward: seconds by what bounds it, and why it gains less than it might from half precision.

    `unit` is what multiplies: "tf32", "float16", "bfloat16" by matrix units, "float32" by the plain cores, "" where nothing does.
    """

    node: Node
    dtype: str
    unit: str
    flops: float
    seconds: float
    bound: str
    unaligned: bool


class Step(NamedTuple):
    """A training step: the costs of its operations, and the seconds in which the optimizer changes the weights."""

    costs: tuple[Cost, ...]
    updating: float

    @property
    def seconds(self) -> float:
        """The least time of the step."""
        return sum(cost.seconds for cost in self.costs) + self.updating

    @property
    def usual_seconds(self) -> float:
        """The time with the parts of the peaks that real float32 kernels reach."""
        reached = {"arithmetic": REACHED_ARITHMETIC, "bandwidth": REACHED_BANDWIDTH}
        return sum(cost.seconds / reached.get(cost.bound, 1.0) for cost in self.costs) + self.updating / REACHED_BANDWIDTH

    def share(self, bound: str) -> float:
        """The part of the time that something bounds."""
        bounded = sum(cost.seconds for cost in self.costs if cost.bound == bound)
        return (bounded + (self.updating if bound == "bandwidth" else 0.0)) / (self.seconds or 1.0)

    @property
    def on_matrix_units(self) -> float:
        """The part of the floating-point operations that matrix units do."""
        flops = sum(cost.flops for cost in self.costs)
        return sum(cost.flops for cost in self.costs if cost.unit not in ("", FLOAT32)) / flops if flops else 0.0


def step(sized: Sized, policy: Precision, device: Figures, optimizer: Optimizer) -> Step:
    """What bounds each operation of one training step on a device."""
    storages = Storages(sized.model, policy, sized.scale)
    costs = tuple(_costs(sized, policy, device, storages))
    parameters = sum(t.size or 0 for t in sized.model.constants() if t.dtype in FLOATS and not t.fixed)
    moved = parameters * 4 * (3 + 2 * optimizer.state)  # a gradient read, a weight and each state read and written
    return Step(costs, moved / device.bandwidth)


def _costs(sized: Sized, policy: Precision, device: Figures, storages: Storages) -> Iterator[Cost]:
    for node in sized.model.nodes():
        if node.kind in QUIET or not node.outputs or storages.is_view(node):
            continue
        dtype = policy.computes.get(id(node), node.compute_dtype or "")
        size = work(node) if node.kind in HEAVY else None
        flops = BOTH_WAYS * size.flops * sized.scale if size is not None else 0.0
        unit = _unit(node, size, dtype, device, sized.model.format)
        unaligned = size is not None and unit not in ("", FLOAT32) and size.suits(multiple_for(dtype)) is False
        padded = _padded(size, multiple_for(dtype)) if size is not None and unaligned else 1.0
        calculating = flops * padded / device.rates[unit] if unit else 0.0
        moving = _moved(node, dtype, storages) / device.bandwidth
        launching = LAUNCH * (3 if flops else 2)
        seconds = max(calculating, moving, launching)
        bound = "arithmetic" if seconds == calculating else "bandwidth" if seconds == moving else "launch"
        yield Cost(node, dtype, unit, flops, seconds, bound, unaligned)


def _unit(node: Node, size: Work | None, dtype: str, device: Figures, format: str) -> str:
    """What multiplies: matrix units where they take the dtype. torch multiplies in TF32 in convolutions alone, others everywhere."""
    if size is None:
        return ""
    if size.groups == 1 and dtype in HALF and dtype in device.rates:
        return dtype
    allowed = node.kind is OpKind.CONV or format not in TORCH
    return "tf32" if size.groups == 1 and dtype == FLOAT32 and "tf32" in device.rates and allowed else FLOAT32


def _padded(size: Work, multiple: int) -> float:
    """How much larger a product becomes when its sizes are padded to what matrix units tile."""
    sides = [dim for dim in (size.inner, size.outer) if isinstance(dim, int) and dim > 0]
    grown = 1.0
    for dim in sides:
        grown *= -(-dim // multiple) * multiple / dim
    return grown


def _moved(node: Node, dtype: str, storages: Storages) -> float:
    """Bytes read and written forward, and about as many again for each gradient backward."""
    read = sum(storages.bytes_of(t, dtype if t.dtype in FLOATS else None) for t in node.inputs if t is not None)
    read += sum(storages.bytes_of(t, dtype if t.dtype in FLOATS else None) for t in node.weights.values())
    written = sum(storages.bytes_of(t) for t in node.outputs)
    if node.kind is OpKind.EMBEDDING:
        read = written
    again = total(storages.kept(node)) if node.kind not in HEAVY else read
    return read + written + (written + again + read)
