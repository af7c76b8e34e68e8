"""Every fixture gives exactly the findings written beside its lines, and its fix exactly the program beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixture_files import FIXTURES, expectations, targets, without_expectations

from mplint.api import check, check_text, config_for, fix_text
from mplint.config import Config
from mplint.engine.run import check_paths
from mplint.findings import Confidence, Finding, Severity
from mplint.rule import registry

SUFFIXES = (".py", ".R", ".Rmd", ".qmd")
WRITTEN = sorted(p for p in FIXTURES.glob("MP*/*.*") if p.suffix in SUFFIXES)
SEEDS = sorted(p for p in FIXTURES.glob("seeds/*.*") if p.suffix in SUFFIXES)
FIXED = [p for p in WRITTEN if p.stem.endswith(".fixed")]
PROGRAMS = [p for p in WRITTEN if p not in FIXED] + SEEDS
NOTEBOOKS = sorted(FIXTURES.glob("MP*/*.ipynb"))
PROJECTS = sorted(p for p in FIXTURES.glob("MP*/*_*/") if p.is_dir())


def name_of(path: Path) -> str:
    return str(path.relative_to(FIXTURES))


UNSURE = "unsure"  # expected where findings of low confidence are asked for


def counts(finding: Finding, wanted: set[str]) -> bool:
    """Advice counts only where the fixture asks for that code."""
    return finding.severity is not Severity.INFO or finding.code in wanted


@pytest.mark.parametrize("path", PROGRAMS, ids=name_of)
def test_program_gives_the_findings_beside_its_lines(path: Path) -> None:
    text = path.read_text()
    written = expectations(text)
    expected = [e for e in written if e.severity != UNSURE]
    wanted = {e.code for e in expected}
    found = [f for f in check_text(text, f"src/{path.name}", targets(text)) if counts(f, wanted)]
    assert sorted((f.location.line, f.code) for f in found) == [(e.line, e.code) for e in expected]
    by_place = {(f.location.line, f.code): f for f in found}
    for line, code, severity in expected:
        if severity is not None:
            assert by_place[line, code].severity.value == severity
    if path.name.startswith("good_"):
        assert not written
    unsure = {(e.line, e.code) for e in written if e.severity == UNSURE}
    if unsure:
        config = config_for(targets(text), ("ALL",))._replace(min_confidence=Confidence.LOW)
        asked = check_paths([], config, given={f"src/{path.name}": text.encode()}).findings
        assert unsure <= {(f.location.line, f.code) for f in asked if f.confidence is Confidence.LOW}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_notebook_gives_the_findings_beside_its_lines(path: Path) -> None:
    text = path.read_text()
    expected = sorted(
        (index, e.line, e.code)
        for index, cell in enumerate(json.loads(text)["cells"])
        if cell["cell_type"] == "code"
        for e in expectations("".join(cell["source"]))
    )
    wanted = {code for _, _, code in expected}
    found = [f for f in check_text(text, f"src/{path.name}", {}) if counts(f, wanted)]
    assert sorted((f.location.cell, f.location.line, f.code) for f in found) == expected


@pytest.mark.parametrize("folder", PROJECTS, ids=name_of)
def test_files_of_one_folder_give_the_findings_beside_their_lines_together(folder: Path) -> None:
    programs = {str(p): p.read_text() for p in sorted(folder.rglob("*.py"))}
    written = sorted((path, e.line, e.code, e.severity) for path, text in programs.items() for e in expectations(text))
    expected = [item[:3] for item in written if item[3] != UNSURE]
    unsure = {item[:3] for item in written if item[3] == UNSURE}
    wanted = {code for _, _, code in expected}
    result = check([str(folder)], Config(select=("ALL",), cache=False, isolated=True))
    assert not result.faults
    found = [f for f in result.findings if counts(f, wanted)]
    assert sorted((str(Path(f.location.path)), f.location.line, f.code) for f in found) == expected
    if unsure:
        asked = check([str(folder)], Config(select=("ALL",), cache=False, isolated=True, min_confidence=Confidence.LOW)).findings
        low = {(str(Path(f.location.path)), f.location.line, f.code) for f in asked if f.confidence is Confidence.LOW}
        assert unsure <= low


@pytest.mark.parametrize("path", FIXED, ids=name_of)
def test_fix_gives_the_program_beside_it_and_nothing_more_the_second_time(path: Path) -> None:
    code = path.parent.name
    bad = path.with_name(path.name.replace(".fixed.", ".")).read_text()
    fixed = fix_text(bad, f"src/{path.name}", targets(bad), select=[code])
    assert without_expectations(fixed) == without_expectations(path.read_text())
    assert fix_text(fixed, f"src/{path.name}", targets(bad), select=[code]) == fixed


def test_every_rule_has_bad_and_good_fixtures_and_a_fixed_one_where_it_has_a_fix() -> None:
    missing = []
    for code, rule in registry().items():
        if not rule.checks("check_source") and not rule.checks("check_program"):
            continue  # the engine's own rules are tested with it
        folder = FIXTURES / code
        bad, good, fixed = ([p for p in folder.glob(f"{kind}*")] for kind in ("bad_", "good_", "bad_*.fixed"))
        bad = [p for p in bad if ".fixed" not in p.name]
        if not bad or not good or (rule.fix is not None and rule.fix.value != "display" and not fixed):
            missing.append(code)
    assert not missing
