"""The page on writing rules is true: its rule works, its calls exist, and its events are those that the code emits."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from mplint.config import Config
from mplint.engine.run import check_paths
from mplint.rule import registry

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "writing-rules.md").read_text(encoding="utf-8")
MODULES = ("mplint.frameworks.torch.steps", "mplint.frameworks.torch.half", "mplint.program.trace")


def rule_of_the_page() -> str:
    start = PAGE.index('```python\n"""MP990') + len("```python\n")
    return PAGE[start : PAGE.index("\n```\n\n## Events", start) + 1]


def test_the_rule_of_the_page_reports_its_example_and_not_what_it_advises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = rule_of_the_page()
    (tmp_path / "rule_of_the_page.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    rule = registry(("rule_of_the_page",))["MP990"]
    try:
        assert list(found(rule.section("Example")))
        assert not list(found(rule.section("Use instead")))
    finally:
        sys.modules.pop("rule_of_the_page", None)


def found(section: str) -> list[int | None]:
    program = re.search(r"```python\n(.*?)```", section, re.S)
    assert program is not None
    config = Config(select=("MP990",), plugins=("rule_of_the_page",), isolated=True, cache=False)
    result = check_paths([], config, given={"src/example.py": program[1].encode()})
    return [f.location.line for f in result.findings if f.code == "MP990"]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(?:steps|half)\.(\w+)\(", PAGE))))
def test_the_calls_of_the_page_exist(name: str) -> None:
    assert any(hasattr(importlib.import_module(module), name) for module in MODULES)


def test_the_page_lists_every_kind_of_event_that_rules_ask_for() -> None:
    listed = set(re.findall(r"^\| ([a-z_0-9 ]+) \| ", PAGE, re.M))
    asked = set()
    for path in (ROOT / "rules").rglob("*.py"):
        for call in re.findall(r"\.of\(([^()]*)\)", path.read_text(encoding="utf-8")):
            asked |= set(re.findall(r'"([a-z_0-9 ]+)"', call))
    assert asked and asked <= listed


SPELLING = '''
"""MP991: names of a package that is gone."""

import ast
from collections.abc import Iterator

from mplint.findings import Finding, Severity
from mplint.python.definitions import Definitions
from mplint.python.file import SourceFile
from mplint.rule import Rule, Surroundings


class OldName(Rule):
    """A name that is gone."""

    code = "MP991"
    name = "old-name"
    severity = Severity.ERROR
    tokens = ("oldpackage",)

    def check_source(self, file: SourceFile, around: Surroundings) -> Iterator[Finding]:
        """Report each call with the mode that is gone."""
        known = Definitions(file.syntax, file.names)
        for call in file.syntax.all(ast.Call):
            gone = file.names.resolve(call.func) == "oldpackage.run" and known.constant_or(call.args[0]) == "fast"
            if gone and around.targets.hardware is None:
                yield self.finding(file, call, f"`{file.text(call)}` is gone")
'''


def test_a_plugin_checks_what_one_file_spells_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old_names.py").write_text(SPELLING)
    monkeypatch.syspath_prepend(tmp_path)
    registry(("old_names",))
    try:
        config = Config(select=("MP991",), plugins=("old_names",), isolated=True, cache=False)
        program = b'from oldpackage import run\n\nMODE = "fast"\nrun(MODE)\nrun("slow")\n'
        result = check_paths([], config, given={"src/example.py": program})
        assert [(f.location.line, f.message) for f in result.findings] == [(4, "`run(MODE)` is gone")]
    finally:
        sys.modules.pop("old_names", None)
