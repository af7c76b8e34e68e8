"""The device in the table that a name stands for, as its driver prints it or as people write it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mplint.errors import UsageError
from mplint.hardware.table import Row, rows, words
from mplint.hardware.values import Target

# What a driver adds to a name without changing what the device can compute.
_SUFFIX = re.compile(r"(?i) (?:laptop gpu|mobile|with max-q design|max-q|mig [\w.]+)$")
# Where people leave out a space: RTX3090, GTX1080Ti.
_JOINED = re.compile(r"(?i)(?<=\b[RG]TX)(?=\d)|(?<=\d)(?=(?:ti|super)\b)")


def find(name: str) -> Target | None:
    """The device called `name`, as its driver prints it or as people write it; None where the table has none.

    Raises UsageError where the name fits devices that differ in what they can compute.
    """
    found = rows_of(name)
    if len(found) == 1 and found[0].pattern.search(_plain(name)):
        return _called(found[0].target, name)
    return _agreed([row.target for row in found], name)


def rows_of(name: str) -> list[Row]:
    """The devices that a name stands for: the one that a driver calls so, else all whose names are written so or hold its words."""
    plain = _plain(name)
    for row in rows():
        if row.pattern.search(plain):
            return [row]
    typed = words(plain)
    exact = [row for row in rows() if typed and typed == row.words]
    return exact or [row for row in rows() if typed and typed <= row.words]


def _plain(name: str) -> str:
    return _JOINED.sub(" ", _SUFFIX.sub("", name))


def _agreed(targets: list[Target], name: str) -> Target | None:
    """The one target that all candidates are, but for their names."""
    if not targets:
        return None
    if len({_called(target, "", "") for target in targets}) > 1:
        raise UsageError(f'the target "{name}" fits several devices: {_listed(target.name for target in targets)}')
    return targets[0] if len(targets) == 1 else _called(targets[0], name, _weakest(target.certainty for target in targets))


def _called(target: Target, name: str, certainty: str | None = None) -> Target:
    from dataclasses import replace

    return replace(target, name=name, certainty=target.certainty if certainty is None else certainty)


def _weakest(certainties: Iterable[str]) -> str:
    order = ("unsure", "memory", "part-checked", "checked")
    return min(certainties, key=order.index)


def _listed(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:5]) + (", …" if len(unique) > 5 else "")
