"""Path conditions: sets of literals that hold on a path, and whether they can hold together.

A literal is `(key, sense)`. Keys: `("true", symbol)`, the truth of an unknown; `("true", symbol, bound)`, of one that is a number
compared with another; `("in", symbol, constants)`, an unknown equal to one of these; `("all", literals)`, several at once (its negation
is a clause); `("place", …)`, what can't be named; `("place", "test", literals)` with the sense False, that a test did not come out by
these; `("place", "ways", sets of literals)`, that a test came out by one of these, or with the sense False by none; `("place",
"untold", digest)`, that something holds by one of several ways that are too many to keep.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

Key: TypeAlias = tuple[Any, ...]
Condition: TypeAlias = tuple[Key, bool]
Path: TypeAlias = frozenset[Condition]

EMPTY: Path = frozenset()


class Bound(NamedTuple):
    """What a comparison says of an unknown: that it is `<`, `<=`, `>` or `>=` a number."""

    symbol: str
    op: str
    number: float


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def extend(path: Path, literals: Iterable[Condition]) -> Path | None:
    """The path with further literals, or None where they contradict it."""
    if not path and isinstance(literals, frozenset) and len(literals) < 2 and all(is_open(key) for key, _ in literals):
        return literals
    if not isinstance(literals, frozenset):
        return extended(path, literals)
    key = (path, literals)
    known = _known_in_a_search if _searching else _known
    found = known.get(key, key)
    if found is key:
        if len(known) > MAX_KNOWN:
            known.clear()
        found = known[key] = extended(path, literals)
    return found  # type: ignore[return-value]


def is_spelled(path: Path, lower: str) -> bool:
    """Whether what a path says of a text leaves it one that is, in lower case, what the path says of that."""
    given = allowed_values(path, lower.removesuffix(IN_LOWER_CASE))
    if given is None:
        return True
    told = [(key[2], sense) for key, sense in path if key[0] == "in" and key[1] == lower]
    return any(all((value.lower() in values) is sense for values, sense in told) if isinstance(value, str) else True for value in given)


IN_LOWER_CASE = ".lower"  # what the symbol of a text in lower case ends with


def is_open(key: Key) -> bool:
    """Whether a condition alone can hold or not, and nothing follows from either."""
    return key[0] != "place" and (key[0] != "in" or bool(key[2]))


_known: dict[tuple[Path, Path], Path | None] = {}
_known_in_a_search: dict[tuple[Path, Path], Path | None] = {}  # where ways within ways are not searched again
_searching = False
MAX_KNOWN = 10_000


def forget() -> None:
    """Forget what was asked before: of what is equal and reads differently, like 1 and True, another project is told its own."""
    for table in (_known, _known_in_a_search, _subjects, _ordered, _spelled):
        table.clear()


def extended(path: Path, literals: Iterable[Condition]) -> Path | None:
    """The same, worked out."""
    new = [literal for literal in literals if literal not in path]
    if not new:
        return path
    for key, sense in new:
        if not sense and key[0] == "all":
            new = [as_values(literal) for literal in new]
            break
    symbols: dict[Hashable, list[Condition]] = {}
    lowered: set[str] = set()
    for key, sense in new:
        if (key, not sense) in path:
            return None
        kind = key[0]
        if kind == "in":
            symbols[key[1]] = []
        elif kind == "true":
            symbols[key[2].symbol if len(key) > 2 else key[1]] = []
    found = path.union(new)
    if len(new) > 1:
        for key, sense in new:
            if (key, not sense) in found:
                return None
    clauses: list[Path] = []
    choices: list[frozenset[Path]] = []
    for literal in found:
        key = literal[0]
        kind = key[0]
        if kind == "in" or kind == "true":
            if key[1] in symbols:
                symbols[key[1]].append(literal)
            if kind == "in" and type(key[1]) is str and key[1].endswith(IN_LOWER_CASE):
                lowered.add(key[1])
            if len(key) > 2 and kind == "true" and key[2].symbol in symbols and key[2].symbol != key[1]:
                symbols[key[2].symbol].append(literal)
        elif kind == "all" and not literal[1]:
            clauses.append(key[1])
        elif kind == "place":
            if key[1] == "test":
                if type(key[2]) is frozenset:
                    clauses.append(key[2])
            elif key[1] == "ways":
                if not literal[1]:
                    return extended(path, [*(other for other in new if other != literal), *none_of(key[2])])
                choices.append(key[2])
    for symbol, told in symbols.items():
        if len(told) == 1:
            key, sense = told[0]
            if (key[2] or not sense) if key[0] == "in" else len(key) == 2:
                continue
        if not satisfiable(told, symbol):
            return None
    if lowered and not all(is_spelled(found, symbol) for symbol in lowered):
        return None
    settled = propagate(found, clauses) if clauses else found
    return settled if settled is None or not choices else chosen(settled, choices, new)


def as_values(literal: Condition) -> Condition:
    """That an unknown is one of several things that count as off, where each of them is asked for by itself."""
    key, sense = literal
    if key[0] == "all" and not sense and all(inner[0] == "in" and not told and not any(inner[2]) for inner, told in key[1]):
        asked = {inner[1] for inner, _ in key[1]}
        if len(asked) == 1:
            return ("in", asked.pop(), frozenset().union(*(inner[2] for inner, _ in key[1]))), True
    return literal


def tells_ways(key: Key) -> bool:
    """Whether a condition is that a test came out by one of several ways, or a clause from which that follows."""
    if key[0] == "place":
        return key[1] == "ways" or (key[1] == "test" and type(key[2]) is frozenset and any(tells_ways(inner) for inner, _ in key[2]))
    return key[0] == "all" and any(tells_ways(inner) for inner, _ in key[1])


def none_of(ways: Iterable[Path]) -> Iterator[Condition]:
    """That a test came out by none of several ways."""
    for way in ways:
        if len(way) == 1:
            ((key, sense),) = way
            yield key, not sense
        else:
            yield ("place", "test", way), False


def chosen(path: Path, choices: Iterable[frozenset[Path]], new: Iterable[Condition]) -> Path | None:
    """A path with what follows where each of several tests came out by one of its ways, or None where they can't do so together.

    It held together before the `new` literals.
    """
    asked = frozenset().union(*[subjects(key) for key, _ in new])
    met = [ways for ways in choices if not asked.isdisjoint(subjects_of(ways)) and not any(map(path.issuperset, ways))]
    if not met:
        return path
    plain = frozenset([literal for literal in path if (key := literal[0])[0] == "true" or key[0] == "in" or not tells_ways(key)])
    left: list[frozenset[Path]] = []
    follows: set[Condition] = set()
    for ways in met:
        open_ways = list(islice((way for way in ways if extend(plain, way) is not None), 2))
        if not open_ways:
            return None
        if len(open_ways) == 1:
            follows |= open_ways[0]
        else:
            left.append(ways)
    if follows:
        return extend(path, follows)
    if not left:
        return path
    asked = frozenset(subject for ways in left for subject in subjects_of(ways))
    left += [ways for ways in choices if ways not in left and not asked.isdisjoint(subjects_of(ways))]
    if len(left) < 2 or _searching:
        return path
    ordered = sorted(map(in_order, left), key=lambda ways: (len(ways), [text for text, _ in ways]))
    with searching():
        return path if fit(plain, ordered, [MAX_FITTED]) else None


@contextmanager
def searching() -> Iterator[None]:
    """A search for ways that go together, in which no other begins: each would try as many again."""
    global _searching
    _searching = True
    try:
        yield
    finally:
        _searching = False


def in_order(ways: frozenset[Path]) -> tuple[tuple[str, Path], ...]:
    """The ways of a test by their texts: which are tried first is the same in every run."""
    found = _ordered.get(ways)
    if found is None:
        if len(_ordered) > MAX_KNOWN:
            _ordered.clear()
        found = _ordered[ways] = tuple(sorted(((" ".join(sorted(map(spelled, way))), way) for way in ways), key=lambda told: told[0]))
    return found


_ordered: dict[frozenset[Path], tuple[tuple[str, Path], ...]] = {}


def subjects(key: Key) -> frozenset[Hashable]:
    """What a condition speaks of: unknowns, and what can't be named."""
    kind = key[0]
    if kind == "in" or kind == "true":
        return frozenset((key[1], key[2].symbol)) if len(key) > 2 and kind == "true" else frozenset((key[1],))
    if kind == "all":
        return subjects_of(frozenset((key[1],)))
    if kind == "place" and key[1] == "ways":
        return subjects_of(key[2])
    if kind == "place" and key[1] == "test" and type(key[2]) is frozenset:
        return subjects_of(frozenset((key[2],)))
    return frozenset((key,))


