"""Results with other paths: what was checked in one place is told of another."""

from __future__ import annotations

from typing import Any


def moved(value: object, before: str, after: str = "") -> object:
    """A value in whose texts `after` stands for `before`, at any depth."""
    match value:
        case str() if type(value) is str:
            return value.replace(before, after)
        case tuple():
            items: list[Any] = [moved(item, before, after) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        case list() | set() | frozenset():
            return type(value)(moved(item, before, after) for item in value)
        case dict():
            return {moved(key, before, after): moved(item, before, after) for key, item in value.items()}
        case _:
            return value
