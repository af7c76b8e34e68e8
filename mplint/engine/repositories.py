"""Which files of a run belong to one repository: what lies in another one says nothing of them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from mplint.graph.names import is_address


def by_repository(paths: Iterable[str]) -> dict[str, list[str]]:
    """Files by the outermost repository around them, in their order; those that lie in none are together, by "".

    A model at an address stands for itself.
    """
    roots: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for path in paths:
        if is_address(path):
            found[path] = [path]
            continue
        folder = os.path.dirname(path)
        root = roots.get(folder)
        if root is None:
            root = roots[folder] = repository_of(os.path.abspath(folder), roots)
        found.setdefault(root, []).append(path)
    return found


def repository_of(folder: str, known: dict[str, str]) -> str:
    """The outermost repository around a folder, by its absolute path; "" where there is none. What is found out is added to `known`."""
    found = known.get(folder)
    if found is None:
        parent = os.path.dirname(folder)
        found = repository_of(parent, known) if parent != folder else ""
        if not found and os.path.exists(os.path.join(folder, ".git")):
            found = folder
        known[folder] = found
    return found