def subjects_of(ways: frozenset[Path]) -> frozenset[Hashable]:
    """What the ways of a test speak of."""
    found = _subjects.get(ways)
    if found is None:
        if len(_subjects) > MAX_KNOWN:
            _subjects.clear()
        found = _subjects[ways] = frozenset().union(*(subjects(key) for way in ways for key, _ in way))
    return found


_subjects: dict[frozenset[Path], frozenset[Hashable]] = {}


def excluded_by(path: Path) -> frozenset[Condition]:
    """The literals that have a part in what a path excludes."""
    found: set[Condition] = set()
    for key, sense in path:
        if key[0] == "place" and key[1] == "ways":
            found.update(*(excluded_by(way) for way in key[2]))
        elif not sense and key[0] == "all":
            found |= key[1]
        elif not sense and key[0] == "place" and key[1] == "test" and type(key[2]) is frozenset:
            found |= key[2]
        else:
            found.add((key, not sense))
    return frozenset(found)


def spelled(literal: Condition) -> str:
    """A literal as a text that is the same in every run."""
    found = _spelled.get(literal)
    if found is None:
        if len(_spelled) > MAX_KNOWN:
            _spelled.clear()
        key, sense = literal
        found = f"{sense}({', '.join(spelled_part(part) for part in key)})"
        if len(found) > LONGEST_SPELLED:  # tests of tests of tests, which would double again with each
            found = f"{found[:80]}…{blake2b(found.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
        _spelled[literal] = found
    return found


