"""The JSON schema of the configuration, and the tables of docs/configuration.md, made from what the code reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from mplint.cli.settings import SCHEMA
from mplint.config import KEYS
from mplint.rule import Option, Rule, registry

NUMBERS: Mapping[str, object] = {"type": "object", "additionalProperties": {"type": "integer"}}


def schema() -> dict[str, object]:
    """The schema of mplint.toml, and of the table tool.mplint of pyproject.toml."""
    properties = {name: {**key.schema, "description": capital(plain(key.about))} for name, key in KEYS.items()}
    rules = {name: options_of(rule.options) for rule in with_options() for name in (rule.code, rule.name)}
    properties["options"] |= {"properties": rules, "additionalProperties": NUMBERS}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": SCHEMA,
        "title": "Configuration of mplint",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def schema_text() -> str:
    """The file that holds the schema."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def with_options() -> list[type[Rule]]:
    """The rules that leave something to the user."""
    return [rule for rule in registry().values() if rule.options]


def options_of(options: Iterable[Option]) -> dict[str, object]:
    """The schema of the table of one rule."""
    numbers = {o.name: {"type": "integer", "minimum": o.least, "default": o.default, "description": capital(o.about)} for o in options}
    return {"type": "object", "properties": numbers, "additionalProperties": False}


def settings_table() -> str:
    """Every setting, with an example."""
    rows = ["| setting | example | what it says |", "|---|---|---|"]
    rows += [f"| `{name}`{' (run)' if key.of_run else ''} | `{key.example}` | {capital(key.about)} |" for name, key in KEYS.items()]
    return "\n".join(rows) + "\n"


def options_table() -> str:
    """Every option of every rule."""
    rows = ["| rule | option | default | what it says |", "|---|---|---|---|"]
    for rule in with_options():
        link = f"[{rule.code}](rules/{rule.name}.md)"
        rows += [f"| {link} {rule.name} | `{o.name}` | {o.default} | {capital(o.about)} |" for o in rule.options]
    return "\n".join(rows) + "\n"


def plain(text: str) -> str:
    """Text without Markdown's links and marks of code."""
    return text.partition(" (see [")[0].replace("`", "")


def capital(text: str) -> str:
    """Text that begins with a capital letter."""
    return text[0].upper() + text[1:]
