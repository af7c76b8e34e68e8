"""What a run is asked to do, as its workers need it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mplint.catalog import Entry
from mplint.config import Config
from mplint.engine.progress import SILENT, Progress
from mplint.engine.scopes import Scopes


class Job(NamedTuple):
    """What a worker needs to check files: the configuration of the run and of its folders, and what the user named (absolute paths).

    `progress` is told how far the run is; `repository` is the one whose files these are, where they are of one.
    """

    config: Config
    scopes: Scopes
    named: frozenset[str] = frozenset()
    progress: Progress = SILENT
    repository: str = ""

    @classmethod
    def of(cls, config: Config, paths: Iterable[str] = (), progress: Progress = SILENT) -> Job:
        """The job of checking `paths`; raises UsageError for an unknown code."""
        return cls(config, Scopes(config), frozenset(os.path.abspath(path) for path in paths), progress=progress)

    @property
    def codes(self) -> frozenset[str]:
        """The codes that the configuration of the run enables."""
        return self.scopes.run.codes

    def rules(self, path: str) -> Sequence[Entry]:
        """The rules to ask about one file, in the order of codes."""
        return self.scopes.of(path).active

    def rules_of(self, paths: Iterable[str]) -> list[Entry]:
        """The rules to ask about some files together, in the order of codes."""
        active = {rule for scope in self.scopes.among(paths) for rule in scope.active}
        return [rule for rule in self.scopes.rules.values() if rule in active]
