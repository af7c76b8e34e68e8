"""The parts of a large project that have nothing to do with each other: each is run by itself, one after the other or side by side.

What is found does not depend on how many processes there are: a part reads the files of the whole project where it asks for them, and
runs the programs that its own imports and folders join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mplint.program.modules import ImportGraph

LARGE = 100  # programs that speak of the matter: what has fewer is run in one


class ProgramPart(NamedTuple):
    """Some programs of a project: all that are joined, and those that are run."""

    paths: tuple[str, ...]
    named: tuple[str, ...]


def parts_of(graph: ImportGraph, named: Sequence[str], size: Callable[[str], int]) -> list[ProgramPart]:
    """The parts of a project that hold something to run, those first that take longest by the sizes of what they run."""
    if len(named) < LARGE:
        return [ProgramPart(tuple(graph.paths), tuple(named))]
    joined = graph.joined
    running: dict[str, list[str]] = {}
    for path in named:
        running.setdefault(joined[path], []).append(path)
    holding: dict[str, list[str]] = {}
    for path in graph.paths:
        holding.setdefault(joined[path], []).append(path)
    parts = [ProgramPart(tuple(holding[first]), tuple(paths)) for first, paths in running.items()]
    weights = {part: sum(map(size, part.named)) for part in parts}
    return sorted(parts, key=lambda part: (-weights[part], part.paths[0]))
