"""The lists by which autocast of torch chooses a dtype for each operator, by device type."""

from __future__ import annotations

from functools import cache

KINDS = ("lower", "fp32", "fp32_set_opt_dtype", "promote", "banned")


def known(device: str) -> bool:
    """Whether the lists of a device type are known."""
    return device in _tables()


@cache
def list_of(device: str, otherwise: str) -> dict[str, str]:
    """The list that each operator is on, by its name, for a device type, and for another one where its lists are not known."""
    table = _tables().get(device) or _tables()[otherwise]
    return {name: kind for kind in KINDS for name in table.get(kind, ())}


@cache
def _tables() -> dict[str, dict[str, list[str]]]:
    import tomllib
    from importlib.resources import files

    tables = tomllib.loads(files("mplint.data").joinpath("autocast_ops.toml").read_text(encoding="utf-8"))["torch"]
    return {device: table for device, table in tables.items() if "lower" in table}
