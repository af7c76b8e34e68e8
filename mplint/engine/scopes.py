"""Which configuration holds for which file: that of the run, or that of the nearest folder with one of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property

from mplint.catalog import Entry
from mplint.config import Config, config_in, with_given
from mplint.engine.select import FileIgnores, asked_for, expand, known_rules, selected, severities
from mplint.errors import UsageError, nearest
from mplint.findings import Severity
from mplint.graph.names import is_address
from mplint.targets import Options


class Scope:
    """A configuration, and what it says of the rules of a run."""

    def __init__(self, config: Config, rules: Mapping[str, Entry]) -> None:
        self.config = config
        self.codes = selected(config, rules)
        self._rules = rules

    @cached_property
    def active(self) -> tuple[Entry, ...]:
        """The enabled rules that can fire, in the order of codes."""
        return tuple(rule for code, rule in self._rules.items() if code in self.codes - self.idle)

    @cached_property
    def idle(self) -> frozenset[str]:
        """The codes of rules that wait for a named hardware."""
        named = self.config.target is not None
        return frozenset() if named else frozenset(code for code, rule in self._rules.items() if rule.needs_target)

    @cached_property
    def ignores(self) -> FileIgnores:
        """What `per-file-ignores` switch off."""
        return FileIgnores(self.config, self._rules)

    @cached_property
    def advised(self) -> frozenset[str]:
        """The rules of which advice is shown."""
        return asked_for(self.config, self._rules)

    @cached_property
    def severities(self) -> dict[str, Severity]:
        """The severities that the configuration gives to rules."""
        return severities(self.config, self._rules)

    @cached_property
    def options(self) -> Options:
        """The numbers that the configuration gives to rules, by code and name; raises UsageError for one that no rule has."""
        found: dict[tuple[str, str], int] = {}
        where = f"{self.config.source}: " if self.config.source else ""
        for selector, settings in self.config.options:
            try:
                found |= {(code, name): number for code in expand(selector, self._rules) for name, number in self._numbers(code, settings)}
            except UsageError as error:
                raise UsageError(f"{where}options: {error}") from None
        return tuple(found.items())

    def _numbers(self, code: str, settings: Iterable[tuple[str, int]]) -> Iterable[tuple[str, int]]:
        known = {option.name: option for option in self._rules[code].load().options}
        for name, number in settings:
            if name not in known:
                has = "; it has " + ", ".join(known) if known else "; it has none"
                raise UsageError(f'{code} has no option "{name}"{nearest(name, known) or has}')
            if number < known[name].least:
                raise UsageError(f"{code}.{name} must be {known[name].least} or more, not {number}")
        return settings


class Scopes:
    """The scope of every file of a run. Raises UsageError for a configuration that is wrong, when a file asks for it."""

    def __init__(self, config: Config) -> None:
        self.rules = known_rules(config)
        self.run = Scope(config, self.rules)
        self.given = FileIgnores(Config(per_file_ignores=config.given.per_file_ignores, root=config.root), self.rules)
        self._known: dict[str, Scope] = {}

    def of(self, path: str) -> Scope:
        """The scope of the file at `path`; what lies at an address is in no folder, and goes by the configuration of the run."""
        return self.run if not self.run.config.folders or is_address(path) else self.below(os.path.dirname(os.path.abspath(path)))

    def below(self, folder: str) -> Scope:
        """The scope of what lies in a folder, given by its absolute path."""
        known = self._known.get(folder)
        if known is None:
            known = self._known[folder] = self._found(folder)
        return known

    def among(self, paths: Iterable[str]) -> list[Scope]:
        """The scopes of some files, each once, that of the run first."""
        folders = sorted({os.path.dirname(path) for path in paths if not is_address(path)})
        return list(dict.fromkeys([self.run, *(self.of(os.path.join(folder, "_")) for folder in folders)]))

    def _found(self, folder: str) -> Scope:
        parent = os.path.dirname(folder)
        own = config_in(folder)
        if own is None and parent != folder:
            return self.below(parent)
        run = self.run.config
        own = own or Config(folders=True)
        if own.source == run.source:
            return self.run
        strange = [plugin for plugin in own.plugins if plugin not in run.plugins]
        if strange:
            among = run.source or "the configuration of the run"
            raise UsageError(f"{own.source}: plugins: {strange[0]} is not among those of {among}, which hold for all of its files")
        return Scope(with_given(own, run.given), self.rules)
