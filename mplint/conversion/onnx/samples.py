"""What an ONNX model is proven on: the user's data, or feeds that it runs on and that are plausible for it, and what is derived of both.

A trained model keeps what goes into its softmaxes, sigmoids and tanhs within their range: a feed that saturates them is not what it is made
for. A model whose outputs hardly change when an input grows a thousandfold, or moves by a hundred, normalizes that input itself: it may be
made for large values, such as 16-bit sound, and must then hold in half on those too. Silence, faint signals and constant rows are part of
real data, and samples seldom hold them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import numpy as np
import onnx_ir as ir

from mplint.conversion.distance import PLAIN, Distance, Ruler, distance, moves, sizes_of
from mplint.conversion.onnx.arrays import (
    LENGTHS,
    NUMBERS,
    Dims,
    Kind,
    is_open,
    made,
    required,
    signal_axis,
    sizes_to_search,
    sizes_to_try,
    sounding,
)
from mplint.conversion.onnx.choices import CHOSEN, Choices
from mplint.conversion.onnx.constants import tensor_of
from mplint.conversion.onnx.evidence import Evidence, evidence
from mplint.conversion.onnx.probe import Probe
from mplint.conversion.onnx.program import is_constant
from mplint.conversion.onnx.run import Feed, Outputs, Session
from mplint.conversion.onnx.widths import RECURRENT, STATES
from mplint.conversion.plausible import SEQUENCES
from mplint.conversion.policy import ConversionError, Options
from mplint.conversion.stress import BETWEEN, FAINT, FAR, ILL, NOISE, STRONGER, ZEROS, loudness, midway, mixed, perturbed, stressed

BASIC = (Kind(), Kind("uniform", seed=1), Kind("rows", seed=2))
FRESH = (Kind(seed=10), Kind("uniform", seed=11), Kind("rows", seed=12))  # for what the plan does not know
WALKED = tuple(Kind(shape, seed=4 + at) for at, shape in enumerate(SEQUENCES))
WALKED_FRESH = tuple(Kind(shape, seed=14 + at) for at, shape in enumerate(SEQUENCES))
LONGER = 4  # times as many steps as usual, in sequences that the plan does not know
HINTED = (Kind("positive", seed=3), Kind(named=True, integers=1000, seed=0), Kind(named=True, integers=NUMBERS, seed=1))
SCALES, SHIFT = (3000.0, 30.0), 100.0
GROWN = 2  # samples that are made larger
LARGER = 1.9  # no power of two, so that other digits are rounded away
COMPRESSED = 0.35  # outputs that grow by less than this power of a scale do not depend on it
MOVED = 0.05  # of their size: what outputs may move by where a shift is taken off again
SATURATING = frozenset(("Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Tanh", "Clip", "Sin", "Cos"))
GATED = 30.0  # beyond this, what a recurrent layer takes opens or shuts its gates for good
MASK = 2  # how many values such an input has
STEPS = 6  # for which a model gets its own states back
TURNS = frozenset(("in", "out", "input", "output", "new", "next", "old", "prev", "previous", "past", "present", "initial", "init", "final"))
SWITCHES = 3  # inputs that switch branches, of which all combinations are tried
DECIDING = frozenset(("ArgMax", "ArgMin", "TopK", "NonMaxSuppression", "MaxUnpool", "Round", "Floor", "Ceil", "Hardmax", "Multinomial"))
CHOOSES = "chooses among what may be nearly equal: on inputs made of the samples, choices and their order are not compared"
COMPARED = "chooses among numbers: on inputs made of the samples, what it chooses from is compared, and not its choices or their order"
FAINTLY = 0.7  # by how much an error counts on silence and faint signals, beyond which nothing is worse: the tolerance holds there as well
FEW, FEW_ROOM = 4, 0.65  # feeds, and the part of the tolerance that a plan of probabilities may use that is made on fewer
PROBABILITIES = frozenset(("Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid"))
MOVING = frozenset(("Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"))  # what hands on values as they are
UNTOLD = frozenset(("Shape", "Size", "If", "Loop", "Scan"))  # what comes out of these may follow no value that goes in
MOST = 1 << 26  # elements of a feed


@dataclass(slots=True)
class Derived:
    """A feed made of another, what the original gives on it, and whether its outputs are compared or only to be numbers (asked once).

    `faint` ones are no larger than what they are made of.
    """

    name: str
    feed: Feed
    reference: Outputs
    stable: Callable[[], bool]
    faint: bool = False
    _compared: bool | None = None

    @property
    def compared(self) -> bool:
        """Whether noise moves the original so little on the feed that an error says something."""
        if self._compared is None:
            self._compared = self.stable()
        return self._compared


@dataclass(slots=True)
class Samples:
    """Feeds with what the original gives, what was derived of them, and the inputs whose scale or offset the model takes off itself.

    `sizes` are how large each output is on all feeds, where these are of one kind, and `ruler` is what outputs are measured by. `unseen`
    are feeds that the plan does not know and the result is verified on; one that it fails on is `learned`, and planned with. `gaps` are why
    they prove too little, `notes` what else there is to know, `fault` is why the ONNX checker refuses the original. `tried` is how far each
    feed, by its number, was with some tensors rounded. `room` is the part of a tolerance that a plan may use:
    where probabilities are near 0 and 1 on a few feeds, other feeds show more of an error. `choices` are the operators that choose, and
    `original` is what gave the references, where it is still open.
    """

    feeds: list[Feed] = field(default_factory=list)
    references: list[Outputs] = field(default_factory=list)
    derived: list[Derived] = field(default_factory=list)
    free: set[str] = field(default_factory=set)
    sizes: tuple[float, ...] = ()
    ruler: Ruler = PLAIN
    unseen: list[Derived] = field(default_factory=list)
    learned: int = 0
    gaps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fault: str = ""
    room: float = 1.0
    choices: Choices | None = None
    original: Session | None = None
    tried: dict[frozenset[ir.Value], dict[int, Distance]] = field(default_factory=dict)

    def all_feeds(self) -> list[Feed]:
        """Every feed, the derived ones last."""
        return [*self.feeds, *(one.feed for one in self.derived)]

    def is_faint(self, at: int) -> bool:
        """Whether a feed, by its number, is one of silence, faint signals and constant rows."""
        return at >= len(self.feeds) and self.derived[at - len(self.feeds)].faint

    def weighed(self, at: int, far: Distance) -> Distance:
        """An error on a feed as it counts for a plan, which leaves room for data not seen: faint feeds are the worst there is."""
        return far.weighed(FAINTLY * self.room) if self.is_faint(at) else far

    def distances(self, run: Callable[[Feed], Outputs], among: Sequence[int] | None = None) -> Iterator[tuple[int, Distance]]:
        """How far from the original what `run` gives is, for each feed with its number, or for those `among` all of them."""
        usual = sizes_of(self.references)
        for at in range(len(self.feeds) + len(self.derived)) if among is None else among:
            if at < len(self.feeds):
                yield at, distance(self.references[at], run(self.feeds[at]), self.sizes, by=self.ruler)
                continue
            yield at, _far(self.derived[at - len(self.feeds)], run, usual, self.ruler)

    def surprises(self, run: Callable[[Feed], Outputs], tolerance: float) -> list[Distance]:
        """How far from the original what `run` gives is on each feed that the plan does not know; the worst is learned if it is too far."""
        usual = sizes_of(self.references)
        found = [_far(one, run, usual, self.ruler) for one in self.unseen]
        failing = [at for at, far in enumerate(found) if not far.within(tolerance / (FAINTLY if self.unseen[at].faint else 1))]
        if failing:
            worst = max(failing, key=lambda at: (bool(found[at].broken), found[at].error))
            self.derived.append(self.unseen.pop(worst))
            self.learned += 1
        return found

    def named(self) -> list[str]:
        """What each feed is, in the order of all feeds, and last what the plan does not know."""
        known = [str(getattr(feed, "file", "")) or f"sample {at + 1}" for at, feed in enumerate(self.feeds)]
        return [*known, *(one.name for one in (*self.derived, *self.unseen))]


def _far(one: Derived, run: Callable[[Feed], Outputs], usual: Sequence[float], ruler: Ruler) -> Distance:
    found = distance(one.reference, run(one.feed), usual, exact=False, by=ruler)
    broken = f"{found.broken} ({one.name})" if found.broken else ""
    if not broken and found.error > ruler.small and not one.compared:
        found = found._replace(error=0.0, each=())
    return found._replace(broken=broken)


def samples(path: str, model: ir.Model, options: Options, notes: list[str]) -> Samples:
    """Made-up feeds that the model runs on; none where no size of the open dimensions fits."""
    try:
        trial = _Trial(path, model)
    except Exception as error:
        raise ConversionError(f"{path} does not load in ONNX Runtime: {str(error).splitlines()[0][:300]}") from None
    values = required(model)
    known = {value.name or "": evidence(value) for value in values}
    usual, searched = sizes_to_try(values, known), sizes_to_search(values, known)
    for at, dims in enumerate([*usual, *searched]):
        found = Samples()
        for kind in BASIC:
            trial.add(found, made(values, known, options.ranges, dims, kind))
            if at >= len(usual) and not found.feeds:
                break  # sizes that do not fit
        if found.feeds:
            _enrich(trial, found, values, known, options, dims)
            trial.derive(
                found, [made(values, known, options.ranges, dims, kind) for kind in FRESH] + list(_fresh(values, known, options, dims))
            )
            return found
    notes.append("no generated input fits the model: give --calibration data; without it the plan rests on constants and operators alone")
    return Samples(gaps=["no made-up input ran: give --calibration data"])


def _fresh(values: Sequence[ir.Value], known: Mapping[str, Evidence], options: Options, dims: Dims) -> Iterator[Feed]:
    """Other sequences for what goes along an axis, and longer ones where the file leaves their length open."""
    axes = {value.name or "": axis for value in values if (axis := known[value.name or ""].walked) is not None}
    for kind in WALKED_FRESH if axes else ():
        yield made(values, known, options.ranges, dims, kind)
    longer = {
        name: replace(known[name], widths={**known[name].widths, axis: LONGER * known[name].widths[axis]})
        for name, axis in axes.items()
        if axis in known[name].widths
    }
    if longer:
        yield made(values, {**known, **longer}, options.ranges, dims, WALKED_FRESH[0])


def _enrich(trial: _Trial, found: Samples, values: Sequence[ir.Value], known: Mapping[str, Evidence], options: Options, dims: Dims) -> None:
    """Add feeds of what names say, of larger integers, other choices, and larger floats, as far as the model bears them."""
    _only_finite(found)
    counted = any(known[value.name or ""].limit is None for value in values if value.dtype is not None and value.dtype.is_integer())
    for kind in HINTED:
        if kind.shape != "normal" or any(one.likely and not one.sure for one in known.values()) or counted:
            _hint(trial, found, made(values, known, options.ranges, dims, kind), kind)
    for kind in WALKED if any(one.walked is not None for one in known.values()) else ():
        _hint(trial, found, made(values, known, options.ranges, dims, kind), kind)
    unknown = [name for name, one in known.items() if one.limit is None and not one.sure and name not in options.ranges]
    for name in unknown:
        _vary(trial, found, name)


def given(path: str, feeds: Sequence[Feed], model: ir.Model | None = None) -> Samples:
    """The user's feeds with what the original gives on them; with the `model`, what is derived of them as well."""
    try:
        session = Session(path)
        found = Samples(
            list(feeds), [session.run(feed) for feed in feeds], room=FEW_ROOM if len(feeds) < FEW and ends_in_probabilities(model) else 1.0
        )
    except Exception as error:
        raise ConversionError(f"{path} does not run in ONNX Runtime: {str(error).splitlines()[0][:300]}") from None
    if model is not None:
        trial = _Trial(path, model, session)
        trial.derive(found, list(trial.like(found.feeds)))
        found.original = session
    return found


