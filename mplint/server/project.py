"""The project that an editor has open: its files on disk, the texts being edited, and the findings of both together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock

from mplint.config import Config, load_config
from mplint.configs.trainers.sniff import may_be_trainer_file
from mplint.engine.check import check_data
from mplint.engine.discovery import kept
from mplint.engine.job import Job
from mplint.engine.results import Fault, FileResult
from mplint.engine.run import check_files, conclude, files_of
from mplint.engine.targets import TargetResolver
from mplint.findings import Finding
from mplint.graph.names import is_model
from mplint.python.r.sniff import may_hold_precision
from mplint.python.suffixes import PROGRAMS, is_r


class Project:
    """One folder and its configuration; files are named by absolute path.

    `edit`, `forget` and `touch` say what changed, from any thread; `check` answers for all of it, in one thread at a time.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.config: Config = load_config(self.root)
        self._job = Job.of(self.config, [self.root])
        self._resolver = TargetResolver(self.config, self._job.scopes)
        self._edited: dict[str, bytes] = {}
        self._results: dict[str, FileResult] | None = None
        self._stale: set[str] = set()
        self._lock = Lock()

    def edit(self, path: str, text: bytes) -> None:
        """Let `text` stand for what lies on disk."""
        with self._lock:
            self._edited[path] = text
            self._stale.add(path)

    def forget(self, path: str) -> None:
        """Let what lies on disk count again."""
        with self._lock:
            self._edited.pop(path, None)
            self._stale.add(path)

    def touch(self, paths: Iterable[str]) -> None:
        """Files that were written, made or removed on disk."""
        with self._lock:
            self._stale.update(paths)

    def edited(self) -> dict[str, bytes]:
        """The texts that stand for what lies on disk, now."""
        with self._lock:
            return dict(self._edited)

    def check(self) -> tuple[dict[str, list[Finding]], tuple[Fault, ...]]:
        """The findings of every file, by absolute path, and what of mplint's own failed. Raises UsageError for a wrong configuration."""
        with self._lock:
            edited, stale, self._stale = dict(self._edited), self._stale, set()
        if self._results is None:
            self._results = self._first(edited)
        else:
            self._again(self._results, stale, edited)
        by_path: dict[str, list[Finding]] = {}
        result = conclude(list(self._results.values()), self._job, edited)
        for finding in result.findings:
            by_path.setdefault(finding.location.path, []).append(finding)
        return by_path, result.faults

    def _first(self, edited: Mapping[str, bytes]) -> dict[str, FileResult]:
        files = files_of([self.root], self._job)
        on_disk = [path for path in files if path not in edited and not is_model(path)]
        results = {result.path: result for result in check_files(on_disk, self._job, self._resolver)}
        return results | {path: self._checked(path, edited[path]) for path in self._wanted(edited)}

    def _again(self, results: dict[str, FileResult], stale: Iterable[str], edited: Mapping[str, bytes]) -> None:
        for path in self._wanted(sorted(stale)):
            results.pop(path, None)
            if path in edited:
                results[path] = self._checked(path, edited[path])
            elif os.path.isfile(path) and (
                (path.endswith(PROGRAMS) and (not is_r(path) or may_hold_precision(path))) or may_be_trainer_file(path)
            ):
                results[path] = check_files([path], self._job, self._resolver)[0]

    def _checked(self, path: str, data: bytes) -> FileResult:
        return check_data(path, data, self._resolver.targets(path), self._job.rules(path))

    def _wanted(self, paths: Iterable[str]) -> Sequence[str]:
        return [path for path in kept(paths, self._job.scopes) if not is_model(path)]


def is_wanted(path: str) -> bool:
    """Whether a file on disk is a program, or a configuration, that may be about mixed precision."""
    if is_r(path):
        return may_hold_precision(path)
    return path.endswith(PROGRAMS) or may_be_trainer_file(path)
