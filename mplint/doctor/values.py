"""The values of a training, whatever framework computes them: the first that leaves the range of its dtype, and what led there."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mplint.limits import EXACT_INTEGERS, HALF_MAX, HALF_ZERO
from mplint.runs.record import Recorder

CHAIN = 6
KEPT = 20_000  # records of one step
TOLD = 5  # values of a kind that are told
# Operations by the names of torch; those of other frameworks are told by these names.
FILLING = ("masked_fill", "full", "fill", "scalar_tensor", "where", "empty", "lift_fresh", "index_put", "new_", "zeros", "ones")
RANDOM = ("random", "uniform", "normal", "rand")
ADDING = ("add", "clamp", "clamp_min", "maximum", "sub")
MULTIPLYING = ("mul", "add", "sub")
CASTING = ("_to_copy", "cast")
MAGNITUDE_DECIDES = ("exp", "log", "softmax", "pow", "square", "div", "sqrt", "rsqrt", "reciprocal", "add", "clamp", "where", "mul")
SINGULAR = ("log", "log2", "log10", "div", "reciprocal", "rsqrt", "pow", "sqrt")  # operations that look at how small a value is

Ends = tuple[float, float]  # the least and the most of magnitudes; nan where an element is no number
Place = tuple[str, int]


class Seen(NamedTuple):
    """One result of one operation."""

    operation: str
    dtype: str
    module: str
    place: Place | None
    least: float
    most: float
    sources: tuple[Seen, ...]

    @property
    def described(self) -> dict[str, object]:
        """As an event tells it."""
        return {
            "operation": self.operation,
            "dtype": self.dtype,
            "module": self.module,
            "place": list(self.place) if self.place else None,
            "least": plain(self.least),
            "most": plain(self.most),
        }


class Tensors(NamedTuple):
    """How a framework's tensors are read: the name of the dtype, the sizes, the ends of the magnitudes, and whether all are integers.

    A dtype that is no floating point has the ends (0, 0), but for integers.
    """

    dtype: Callable[[Any], str]
    shape: Callable[[Any], tuple[int, ...]]
    ends: Callable[[Any], Ends]
    whole: Callable[[Any], bool]


class Operation(NamedTuple):
    """An operation that has run: its name, the tensors and the numbers that it was given, and the tensors that it gave.

    `before` are the ends of what it was given where it has written over that. `seconds`: how long it took.
    """

    name: str
    given: Sequence[Any]
    numbers: Sequence[float]
    results: Sequence[Any]
    before: Sequence[Ends] = ()
    seconds: float = 0.0


class Situation(NamedTuple):
    """Where a program is: the path of the module that runs, the user's line, and the phase of the step."""

    module: Callable[[], str]
    place: Callable[[], Place | None]
    state: Callable[[], Mapping[str, object]]


# Told of each result of the forward pass: the operation, the dtype it worked in, the line, and the ends of what it was given and gave.
Counted = Callable[[str, str, Place | None, Sequence[Ends], Ends], None]


