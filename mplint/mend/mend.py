"""Mending one model: the fixes that stand by themselves and together, proven, shown as a diff of nodes, and written on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mplint.conversion.policy import Options
from mplint.findings import Applicability, Finding, Fix, Severity
from mplint.graph.load import format_of, load_graph
from mplint.graph.model import ModelGraph
from mplint.mend.diff import counted, differing
from mplint.mend.proof import Candidate, MendError, Original, Proof
from mplint.replace import WriteError

PASSES = 10
UNREADABLE = "MP001"
Check = Callable[[ModelGraph], Sequence[Finding]]
Place = tuple[str, str | None, str]


class Mended(NamedTuple):
    """What mending a model did, or would do.

    `report` says in words and as a diff of nodes what changes, and by what it was proven; "" where nothing does. `applied` counts the
    findings mended, `remaining` are those left. `unproven` says of each fix that was not made why not. `failure` says why the file could
    not be replaced.
    """

    report: str
    applied: int
    remaining: tuple[Finding, ...]
    unproven: tuple[str, ...]
    failure: str = ""


class Step(NamedTuple):
    """A copy that stands: the findings that it mends, pass by pass, those that it leaves, and its proof."""

    candidate: Candidate
    passes: tuple[tuple[Finding, ...], ...]
    findings: tuple[Finding, ...]
    proof: Proof

    @property
    def made(self) -> tuple[Finding, ...]:
        """The findings that it mends."""
        return tuple(finding for group in self.passes for finding in group)


def mend(
    path: str,
    findings: Sequence[Finding],
    allowed: frozenset[Applicability],
    check: Check,
    *,
    apply: bool,
    options: Options,
    calibration: Sequence[str] = (),
) -> Mended:
    """Make the `allowed` fixes of the findings in a model; `check` gives the findings of a copy. Nothing is written without `apply`."""
    try:
        original = original_of(path, options, calibration)
    except MendError as error:
        return Mended("", 0, tuple(findings), (f"{path}: {error}",))
    run = _Run(path, original, tuple(findings), allowed, check)
    try:
        while run.next_pass():
            pass
        return run.result(apply=apply)
    finally:
        original.close()


def original_of(path: str, options: Options, calibration: Sequence[str]) -> Original:
    """The model in a file, to be mended by what its format needs; raises MendError where that is not installed."""
    format = format_of(path).name
    try:
        if format == "onnx":
            import onnxruntime  # noqa: F401

            from mplint.mend.onnx import OnnxOriginal

            return OnnxOriginal(path, options, calibration)
        from mplint.mend.keras import FORMS, KerasOriginal

        return KerasOriginal(path, FORMS[format], options, calibration)
    except ImportError as error:
        extra = "mplint[convert]" if format == "onnx" else "keras"
        raise MendError(f'proving a fix needs {error.name}: pip install "{extra}"') from None


class _Run:
    """The state of mending a model: the last copy that stands, and what was refused."""

    def __init__(self, path: str, original: Original, first: tuple[Finding, ...], allowed: frozenset[Applicability], check: Check) -> None:
        self.path, self.original, self.first, self.allowed, self.check = path, original, first, allowed, check
        self.step: Step | None = None
        self.tries = 0
        self.refused: dict[Finding, str] = {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the model as it is now."""
        return self.step.findings if self.step is not None else self.first

    def next_pass(self) -> bool:
        """Make the fixes that are left, all at once or those that stand; whether anything was made."""
        todo = [f for f in self.findings if f.fix is not None and f.fix.model and f.fix.applicability in self.allowed]
        todo = [finding for finding in todo if finding not in self.refused]
        self.tries += 1
        if not todo or self.tries > PASSES:
            return False
        try:
            self.step = self._tried(todo)
            return True
        except MendError as error:
            if len(todo) == 1:
                self.refused[todo[0]] = str(error)
                return False
        made = False
        for finding in todo:  # those that fail by themselves are named, and the others made one after the other
            try:
                self.step = self._tried([finding])
                made = True
            except MendError as error:
                self.refused[finding] = str(error)
        return made

    def _tried(self, todo: Sequence[Finding]) -> Step:
        """A copy with these fixes as well; raises MendError where it does not stand."""
        passes = (*(self.step.passes if self.step is not None else ()), tuple(todo))
        fixes = [[finding.fix for finding in group if finding.fix is not None] for group in passes]
        candidate = self.original.mended(fixes)
        after = tuple(self.check(candidate.graph()))
        reason = objection(todo, self.findings, after)
        if reason:
            raise MendError(reason)
        proof = candidate.prove(exact=all(fix.exact for group in fixes for fix in group))
        if proof.problems:
            raise MendError(proof.problems[0])
        return Step(candidate, passes, after, proof)

    def result(self, *, apply: bool) -> Mended:
        """What was done; with `apply` the file is replaced."""
        unproven = tuple(f"{self.path}: {f.code} at {f.node} is not mended: {reason}" for f, reason in self.refused.items())
        if self.step is None:
            return Mended("", 0, self.first, unproven)
        report = described(self.path, self.step)
        if apply:
            try:
                self.step.candidate.save()
            except WriteError as error:
                return Mended("", 0, self.first, unproven, f"{self.path}: {error}")
        return Mended(report, len(self.step.made), self.findings, unproven)


def objection(todo: Sequence[Finding], before: Sequence[Finding], after: Sequence[Finding]) -> str:
    """Why fixes have failed, "" where they have not: a finding is still there, or another came up that fails a check."""
    left = Counter(map(_place, after))
    had = Counter(map(_place, before))
    for finding in todo:
        place = _place(finding)
        if left[place] > had[place] - sum(1 for other in todo if _place(other) == place):
            return f"{finding.code} is still reported after it"
    codes = Counter(finding.code for finding in before)
    for finding in after:
        worse = sum(1 for other in after if other.code == finding.code) > codes[finding.code]
        if finding.severity is not Severity.INFO and _place(finding) not in had and worse:
            return f"it would bring about {finding.code}: {finding.message}"
    return ""


def described(path: str, step: Step) -> str:
    """What a copy changes: each fix in words, the nodes that go and come, and the proof."""
    before, after = load_graph(path), step.candidate.graph()
    lines = [f"{path}: {counted(before, after)}"]
    for finding in step.made:
        assert finding.fix is not None
        lines.append(f"  {finding.code} at {finding.node} ({finding.fix.applicability.value}): {_lowered(finding.fix)}")
    lines += [f"    {line}" for line in differing(before, after)]
    lines.append(f"  proven by {step.proof}")
    return "".join(f"{line}\n" for line in lines)


def _lowered(fix: Fix) -> str:
    return fix.title[:1].lower() + fix.title[1:]


def _place(finding: Finding) -> Place:
    return finding.code, finding.node, finding.name
