"""Whether a run has anything for the interpreter to read; the interpreter itself is imported only then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mplint.catalog import Entry
from mplint.engine.prefilter import key_of
from mplint.engine.progress import SILENT, Progress
from mplint.engine.repositories import by_repository
from mplint.engine.results import Fault, FileResult
from mplint.findings import Finding
from mplint.python.suffixes import PROGRAMS

if TYPE_CHECKING:
    from mplint.engine.cache import ProgramCache
    from mplint.targets import Targets


def program_findings(
    results: Sequence[FileResult],
    read: Callable[[str], bytes],
    rules: Sequence[Entry],
    faults: set[Fault],
    remember: Callable[[str], ProgramCache] | None = None,
    targets: Callable[[str], Targets] | None = None,
    side_by_side: tuple[int, Progress] = (1, SILENT),
) -> dict[str, list[Finding]]:
    """The findings of the rules that ask the whole program, by path, each repository for itself; what fails is added to `faults`.

    They are looked up first in what `remember` gives for a repository, which holds those of the same programs. `side_by_side`: how many
    processes may share the parts of a large project, and who is told how many are done.
    """
    asking = [rule for rule in rules if rule.program]
    speaking = [result for result in results if result.path.endswith(PROGRAMS) or result.path == "<stdin>"] if asking else []
    by_path = {result.path: result for result in speaking}
    found: dict[str, list[Finding]] = {}
    for repository, paths in by_repository(by_path).items():
        given = {key_of(path): path for path in paths}
        if any(by_path[path].speaks for path in paths):
            from mplint.engine.tracing import SideBySide, traced_findings

            told_by = {key: by_path[path] for key, path in given.items()}
            remembered = remember(repository) if remember is not None else None
            found |= traced_findings(given, told_by, read, asking, faults, remembered, targets, SideBySide(*side_by_side))
    return found
