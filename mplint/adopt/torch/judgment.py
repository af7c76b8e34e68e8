"""What mplint itself says about a program in which mixed precision was adopted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from mplint.adopt.program import Program
from mplint.adopt.torch.elsewhere import Told
from mplint.catalog import rule_of
from mplint.config import Config
from mplint.engine.run import check_paths
from mplint.engine.texts import Texts
from mplint.errors import UsageError
from mplint.findings import Applicability, Finding, Location, Severity, Span
from mplint.python.document import InputError, is_test_path
from mplint.rewrite import FixError

ROUNDS = 6
MOST_FILES = 40


def new_findings(before: Program, after: Program) -> list[Finding]:
    """The findings above info that `after` has and `before` had not, by rule and by the text of their lines."""
    known = Counter(_key(before, finding) for finding in before.kept(findings))
    fresh = []
    for finding in after.kept(findings):
        key = _key(after, finding)
        if known[key]:
            known[key] -= 1
        else:
            fresh.append(finding)
    return fresh


def findings(program: Program) -> list[Finding]:
    """What mplint reports above info about a program, and about the files of the project that it runs."""
    versions = program.targets.torch
    config = Config(select=("ALL",), cache=False, isolated=True, torch=(versions.requirement() or None) if versions is not None else None)
    name = name_of(program)
    try:
        result = check_paths(files_beside(program), config, given={name: program.data})
    except UsageError:
        return []
    return [
        f._replace(location=f.location._replace(path=program.path)) if f.location.path == name else f
        for f in result.findings
        if f.severity is not Severity.INFO and not program.targets.torch_lacks(rule_of(f).adoption.torch)
    ]


def name_of(program: Program) -> str:
    """The path that a program is checked as: its own, unless that is one of a test, where some rules keep silent."""
    path = os.path.normpath(program.path).replace(os.sep, "/")
    return f"train{os.path.splitext(path)[1]}" if is_test_path(path) else path


def files_beside(program: Program) -> list[str]:
    """The files of the project in which something happens while a program runs."""
    if name_of(program) != program.execution.path:
        return []
    places = (place for entry in program.execution.trace.entries for event in entry.events for place in (event.place, *event.calls))
    found = sorted({place.path for place in places} - {program.execution.path})
    return [path for path in found if os.path.isfile(path)][:MOST_FILES]


class Mended(NamedTuple):
    """A fix that adoption called for, and the line that it mends."""

    line: str
    text: str


def mended(program: Program, fresh: Sequence[Finding]) -> tuple[Program, Mended] | None:
    """The program after the first fix that one of its new findings offers; None where none can be carried out."""
    for finding in fresh:
        fix = finding.fix if finding.location.path == program.path else None
        if fix is not None and fix.applicability is not Applicability.DISPLAY and fix.changes:
            try:
                return program.after([fix]), Mended(_key(program, finding)[2], f"{fix.title} ({finding.code})")
            except (FixError, InputError):
                continue
    return None


def settled(before: Program, after: Program) -> tuple[Program, list[Finding], list[Mended]]:
    """The program after all fixes of what adoption brought to light, the findings that stay, and what was mended."""
    done: list[Mended] = []
    for _ in range(ROUNDS):
        fresh = new_findings(before, after)
        following = mended(after, fresh) if fresh else None
        if following is None:
            return after, fresh, done
        after = following[0]
        done.append(following[1])
    return after, new_findings(before, after), done


def parted(program: Program, remaining: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Findings that stand against a change, and those that only ask for more: in other files of the project, or of checkpoints."""
    away = [f for f in remaining if f.location.path != program.path and f.severity is not Severity.ERROR]
    more = [f for f in remaining if f in away or rule_of(f).adoption.resumes]
    return [finding for finding in remaining if finding not in more], more


def _key(program: Program, finding: Finding) -> tuple[str, str, str]:
    place = finding.location
    if place.path != program.path:
        return finding.code, place.path, (Texts().line(place) or "").strip()
    return finding.code, "", _line(program, place)


def _line(program: Program, place: Location) -> str:
    """The text of a line of the program itself."""
    lines = program.document.text.split("\n")
    first = next((cell.first_line for cell in program.document.cells if cell.index == place.cell), 1)
    at = first + (place.line or 0) - 2
    return lines[at].strip() if 0 <= at < len(lines) else ""


def place_before(before: Program, after: Program, finding: Finding | Told) -> Location:
    """Where a finding on the changed program is on the program as it was: at the line with the same text, or at the first."""
    if finding.location.path != after.path:
        return finding.location
    text = _line(after, finding.location)
    lines = [line.strip() for line in before.document.text.split("\n")]
    line = lines.index(text) + 1 if text in lines else 1
    return before.document.location(Span(line, 0, line, 1))
