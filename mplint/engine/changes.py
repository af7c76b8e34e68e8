"""Checking a change: the findings on its lines, and those that it brought to other lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher

from mplint.config import Config
from mplint.engine.baseline import Keys, compare
from mplint.engine.check import check_data
from mplint.engine.discovery import kept
from mplint.engine.git import changes_since, changes_staged
from mplint.engine.job import Job
from mplint.engine.progress import SILENT, Progress
from mplint.engine.results import FileResult
from mplint.engine.run import CheckResult, conclude, examine_all, files_of, spot
from mplint.engine.targets import TargetResolver
from mplint.engine.texts import Texts
from mplint.findings import Finding
from mplint.frameworks.words import ENABLES
from mplint.program.modules import ImportGraph
from mplint.python.suffixes import PROGRAMS


def check_changes(
    paths: Sequence[str], config: Config, since: str | None, progress: Progress = SILENT
) -> tuple[CheckResult, Mapping[str, bytes]]:
    """The findings on lines changed since a commit and those that were not there then, and the texts that stood for what lies on disk.

    Without a commit the change is what is staged. Raises UsageError as `check_paths` does, outside a repository, and for an unknown commit.
    """
    changes = changes_staged() if since is None else changes_since(since)
    job = Job.of(config, paths, progress)
    resolver = TargetResolver(config, job.scopes)
    files = files_of(paths, job)
    shown = {os.path.abspath(file): file for file in files}
    given = _texts(changes.now, shown, job)
    results = examine_all(files, job, resolver, given)
    left = frozenset(path for path, data in changes.now.items() if data is None) | changes.strangers
    results = [result for result in results if os.path.abspath(result.path) not in left]
    now = conclude(results, job, given, keep=True, share=True)
    old = {result.path: changes.before[path] for result in results if (path := os.path.abspath(result.path)) in changes.before}
    texts = Texts(given)
    touched = {path: changed_lines(path, data, texts) for path, data in old.items()}
    here = [finding for finding in now.findings if _touches(finding, touched, texts)]
    own = {spot(finding) for result in results if result.path not in old for finding in result.findings}
    by_itself = {finding for finding in now.findings if spot(finding) in own and not job.scopes.rules[finding.code].program}
    contents = given | _texts(changes.before, shown, job)
    then = [result for result in results if result.path not in old]
    others = contents.keys() - {result.path for result in then}
    then += [check_data(path, contents[path], resolver.targets(path), job.rules(path)) for path in sorted(others)]
    reaches = reach_of(old.keys() | others | {os.path.relpath(path) for path in changes.before.keys() - shown.keys()}, results, then)
    doubtful = (finding for finding in now.findings if finding not in by_itself and reaches(finding.location.path))
    if set(here).issuperset(doubtful):  # what the change does not reach, and what unchanged files show by themselves, was there before
        return now._replace(findings=tuple(here), older=len(now.findings) - len(here)), given
    unfiltered = job._replace(config=config._replace(baseline=None))
    before = conclude(then, unfiltered, contents, keep=True, share=True, stage="running the programs as they were before the change")
    entries = Keys(".", Texts(contents)).count(before.findings)
    fresh = compare(now.findings, entries, Keys(".", texts)).fresh
    wanted = {*here, *fresh}
    findings = tuple(finding for finding in now.findings if finding in wanted)
    return now._replace(findings=findings, older=len(now.findings) - len(findings)), given


def reach_of(changed: Iterable[str], now: Sequence[FileResult], then: Sequence[FileResult]) -> Callable[[str], bool]:
    """Tells the files in which a change of others may bring a finding: those of programs that come by what changed, now or before.

    All may be meant where a configuration changed, and where what comes by it may put half precision in force: models run in that
    which nothing imports.
    """
    paths = set(changed)
    if not all(path.endswith(PROGRAMS) for path in paths):
        return lambda path: True
    found: set[str] = set()
    for results in (now, then):
        programs = [result for result in results if result.path.endswith(PROGRAMS)]
        folders = {result.path: result.folders for result in programs if result.folders}
        graph = ImportGraph({result.path: result.imports for result in programs}, folders)
        coming = graph.above(paths)
        if any(ENABLES in result.words for result in programs if result.path in coming):
            return lambda path: True
        found |= graph.below(coming)
    return found.__contains__


def changed_lines(path: str, before: bytes | None, texts: Texts) -> range | frozenset[int]:
    """The lines of a program as it is now that it did not have `before` (None: it is new), counted from 1 over all cells of a notebook."""
    document = texts.document(path)
    lines = document.source.split("\n") if document is not None else texts.lines(path, None)
    if before is None:
        return range(1, len(lines) + 1)
    old_document = Texts({path: before}).document(path)
    old = old_document.source.split("\n") if old_document is not None else before.decode("utf-8", "replace").splitlines()
    start = next((n for n, pair in enumerate(zip(old, lines, strict=False)) if pair[0] != pair[1]), min(len(old), len(lines)))
    blocks = SequenceMatcher(None, old[start:], lines[start:], autojunk=False).get_opcodes()
    return frozenset(start + n + 1 for kind, _, _, first, last in blocks if kind != "equal" for n in range(first, last))


def _touches(finding: Finding, touched: Mapping[str, range | frozenset[int]], texts: Texts) -> bool:
    """Whether a finding stands on a changed line; one without a line does where its file changed."""
    lines = touched.get(finding.location.path)
    if lines is None:
        return False
    document = texts.document(finding.location.path)
    span = document.span(finding.location) if document is not None else None
    if span is None:
        return finding.location.line is None or finding.location.line in lines
    return any(line in lines for line in range(span.line, span.end_line + 1))


def _texts(contents: Mapping[str, bytes | None], shown: Mapping[str, str], job: Job) -> dict[str, bytes]:
    """What stands for the files of a run, by the paths that it shows: of `shown`, and of programs that are not on disk and would be."""
    missing = [path for path, data in contents.items() if data is not None and path not in shown and path.endswith(PROGRAMS)]
    below = (path for path in missing if not os.path.exists(path) and any(path.startswith(os.path.join(top, "")) for top in job.named))
    wanted = kept(below, job.scopes)
    names = dict(shown) | {path: os.path.relpath(path).replace(os.sep, "/") for path in wanted}
    return {names[path]: data for path, data in contents.items() if data is not None and path in names}
