"""Dtypes that the settings of a program have by default."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.source.values import DTYPES, UNKNOWN, Definition, Values, dtype_of, entries_of


class Default(NamedTuple):
    """A dtype that a setting has by default, and the setting with that default as messages name it (`--dtype float16`)."""

    dtype: str
    setting: str


def default_dtype(values: Values, node: ast.expr | None) -> Default | None:
    """The dtype that an expression names where the setting that decides has its default; None where no setting decides."""
    definitions = values.definitions(node)
    if len(definitions) != 1:
        return None
    key: Definition
    match definitions[0]:
        case ast.Subscript(value=table, slice=ast.Name() | ast.Attribute() | ast.Call() | ast.Subscript() as inner) if (
            entries := entries_of(values, table)
        ) is not None:
            key, names = inner, {name: dtype_of(values, value) for name, value in entries.items()}
        case ast.Call(func=ast.Name(id="getattr"), args=[_, inner]):
            key, names = inner, dict(DTYPES)
        case plain:
            key, names = plain, dict(DTYPES)
    for read in values.definitions(key):
        setting = values.configuration.setting(read)
        if setting is not None and setting.default is not None:
            value = values.configuration.default(setting)
            dtype = names.get(value, UNKNOWN) if isinstance(value, str) else dtype_of(values, setting.default)
            return Default(dtype, values.configuration.described(setting)) if dtype != UNKNOWN else None
    return None
