"""The JSON report has exactly the keys that other programs rely on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from report_findings import ProgramSources, clip_before_unscale, write_program

from mplint import __version__
from mplint.config import Config
from mplint.engine.select import known_rules
from mplint.findings import Applicability, Confidence, Fix, Location, Related, Replace, Severity, Span
from mplint.report.json import json_report
from mplint.report.sources import Sources


def test_one_object_with_every_key_of_the_contract() -> None:
    warning = clip_before_unscale(
        Location("a.ipynb", 2, 1, 2, 4, 2), severity=Severity.WARNING, confidence=Confidence.MEDIUM, related=(), fix=None
    )
    report = json.loads(json_report([clip_before_unscale(), warning], 12, known_rules(Config()), ProgramSources()))
    assert report == {
        "version": "1",
        "tool": {"name": "mplint", "version": __version__},
        "findings": [
            {
                "code": "MP304",
                "name": "clip-before-unscale",
                "severity": "error",
                "confidence": "high",
                "message": "gradients are clipped while they are still multiplied by the loss scale",
                "why": "the scale starts at 65536, so a limit of 1.0 cuts the true gradients to 1.5e-5.",
                "help": "call `scaler.unscale_(optimizer)` before clipping.",
                "path": "src/train.py",
                "cell": None,
                "node": None,
                "line": 7,
                "column": 5,
                "end_line": 7,
                "end_column": 60,
                "related": [{"path": "src/train.py", "line": 6, "column": 5, "end_line": 6, "end_column": 34, "message": "scaled here"}],
                "fix": {
                    "title": "insert `scaler.unscale_(optimizer)`",
                    "applicability": "safe",
                    "edits": [
                        {
                            "path": "src/train.py",
                            "line": 7,
                            "column": 5,
                            "end_line": 7,
                            "end_column": 5,
                            "content": "scaler.unscale_(optimizer)\n    ",
                        }
                    ],
                },
                "url": "https://github.com/mplint/mplint/blob/main/docs/rules/clip-before-unscale.md",
            },
            report["findings"][1],
        ],
        "summary": {"files": 12, "errors": 1, "warnings": 1, "infos": 0, "fixable": 1},
    }
    assert report["findings"][1]["cell"] == 2
    assert report["findings"][1]["fix"] is None


def test_a_fix_that_is_only_shown_is_not_counted_as_fixable() -> None:
    report = json.loads(json_report([clip_before_unscale(fix=Fix("move it", Applicability.DISPLAY))], 1, {}, ProgramSources()))
    assert report["summary"]["fixable"] == 0


def test_a_related_place_in_another_cell_names_it() -> None:
    finding = clip_before_unscale(
        Location("a.ipynb", 2, 1, 2, 4, 2),
        fix=None,
        related=(Related(Location("a.ipynb", 1, 1, 1, 4, 0), "set here"), Related(Location("a.ipynb", 1, 1, 1, 4, 2), "used here")),
    )
    other, same = json.loads(json_report([finding], 1, {}, ProgramSources()))["findings"][0]["related"]
    assert other["cell"] == 0
    assert "cell" not in same


def test_a_fix_that_can_not_be_realized_costs_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_program(tmp_path)
    rewrite = ModuleType("mplint.rewrite")
    rewrite.FixError = type("FixError", (Exception,), {})  # type: ignore[attr-defined]
    rewrite.realize = lambda document, fix: {}["missing"]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mplint.rewrite", rewrite)
    sources = Sources()
    finding = clip_before_unscale(fix=Fix("move it", Applicability.SAFE, (Replace(Span(7, 4, 7, 4), "x"),)))
    report = json.loads(json_report([finding], 1, {}, sources))
    assert report["findings"][0]["fix"]["edits"] == []
    (fault,) = sources.faults
    assert fault.startswith("the fix of MP304 failed on src/train.py:7:5: KeyError: 'missing' (in ")
