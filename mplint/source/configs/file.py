"""A configuration file as rules see it: its trainers' settings, and places."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from mplint.findings import Location, Span
from mplint.source.configs.nodes import Node
from mplint.source.document import Document, is_test_path

if TYPE_CHECKING:
    from mplint.settings import Settings
    from mplint.source.trainers.setup import Setup


class ConfigFile:
    """One parsed JSON or YAML file. `roots` are its documents: one in JSON, any number in YAML."""

    def __init__(self, document: Document, roots: list[Node], settings: Settings) -> None:
        self.document = document
        self.roots = roots
        self.settings = settings

    @cached_property
    def trainers(self) -> list[Setup]:
        """The trainers that this file configures; none where it is another kind of file."""
        from mplint.source.trainers.in_configs import setups

        return setups(self)

    @cached_property
    def is_test(self) -> bool:
        """Whether the path says that this belongs to tests, which hold mistakes on purpose."""
        return is_test_path(self.document.path)

    @cached_property
    def is_json(self) -> bool:
        """Whether it is JSON, where every string and key stands in double quotes."""
        return self.document.path.endswith(".json")

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text without their ends."""
        return self.document.text.split("\n")

    def location(self, place: ast.AST | Span) -> Location:
        """A place as reports show it."""
        assert isinstance(place, Span)
        return self.document.location(place)

    def text(self, span: Span) -> str:
        """The text of a place within one line."""
        return self.lines[span.line - 1][span.column : span.end_column if span.end_line == span.line else None]


def parse_config(document: Document) -> list[Node]:
    """The nodes of a JSON or YAML document; raises InputError where it can't be read."""
    if document.path.endswith(".json"):
        from mplint.source.configs.json_text import parse_json

        return [parse_json(document.text)]
    from mplint.source.configs.yaml_text import parse_yaml

    return parse_yaml(document.text)
