"""Every JSON and YAML fixture gives exactly the findings written for it, and its fix exactly the file beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixture_files import FIXTURES, config_expectations, targets, without_expectations

from mplint.api import check_text, fix_text
from mplint.findings import Severity
from mplint.rule import registry

FILES = [*FIXTURES.glob("MP*/*.json"), *FIXTURES.glob("MP*/*.yaml")]
CONFIGS = sorted(path for path in FILES if ".fixed" not in path.name)
FIXED = sorted(path for path in FILES if ".fixed" in path.name)


def name_of(path: Path) -> str:
    return str(path.relative_to(FIXTURES))


@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_configuration_gives_the_findings_written_for_its_lines(path: Path) -> None:
    expected = config_expectations(path)
    wanted = {e.code for e in expected}
    text = path.read_text()
    found = [f for f in check_text(text, path.name, targets(text)) if f.severity is not Severity.INFO or f.code in wanted]
    assert sorted((f.location.line, f.code) for f in found) == [(e.line, e.code) for e in expected]
    severities = {(f.location.line, f.code): f.severity.value for f in found}
    assert all(e.severity in (None, severities[e.line, e.code]) for e in expected)
    assert bool(expected) is path.name.startswith("bad_")


@pytest.mark.parametrize("path", FIXED, ids=name_of)
def test_fix_gives_the_configuration_beside_it_and_nothing_more_the_second_time(path: Path) -> None:
    code = path.parent.name
    bad = path.with_name(path.name.replace(".fixed", ""))
    fixed = fix_text(bad.read_text(), bad.name, targets(bad.read_text()), select=[code])
    assert without_expectations(fixed) == path.read_text()
    assert fix_text(fixed, bad.name, targets(bad.read_text()), select=[code]) == fixed


def test_every_rule_about_configurations_has_bad_and_good_ones() -> None:
    for code, rule in registry().items():
        if rule.configs:
            names = [path.name for path in CONFIGS if path.parent.name == code]
            assert any(name.startswith("bad_") for name in names), code
            assert any(name.startswith("good_") for name in names), code
