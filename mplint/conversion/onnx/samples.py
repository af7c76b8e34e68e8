"""What an ONNX model is proven on: the user's data, or feeds that it runs on and that are plausible for it, and what is derived of both.

A trained model keeps what goes into its softmaxes, sigmoids and tanhs within their range: a feed that saturates them is not what it is made
for. A model whose outputs hardly change when an input grows a thousandfold, or moves by a hundred, normalizes that input itself: it may be
made for large values, such as 16-bit sound, and must then hold in half on those too. Silence, faint signals and constant rows are part of
real data, and samples seldom hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from mplint.conversion.distance import Distance, distance, moves, sizes_of
from mplint.conversion.onnx.arrays import NUMBERS, Dims, Kind, made, required, sizes_to_try
from mplint.conversion.onnx.constants import tensor_of
from mplint.conversion.onnx.evidence import Evidence, evidence
from mplint.conversion.onnx.probe import Probe
from mplint.conversion.onnx.program import is_constant
from mplint.conversion.onnx.run import Feed, Outputs, Session
from mplint.conversion.policy import ConversionError, Options
from mplint.conversion.stress import ZEROS, perturbed, stressed

BASIC = (Kind(), Kind("uniform", seed=1), Kind("rows", seed=2))
HINTED = (Kind("positive", seed=3), Kind(named=True, integers=1000, seed=0), Kind(named=True, integers=NUMBERS, seed=1))
SCALES, SHIFT = (3000.0, 30.0), 100.0
STRONGER = (10.0, 100.0, 1000.0)  # where outputs hardly move
LARGER = 1.9  # no power of two, so that other digits are rounded away
COMPRESSED = 0.35  # outputs that grow by less than this power of a scale do not depend on it
MOVED = 0.05  # of their size: what outputs may move by where a shift is taken off again
NOISE = 1e-6  # of the size of an input
ILL = 0.01  # what outputs may move by such noise, of their size, where they are to be compared
SATURATING = frozenset(("Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Tanh", "Clip", "Sin", "Cos"))
FAR = 30.0  # how many times its usual outputs a model may give for a faint input; beyond, it is made for no such input, but for zeros
SWITCHES = 3  # inputs that switch branches, of which all combinations are tried
DECIDING = frozenset(("ArgMax", "ArgMin", "TopK", "NonMaxSuppression", "MaxUnpool", "Round", "Floor", "Ceil", "Hardmax", "Multinomial"))
UNTOLD = frozenset(("Shape", "Size", "If", "Loop", "Scan"))  # what comes out of these may follow no value that goes in
MOST = 1 << 26  # elements of a feed


class Derived(NamedTuple):
    """A feed made of another, what the original gives on it, and whether its outputs are compared or only to be numbers."""

    name: str
    feed: Feed
    reference: Outputs
    compared: bool = True


@dataclass(slots=True)
class Samples:
    """Feeds with what the original gives, what was derived of them, and the inputs whose scale or offset the model takes off itself.

    `sizes` are how large each output is on all feeds, where these are of one kind. `gaps` are why they prove too little, `fault` is why
    the ONNX checker refuses the original.
    """

    feeds: list[Feed] = field(default_factory=list)
    references: list[Outputs] = field(default_factory=list)
    derived: list[Derived] = field(default_factory=list)
    free: set[str] = field(default_factory=set)
    sizes: tuple[float, ...] = ()
    gaps: list[str] = field(default_factory=list)
    fault: str = ""

    def all_feeds(self) -> list[Feed]:
        """Every feed, the derived ones last."""
        return [*self.feeds, *(one.feed for one in self.derived)]

    def distances(self, run: Callable[[Feed], Outputs], first: int = 0) -> Iterator[tuple[int, Distance]]:
        """How far from the original what `run` gives is, for each feed with its number; the feed with the number `first` comes first."""
        usual = sizes_of(self.references)
        count = len(self.feeds) + len(self.derived)
        for at in sorted(range(count), key=lambda at: at != first):
            if at < len(self.feeds):
                yield at, distance(self.references[at], run(self.feeds[at]), self.sizes)
                continue
            name, feed, reference, compared = self.derived[at - len(self.feeds)]
            found = distance(reference, run(feed), usual, exact=False)
            broken = f"{found.broken} ({name})" if found.broken else ""
            yield at, Distance(found.error if compared or broken else 0.0, broken, found.empty)


def samples(path: str, model: ir.Model, options: Options, notes: list[str]) -> Samples:
    """Made-up feeds that the model runs on; none where no size of the open dimensions fits."""
    try:
        trial = _Trial(path, model)
    except Exception as error:
        raise ConversionError(f"{path} does not load in ONNX Runtime: {str(error).splitlines()[0][:300]}") from None
    values = required(model)
    known = {value.name or "": evidence(value) for value in values}
    for dims in sizes_to_try(values, known):
        found = Samples()
        for kind in BASIC:
            trial.add(found, made(values, known, options.ranges, dims, kind))
        if found.feeds:
            _enrich(trial, found, values, known, options, dims)
            trial.derive(found)
            return found
    notes.append("no generated input fits the model: give --calibration data; without it the plan rests on constants and operators alone")
    return Samples(gaps=["no made-up input ran: give --calibration data"])


def _enrich(trial: _Trial, found: Samples, values: Sequence[ir.Value], known: Mapping[str, Evidence], options: Options, dims: Dims) -> None:
    """Add feeds of what names say, of larger integers, other choices, and larger floats, as far as the model bears them."""
    _only_finite(found)
    counted = any(known[value.name or ""].limit is None for value in values if value.dtype is not None and value.dtype.is_integer())
    for kind in HINTED:
        if kind.shape != "normal" or any(one.likely and not one.sure for one in known.values()) or counted:
            _hint(trial, found, made(values, known, options.ranges, dims, kind), kind)
    unknown = [name for name, one in known.items() if one.limit is None and not one.sure and name not in options.ranges]
    for name in unknown:
        _vary(trial, found, name)


def given(path: str, feeds: Sequence[Feed], model: ir.Model | None = None) -> Samples:
    """The user's feeds with what the original gives on them; with the `model`, what is derived of them as well."""
    try:
        session = Session(path)
        found = Samples(list(feeds), [session.run(feed) for feed in feeds])
    except Exception as error:
        raise ConversionError(f"{path} does not run in ONNX Runtime: {str(error).splitlines()[0][:300]}") from None
    if model is not None:
        found.sizes = sizes_of(found.references)
        _Trial(path, model, session).derive(found)
    return found


