"""Whether a run has anything for the interpreter to read; the interpreter itself is imported only then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mplint.catalog import Entry
from mplint.engine.prefilter import key_of
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
    remembered: ProgramCache | None = None,
    targets: Callable[[str], Targets] | None = None,
) -> dict[str, list[Finding]]:
    """The findings of the rules that ask the whole program, by path; what fails is added to `faults`.

    They are looked up in `remembered` first, which holds those of the same programs.
    """
    asking = [rule for rule in rules if rule.program]
    given = {key_of(result.path): result.path for result in results if result.path.endswith(PROGRAMS) or result.path == "<stdin>"}
    if not asking or not any(result.speaks for result in results):
        return {}
    from mplint.engine.tracing import traced_findings

    told_by = {key_of(result.path): result for result in results if key_of(result.path) in given}
    return traced_findings(given, told_by, read, asking, faults, remembered, targets)