class Values:
    """Looks at every operation that it is told of."""

    def __init__(self, recorder: Recorder, tensors: Tensors, situation: Situation, counted: Counted) -> None:
        self._recorder = recorder
        self._tensors = tensors
        self._at = situation
        self._counted = counted
        self._records: dict[int, tuple[weakref.ref[Any], Seen]] = {}
        self._told: set[tuple[object, ...]] = set()
        self.headroom: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def forget(self) -> None:
        """A step is over: nothing of it leads to values of the next."""
        self._records.clear()

    def of(self, value: object) -> Seen | None:
        """What a tensor came from, where that was seen."""
        known = self._records.get(id(value))
        return known[1] if known is not None and known[0]() is value else None

    def pass_on(self, given: Sequence[Any], results: Sequence[Any]) -> None:
        """Results are the same values as the first thing given: views of it."""
        source = next((seen for value in given if (seen := self.of(value)) is not None), None)
        for tensor in results:
            if source is not None and len(self._records) < KEPT:
                self._records[id(tensor)] = (weakref.ref(tensor), source)

    def look(self, operation: Operation) -> list[Seen]:
        """Look at what an operation has made; returns it."""
        sources = tuple(seen for value in operation.given if (seen := self.of(value)) is not None)[:4]
        self._constants(operation)
        self._integers(operation)
        found = []
        given: Sequence[Ends] | None = None
        for tensor in operation.results:
            dtype = self._tensors.dtype(tensor)
            if not dtype.startswith(("float", "bfloat")):
                continue
            least, most = self._tensors.ends(tensor)
            seen = Seen(operation.name, dtype, self._at.module(), self._at.place(), least, most, sources)
            self._count(seen)
            if len(self._records) < KEPT:
                self._records[id(tensor)] = (weakref.ref(tensor), seen)
            if not math.isfinite(most):
                if given is None:
                    given = operation.before or [self._tensors.ends(value) for value in operation.given]
                self._broken(seen, operation, given)
            found.append(seen)
        if found and self._at.state().get("phase") == "forward":
            self._count_at_line(operation, found[0])
        return found

    def _count_at_line(self, operation: Operation, made: Seen) -> None:
        """Tell what an operation was given and gave; what nothing is known of is looked at where its magnitude decides."""
        floats = [value for value in operation.given if self._tensors.dtype(value).startswith(("float", "bfloat"))]
        worked = next((dtype for value in floats if (dtype := self._tensors.dtype(value)) in HALF_MAX), made.dtype)
        decides = operation.name.strip("_").startswith(MAGNITUDE_DECIDES) and not operation.before
        ends = [(seen.least, seen.most) for value in floats if (seen := self.of(value)) is not None and seen is not made]
        if decides and not ends:
            ends = [self._tensors.ends(value) for value in floats]
        self._counted(operation.name, worked, made.place, operation.before[: len(floats)] or ends, (made.least, made.most))

    def _count(self, seen: Seen) -> None:
        self.counts[seen.dtype] = self.counts.get(seen.dtype, 0) + 1
        forward = self._at.state().get("phase") == "forward"  # a gradient carries the loss scale, which may reach any value
        if forward and seen.dtype in HALF_MAX and math.isfinite(seen.most):
            self.headroom[seen.module] = max(self.headroom.get(seen.module, 0.0), seen.most / HALF_MAX[seen.dtype])

    def _broken(self, seen: Seen, operation: Operation, given: Sequence[Ends]) -> None:
        kind = "nan" if math.isnan(seen.most) else "inf"
        filled = kind == "inf" and seen.operation.lstrip("_").startswith((*FILLING, *RANDOM))
        earlier = any(math.isnan(most) for _, most in given) or (kind == "inf" and any(math.isinf(most) for _, most in given))
        phase = self._at.state()
        key = (kind, phase.get("phase"), seen.module, seen.operation, seen.place)
        if filled or earlier or key in self._told or sum(1 for told in self._told if told[0] == kind) >= TOLD:
            return
        self._told.add(key)
        inputs = [
            {"dtype": self._tensors.dtype(value), "shape": list(self._tensors.shape(value)), "least": plain(low), "most": plain(high)}
            for value, (low, high) in zip(operation.given, given, strict=False)
            if self._tensors.dtype(value).startswith(("float", "bfloat"))
        ]
        details = {**phase, **seen.described, "inputs": inputs, "chain": [each.described for each in _led(seen)]}
        self._recorder.event(kind, step=self._recorder.made, numbers=[plain(each) for each in operation.numbers], **details)

    def _constants(self, operation: Operation) -> None:
        """Numbers that a half tensor can't take as they are: they become 0, or infinite."""
        dtype = next((found for value in operation.given if (found := self._tensors.dtype(value)) in HALF_MAX), None)
        name = operation.name.rstrip("_")
        if dtype is None or self._at.state().get("phase") != "forward":
            return
        for value in operation.numbers:
            if math.isinf(value) and name in ("mul", "sub"):
                self._tell("number-is-infinite", operation=operation.name, dtype=dtype)
            if value == 0 or not math.isfinite(value):
                continue
            if name in ADDING and abs(value) <= HALF_ZERO[dtype]:
                self._tell("constant-becomes-zero", operation=operation.name, value=value, dtype=dtype)
            elif name in MULTIPLYING and abs(value) > HALF_MAX[dtype] * 1.001:
                self._tell("constant-becomes-infinite", operation=operation.name, value=value, dtype=dtype)

    def _integers(self, operation: Operation) -> None:
        """Integers that a half dtype rounds: positions, counts, identifiers."""
        if self._at.state().get("phase") != "forward" or len(operation.results) != 1:
            return
        (result,) = operation.results
        dtype = self._tensors.dtype(result)
        name = operation.name.rstrip("_")
        if dtype not in EXACT_INTEGERS or (name not in CASTING and name not in ("arange", "range")):
            return
        most = self._tensors.ends(operation.given[0] if name in CASTING and operation.given else result)[1]
        if EXACT_INTEGERS[dtype] < most <= HALF_MAX[dtype]:
            source = operation.given[0] if name in CASTING and operation.given else None
            if source is None or self._tensors.whole(source):
                self._tell("integers-rounded", operation=operation.name, value=most, dtype=dtype, exact=EXACT_INTEGERS[dtype])

    def _tell(self, kind: str, **details: object) -> None:
        place = self._at.place()
        key = (kind, place, details.get("value") if kind != "integers-rounded" else None)
        if place is not None and key not in self._told:
            self._told.add(key)
            self._recorder.event(kind, place=list(place), module=self._at.module(), **details)


def plain(number: float) -> float | str:
    """A number as JSON can hold it."""
    return number if math.isfinite(number) else str(number)


def _led(seen: Seen) -> Iterator[Seen]:
    """The operations that led to a value, the last first: each time the input that was nearest to the end of its range."""
    for _ in range(CHAIN):
        if not seen.sources:
            return
        zero = [source for source in seen.sources if source.least == 0]
        if zero and seen.operation in SINGULAR:
            seen = zero[0]
        else:
            seen = max(seen.sources, key=lambda source: source.most if math.isfinite(source.most) else math.inf)
        yield seen
