"""What rules ask of a whole project about one of its files: what runs together with it, under which policy, and in which precision."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import Location
from mplint.frameworks.keras.policies import compute_letter
from mplint.frameworks.packages import entering_no_region, without_models
from mplint.frameworks.torch.units import names_imported
from mplint.frameworks.words import ENABLES
from mplint.program.trace import Trace, Words, possible
from mplint.program.values import BFLOAT, HALF, Place, State
from mplint.python.document import is_test_path

if TYPE_CHECKING:
    from mplint.program.modules import ImportGraph

Steps = tuple[tuple[Location, str], ...]


class Policy(NamedTuple):
    """The global policy that another file sets, and the places that bring it to a file."""

    name: str
    steps: Steps


def graph_of(trace: Trace) -> ImportGraph:
    """Which program imports which."""
    assert trace.project is not None
    return trace.project.graph


def holds(trace: Trace, path: str, names: Iterable[str]) -> bool:
    """Whether the project has the modules that imported names of a file begin with."""
    return all(graph_of(trace).modules.holds(name, path) for name in names)


def enabled_elsewhere(trace: Trace, path: str) -> bool:
    """Whether another program mentions anything that may put half precision in force."""
    return any(ENABLES in words and other != path and not is_test_path(other) for other, words in trace.words.items())


# what a program mentions that knows half precision, beside a scaler
HALVES = ("autocast", "float16", ".half", "HalfTensor", "apex", "deepspeed", "accelerat", "lightning", "fastai", "mmengine", "mmcv")


def is_never_in_half(trace: Trace, path: str) -> bool:
    """Whether no program of the project speaks of half precision, nor does one that a file runs with import a package that may know it."""
    if trace.ask is None or any(trace.ask(other, Words(HALVES)) for other in sorted(trace.words) if not is_test_path(other)):
        return False
    graph = graph_of(trace)
    known = entering_no_region() | without_models() | sys.stdlib_module_names
    for program in sorted(graph.below([path]) | {path}):
        for name in trace.ask(program, names_imported):
            head = name.partition(".")[0]  # none of a relative one
            if head and head not in known and not graph.modules.holds(head, program):
                return False
    return True


def policy_around(trace: Trace, path: str) -> Policy | None:
    """The mixed or half policy under which a file runs that other files set; None where there is none, or several disagree."""
    graph = graph_of(trace)
    above = graph.above([path])
    found: dict[str, tuple[Place, bool]] = {}
    for place, name, certain in policies_set(trace):
        if place.path != path and not is_test_path(place.path) and not above.isdisjoint(graph.above(run_with(place.path, graph))):
            if compute_letter(name) not in (HALF, BFLOAT) and name != "float32":
                return None
            if name not in found or certain:
                found[name] = (place, certain)
    half = [name for name in found if name != "float32"]
    if len(half) != 1 or not found[half[0]][1]:
        return None
    place = found[half[0]][0]
    return Policy(half[0], ((trace.location(place), f"the policy {half[0]} is set here"),))


def policies_set(trace: Trace) -> Sequence[tuple[Place, str, bool]]:
    """The policies that programs set: where, their names, and whether they are set on every run."""
    known = trace.held.get("policies set")
    if not isinstance(known, tuple):
        found: dict[tuple[Place, str, bool], None] = {}
        for entry, event in trace.of("policy set"):
            ways = possible(event.data["policy"], event.path)  # type: ignore[arg-type]
            for both, atom in ways:
                if type(atom) is State and isinstance(atom.data, tuple):
                    found[event.place, str(atom.data[0]), len(ways) == 1 and trace.verdict(entry, both).proven] = None
        known = trace.held["policies set"] = tuple(found)
    return known


def run_with(path: str, graph: ImportGraph) -> list[str]:
    """The files whose import runs a file: itself, and for the `__init__` of a package every module of that."""
    folder, _, name = path.rpartition("/")
    return [path, *(other for other in graph.paths if other.startswith(f"{folder}/"))] if name == "__init__.py" and folder else [path]
