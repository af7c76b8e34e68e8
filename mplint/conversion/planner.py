"""The planner that every graph format shares: which operations compute in half, found by measuring tensors and cutting the graph."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from mplint.conversion import fill
from mplint.conversion.cut import Edge, Problem, cheapest
from mplint.conversion.distance import Distance
from mplint.conversion.fill import Cost, Effort, Item, Measure
from mplint.conversion.result import Region

HEAVY_GAIN, LIGHT_GAIN = 100.0, 0.05  # in casts
FLOAT = 0  # the operation that stands for everything that is float32 and stays so
MARGIN = 2.0  # activations must survive at twice their size, since data not seen may be larger
PLAN_SHARE = 0.5  # the plan uses half of the tolerance: data not seen may be worse
HEAVY_SHARE = 0.65  # heavy operations may use more of it than all of them: they are what half is for
FILL_SHARE = 0.55  # what is chosen by its errors on samples is worse on others than on these
ATTEMPTS = 4
LIGHT_TRIALS, LIGHT_FINEST, MANY = 8, 8, 64  # of many light items: what is won there is casts, and few of them
ROUNDS = 4  # how often samples that a plan fails on may join those that it was made for


class Named(Hashable, Protocol):
    """A tensor of a graph."""

    @property
    def name(self) -> str | None:
        """What reports call it."""
        ...


N = TypeVar("N")
V = TypeVar("V", bound=Named)


@dataclass(slots=True)
class Operation(Generic[N]):
    """Something that computes in one precision: a node, or a place where values enter and leave a body (an interface; `node` is None).

    `inputs` and `outputs` are the positions that turn to half with it; `half` is the dtype that they get, "" for that of the policy.
    """

    node: N | None
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    gain: float = 0.0
    stays: str = ""  # why it must stay float32
    half: str = ""

    @property
    def name(self) -> str:
        """What reports call it."""
        return str(self.node)


O = TypeVar("O", bound=Operation)  # type: ignore[type-arg]  # noqa: E741


@dataclass(slots=True)
class Planned(Generic[O, V]):
    """The operations (number 0 is `FLOAT`), who makes and takes each float32 tensor, and which operations must agree.

    Of each pair in `needs`, the first may be half only where the second is.
    """

    operations: list[O] = field(default_factory=list)
    producers: dict[V, int | None] = field(default_factory=dict)  # None: a constant
    takers: dict[V, list[int]] = field(default_factory=dict)
    ties: list[tuple[int, int]] = field(default_factory=list)
    needs: list[tuple[int, int]] = field(default_factory=list)

    def edges(self) -> Iterator[tuple[V, Edge]]:
        """Every float32 tensor with who makes and who takes it."""
        for value, producer in self.producers.items():
            yield value, Edge(producer, tuple(self.takers.get(value, ())))

    def around(self, value: V) -> set[int]:
        """The operations that would make or take a tensor in half."""
        producer = self.producers.get(value)
        return {*self.takers.get(value, ()), *(() if producer is None else (producer,))} - {FLOAT}


class Trials(Generic[Item]):
    """How what is in half is tried: on every sample, or on `few`, those that something has failed on, which is most of what is tried.

    `first` is how all items together are tried, `survey` how those are that a filling begins with: both on every sample, but where less
    tells enough. `cost` estimates what an item adds to the error, where anyone knows.
    """

    def __init__(self, few: Measure[Item], everywhere: Measure[Item] | None = None) -> None:
        self.few, self.everywhere = few, everywhere or few

    def first(self, half: Collection[Item]) -> Distance:
        """How far the outputs are with all that may be in half."""
        return self.everywhere(half)

    def survey(self, half: Collection[Item]) -> Distance:
        """How far they are with what a filling begins with; it may look for the samples that are worst."""
        return self.everywhere(half)

    def cost(self) -> Cost[Item] | None:
        """What tells of an item what it adds to the error; None where nobody knows."""
        return None

    def confirmed(self, half: Collection[Item], tolerance: float) -> bool:
        """Whether what was found on few samples holds on all of them."""
        return self.everywhere == self.few or self.everywhere(half).within(tolerance)


def misfits(heavy: Sequence[Item], light: Sequence[Item], trials: Trials[Item], tolerance: float) -> dict[Item, Distance]:
    """The items that must stay float32, each with how far the outputs were.

    All of them together are tried first, then the `heavy` ones alone: those beside heavy operations have the first claim on the tolerance,
    and stand by themselves if the others do not. What is left of it is filled. How often something is tried depends on the model alone,
    whatever the machine.
    """
    everything = [*heavy, *light]
    if not everything or trials.first(everything).within(tolerance * PLAN_SHARE):
        return {}
    found: dict[Item, Distance] = {}
    if heavy and not trials.survey(heavy).within(tolerance * HEAVY_SHARE):
        found |= _filled(heavy, trials, tolerance, FILL_SHARE, (), fill.FULL)
    share = FILL_SHARE if found else HEAVY_SHARE
    effort = Effort(LIGHT_TRIALS, LIGHT_FINEST) if len(light) > MANY else fill.FULL
    return found | _filled(light, trials, tolerance, share, [item for item in heavy if item not in found], effort)


def _filled(
    items: Sequence[Item], trials: Trials[Item], tolerance: float, share: float, accepted: Collection[Item], effort: Effort
) -> dict[Item, Distance]:
    """What does not fit into a share of the tolerance on the samples that failed; until what fits holds on all others, they join in.

    Where it still does not fit in the end, all samples choose.
    """
    found: dict[Item, Distance] = {}
    left = list(items)
    for turn in range(ROUNDS + 1):
        few = turn < ROUNDS
        if left:
            measure = trials.few if few else trials.everywhere
            found |= fill.misfits(left, measure, tolerance * share, cost=trials.cost(), accepted=accepted, effort=effort)
        left = [item for item in left if item not in found]
        if not left or not few or trials.confirmed([*accepted, *left], tolerance * share):
            break
    return found


def inherit(found: dict[V, str], derived: Mapping[V, Sequence[V]]) -> None:
    """Tensors that only hand on values are as unsafe as those that they come from; `derived` is in the order of computation."""
    for value, sources in derived.items():
        culprit = next((source for source in sources if source in found), None)
        if culprit is not None:
            found[value] = found[culprit]


def plan(program: Planned[O, V], unsafe: Mapping[V, str], attempt: int = 0) -> list[bool]:
    """Which operations compute in half. Each further attempt is more careful: heavy operations alone, every other of them, none."""
    floats = {number for number, operation in enumerate(program.operations) if operation.stays}
    for value in unsafe:
        floats |= program.around(value)
    if attempt:
        floats |= {n for n, operation in enumerate(program.operations) if operation.gain != HEAVY_GAIN}
    if attempt > 1:
        heavy = [n for n, operation in enumerate(program.operations) if operation.gain == HEAVY_GAIN]
        floats |= set(heavy[:: 2 if attempt == 2 else 1])
    gains = [operation.gain for operation in program.operations]
    return cheapest(Problem(gains, [edge for _, edge in program.edges()], frozenset(floats), ties=program.ties, needs=program.needs))


def regions(program: Planned[O, V], halves: Sequence[bool], unsafe: Mapping[V, str], costs: Mapping[V, float]) -> list[Region]:
    """The parts that stay float32 for what half would do to their tensors, those with the most heavy operations first.

    What each would move the outputs by is estimated from the `costs` of its tensors, where these are known.
    """
    kept = {n for n, one in enumerate(program.operations) if one.node is not None and not halves[n] and not one.stays and one.outputs}
    part: dict[int, set[int]] = {number: {number} for number in kept}
    for value in program.producers:
        beside = sorted(program.around(value) & kept)
        for other in beside[1:]:
            if part[beside[0]] is not part[other]:
                part[beside[0]] |= part[other]
                for number in part[other]:
                    part[number] = part[beside[0]]
    tensors: dict[int, list[V]] = {}
    for value in unsafe:
        if costs.get(value, 0.0) > 0:
            for number in sorted(program.around(value) & kept)[:1]:
                tensors.setdefault(min(part[number]), []).append(value)
    found = []
    for first, values in tensors.items():
        members = sorted(part[first])
        worst = max(values, key=lambda value: costs[value])
        error = math.sqrt(sum(costs[value] ** 2 for value in values))
        heavy = sum(program.operations[number].gain == HEAVY_GAIN for number in members)
        found.append((heavy, Region([program.operations[number].name for number in members], worst.name or "", error)))
    return [region for _, region in sorted(found, key=lambda one: -one[0])]


def reasons(program: Planned[O, V], halves: Sequence[bool], unsafe: Mapping[V, str]) -> list[tuple[str, str]]:
    """Every operation that could compute in half in principle and does not, with the reason."""
    culprits: dict[int, str] = {}
    for value, why in unsafe.items():
        for number in program.around(value):
            culprits.setdefault(number, f"{value.name}: {why}")
    found = []
    for number, operation in enumerate(program.operations):
        if operation.node is not None and not halves[number] and (operation.inputs or operation.outputs):
            found.append((operation.name, operation.stays or culprits.get(number, "in half it would cost more casts than it gains")))
    return found
