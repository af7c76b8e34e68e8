"""What a user may turn: options of the command line, settings of configuration classes and files, the environment."""

from __future__ import annotations

from mplint.frameworks.options import classes, commands, files, names, namespaces, parsers, trees
from mplint.frameworks.vocabulary import Vocabulary


def vocabularies() -> tuple[Vocabulary, ...]:
    """Every vocabulary of options and settings, in the order in which they are asked."""
    known = (parsers, commands, classes, trees, files, names, namespaces)
    return tuple(module.vocabulary for module in known)
