"""A configuration file as rules see it: the trainers that it configures, and places."""

from __future__ import annotations

from functools import cached_property

from mplint.configs.file import ConfigText
from mplint.configs.nodes import Node
from mplint.configs.trainers.sections import setups
from mplint.configs.trainers.setup import Setup
from mplint.python.document import Document
from mplint.targets import Targets


class ConfigFile(ConfigText):
    """One parsed JSON or YAML file with what the run is for."""

    def __init__(self, document: Document, roots: list[Node], targets: Targets) -> None:
        super().__init__(document, roots)
        self.targets = targets

    @cached_property
    def trainers(self) -> list[Setup]:
        """The trainers that this file configures; none where it is another kind of file."""
        return setups(self)
