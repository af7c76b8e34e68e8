"""Lets mplint's own rules mend what a new policy brings about in a program, and tells what they can't."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache, partial
from typing import NamedTuple

from mplint.adopt.keras.scene import bytes_of
from mplint.adopt.program import Program
from mplint.catalog import Entry, catalog, rule_of
from mplint.engine.check import check_data
from mplint.engine.fix_conflicts import Planned, conflict, edits_of, objection, without_overlaps
from mplint.engine.interpret import program_findings
from mplint.findings import Applicability, Finding, Location, Severity, Span
from mplint.python.document import Document, InputError
from mplint.rewrite import FixError, apply_edits, realize

PASSES = 8


class Mended(NamedTuple):
    """A program after its fixes: the findings that these were for (by places of the program then), and those that are left."""

    program: Program
    done: tuple[tuple[Finding, Location], ...]
    left: tuple[tuple[Finding, Location], ...]


def mend(first: Program, program: Program, known: frozenset[tuple[str, int]] = frozenset()) -> Mended:
    """Fix what `program` has and `first`, the program as the user gave it, had not; places are those in `first`.

    `known` are findings of `first`, by code and line.
    """
    done: list[tuple[Finding, Location]] = []
    barred: set[tuple[str, str]] = set()
    for _ in range(PASSES):
        new = new_findings(first, program, known)
        origin = Origin(first.document, program.document)
        plans = plan(program, [f for f in new if rule_of(f).adoption.mends and (f.code, f.message) not in barred])
        if not plans:
            break
        after = try_all(program, plans)
        if after is None and len(plans) > 1:
            plans, after = first_that_holds(program, plans, barred)
        if after is None:
            barred.update((p.finding.code, p.finding.message) for p in plans)
            continue
        done += [(p.finding, origin.location(p.finding)) for p in plans]
        program = after
    origin = Origin(first.document, program.document)
    return Mended(program, tuple(done), tuple((f, origin.location(f)) for f in new_findings(first, program, known)))


def plan(program: Program, findings: Sequence[Finding]) -> list[Planned]:
    """The edits of the findings that have a fix which may be applied, without those that overlap."""
    plans = []
    for finding in findings:
        if finding.fix is not None and finding.fix.applicability is not Applicability.DISPLAY:
            try:
                plans.append(Planned(finding, realize(program.document, finding.fix)))
            except FixError:
                continue
    return without_overlaps(plans)


def try_all(program: Program, plans: Sequence[Planned]) -> Program | None:
    """The program after the fixes; None where one of them does not mend what it is for, or brings about an error."""
    try:
        after = Program(program.path, apply_edits(program.path, program.data, edits_of(plans)), program.targets)
    except (FixError, InputError):
        return None
    before, now = findings_of(program), findings_of(after)
    return None if objection(plans, before, now) or conflict(plans, before, now) else after


def first_that_holds(program: Program, plans: Sequence[Planned], barred: set[tuple[str, str]]) -> tuple[list[Planned], Program | None]:
    """The first of several fixes that is good by itself; those before it are barred."""
    for one in plans:
        if (after := try_all(program, [one])) is not None:
            return [one], after
        barred.add((one.finding.code, one.finding.message))
    return [], None


def new_findings(first: Program, program: Program, known: frozenset[tuple[str, int]]) -> list[Finding]:
    """The findings above info of `program` that `first` had not."""
    origin = Origin(first.document, program.document)
    return [f for f in findings_of(program) if (f.code, origin.line(f)) not in known]


def findings_of(program: Program) -> tuple[Finding, ...]:
    """The findings of one file above info, of medium confidence at least: what it says by itself, and what happens when it runs."""
    rules = entries(program.targets.hardware is not None)
    result = check_data(program.path, program.data, program.targets, rules)
    own = {(f.code, f.location.line, f.location.cell) for f in result.findings}
    told = program_findings([result], partial(bytes_of, program), rules, set(), targets=lambda _: program.targets)
    happening = told.get(program.path, [])
    found = (*result.findings, *(f for f in happening if (f.code, f.location.line, f.location.cell) not in own))
    return tuple(f for f in found if f.severity is not Severity.INFO and f.confidence.rank > 0)


def known_findings(program: Program) -> frozenset[tuple[str, int]]:
    """The findings of a program by code and line of the program."""
    origin = Origin(program.document, program.document)
    return frozenset((f.code, origin.line(f)) for f in findings_of(program))


@cache
def entries(targets: bool) -> tuple[Entry, ...]:
    """The rules about Keras; those about hardware where it is named."""
    return tuple(e for e in catalog().values() if "keras" in e.frameworks and (targets or not e.needs_target))


class Origin:
    """Where the lines of a changed program stood in the program before."""

    def __init__(self, before: Document, after: Document) -> None:
        self.before, self.after = before, after
        self.lines: dict[int, int] = {}
        old, new = before.text.split("\n"), after.text.split("\n")
        if old == new:
            self.lines = {n: n for n in range(1, len(old) + 1)}
            return
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            for j in range(j1, j2):
                nearest = i1 + (j - j1) if tag == "equal" else min(i1 + (j - j1), max(i2 - 1, i1 - (tag == "insert")))
                self.lines[j + 1] = max(nearest, 0) + 1

    def line(self, finding: Finding) -> int:
        """The line of the program before at which a finding of the changed program stands."""
        span = self.after.span(finding.location)
        return self.lines.get(span.line, 1) if span is not None else 1

    def location(self, finding: Finding) -> Location:
        """The place before of a finding in the changed program."""
        line = self.line(finding)
        return self.before.location(Span(line, 0, line, 0))
