"""The targets of a file: from the configuration, else from the project's dependency pins."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from mplint.config import Config
from mplint.engine.scopes import Scopes
from mplint.graph.names import is_address
from mplint.targets import Targets

if TYPE_CHECKING:
    from mplint.engine.pins import LibraryVersions
    from mplint.hardware import Target
    from mplint.targets import Libraries


class TargetResolver:
    """Gives each file its `Targets`, one per folder; raises UsageError for an unknown hardware target."""

    def __init__(self, config: Config, scopes: Scopes | None = None) -> None:
        self._scopes = scopes or Scopes(config)
        self._hardware = {config.target: resolve_hardware(config.target)}
        self._by_folder: dict[str, Targets] = {}
        self._fingerprints: dict[str, str] = {}

    def targets(self, path: str) -> Targets:
        """The targets of the file at `path`."""
        folder = os.path.dirname(path)
        known = self._by_folder.get(folder)
        if known is None:
            scope = self._scopes.of(path)
            config = scope.config
            if config.target not in self._hardware:
                self._hardware[config.target] = resolve_hardware(config.target)
            known = self._by_folder[folder] = Targets(
                hardware=self._hardware[config.target],
                libraries=partial(libraries, config, folder or "."),
                runtime=config.runtime,
                input_ranges=config.input_ranges,
                policy=config.policy,
                programs=partial(program_libraries, config, folder or "."),
                options=scope.options,
            )
        return known

    def fingerprint(self, path: str) -> str:
        """Everything about the targets of a file, and about the rules that it is shown to, that a result may depend on."""
        folder = os.path.dirname(path)
        known = self._fingerprints.get(folder)
        if known is None:
            scope = self._scopes.of(path)
            codes = sorted(scope.codes) if scope is not self._scopes.run else ()
            known = self._fingerprints[folder] = " ".join((self.targets(path).told(), *codes))
        return known


def resolve_hardware(name: str | None) -> Target | None:
    """The hardware target called `name`, if one is named."""
    if name is None:
        return None
    from mplint.hardware import resolve_target

    return resolve_target(name)


def libraries(config: Config, folder: str) -> Libraries:
    """The versions of torch, Keras, TensorFlow and of trainers for the files of `folder`: as configured, else as pinned."""
    from mplint.engine.pins import LibraryVersions, project_pins

    return chosen(config, LibraryVersions() if is_address(folder) else project_pins(folder))


def program_libraries(config: Config, folder: str, source: str, notebook: bool) -> Libraries | None:
    """The same for a program of `folder` that installs what it needs; None where it installs nothing."""
    from mplint.engine.pins import targets_with

    pins = targets_with(folder, source, notebook=notebook)
    return chosen(config, pins) if pins is not None else None


def chosen(config: Config, pins: LibraryVersions) -> Libraries:
    """The versions that the configuration names, else those of the pins."""
    from mplint.versions import Versions

    return (
        Versions.parse(config.torch) if config.torch else pins.torch,
        Versions.parse(config.keras) if config.keras else None if config.tensorflow else pins.keras,
        Versions.parse(config.tensorflow) if config.tensorflow else pins.tensorflow,
        pins.trainers,
    )
