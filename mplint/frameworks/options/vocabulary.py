"""Every vocabulary of options and settings, in the order in which they are asked."""

from __future__ import annotations

from mplint.frameworks.options import classes, commands, edited, files, names, namespaces, parsers, trees
from mplint.frameworks.vocabulary import Vocabulary


def vocabularies() -> tuple[Vocabulary, ...]:
    """Every vocabulary of options and settings, in the order in which they are asked."""
    known = (parsers, commands, classes, edited, trees, files, names, namespaces)
    return tuple(module.vocabulary for module in known)
