"""Feeds for a model without calibration data: those that the model runs on and that are plausible for it.

A trained model keeps what goes into its softmaxes, sigmoids and tanhs within their range: a feed that saturates them is not what it is made
for. A model whose outputs hardly change when an input grows a thousandfold, or moves by a hundred, normalizes that input itself: it may be
made for large values, such as 16-bit sound, and must then hold in half on those too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.arrays import NUMBERS, OPEN_DIMS, Kind, made, required
from mplint.conversion.onnx.constants import tensor_of
from mplint.conversion.onnx.evidence import evidence
from mplint.conversion.onnx.probe import Probe
from mplint.conversion.onnx.program import is_constant
from mplint.conversion.onnx.run import Feed, Outputs, Session
from mplint.conversion.policy import ConversionError, Options

BASIC = (Kind(), Kind("uniform", seed=1), Kind("rows", seed=2))
HINTED = (Kind("positive", seed=3), Kind(named=True, integers=1000, seed=0), Kind(named=True, integers=NUMBERS, seed=1))
SCALES, SHIFT = (3000.0, 30.0), 100.0
LARGER = 1.9  # no power of two, so that other digits are rounded away
COMPRESSED = 0.35  # outputs that grow by less than this power of a scale do not depend on it
MOVED = 0.05  # of their size: what outputs may move by where a shift is taken off again
SATURATING = frozenset(("Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Tanh", "Clip", "Sin", "Cos"))
MOST = 1 << 26  # elements of a feed


@dataclass(slots=True)
class Samples:
    """Feeds with what the original gives, and the inputs whose scale or offset the model takes off itself."""

    feeds: list[Feed] = field(default_factory=list)
    references: list[Outputs] = field(default_factory=list)
    free: set[str] = field(default_factory=set)


def samples(path: str, model: ir.Model, options: Options, notes: list[str]) -> Samples:
    """Made-up feeds that the model runs on; none where no size of the open dimensions fits."""
    try:
        trial = _Trial(path, model)
    except Exception as error:
        raise ConversionError(f"{path} does not load in ONNX Runtime: {str(error).splitlines()[0][:300]}") from None
    values = required(model)
    known = {value.name or "": evidence(value) for value in values}
    counted = any(known[value.name or ""].limit is None for value in values if value.dtype is not None and value.dtype.is_integer())
    for dims in OPEN_DIMS:
        found = Samples()
        for kind in BASIC:
            trial.add(found, made(values, known, options.ranges, dims, kind))
        if not found.feeds:
            continue
        _only_finite(found)
        for kind in HINTED:
            if kind.shape != "normal" or any(one.likely and not one.sure for one in known.values()) or counted:
                _hint(trial, found, made(values, known, options.ranges, dims, kind), kind)
        unknown = [name for name, one in known.items() if one.limit is None and not one.sure and name not in options.ranges]
        for name in unknown:
            _vary(trial, found, name)
        return found
    notes.append("no generated input fits the model: give --calibration data; without it the plan rests on constants and operators alone")
    return Samples()


def given(path: str, feeds: Sequence[Feed], *, larger: bool = False) -> Samples:
    """Feeds with what the original gives on them; if `larger`, with larger floats, where it gives finite numbers on them."""
    try:
        session = Session(path)
        if not larger:
            return Samples(list(feeds), [session.run(feed) for feed in feeds])
    except Exception as error:
        raise ConversionError(f"{path} does not run in ONNX Runtime: {str(error).splitlines()[0][:300]}") from None
    found = Samples()
    for feed in feeds:
        if not any(array.dtype.kind == "f" for array in feed.values()):
            continue
        grown = {name: array * array.dtype.type(LARGER) if array.dtype.kind == "f" else array for name, array in feed.items()}
        try:
            outputs = session.run(grown)
        except Exception:
            continue
        if _finite(outputs):
            found.feeds.append(grown)
            found.references.append(outputs)
    return found


def _only_finite(found: Samples) -> None:
    """Drop feeds on which the original itself is not finite, such as logarithms of negative numbers, if others are left."""
    fine = [at for at, outputs in enumerate(found.references) if _finite(outputs)]
    if fine and len(fine) < len(found.feeds):
        found.feeds = [found.feeds[at] for at in fine]
        found.references = [found.references[at] for at in fine]


def _hint(trial: _Trial, found: Samples, feed: Feed, kind: Kind) -> None:
    """Add a feed of what names say and of larger integers, if the model bears it; the largest where its outputs hardly follow them."""
    outputs = trial.run(feed)
    if outputs is None or not trial.plausible(feed, turning=True):
        return
    before, after = _size(found.references[-1]), _size(outputs)
    if kind.integers == NUMBERS and before is not None and after is not None and after > before * NUMBERS**COMPRESSED:
        return
    found.feeds.append(feed)
    found.references.append(outputs)


def _vary(trial: _Trial, found: Samples, name: str) -> None:
    """Add feeds in which one input is much larger, or moved, where the outputs hardly follow."""
    base, expected = found.feeds[0], found.references[0]
    if base[name].dtype.kind != "f":
        return
    size = _size(expected)
    if size is None:
        return
    for scale in SCALES:
        feed = {**base, name: base[name] * np.float32(scale)}
        outputs = trial.run(feed)
        grown = _size(outputs)
        if outputs is not None and grown is not None and grown <= size * scale**COMPRESSED and trial.plausible(feed):
            found.free.add(name)
            found.feeds.append(feed)
            found.references.append(outputs)
            break
    feed = {**base, name: base[name] + np.float32(SHIFT)}
    outputs = trial.run(feed)
    if outputs is not None and _distance(expected, outputs) <= MOVED and trial.plausible(feed):
        found.free.add(name)
        found.feeds.append(feed)
        found.references.append(outputs)


class _Trial:
    """The original, and a probe that tells how far its saturating operators are driven."""

    def __init__(self, path: str, model: ir.Model) -> None:
        self.session = Session(path)
        self.model = model
        self.probe: Probe | None = None
        self.limits: list[tuple[float, bool, bool]] | None = None
        self.base: Feed | None = None

    def run(self, feed: Feed) -> Outputs | None:
        """The outputs, None where the model does not run or gives no finite numbers."""
        if sum(array.size for array in feed.values()) > MOST:
            return None
        try:
            outputs = self.session.run(feed)
        except Exception:
            return None
        return outputs if _finite(outputs) else None

    def add(self, found: Samples, feed: Feed) -> None:
        """Take a feed if the model runs on it."""
        try:
            outputs = self.session.run(feed)
        except Exception:
            return
        if self.base is None:
            self.base = feed
        found.feeds.append(feed)
        found.references.append(outputs)

    def plausible(self, feed: Feed, *, turning: bool = False) -> bool:
        """Whether the model runs on a feed and drives no operator far beyond where it saturates; sines are asked only if not `turning`."""
        if self.run(feed) is None:
            return False
        if self.limits is None:
            self._prepare(self.base or feed)
        drives = self.probe.extents(feed) if self.probe is not None else []
        for extent, (limit, upper, turns) in zip(drives, self.limits or (), strict=True):
            drive = extent.high if upper else extent.largest
            if not drive <= limit and not (turns and turning):
                return False
        return True

    def _prepare(self, base: Feed) -> None:
        """Find what saturates, and how far an ordinary feed drives it."""
        values, kinds = [], []
        for node in self.model.graph:
            value = node.inputs[0] if node.inputs else None
            if node.op_type not in SATURATING or value is None or value.dtype != ir.DataType.FLOAT:
                continue
            if node.op_type == "Sigmoid" and any(use.node.op_type == "Mul" and value in use.node.inputs for use in node.outputs[0].uses()):
                continue  # a swish grows with its input
            bound = _bound(node) if node.op_type == "Clip" else 5.0
            if bound is not None:
                values.append(value)
                kinds.append((20 * bound, "max" in node.op_type.lower(), node.op_type in ("Sin", "Cos")))  # masks of a softmax are negative
        self.probe = Probe(self.model, values) if values else None
        drives = self.probe.extents(base) if self.probe is not None else []
        self.limits = [
            (max(limit, 4 * (extent.high if upper else extent.largest)), upper, turns)
            for extent, (limit, upper, turns) in zip(drives, kinds, strict=True)
        ]


def _bound(node: ir.Node) -> float | None:
    """The larger bound of a Clip that cuts on both sides, such as a ReLU6; None for others."""
    if "max" in node.attributes and "min" in node.attributes:
        bounds = [float(node.attributes["min"].value), float(node.attributes["max"].value)]
    else:
        tensors = [tensor_of(value) if value is not None and is_constant(value) else None for value in node.inputs[1:3]]
        bounds = [float(tensor.numpy().reshape(-1)[0]) for tensor in tensors if tensor is not None and tensor.size == 1]
    largest = max(map(abs, bounds), default=0.0)
    return largest if len(bounds) == 2 and 0 < largest < 1e4 else None


def _floats(outputs: Sequence[object] | None) -> list[np.ndarray]:
    return [array for array in outputs or () if isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.size]


def _finite(outputs: Sequence[object]) -> bool:
    return all(np.isfinite(array).any() and not np.isnan(array).any() and not np.isposinf(array).any() for array in _floats(outputs))


def _size(outputs: Sequence[object] | None) -> float | None:
    """The largest number in the float outputs, None where there are no floats."""
    found = _floats(outputs)
    return max(float(np.max(np.abs(array[np.isfinite(array)]), initial=1e-6)) for array in found) if found else None


def _distance(expected: Sequence[object], outputs: Sequence[object]) -> float:
    pairs = list(zip(_floats(expected), _floats(outputs), strict=False))
    if not pairs or any(one.shape != other.shape for one, other in pairs):
        return float("inf")
    return max(float(np.max(np.abs(one - other)) / (np.max(np.abs(one)) + 1e-6)) for one, other in pairs)
