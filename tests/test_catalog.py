"""What the engine reads of a rule without importing it is what the rule says of itself."""

from __future__ import annotations

from mplint.catalog import catalog, entry_of
from mplint.rule import registry


def test_catalog_agrees_with_the_imported_rules() -> None:
    assert catalog() == {code: entry_of(rule) for code, rule in registry().items()}
