"""Fixing many files: take the fixes that do not overlap, check again, keep only what stands the check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from mplint.config import Config
from mplint.engine.check import check_data
from mplint.engine.fix_conflicts import Planned, conflict, edits_of, objection, without_overlaps
from mplint.engine.progress import SILENT, Progress
from mplint.engine.results import FixResult
from mplint.errors import describe
from mplint.findings import Applicability, Finding, Fix
from mplint.python.document import InputError
from mplint.python.load import decode, has_cookie, load, read_file
from mplint.rewrite import FixError, apply_edits, realize

PASSES = 10

# Texts by path, which stand for the files on disk, to the findings of the whole project.
Check = Callable[[Mapping[str, bytes]], Sequence[Finding]]


def fix_paths(
    paths: Sequence[str],
    config: Config,
    *,
    unsafe: bool,
    apply: bool,
    given: Mapping[str, bytes] = {},
    calibration: Sequence[str] = (),
    progress: Progress = SILENT,
) -> FixResult:
    """Fix files, folders and globs, and the texts `given` by path; nothing is written without `apply`, and what is given never.

    `calibration` are .npz files with inputs on which the fixes of models are proven. Raises UsageError as `check_paths` does.
    """
    from mplint.engine.job import Job
    from mplint.engine.run import conclude, examine
    from mplint.engine.targets import TargetResolver

    job = Job.of(config, paths, progress)
    resolver = TargetResolver(config, job.scopes)
    results = {result.path: result for result in examine(paths, job, resolver, given)}
    checked = dict(given)
    faults: dict[str, None] = {}

    def check(contents: Mapping[str, bytes]) -> Sequence[Finding]:
        for path, data in contents.items():
            if checked.get(path) != data:
                results[path] = check_data(path, data, resolver.targets(path), job.rules(path))
                checked[path] = data
        result = conclude(list(results.values()), job, contents, share=True)
        faults.update(dict.fromkeys(str(fault) for fault in result.faults))
        return result.findings

    result = fix_files(check, given, unsafe=unsafe, apply=apply, progress=progress)
    if any(finding.fix is not None and finding.fix.model for finding in result.remaining):
        from mplint.engine.fix_models import fix_models

        result = fix_models(result, job, resolver, allowed=allowed_with(unsafe), apply=apply, calibration=calibration)
    return result._replace(faults=tuple(dict.fromkeys([*faults, *result.faults])))


def fix_files(check: Check, given: Mapping[str, bytes], *, unsafe: bool, apply: bool, progress: Progress = SILENT) -> FixResult:
    """Fix every file in which `check` finds something to fix; `given` are texts that do not lie on disk and are not written."""
    run = Run(check, given, allowed_with(unsafe))
    for _ in range(PASSES):
        if not run.next_pass():
            break
    if apply:
        run.write(progress)
    changed = sorted(path for path, data in run.now.items() if data != run.first[path])
    shown = tuple(run.shown())
    return FixResult(
        diffs=tuple(unified_diff(path, run.first[path], run.now[path]) for path in changed),
        applied=run.mended.total(),
        remaining=tuple(run.findings),
        faults=tuple(run.faults),
        failures=tuple(run.failures),
        refused=(*run.refused, *run.barred.values()),
        changed=tuple(changed),
        mended=tuple((path, code, number) for (path, code), number in sorted(run.mended.items())),
        output={path: run.now.get(path, data) for path, data in given.items()},
        shown=shown,
    )


def allowed_with(unsafe: bool) -> frozenset[Applicability]:
    """The kinds of fixes that may be applied."""
    return frozenset((Applicability.SAFE, Applicability.UNSAFE) if unsafe else (Applicability.SAFE,))


class Run:
    """The state of fixing: the texts at first and now, the findings now, and what went wrong."""

    def __init__(self, check: Check, given: Mapping[str, bytes], allowed: frozenset[Applicability]) -> None:
        self._check = check
        self.given = given
        self.allowed = allowed
        self.first: dict[str, bytes] = {}
        self.now: dict[str, bytes] = {}
        self.mended: Counter[tuple[str, str]] = Counter()
        self.settled: set[str] = set()
        self.failed: set[tuple[str, str, int | None, int | None, int | None]] = set()
        self.faults: list[str] = []
        self.failures: list[str] = []
        self.refused: dict[str, None] = {}
        self.barred: dict[tuple[str, str], str] = {}
        self.findings = self.check({})

    def check(self, contents: Mapping[str, bytes]) -> Sequence[Finding]:
        """The findings of the project with these texts and the given ones."""
        return self._check({**self.given, **contents})

    def next_pass(self) -> bool:
        """Apply the fixes that do not overlap to every file; False when none is left."""
        self.refused = {}
        planned = {path: fixes for path, findings in self._fixable().items() if (fixes := self._plan(path, findings))}
        texts = {path: text for path, fixes in planned.items() if (text := self._apply(path, fixes)) is not None}
        if not texts:
            return False
        before = {path: [f for f in self.findings if f.location.path == path] for path in texts}
        self.findings = self.check({**self.now, **texts})
        after = {path: [f for f in self.findings if f.location.path == path] for path in texts}
        again = False
        for path in texts:
            if reason := objection(planned[path], before[path], after[path]):
                self._take_back(path, before[path], planned[path], reason)
                again = True
            elif error := conflict(planned[path], before[path], after[path]):
                self._bar(path, before[path], planned[path], error)
                again = True
            else:
                self.now[path] = texts[path]
                self.mended.update((path, fix.finding.code) for fix in planned[path])
        if again:
            self.findings = self.check(self.now)
        return True

    def write(self, progress: Progress = SILENT) -> None:
        """Replace the files on disk; one that can't be replaced counts as not fixed."""
        from mplint.replace import WriteError, replace_file

        changed = [path for path in sorted(self.now) if path not in self.given and self.now[path] != self.first[path]]
        progress.begin("writing files", len(changed))
        for path in changed:
            try:
                replace_file(path, self.first[path], self.now[path])
                progress.step()
            except WriteError as error:
                self.failures.append(f"{path}: {error}")
                self.now[path] = self.first[path]
                self.mended = Counter({key: number for key, number in self.mended.items() if key[0] != path})
        if self.failures:
            self.findings = self.check(self.now)

    def shown(self) -> Iterator[tuple[Finding, str]]:
        """The findings that are left whose fix is only shown, each fix once, and the diff that it would make of the file as it is now."""
        told: set[tuple[str, Fix]] = set()
        for finding in self.findings:
            path, fix = finding.location.path, finding.fix
            if fix is None or not fix.changes or fix.applicability is not Applicability.DISPLAY or (path, fix) in told:
                continue
            told.add((path, fix))
            if self._read(path):
                data = self.now[path]
                try:
                    yield finding, unified_diff(path, data, apply_edits(path, data, realize(load(path, data), fix)))
                except (FixError, InputError) as error:
                    self.refused[f"{finding.code}: {error}"] = None
                except Exception as error:  # as above
                    self._fault(path, finding.code, f"failed: {describe(error)}")

    def _fixable(self) -> dict[str, list[Finding]]:
        by_path: dict[str, list[Finding]] = {}
        for finding in self.findings:
            path = finding.location.path
            fix = finding.fix
            if fix is not None and fix.changes and fix.applicability in self.allowed and not self._given_up(finding):
                by_path.setdefault(path, []).append(finding)
        return {path: findings for path, findings in by_path.items() if self._read(path)}

    def _given_up(self, finding: Finding) -> bool:
        path = finding.location.path
        return path in self.settled or (path, finding.code) in self.barred or place_of(finding) in self.failed

    def _read(self, path: str) -> bool:
        if path in self.now:
            return True
        try:
            self.first[path] = self.now[path] = self.given[path] if path in self.given else read_file(path)
        except OSError as error:
            self.settled.add(path)
            self.failures.append(f"{path}: can't be read: {(error.strerror or str(error)).lower()}")
            return False
        return True

    def _plan(self, path: str, findings: Sequence[Finding]) -> list[Planned]:
        try:
            document = load(path, self.now[path])
        except InputError:
            return []
        plans = []
        for finding in findings:
            try:
                edits = realize(document, finding.fix) if finding.fix is not None else ()
            except FixError as error:
                self.refused[f"{finding.code}: {error}"] = None
            except Exception as error:  # one fix that fails must not cost the others
                self._fault(path, finding.code, f"failed: {describe(error)}")
            else:
                plans.append(Planned(finding, edits))
        return without_overlaps(plans)

    def _apply(self, path: str, fixes: list[Planned]) -> bytes | None:
        """The text after the fixes; those that can't be written into it by themselves are dropped from `fixes`."""
        data = self.now[path]
        try:
            return apply_edits(path, data, edits_of(fixes))
        except FixError:
            fixes[:] = [fix for fix in fixes if self._fits(path, data, fix)]
        try:
            return apply_edits(path, data, edits_of(fixes)) if fixes else None
        except FixError as error:
            self.refused[f"{error}"] = None
            self.settled.add(path)
            return None

    def _fits(self, path: str, data: bytes, fix: Planned) -> bool:
        try:
            apply_edits(path, data, fix.edits)
        except FixError as error:
            self.refused[f"{fix.finding.code}: {error}"] = None
            return False
        return True

    def _take_back(self, path: str, before: Sequence[Finding], fixes: Sequence[Planned], reason: str) -> None:
        """Give up the fixes of a file that fail by themselves, and name their rules; the others are tried again without them.

        Where each one holds by itself and only all together fail, the first one is made now.
        """
        failed = [(fix, reason) for fix in fixes] if len(fixes) == 1 else []
        for fix in fixes if len(fixes) > 1 else ():
            found = self.check({**self.now, path: apply_edits(path, self.now[path], fix.edits)})
            if alone := objection([fix], before, [f for f in found if f.location.path == path]):
                failed.append((fix, alone))
        for fix, alone in failed:
            self.failed.add(place_of(fix.finding))
            self._fault(path, fix.finding.code, f"was taken back: {alone}")
        if not failed:
            self.now[path] = apply_edits(path, self.now[path], fixes[0].edits)
            self.mended[path, fixes[0].finding.code] += 1

    def _bar(self, path: str, before: Sequence[Finding], fixes: Sequence[Planned], error: str) -> None:
        """Leave out, from now on, the fixes of the rules that bring about another rule's error in a file; the others are tried again."""
        found = {}
        for fix in fixes if len(fixes) > 1 else ():
            alone = self.check({**self.now, path: apply_edits(path, self.now[path], fix.edits)})
            if reason := conflict([fix], before, [f for f in alone if f.location.path == path]):
                found[fix.finding.code] = reason
        for code, reason in (found or {fix.finding.code: error for fix in fixes}).items():
            self.barred[path, code] = f"{path}: fixing {code} alone would bring about {reason}"

    def _fault(self, path: str, code: str, what: str) -> None:
        message = f"the fix of {code} on {path} {what}"
        if message not in self.faults:
            self.faults.append(message)


def place_of(finding: Finding) -> tuple[str, str, int | None, int | None, int | None]:
    """The rule and the place of a finding, as long as nothing above it changes."""
    where = finding.location
    return where.path, finding.code, where.cell, where.line, where.column


def unified_diff(path: str, old: bytes, new: bytes) -> str:
    """A diff that `git apply` and `patch -p1` take; a notebook's is that of its JSON text."""
    from difflib import unified_diff as diff

    name = path.replace("\\", "/").lstrip("/")
    lines = []
    for line in diff(_lines(path, old), _lines(path, new), f"a/{name}", f"b/{name}"):
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def _lines(path: str, data: bytes) -> list[str]:
    parts = decode(data, cookie=has_cookie(path)).text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + parts[-1:] * bool(parts[-1])
