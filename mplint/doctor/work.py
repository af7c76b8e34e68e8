"""What ran in which dtype: work and time, products whose sizes miss the Tensor Cores, casts that undo each other, what stays float32."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mplint.doctor.values import CASTING, Operation, Place, Seen
from mplint.limits import HALF_MAX
from mplint.runs.record import Recorder

MULTIPLE = 8  # of which sizes are that Tensor Cores take without loss
SHOWN = 8
# Operations that move numbers, or make them of nothing: in which dtype they do costs bytes, and no arithmetic.
MOVING = (
    *("clone", "copy", "stack", "cat", "transpose", "permute", "expand", "select", "slice", "index", "gather", "zeros", "ones", "full"),
    *("fill", "empty", "new_", "arange", "embedding", "pad", "constant_pad", "identity", "reshape", "concatv2", "pack", "resourcegather"),
)


class Product(NamedTuple):
    """A product of matrices or a convolution: its sizes (rows, inner, columns; of a convolution positions, inputs, outputs), and its work.

    `parameter` is what identifies the weight, where it is one.
    """

    sizes: tuple[int, int, int]
    flops: float


class Work:
    """Sums up the operations of the steps that are looked at."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._seconds: dict[str, float] = {}
        self._flops: dict[str, float] = {}
        self._products: dict[tuple[object, ...], list[float]] = {}
        self._undone: dict[tuple[object, ...], list[float]] = {}
        self._fallbacks: dict[tuple[str, str], list[float]] = {}

    def add(self, operation: Operation, made: Sequence[Seen], product: Product | None, layer: Place | None, why: str) -> None:
        """An operation has run. `layer` is where the module that ran it was made, `why` says why it ran in float32, "" where it did not."""
        if not made:
            return
        seen = made[0]
        self._seconds[seen.dtype] = self._seconds.get(seen.dtype, 0.0) + operation.seconds
        if product is not None:
            self._flops[seen.dtype] = self._flops.get(seen.dtype, 0.0) + product.flops
            key = (seen.module, seen.place, layer, seen.operation, seen.dtype, product.sizes)
            _add(self._products, key, product.flops)
        if operation.name.rstrip("_") in CASTING:
            self._cast(seen)
        elif why and not operation.name.startswith(MOVING):
            _add(self._fallbacks, (seen.operation, why), operation.seconds)

    def _cast(self, seen: Seen) -> None:
        """Note a cast of what was cast from that dtype before."""
        before = seen.sources[0] if seen.sources else None
        if before is None or before.operation.rstrip("_") not in CASTING or not before.sources:
            return
        if before.sources[0].dtype == seen.dtype != before.dtype:
            _add(self._undone, (seen.module, seen.place, seen.dtype, before.dtype), 1.0)

    def end(self) -> None:
        """Tell the sums."""
        whole = sum(self._flops.values())
        self._recorder.fact("work", self._flops)
        self._recorder.fact("seconds", self._seconds)
        rows = sorted(self._products.items(), key=lambda item: -item[1][1])
        self._recorder.fact("products", [_row(key, part[1] / whole if whole else 0.0) for key, part in rows][:200])
        undone = sorted(self._undone.items(), key=lambda item: -item[1][0])[:SHOWN]
        self._recorder.fact("casts_undone", [_undone(key, int(times)) for key, (times, _) in undone])
        spent = math.fsum(self._seconds.values()) or 1.0
        fallbacks = sorted(self._fallbacks.items(), key=lambda item: -item[1][1])[:SHOWN]
        told = [
            {"operation": name, "why": why, "times": int(times), "share": seconds / spent} for (name, why), (times, seconds) in fallbacks
        ]
        self._recorder.fact("float32", told)


def missed(sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes that Tensor Cores do not take without loss."""
    return tuple(size for size in sizes if size % MULTIPLE)


def _add(sums: dict[tuple[object, ...], list[float]] | dict[tuple[str, str], list[float]], key: tuple[object, ...], value: float) -> None:
    entry = sums.setdefault(key, [0.0, 0.0])  # type: ignore[arg-type]
    entry[0] += 1
    entry[1] += value


def _row(key: tuple[object, ...], share: float) -> Mapping[str, object]:
    module, place, layer, operation, dtype, sizes = key
    return {
        "module": module,
        "place": place,
        "made": layer,
        "operation": operation,
        "dtype": dtype,
        "sizes": sizes,
        "share": share,
        "missed": missed(sizes) if dtype in HALF_MAX and module else (),  # type: ignore[arg-type]
    }


def _undone(key: tuple[object, ...], times: int) -> Mapping[str, object]:
    module, place, dtype, through = key
    return {"module": module, "place": place, "dtype": dtype, "through": through, "times": times}
