"""Which functions and classes of a project run in half precision, and the chain of places that shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from mplint.engine.references import Node, References, Trail, shown_name
from mplint.findings import Related
from mplint.source.summary import Call
from mplint.source.values import HALF


class Cause(NamedTuple):
    """The half dtypes that may be in force, and the places that lead to it, the first one first."""

    dtypes: frozenset[str]
    chain: Trail


class Contexts:
    """Carries autocast regions and half-precision modules along calls, from file to file.

    It starts from the files in `speaking` and goes no further than `wanted`, the files through which the waiting findings can be reached.
    """

    def __init__(self, references: References, wanted: frozenset[str], speaking: Sequence[str]) -> None:
        self.references, self.summaries = references, references.summaries
        self.wanted, self.speaking = wanted, speaking

    def of(self, path: str, scope: str, whole: bool = False) -> Cause | None:
        """What is in force in the function or class `scope` of a file, or in what it is part of; with `whole` by a cast of the model."""
        known = self.cast_as_a_whole if whole else self.known
        while scope:
            if (cause := known.get(Node(path, scope))) is not None:
                return cause
            scope = scope.rpartition(".")[0]
        return None

    @cached_property
    def known(self) -> dict[Node, Cause]:
        """Every function and class that runs in half; in float16, where more than one dtype may be."""
        found: dict[Node, Cause] = {}
        seeds = sorted([*self._under_autocast(), *self._casts()], key=order_of_seeds)
        self._spread([seed for seed in seeds if "float16" in seed[1].dtypes], found)
        self._spread([seed for seed in seeds if "float16" not in seed[1].dtypes], found)
        return found

    @cached_property
    def cast_as_a_whole(self) -> dict[Node, Cause]:
        """Every function and class that runs in a model which is cast to float16 as a whole, so that its inputs are in float16, too."""
        found: dict[Node, Cause] = {}
        self._spread(sorted((seed for seed in self._casts() if "float16" in seed[1].dtypes), key=order_of_seeds), found)
        return found

    def _under_autocast(self) -> Iterator[tuple[Node, Cause]]:
        """What is called under an autocast."""
        for path in self.speaking:
            for call in self.summaries.get(path).under_autocast:
                dtypes = call.half & HALF
                shown = " or ".join(sorted(dtypes))
                for node, trail in self.entered(call, path) if dtypes else ():
                    message = f"{shown} is in force here, where `{shown_name(node)}` is called under autocast"
                    built = [Related(place, "this autocast is entered by a context manager of the project") for place in call.built[:1]]
                    yield node, Cause(dtypes, (*built, Related(call.place, message), *trail))

    def _casts(self) -> Iterator[tuple[Node, Cause]]:
        """The models that are cast to half."""
        for path in self.speaking:
            for cast in self.summaries.get(path).conversions:
                for node, trail in self.references.instances(cast.target, path).items():
                    message = f"`{shown_name(node)}` is cast to {cast.dtype} as a whole here"
                    yield node, Cause(frozenset({cast.dtype}), (Related(cast.place, message), *trail))

    def _spread(self, seeds: Iterable[tuple[Node, Cause]], found: dict[Node, Cause]) -> None:
        """Add to `found` what the seeds run, step by step, so that every chain is a shortest one."""
        fresh: dict[Node, Cause] = {}
        for node, cause in seeds:
            if node not in found and node.path in self.wanted:
                fresh.setdefault(node, cause)
        while fresh:
            found |= fresh
            reached: dict[Node, Cause] = {}
            for node in sorted(fresh):  # one file after the other
                cause = fresh[node]
                for target, places in self.onward(node):
                    if target not in found and target.path in self.wanted:
                        reached.setdefault(target, Cause(cause.dtypes, (*cause.chain, *places)))
            fresh = reached

    def onward(self, node: Node) -> Iterator[tuple[Node, Trail]]:
        """What running `node` runs: functions it calls, modules it holds, base classes."""
        defined = self.references.defined(node)
        for call in self.summaries.get(node.path).calls_in(node.name):
            if call.off or call.half or (call.target.of is not None and call.target.of.kind != "made"):
                continue
            for target, trail in self.entered(call, node.path, held=defined is not None and defined.is_class):
                if target != node:
                    yield target, (Related(call.place, f"`{shown_name(target)}` is used here"), *trail)
        if defined is not None and defined.is_class:
            for base, place in defined.bases:
                for target in self.references.resolve(base, node.path):
                    yield target, (Related(place, f"`{shown_name(node)}` is a `{shown_name(target)}`"),)

    def entered(self, call: Call, path: str, held: bool = False) -> Iterator[tuple[Node, Trail]]:
        """The functions, or classes of called instances, that a call runs; with `held` also classes that it builds (submodules)."""
        if call.value:
            yield from sorted(self.references.instances(call.target, path).items())
        elif call.target.kind == "method":
            yield from self.references.methods(call.target, path, 0)
        else:
            for node in self.references.resolve(call.target.name, path):
                defined = self.references.defined(node)
                if defined is not None and (not defined.is_class or held):
                    yield node, ()


def order_of_seeds(seed: tuple[Node, Cause]) -> tuple[int, Node, Trail]:
    """The shortest chain first, then the first place."""
    return len(seed[1].chain), seed[0], seed[1].chain