def larger(path: str, feeds: Sequence[Feed]) -> Samples:
    """The feeds with larger floats, and what the original gives on them where that is finite."""
    session, found = Session(path), Samples()
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

    def __init__(self, path: str, model: ir.Model, session: Session | None = None) -> None:
        self.session = session or Session(path)
        self.model = model
        self.known = {value.name or "": evidence(value) for value in required(model)}
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
        if sum(array.size for array in feed.values()) > MOST:
            return
        try:
            outputs = self.session.run(feed)
        except Exception:
            return
        if self.base is None:
            self.base = feed
        found.feeds.append(feed)
        found.references.append(outputs)

    def derive(self, found: Samples) -> None:
        """Add what silence, faint signals, constant rows and other choices make of the first feed; say where outputs follow none of it."""
        base = found.feeds[0]
        usual = sizes_of(found.references)
        smooth = not any(map(_decides, self.model.graph.all_nodes()))
        for name, feed in (*stressed(base), *self._others(found.feeds)):
            outputs = self.run(feed)
            beyond = any(size > FAR * known for size, known in zip(sizes_of([outputs or []]), usual, strict=False))
            if outputs is None or (beyond and name != ZEROS):
                continue
            noisy = self.run(perturbed(feed, base, NOISE)) if smooth else None
            compared = noisy is not None and distance(outputs, noisy, usual).within(ILL)
            found.derived.append(Derived(name, feed, outputs, compared))
        self._check_moves(found)

    def _others(self, feeds: Sequence[Feed]) -> Iterator[tuple[str, Feed]]:
        """Other values of the inputs that are one and the same in all feeds though the model takes any."""
        base = feeds[0]
        rng = np.random.default_rng(0)
        switches = [name for name, array in base.items() if array.dtype.kind == "b" and array.size == 1][:SWITCHES]
        for values in product((True, False), repeat=len(switches)):
            turned = {name: np.full_like(base[name], value) for name, value in zip(switches, values, strict=True)}
            if not any(all(np.array_equal(feed[name], turned[name]) for name in switches) for feed in feeds):
                yield ", ".join(f"{name} = {value}" for name, value in zip(switches, values, strict=True)), {**base, **turned}
        for name, array in base.items():
            if any(feed[name].shape != array.shape or not np.array_equal(feed[name], array) for feed in feeds[1:]) or not array.size:
                continue
            first = array.reshape(-1)[0]
            if not (array == first).all():
                continue
            if array.dtype.kind in "iu":
                known = self.known.get(name)
                for value in known.choices if known is not None else ():
                    if value != first:
                        yield f"{name} = {value}", {**base, name: np.full_like(array, value)}
            elif array.dtype.kind == "f" and array.size > 1:
                drawn = rng.standard_normal(array.shape).astype(array.dtype)
                yield f"{name} varied", {**base, name: (first * (1 + drawn / 4) if first else drawn).astype(array.dtype)}

    def _check_moves(self, found: Samples) -> None:
        """Note the outputs that hardly follow the inputs; stronger feeds are tried first."""
        names = [value.name or "" for value in self.model.graph.outputs]
        reached = _reached(self.model)
        results = [*found.references, *(one.reference for one in found.derived)]
        if not any(array.size for array in found.feeds[0].values()):
            return
        for factor in (*STRONGER, None):
            still = [name for name, moved in zip(names, moves(results), strict=False) if not moved and name in reached]
            if len(results) < 2:
                still = []
            if not still or factor is None:
                break
            feed = {name: array * array.dtype.type(factor) if array.dtype.kind == "f" else array for name, array in found.feeds[0].items()}
            outputs = self.run(feed)
            if outputs is not None:
                results.append(outputs)
                if moves([results[0], outputs]) != moves([results[0]] * 2):
                    found.feeds.append(feed)
                    found.references.append(outputs)
        if still:
            why = "is the same whatever the inputs are, so that it proves nothing: give --calibration data on which it moves"
            found.gaps.append(f"the output {still[0]!r} {why}")

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


def _decides(node: ir.Node) -> bool:
    """Whether a node decides between what may be equals: its result jumps where its input moves a little."""
    if node.op_type == "Cast":
        source = node.inputs[0]
        whole = ir.DataType(node.attributes.get_int("to", 1)).is_integer()
        return whole and source is not None and source.dtype is not None and source.dtype.is_floating_point()
    return node.op_type in DECIDING


def _reached(model: ir.Model) -> set[str]:
    """The names of the float outputs that an input of the model may move, by way of more than its size."""
    found = set()
    for output in model.graph.outputs:
        if output.dtype is None or not output.dtype.is_floating_point():
            continue
        seen: set[ir.Node] = set()
        stack = [output.producer()]
        while stack:
            node = stack.pop()
            if node is None or node in seen or node.op_type in UNTOLD:
                continue
            seen.add(node)
            if any(value is not None and value.is_graph_input() and not value.is_initializer() for value in node.inputs):
                found.add(output.name or "")
                break
            stack += [value.producer() for value in node.inputs if value is not None]
    return found


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
