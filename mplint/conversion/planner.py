"""The planner that every graph format shares: which operations compute in half, found by measuring tensors and cutting the graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from mplint.conversion.bisect_culprits import Item, culprits
from mplint.conversion.cut import Edge, Problem, cheapest
from mplint.conversion.distance import Distance

HEAVY_GAIN, LIGHT_GAIN = 100.0, 0.05  # in casts
FLOAT = 0  # the operation that stands for everything that is float32 and stays so
MARGIN = 2.0  # activations must survive at twice their size, since data not seen may be larger
PLAN_SHARE = 0.5  # the plan uses half of the tolerance: data not seen may be worse
HEAVY_SHARE = 0.65  # heavy operations may use more of it than all of them: they are what half is for
ATTEMPTS = 4


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

    `inputs` and `outputs` are the positions that turn to half with it.
    """

    node: N | None
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    gain: float = 0.0
    stays: str = ""  # why it must stay float32

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


def misfits(
    heavy: Sequence[Item], light: Sequence[Item], measure: Callable[[Collection[Item]], Distance], tolerance: float
) -> dict[Item, Distance]:
    """The tensors that must stay float32: those beside heavy operations have the first claim on the tolerance.

    All of them together are tried first, then the `heavy` ones alone, which stand by themselves if the others do not; what is left of the
    tolerance is filled. `measure` is called a number of times that the model alone decides, whatever the machine.
    """
    everything = [*heavy, *light]
    if not everything or measure(everything).within(tolerance * PLAN_SHARE):
        return {}
    found: dict[Item, Distance] = {}
    if heavy and light:
        far = measure(heavy)
        if not far.within(tolerance * HEAVY_SHARE):
            found |= culprits(heavy, measure, tolerance * HEAVY_SHARE)
    elif heavy:
        return culprits(heavy, measure, tolerance * HEAVY_SHARE)
    kept = [item for item in heavy if item not in found]
    return found | culprits(light, measure, tolerance * PLAN_SHARE, accepted=kept)


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
