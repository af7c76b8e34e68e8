"""The targets of a file: from the configuration, else from the project's dependency pins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mplint.config import Config
from mplint.engine.pins import project_pins
from mplint.settings import Settings
from mplint.versions import Versions

if TYPE_CHECKING:
    from mplint.hardware import Target


class TargetResolver:
    """Gives each file its `Settings`, computed once per folder; raises UsageError for an unknown hardware target."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._hardware = self._resolve_hardware(config.target)
        self._by_folder: dict[str, Settings] = {}

    @staticmethod
    def _resolve_hardware(name: str | None) -> Target | None:
        if name is None:
            return None
        from mplint.hardware import resolve_target

        return resolve_target(name)

    def settings(self, path: str) -> Settings:
        """The targets of the file at `path`."""
        folder = os.path.dirname(path)
        known = self._by_folder.get(folder)
        if known is None:
            pins = project_pins(folder or ".")
            config = self._config
            known = self._by_folder[folder] = Settings(
                torch=Versions.parse(config.torch) if config.torch else pins.torch,
                keras=Versions.parse(config.keras) if config.keras else None if config.tensorflow else pins.keras,
                tensorflow=Versions.parse(config.tensorflow) if config.tensorflow else pins.tensorflow,
                hardware=self._hardware,
            )
        return known
