"""What mplint itself says about a program in which mixed precision was adopted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from mplint.adopt.program import Program
from mplint.catalog import rule_of
from mplint.config import Config
from mplint.engine.run import check_paths
from mplint.errors import UsageError
from mplint.findings import Applicability, Finding, Severity
from mplint.python.document import InputError
from mplint.rewrite import FixError
from mplint.versions import Versions

ROUNDS = 6


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
    """What mplint reports about a program, above info."""
    config = Config(select=("ALL",), cache=False, isolated=True, torch=requirement(program.targets.torch))
    name = f"train{os.path.splitext(program.path)[1]}"  # in tests some rules keep silent
    try:
        result = check_paths([], config, given={name: program.data})
    except UsageError:
        return []
    return [f for f in result.findings if f.severity is not Severity.INFO and not program.targets.torch_lacks(rule_of(f).adoption.torch)]


def requirement(versions: Versions | None) -> str | None:
    """The versions of torch that the project supports, as a requirement."""
    if versions is None:
        return None
    bounds = ((">=", versions.lower), ("<", versions.upper))
    return ",".join(f"{sign}{'.'.join(map(str, bound))}" for sign, bound in bounds if bound is not None) or None


class Mended(NamedTuple):
    """A fix that adoption called for, and the line that it mends."""

    line: str
    text: str


def mended(program: Program, fresh: Sequence[Finding]) -> tuple[Program, Mended] | None:
    """The program after the first fix that one of its new findings offers; None where none can be carried out."""
    for finding in fresh:
        fix = finding.fix
        if fix is not None and fix.applicability is not Applicability.DISPLAY and fix.changes:
            try:
                return program.after([fix]), Mended(_key(program, finding)[1], f"{fix.title} ({finding.code})")
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


def _key(program: Program, finding: Finding) -> tuple[str, str]:
    place = finding.location
    lines = program.document.text.split("\n")
    line = place.line or 0
    first = next((cell.first_line for cell in program.document.cells if cell.index == place.cell), 1)
    at = first + line - 2
    return finding.code, lines[at].strip() if 0 <= at < len(lines) else ""