LONGEST_SPELLED = 1_000  # characters
_spelled: dict[Condition, str] = {}


def spelled_part(part: object) -> str:
    """The same, of a part of its key."""
    if type(part) is not frozenset:
        return repr(part)
    return f"{{{', '.join(sorted(spelled(inner) if type(inner) is tuple else spelled_part(inner) for inner in part))}}}"


def fit(path: Path, left: Sequence[Sequence[tuple[str, Path]]], tries: list[int]) -> bool:
    """Whether one way of each test can be taken together, as far as a number of tries shows."""
    if not left:
        return True
    for _, way in left[0]:
        tries[0] -= 1
        if tries[0] < 0:
            return True
        further = extend(path, way)
        if further is not None and fit(further, left[1:], tries):
            return True
    return False


MAX_FITTED = 32


def unsettled(literals: Path, path: Path) -> Path:
    """The literals that a path leaves open: neither it nor the other literals have them or, of several that do not all hold, deny one."""
    known = path | literals
    return frozenset(
        (key, sense)
        for key, sense in literals - path
        if sense or key[0] != "all" or not any((inner, not truth) in known for inner, truth in key[1])
    )


def symbols_of(path: Iterable[Condition]) -> Iterator[Hashable]:
    """The unknowns that a path speaks of, those of conditions that hold together among them."""
    for key, _ in path:
        if key[0] == "all":
            yield from symbols_of(key[1])
        elif key[0] in ("true", "in"):
            yield key[1]


MAX_WEIGHT = 24  # literals by which a test tells all its ways


def tells_arms_apart(key: Key) -> bool:
    """Whether a condition only says which arm of a branch was taken, and nothing that could be said of the branch."""
    if key[0] == "all":
        return any(tells_arms_apart(inner) for inner, _ in key[1])
    return key[0] == "place" and (key[1] in ("test", "ways") or isinstance(key[1], int))


def either_way(ways: Sequence[Path], most: int = MAX_WEIGHT) -> tuple[Path, bool]:
    """Several ways to one thing as a single set of literals: what they share, and that not all fail; and whether that tells all.

    Where clauses can't tell it, the ways themselves do, as long as they hold no more than the `most` literals. Of more it is told that
    there are conditions, so that nothing is proven by leaving them out.
    """
    if len(ways) == 1:
        return ways[0], True
    shared = frozenset.intersection(*ways)
    rest = [way - shared for way in ways]
    if all(len(way) == 1 for way in rest):
        negated = frozenset((key, not sense) for way in rest for key, sense in way)
        if not any((key, not sense) in negated for key, sense in negated):
            return shared | {(("all", negated), False)}, True
    elif all(rest):
        # a or (not a and b): the later ways repeat the negation of the earlier ones
        first = next((way for way in rest if len(way) == 1), None)
        if first is not None:
            ((key, sense),) = first
            others = [way - {(key, not sense)} for way in rest if way != first]
            if all(len(way) == 1 for way in others):
                negated = frozenset([(key, not sense), *((k, not s) for way in others for k, s in way)])
                return shared | {(("all", negated), False)}, True
    if all(rest):
        left = simplified(rest)
        if len(left) == 1:
            return shared | left[0], True
        if most and sum(map(weight, left)) <= most:
            return shared | {(("place", "ways", frozenset(left)), True)}, True
        if most:
            return shared | {untold(left)}, False
    return shared, False


