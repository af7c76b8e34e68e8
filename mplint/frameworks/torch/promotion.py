"""Which dtype operations give: promotion on sets of dtypes, and what derived tables say of an operation under an autocast state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mplint.frameworks.derived import OpMeaning
from mplint.frameworks.torch.protocol import LETTERS, NAMES
from mplint.program.lower import span_of
from mplint.program.machine import Machine
from mplint.program.store import choose, join, under
from mplint.program.values import (
    ANY,
    BFLOAT,
    BOOLEAN,
    COMPUTE,
    DOUBLE,
    HALF,
    INTEGER,
    SINGLE,
    Alternatives,
    Atom,
    Autocast,
    By,
    Constant,
    DType,
    DTypeOf,
    Place,
    Step,
    Tensor,
    Value,
)

HALVES = frozenset({HALF, BFLOAT})
FLOATS = frozenset({HALF, BFLOAT, SINGLE, DOUBLE, COMPUTE})
MAX_COMBINATIONS = 12
SCALAR = "scalar"  # tag: a tensor without dimensions widens nothing
UNKNOWN_TENSOR = Tensor(frozenset({ANY}))

Letters = frozenset[str]


def spread(m: Machine, values: Sequence[Value], run: Callable[[tuple[Atom, ...]], Value]) -> Value:
    """`run` for each combination of atoms that can hold together."""
    if not any(type(v) is Alternatives for v in values):
        return run(tuple(values))  # type: ignore[arg-type]
    base = m.path
    combinations: list[tuple[frozenset[object], tuple[Atom, ...]]] = [(base, ())]
    for value in values:
        if type(value) is not Alternatives:
            combinations = [(path, (*chosen, value)) for path, chosen in combinations]
            continue
        following = []
        for path, chosen in combinations:
            following += [(other, (*chosen, atom)) for other, atom in under(value, path)]  # type: ignore[arg-type]
        combinations = following[:MAX_COMBINATIONS]  # type: ignore[assignment]
    found = []
    for path, chosen in [one for one in combinations if not is_impossible(m, one[1])] or combinations:
        m.path = path  # type: ignore[assignment]
        found.append((path - base, run(chosen)))
    m.path = base
    return choose(join(found), base)  # type: ignore[arg-type]


def is_impossible(m: Machine, chosen: Sequence[Atom]) -> bool:
    """Whether a region is off in which a tensor became half: what guards could not tell, where conditions are too many to be kept."""
    made = {atom.half[0].place for atom in chosen if type(atom) is Tensor and atom.half}
    off = [a.identity[0] for a in chosen if type(a) is Autocast and a.dtype is None and isinstance(a.identity, tuple)] if made else []
    return any(place in made and is_entered_here(m, place) for place in off)


def is_entered_here(m: Machine, place: Place) -> bool:
    """Whether the function in which a region is made is running still: one that makes regions for others makes them on, and off."""
    around = [code for code in m.called if code.path == place.path and code.place != 0 and holds(code.place, place.position)]
    return not around or any(frame.code in around for frame in m.frames)


def holds(outer: int, inner: int) -> bool:
    """Whether one packed range begins and ends around the lines of another."""
    first, last = span_of(outer), span_of(inner)
    return first.line <= last.line and last.end_line <= first.end_line


def wider(one: str, other: str) -> str:
    """The dtype that two tensors with dimensions promote to; what nobody knows gives way."""
    if one == other or other == ANY:
        return one
    if one == ANY:
        return ANY if other in (INTEGER, BOOLEAN) else other
    if one in (INTEGER, BOOLEAN) and other in (INTEGER, BOOLEAN):
        return INTEGER
    if one in (INTEGER, BOOLEAN):
        return other
    if other in (INTEGER, BOOLEAN):
        return one
    if DOUBLE in (one, other):
        return DOUBLE
    if {one, other} == HALVES or SINGLE in (one, other):
        return SINGLE
    return one


def widest(tensors: Sequence[Tensor]) -> Letters:
    """The dtypes that several tensors may promote to; those without dimensions count only where all are."""
    counted = [t for t in tensors if SCALAR not in t.tags] or list(tensors)
    if len(counted) < len(tensors) and all(t.dtypes <= {INTEGER, BOOLEAN} for t in counted):
        counted = list(tensors)
    found = counted[0].dtypes
    for tensor in counted[1:]:
        if tensor.dtypes != found:
            letters = {wider(a, b) if b != ANY else a for a in found for b in tensor.dtypes}
            if ANY in letters and len(letters) > 1:
                letters.discard(ANY)
            found = frozenset(letters)
    return found


def region_kind(meaning: OpMeaning, region: Autocast) -> str:
    """What an operation does to dtypes under an autocast state."""
    if region.dtype is None:
        return meaning.plain
    return meaning.cpu if region.device == "cpu" else meaning.kind


MODEL_IN_HALF = (By.MODEL, By.ENGINE)  # what makes all of a model half


def named(letter: str) -> str:
    """A dtype's name."""
    return NAMES.get(letter, "half precision")


def is_of_cast_model(tensor: Tensor) -> bool:
    """Whether a tensor is float16 by the cast of a model alone."""
    return len(tensor.half) == 1 and tensor.half[0].by is By.MODEL and HALF in tensor.dtypes


def half_chain(sources: Sequence[Tensor], letters: Letters) -> tuple[Step, ...]:
    """The chain of the operand that made a result half."""
    if not letters & HALVES:
        return ()
    return next((t.half for t in sources if t.half and t.dtypes & letters), ())


def lowered(region: Autocast, name: str, place: Place) -> tuple[Letters, tuple[Step, ...]]:
    """The dtype in which autocast computes, and the chain that says so."""
    letter = region.dtype or ANY
    return frozenset({letter}), (*region.chain[:1], Step(place, f"`{name}` computes in {named(letter)} here"))


def dtypes_given(value: Atom | None) -> tuple[Letters, tuple[Step, ...]] | None:
    """The dtypes that an argument names, with the chain of the tensor whose dtype it is; None where it names none."""
    if type(value) is DType:
        return frozenset({value.letter}), ()
    if type(value) is DTypeOf:
        return value.tensor.dtypes, value.tensor.half
    if type(value) is Constant and isinstance(value.value, str):
        letter = LETTERS.get(value.value.removeprefix("torch."))
        return (frozenset({letter}), ()) if letter is not None else None
    return None


def without(letters: Iterable[str], excluded: Letters) -> Letters:
    """Letters without some."""
    return frozenset(letters) - excluded
