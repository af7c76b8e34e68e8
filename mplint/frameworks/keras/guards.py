"""Epsilons that half tensors of TensorFlow lose: where they are added or bound from below, and what they were to guard."""

from __future__ import annotations

from collections.abc import Sequence

from mplint.frameworks.epsilons import DIVISIONS, GUARDED, NEARLY_ONE, is_lost, lost
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import Args, Machine
from mplint.program.store import join, under
from mplint.program.values import COMPUTE, HALF, NONE, Atom, Constant, Place, Step, Tensor, Value, options

vocabulary = Vocabulary()

LOW = (frozenset({HALF}), frozenset({COMPUTE}))  # of which a number of bfloat16's range would guard
UP_TO_ONE = "rounded up to one"  # tag: bounded from above by a number that half precision rounds to 1
BOUNDS = {"maximum": (1, "y"), "clip": (1, "min_value"), "clip_by_value": (1, "clip_value_min"), "add": (1, "y")}
UPPER = {"minimum": (1, "y"), "clip": (2, "max_value"), "clip_by_value": (2, "clip_value_max")}
NEUTRAL = frozenset(
    {"expand_dims", "squeeze", "reshape", "stop_gradient", "identity", "reduce_max", "reduce_min", "reduce_sum", "reduce_mean", "abs"}
)
KEEPS = frozenset({"+", "*"})


def number_in(atom: Value | None) -> float | None:
    """The number that a Python constant holds."""
    known = type(atom) is Constant and isinstance(atom.value, (int, float)) and not isinstance(atom.value, bool)
    return float(atom.value) if known and abs(atom.value) < 1e300 else None  # type: ignore[union-attr, arg-type]


def beside_number(m: Machine, op: str, known: Tensor, number: Atom, made: Tensor, first: bool, place: Place) -> Tensor:
    """What an operator gives of a tensor and a number, which may be an epsilon; `first`: whether the tensor stands first."""
    value = number_in(number)
    if op == "/" and not first:
        divided(m, number, known, place)
    if op == "**" and first and value is not None and value < 0 and known.epsilon is not None and known.dtypes in LOW:
        lost(m, known, "division", place)
    if op == "-" and not first and value == 1 and UP_TO_ONE in known.tags and known.made is not None:
        return made.but(epsilon=known.made)
    made = made.but(epsilon=known.epsilon if op in KEEPS else None)
    return guarded_by(made, value, place) if op == "+" else made


def beside_tensor(m: Machine, op: str, left: Tensor, right: Tensor, made: Tensor | None, place: Place) -> Tensor | None:
    """What an operator gives of two tensors: a quotient whose divisor lost its epsilon, or a sum or product that carries it on."""
    if op == "/":
        divided(m, left, right, place)
    carried = next((t.epsilon for t in (left, right) if t.epsilon is not None and t.dtypes in LOW), None) if op in KEEPS else None
    return made.but(epsilon=carried) if carried is not None and made is not None and made.dtypes in LOW else made


def guarded_by(made: Tensor, value: float | None, place: Place) -> Tensor:
    """A half tensor with the epsilon that was added to it, where its dtype loses it."""
    return made.but(epsilon=Step(place, repr(value))) if made.dtypes in LOW and is_lost(value) else made


def divided(m: Machine, above: Atom, below: Atom, place: Place) -> None:
    """A division by what an epsilon was to keep from 0."""
    if type(below) is Tensor and below.epsilon is not None and below.dtypes in LOW:
        lost(m, below, "division", place, above)


def checked(m: Machine, last: str, args: Args, place: Place) -> None:
    """Note an operation that an epsilon of its argument was to guard."""
    index = 1 if last in DIVISIONS else 0
    guard = "division" if last in DIVISIONS else GUARDED.get(last)
    value = args.get(index, "y" if index else "x") if guard is not None else None
    base = m.path
    for m.path, atom in under(value, base) if value is not None else ():
        if type(atom) is Tensor and atom.epsilon is not None and atom.dtypes in LOW and guard is not None:
            lost(m, atom, guard, place, args.get(0) if index and type(args.get(0)) in (Constant, Tensor) else None)  # type: ignore[arg-type]
    m.path = base


def bounded(m: Machine, last: str, args: Args, given: Sequence[Tensor], result: Value, place: Place) -> Value:
    """What an operation gives, with the epsilon that bounds it from below, and an upper bound that is 1 in half precision."""
    low, high = args.get(*BOUNDS[last]) if last in BOUNDS else None, args.get(*UPPER[last]) if last in UPPER else None
    if last in ("maximum", "add") and type(low) is not Constant:
        low = args.get(0, "x")
    least, most = number_in(low), number_in(high)
    carried = given[0].epsilon if last in NEUTRAL and given else None
    if carried is None and not is_lost(least) and (most is None or not NEARLY_ONE < most < 1):
        return result

    def one(atom: Atom) -> Value:
        if type(atom) is not Tensor or atom.dtypes not in LOW:
            return atom
        made = guarded_by(atom.but(epsilon=carried), least, place)
        if most is not None and NEARLY_ONE < most < 1:
            made = made.but(tags=made.tags | {UP_TO_ONE}, made=Step(place, repr(most)))
        return made

    return join((guards, one(atom)) for guards, atom in options(result))


@vocabulary.call("keras.backend.epsilon", "keras.config.epsilon")
def epsilon(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The epsilon of Keras, as far as the program sets no other."""
    return m.state("epsilon")


@vocabulary.call("keras.backend.set_epsilon", "keras.config.set_epsilon")
def set_epsilon(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Another epsilon for Keras."""
    given = args.get(0, "value")
    if given is not None:
        m.set_state("epsilon", given)
    return NONE


vocabulary.defaults["epsilon"] = Constant(1e-7)