def untold(ways: Iterable[Path]) -> Condition:
    """That one of several ways was taken, which are too many to keep: the same for the same ways, in every run."""
    texts = "\n".join(text for text, _ in in_order(frozenset(ways)))
    return ("place", "untold", blake2b(texts.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()), True


def weight(literals: Path) -> int:
    """How many literals a set holds, those inside of others among them."""
    total = len(literals)
    for key, _ in literals:
        if key[0] == "all":
            total += weight(key[1])
        elif key[0] == "place" and key[1] == "ways":
            total += sum(map(weight, key[2]))
    return total


def simplified(ways: Iterable[Path]) -> list[Path]:
    """Ways without those that follow from others; two that differ in one truth only are one."""
    kept: list[Path] = []
    for way in ways:
        add_way(kept, way)
    return kept


def add_way(ways: list[Path], added: Path) -> None:
    """Add another way: what follows from others is left out, what differs in one truth only is joined."""
    for way in list(ways):
        if way <= added:
            return
        if added <= way:
            ways.remove(way)
            continue
        apart = way ^ added
        if len(apart) == 2 and len({key for key, _ in apart}) == 1:
            ways.remove(way)
            add_way(ways, way & added)
            return
    ways.append(added)


def satisfiable(path: Iterable[Condition], symbol: Hashable) -> bool:
    """Whether some value of an unknown meets everything that the path says of it."""
    allowed: frozenset[Any] | None = None
    excluded: set[Any] = set()
    truth: bool | None = None
    bounds: list[tuple[str, float]] = []
    for key, sense in path:
        if key[0] == "in" and key[1] == symbol:
            if sense:
                allowed = key[2] if allowed is None else allowed & key[2]
            else:
                excluded |= key[2]
        elif key[0] == "true":
            if key[1] == symbol:
                truth = sense
            elif len(key) > 2 and key[2].symbol == symbol:
                bounds.append((key[2].op if sense else OPPOSITE[key[2].op], key[2].number))
    if allowed is None:
        if not bounds:
            return True
        if truth is False:
            return meets(0, bounds)
        return has_numbers(bounds, excluded)
    left = allowed - excluded
    if truth is not None:
        left = frozenset(value for value in left if bool(value) is truth)
    if bounds:
        left = frozenset(value for value in left if meets(value, bounds))
    return bool(left)


def meets(value: Any, bounds: Iterable[tuple[str, float]]) -> bool:
    """Whether a constant keeps within bounds; what is no number may, for all that is known."""
    return not isinstance(value, (int, float)) or all(COMPARISONS[op](value, number) for op, number in bounds)


def has_numbers(bounds: Iterable[tuple[str, float]], excluded: Iterable[Any]) -> bool:
    """Whether numbers are left within bounds; above 1, what is compared with whole numbers counts and is whole itself."""
    lower, above = max(((number, op == ">") for op, number in bounds if op in (">", ">=")), default=(-math.inf, False))
    upper, below = min(((number, op != "<") for op, number in bounds if op in ("<", "<=")), default=(math.inf, True))
    if lower >= 1 and isinstance(lower, int) and isinstance(upper, int):
        whole = range(lower + above, upper + below)
        return whole.stop - whole.start > MAX_COUNTED or any(number not in set(excluded) for number in whole)
    return lower < upper or (lower == upper and not above and below and lower not in set(excluded))


MAX_COUNTED = 8


def propagate(path: Path, clauses: Iterable[Path]) -> Path | None:
    """Literals that follow from the clauses of a path, of which all but one are excluded."""
    follows: set[Condition] = set()
    for clause in clauses:
        missing = clause - path
        if not missing:
            return None
        if len(missing) == 1:
            ((key, sense),) = missing
            if (key, not sense) not in path:
                follows.add((key, not sense))
    return extend(path, follows) if follows else path


def allowed_values(path: Iterable[Condition], symbol: Hashable) -> frozenset[Any] | None:
    """The constants that an unknown can be on the path, or None where it can be anything."""
    allowed: frozenset[Any] | None = None
    excluded: set[Any] = set()
    for key, sense in path:
        if key[0] == "in" and key[1] == symbol:
            if sense:
                allowed = key[2] if allowed is None else allowed & key[2]
            else:
                excluded |= key[2]
    return None if allowed is None else allowed - excluded