def ends_in_probabilities(model: ir.Model | None) -> bool:
    """Whether an output of a model is made by a softmax or a sigmoid."""
    for value in model.graph.outputs if model is not None else ():
        node = value.producer()
        while node is not None and node.op_type in MOVING and node.inputs and node.inputs[0] is not None:
            node = node.inputs[0].producer()
        if node is not None and node.op_type in PROBABILITIES:
            return True
    return False


def larger(known: Samples) -> Samples:
    """The loudest of the user's feeds with larger floats, and what the original gives on them where that is finite."""
    feeds, original, found = known.feeds, known.original, Samples()
    assert original is not None
    for feed in sorted(feeds, key=lambda feed: -loudness(feed, feeds))[:GROWN]:
        if not any(array.dtype.kind == "f" for array in feed.values()):
            continue
        grown = {name: np.asarray(array * array.dtype.type(LARGER)) if array.dtype.kind == "f" else array for name, array in feed.items()}
        try:
            outputs = original.run(grown)
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
        self.path = path
        self.session = session or Session(path)
        self.model = model
        self.known = {value.name or "": evidence(value) for value in required(model)}
        self.probe: Probe | None = None
        self.limits: list[tuple[float, bool, bool]] | None = None
        self.base: Feed | None = None
        self.ran: dict[bytes, Outputs | None] = {}

    def run(self, feed: Feed) -> Outputs | None:
        """The outputs, None where the model does not run or gives no finite numbers; a feed is run once."""
        if sum(array.size for array in feed.values()) > MOST:
            return None
        key = _digest(feed)
        if key not in self.ran:
            try:
                outputs = self.session.run(feed)
            except Exception:
                outputs = []
            self.ran[key] = outputs if outputs and _finite(outputs) else None
        return self.ran[key]

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

    def derive(self, found: Samples, fresh: Sequence[Feed]) -> None:
        """Add what silence, faint signals, constant rows and other choices make of the first feed; say where outputs follow none of it.

        The same of other feeds and of single inputs, and `fresh` feeds, are what the plan does not know.
        """
        order = sorted(range(len(found.feeds)), key=lambda at: -loudness(found.feeds[at], found.feeds))
        base = found.feeds[order[0]]
        usual = sizes_of(found.references)
        deciding = next(filter(_decides, self.model.graph.all_nodes()), None)
        smooth = deciding is None
        if deciding is not None and any(array.dtype.kind == "f" for array in found.feeds[0].values()):
            found.notes.append(f"{deciding.op_type} {COMPARED if deciding.op_type in CHOSEN else CHOOSES}")
        taken = {_digest(feed) for feed in found.feeds}
        self.ran |= {_digest(feed): outputs for feed, outputs in zip(found.feeds, found.references, strict=True) if _finite(outputs)}

        def derived(name: str, feeds: Iterable[Feed], limit: float = FAR) -> Derived | None:
            for feed in feeds:
                outputs = self.run(feed)
                if outputs is None or _digest(feed) in taken:
                    continue
                taken.add(_digest(feed))
                if any(size > limit * known for size, known in zip(sizes_of([outputs]), usual, strict=False)) and name != ZEROS:
                    return None
                stable = partial(self._is_stable, feed, outputs, base, usual) if smooth else bool
                return Derived(name, feed, outputs, stable)
            return None

        found.derived += [replace(one, faint=True) for name, feed in stressed(base) if (one := derived(name, [feed])) is not None]
        found.derived += [one for name, feeds in self._others(found.feeds) if (one := derived(name, feeds)) is not None]
        others = [found.feeds[order[at]] for at in sorted({len(order) // 2, len(order) - 1} - {0})]
        fainter = [one for feed in others[-1:] for one in stressed(feed, FAINT[-1:])]
        faint = [*fainter, *_alone(base)]
        unseen = [("an unseen input", feed) for feed in fresh]
        ends = [{name: np.zeros_like(array) if array.dtype.kind == "f" else array for name, array in base.items()}, *others]
        for factor in (1.0, FAINT[0]):
            unseen += [("after some steps", feed) for feed in self._carried(base, [*others, *fresh], factor)]
        unseen += [(BETWEEN, feed) for end in ends for feed in midway(self.run, base, end)]
        found.unseen = [replace(one, faint=True) for name, feed in faint if (one := derived(name, [feed])) is not None]
        found.unseen += [one for name, feed in unseen if (one := derived(name, [feed])) is not None]
        self._check_moves(found)
        self.ran.clear()
        if self.probe is not None:
            self.probe.session.close()
            self.probe = self.limits = None

    def _is_stable(self, feed: Feed, outputs: Outputs, base: Feed, usual: Sequence[float]) -> bool:
        try:
            noisy = self.session.run(perturbed(feed, base, NOISE))
        except Exception:
            return False
        return _finite(noisy) and distance(outputs, noisy, usual).within(ILL)

    def _carried(self, base: Feed, others: Sequence[Feed], factor: float) -> Iterator[Feed]:
        """Feeds with the states that the model itself gives back, step by step, on inputs times a `factor`, of one feed after the other."""
        back = states(self.model)
        feed = base
        for step in range(STEPS if back else 0):
            outputs = self.run(feed)
            if outputs is None:
                return
            given = {name: np.asarray(outputs[at]) for name, at in back.items()}
            if any(array.shape != base[name].shape or array.dtype != base[name].dtype for name, array in given.items()):
                return
            turn = (base, *others)[(step + 1) % (len(others) + 1)]
            if any(turn[name].shape != array.shape for name, array in base.items()):
                turn = base
            scaled = {name: np.asarray(array * array.dtype.type(factor)) for name, array in turn.items() if array.dtype.kind == "f"}
            feed = {**turn, **scaled, **given}
            if step % 2:
                yield feed

    def like(self, feeds: Sequence[Feed]) -> Iterator[Feed]:
        """Feeds like the user's: two of his mixed, and sounds as loud and as long as his."""
        base, other = feeds[0], feeds[len(feeds) // 2]
        floats = [name for name, array in base.items() if array.dtype.kind == "f" and array.size and array.shape == other[name].shape]
        if base is not other:
            yield mixed(base, other, 0.5)
        signals = [name for name in floats if self.known[name].length is not None]
        for kind in BASIC if signals else ():
            rng = np.random.default_rng(kind.seed)
            yield {**base, **{name: sounding(base[name], kind, rng) for name in signals}}

    def _others(self, feeds: Sequence[Feed]) -> Iterator[tuple[str, Iterable[Feed]]]:
        """Other values of the inputs that are one and the same in all feeds though the model takes any; each as the model may take it."""
        base = feeds[0]
        rng = np.random.default_rng(0)
        switches = [name for name, array in base.items() if array.dtype.kind == "b" and array.size == 1][:SWITCHES]
        for values in product((True, False), repeat=len(switches)):
            turned = {name: np.full_like(base[name], value) for name, value in zip(switches, values, strict=True)}
            if not any(all(np.array_equal(feed[name], turned[name]) for name in switches) for feed in feeds):
                yield ", ".join(f"{name} = {value}" for name, value in zip(switches, values, strict=True)), [{**base, **turned}]
        for name, array in base.items():
            if any(feed[name].shape != array.shape or not np.array_equal(feed[name], array) for feed in feeds[1:]) or not array.size:
                continue
            first = array.reshape(-1)[0]
            if not (array == first).all():
                continue
            known = self.known.get(name)
            if array.size > 1 and (array.dtype.kind == "b" or (array.dtype.kind in "iu" and known is not None and known.limit == MASK)):
                other = array.dtype.type(not first)
                for words, start in (("", 0), (" from the middle on", array.shape[-1] // 2)):
                    mask = array.copy()
                    mask[..., start:] = other
                    yield f"{name} = {other}{words}", [{**base, name: mask}]
            elif array.dtype.kind in "iu":
                for value in known.choices if known is not None else ():
                    if value != first:
                        turned = {**base, name: np.full_like(array, value)}
                        yield f"{name} = {value}", self._at_lengths(turned, value / float(first) if first else 1.0)
            elif array.dtype.kind == "f" and array.size > 1:
                drawn = rng.standard_normal(array.shape).astype(array.dtype)
                yield f"{name} varied", [{**base, name: (first * (1 + drawn / 4) if first else drawn).astype(array.dtype)}]

    def _at_lengths(self, feed: Feed, share: float) -> Iterator[Feed]:
        """A feed, and the same with its signals shorter or longer: first by the `share` that another sample rate makes of a time."""
        yield feed
        signals = {
            value.name or "": axis
            for value in required(self.model)
            if self.known[value.name or ""].length is not None and is_open(list(value.shape or (1,))[axis := signal_axis(value)])
        }
        longest = max((feed[name].shape[axis] for name, axis in signals.items()), default=0)
        for length in dict.fromkeys((round(longest * share), *LENGTHS)) if signals else ():
            if 0 < length != longest and length <= LENGTHS[1]:
                fitted = {name: np.take(feed[name], np.arange(length) % feed[name].shape[axis], axis) for name, axis in signals.items()}
                counts = {name: np.full_like(array, length) for name, array in feed.items() if self.known[name].of_signal}
                yield {**feed, **fitted, **counts}

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
        values: list[ir.Value] = []
        kinds: list[tuple[float, bool, bool]] = []
        for node in self.model.graph:
            value = node.inputs[0] if node.inputs else None
            if node.op_type in RECURRENT:  # its gates saturate inside of it
                taken = [one for at, one in enumerate(node.inputs) if at in (0, *STATES) and one is not None]
                values += [one for one in taken if one.dtype == ir.DataType.FLOAT]
                kinds += [(GATED, False, False)] * (len(values) - len(kinds))
                continue
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


def states(model: ir.Model) -> dict[str, int]:
    """The float inputs whose next value an output is, with its position: of the same rank and sizes, and called alike ("hn" for "h")."""
    found: dict[str, int] = {}
    for value in required(model):
        if value.dtype is None or not value.dtype.is_floating_point() or len(value.shape or ()) < 2:
            continue
        words = _stem(value.name)
        for at, output in enumerate(model.graph.outputs):
            alike = output.dtype == value.dtype and (output.shape is None or _fits(value.shape, output.shape))
            if alike and at not in found.values() and words and words == _stem(output.name):
                found[value.name or ""] = at
                break
    return found


def _stem(name: str | None) -> str:
    """What is left of the name of a state without the words that tell what goes in from what comes out."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name or "").lower()
    kept = [word for word in re.split(r"[^a-z0-9]+", words) if word not in TURNS]
    return re.sub(r"(?<=^[a-z])(n|t)$|(?<=[a-z0-9])_?n$|0$", "", "_".join(kept))


def _fits(one: ir.Shape | None, other: ir.Shape | None) -> bool:
    if one is None or other is None or len(one) != len(other):
        return False
    return all(is_open(a) or is_open(b) or a == b for a, b in zip(one, other, strict=True))


def _alone(base: Feed) -> Iterator[tuple[str, Feed]]:
    """One float input of several faint or 0, and the others as they are."""
    floats = [name for name, array in base.items() if array.dtype.kind == "f" and array.size]
    for name in floats if len(floats) > 1 else ():
        for factor in (*FAINT, 0.0):
            yield f"{name} × {factor:g}", {**base, name: np.asarray(base[name] * base[name].dtype.type(factor))}


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


def _digest(feed: Feed) -> bytes:
    """What tells feeds apart that are not the same."""
    found = hashlib.blake2b(digest_size=16)
    for name, array in sorted(feed.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
    return found.digest()


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
