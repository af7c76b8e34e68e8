"""What mplint itself says about a program in which mixed precision was adopted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mplint.config import Config
from mplint.conversion.source.program import Program
from mplint.engine.run import check_paths
from mplint.errors import UsageError
from mplint.findings import Applicability, Finding, Severity
from mplint.source.document import InputError
from mplint.source.rewrite import FixError

ROUNDS = 4


def new_findings(before: Program, after: Program) -> list[Finding]:
    """The findings above info that `after` has and `before` had not, by rule and by the text of their lines."""
    known = Counter(_key(before, finding) for finding in findings(before))
    fresh = []
    for finding in findings(after):
        key = _key(after, finding)
        if known[key]:
            known[key] -= 1
        else:
            fresh.append(finding)
    return fresh


def findings(program: Program) -> list[Finding]:
    """What mplint reports about a program, above info."""
    config = Config(select=("ALL",), cache=False, isolated=True)
    try:
        result = check_paths(["-"], config, stdin=program.data, stdin_filename=program.path)
    except UsageError:
        return []
    return [finding for finding in result.findings if finding.severity is not Severity.INFO]


def mended(program: Program, fresh: Sequence[Finding]) -> Program:
    """The program after the first fix that one of its new findings offers; the same program where none can be carried out."""
    for finding in fresh:
        if finding.fix is not None and finding.fix.applicability is not Applicability.DISPLAY and finding.fix.changes:
            try:
                return program.after([finding.fix])
            except (FixError, InputError):
                continue
    return program


def settled(before: Program, after: Program) -> tuple[Program, list[Finding]]:
    """The program after all fixes of what adoption brought to light, and the findings that stay."""
    for _ in range(ROUNDS):
        fresh = new_findings(before, after)
        following = mended(after, fresh) if fresh else after
        if following is after:
            return after, fresh
        after = following
    return after, new_findings(before, after)


def _key(program: Program, finding: Finding) -> tuple[str, str]:
    place = finding.location
    lines = program.document.text.split("\n")
    line = place.line or 0
    first = next((cell.first_line for cell in program.document.cells if cell.index == place.cell), 1)
    at = first + line - 2
    return finding.code, lines[at].strip() if 0 <= at < len(lines) else ""
