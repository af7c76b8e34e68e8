"""Every model fixture gives exactly the findings that its comments name, and so do the models in the documentation of rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from onnx_text import expectations, findings

from mplint.findings import Severity
from mplint.rule import Rule, registry

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
MODELS = sorted(FIXTURES.glob("MP*/*.onnxtxt"))
RULES = [rule for rule in registry().values() if rule.checks("check_graph")]
SHOWN = [rule for rule in RULES if "```onnx" in rule.documentation()]


@pytest.mark.parametrize("path", MODELS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_model_gives_the_findings_that_its_comments_name(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    expected = expectations(text)
    wanted = {e.code for e in expected} | {rule.code for rule in RULES if rule.code == path.parent.name and rule.severity is Severity.INFO}
    found = [f for f in findings(text, tmp_path) if f.severity is not Severity.INFO or f.code in wanted]
    assert sorted((f.code, f.severity.value, f.node) for f in found) == [tuple(e) for e in expected]
    assert path.name.startswith("bad_") == bool(expected)


@pytest.mark.parametrize("rule", SHOWN, ids=lambda rule: rule.code)
def test_example_is_reported_and_use_instead_is_not(rule: type[Rule], tmp_path: Path) -> None:
    for section, reported in (("Example", True), ("Use instead", False)):
        models = re.findall(r"```onnx\n(.*?)```", rule.section(section), re.S)
        assert models
        for model in models:
            assert any(f.code == rule.code for f in findings(model, tmp_path)) is reported, section


def test_every_rule_on_graphs_has_bad_and_good_models() -> None:
    elsewhere = {"MP604"}  # a rule on checkpoints: tests/graph/test_stored_weights.py
    missing = []
    for rule in RULES:
        names = [p.name for p in (FIXTURES / rule.code).glob("*.onnxtxt")]
        if rule.code not in elsewhere and not (any(n.startswith("bad_") for n in names) and any(n.startswith("good_") for n in names)):
            missing.append(rule.code)
    assert not missing
    assert all(rule.graphs for rule in RULES)


def test_findings_name_the_node_its_operation_and_the_numbers(tmp_path: Path) -> None:
    text = (FIXTURES / "MP401" / "bad_hidden_width.onnxtxt").read_text()
    (finding,) = [f for f in findings(text, tmp_path) if f.code == "MP401"]
    assert finding.node == "b"
    assert finding.location.line is None
    assert "b (MatMul) is 1001 wide" in finding.message
