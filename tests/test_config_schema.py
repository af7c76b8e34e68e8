"""The JSON schema says of a table what mplint says of it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from mplint.cli.settings import first_configuration
from mplint.config import KEYS, load_config
from mplint.errors import UsageError
from mplint.targets import Targets

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((ROOT / "mplint" / "data" / "config.schema.json").read_text(encoding="utf-8"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TABLES = [
    block
    for page in PAGES
    for block in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    if "[tool.mplint" in block or re.search(r"mplint\.toml", block)
]
WRONG = (
    'selct = ["MP3"]',
    'select = "MP3"',
    'select = ["MP3", 4]',
    "cache = 1",
    'fail-on = "errors"',
    "min-confidence = true",
    "target = {torch = 2.3}",
    'target = {pytorch = "2.3"}',
    "target = 7.5",
    'per-file-ignores = {"tests/*" = "MP3"}',
    'severity = {MP101 = "fatal"}',
    'policy = "float16"',
    'baseline = ""',
    "options = 3",
    "options = {MP403 = 3}",
    'options = {MP403 = {least-rows = "many"}}',
    "options = {MP403 = {least-row = 5}}",
    "options = {MP403 = {pad-to = 0}}",
)


def table_of(text: str) -> dict[str, object]:
    """The settings of a pyproject.toml or an mplint.toml."""
    document = tomllib.loads(text)
    return document.get("tool", {}).get("mplint", document)


def complaint(folder: Path, text: str) -> str:
    """What mplint says of a configuration, "" where it takes it."""
    from mplint.engine.job import Job

    (folder / "mplint.toml").write_text(text, encoding="utf-8")
    try:
        config = load_config(str(folder))
        assert Job.of(config, []).scopes.run.options is not None
    except UsageError as error:
        return str(error)
    return ""


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"].keys() == KEYS.keys()


@pytest.mark.parametrize("text", [f"{name} = {key.example}" for name, key in KEYS.items() if name not in ("extend", "plugins")])
def test_every_example_is_right_for_both(tmp_path: Path, text: str) -> None:
    jsonschema.validate(table_of(text), SCHEMA)
    assert complaint(tmp_path, text) == ""


@pytest.mark.parametrize("text", WRONG)
def test_what_mplint_refuses_the_schema_refuses(tmp_path: Path, text: str) -> None:
    assert complaint(tmp_path, text) != ""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(table_of(text), SCHEMA)


def test_the_tables_of_the_documentation_are_valid(tmp_path: Path) -> None:
    assert len(TABLES) >= 3
    for text in TABLES:
        jsonschema.validate(table_of(text), SCHEMA)
        if "extend" not in text and "plugins" not in text:
            assert complaint(tmp_path, text) == ""


def test_the_first_configuration_is_valid_as_it_stands_and_with_every_example_set(tmp_path: Path) -> None:
    text = first_configuration([], Targets(), str(tmp_path))
    assert text.startswith(f"#:schema {SCHEMA['$id']}\n")
    jsonschema.validate(tomllib.loads(text), SCHEMA)
    examples = re.sub(r"^# ([a-z-]+ = .*?)(  \(.*\))?$", r"\1", text, flags=re.M)
    assert len(tomllib.loads(examples)) >= 7
    jsonschema.validate(tomllib.loads(examples), SCHEMA)
    assert complaint(tmp_path, examples) == ""
