"""The SARIF report follows the 2.1.0 schema and carries rules, places, fixes and fingerprints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from report_findings import PROGRAM, ProgramSources, clip_before_unscale, write_program
from sarif_schema import LOG

from mplint.findings import Applicability, Finding, Fix, Location, Related, Severity
from mplint.report.sarif import sarif_report
from mplint.rule import Rule, registry


class ClipBeforeUnscale(Rule):
    """
    ## What it does
    Finds clipping of gradients that are still scaled. It follows helpers.

    ## Why is this bad?
    The limit is compared with scaled gradients.
    """

    code = "MP304"
    name = "clip-before-unscale"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("torch",)


RULES: dict[str, type[Rule]] = {"MP304": ClipBeforeUnscale}


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_program(tmp_path)
    return tmp_path


def run(*findings: Finding, rules: dict[str, type[Rule]] | None = None, faults: tuple[str, ...] = ()) -> dict[str, Any]:
    log = json.loads(sarif_report(findings, RULES if rules is None else rules, ProgramSources(), faults))
    jsonschema.validate(log, LOG)
    return log["runs"][0]  # type: ignore[no-any-return]


def test_every_kind_of_finding_follows_the_schema() -> None:
    everywhere = Location("x.py", None, None, None, None)
    run(
        clip_before_unscale(),
        clip_before_unscale(everywhere, related=(), fix=None, why="", help="", code="MP001", name="unreadable-input"),
        clip_before_unscale(Location("a b/ü.ipynb", 2, 1, 2, 4, 2), related=(Related(everywhere, "set here"),)),
        clip_before_unscale(severity=Severity.INFO, fix=Fix("move it", Applicability.DISPLAY)),
        faults=("MP304 failed on a.py: ValueError",),
    )
    run()


def test_every_registered_rule_has_metadata_that_follows_the_schema() -> None:
    rules = run(rules=registry())["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(registry())


def test_rule_metadata_carries_help_and_level() -> None:
    (rule,) = run(clip_before_unscale())["tool"]["driver"]["rules"]
    assert rule["shortDescription"]["text"] == "Finds clipping of gradients that are still scaled."
    assert "## Why is this bad?" in rule["help"]["markdown"]
    assert rule["defaultConfiguration"] == {"level": "error", "enabled": True}
    assert rule["properties"]["tags"] == ["mixed-precision", "torch"]


def test_a_result_points_at_its_rule_place_and_related_places() -> None:
    (result,) = run(clip_before_unscale())["results"]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("MP304", 0, "error")
    assert result["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "src/train.py", "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": 7, "startColumn": 5, "endLine": 7, "endColumn": 60},
            }
        }
    ]
    (related,) = result["relatedLocations"]
    assert related["id"] == 1 and related["message"] == {"text": "scaled here"}
    assert related["physicalLocation"]["region"]["startLine"] == 6


def test_a_fix_becomes_replacements() -> None:
    (fix,) = run(clip_before_unscale())["results"][0]["fixes"]
    (change,) = fix["artifactChanges"]
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 7, "startColumn": 5, "endLine": 7, "endColumn": 5},
            "insertedContent": {"text": "scaler.unscale_(optimizer)\n    "},
        }
    ]


def test_an_unsafe_fix_says_so_and_a_shown_one_is_left_out() -> None:
    unsafe, display = run(
        clip_before_unscale(fix=Fix("move it", Applicability.UNSAFE)), clip_before_unscale(fix=Fix("move it", Applicability.DISPLAY))
    )["results"]
    assert unsafe["fixes"][0]["description"]["text"].startswith("move it (changes numerics")
    assert "fixes" not in display


def test_a_notebook_names_the_cell_and_offers_no_replacement() -> None:
    (result,) = run(clip_before_unscale(Location("a b.ipynb", 2, 1, 2, 4, 2)))["results"]
    (location,) = result["locations"]
    assert location["logicalLocations"] == [{"name": "cell 2", "fullyQualifiedName": "a b.ipynb:cell 2", "kind": "cell"}]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "a%20b.ipynb"
    assert location["physicalLocation"]["region"]["startLine"] == 2
    assert result["properties"]["cell"] == 2
    assert result["message"]["text"].startswith("a b.ipynb:cell 2:2:1: gradients")
    assert "fixes" not in result


def test_addresses_are_relative_to_the_current_folder_and_absolute_elsewhere(program: Path) -> None:
    inside, outside = run(
        clip_before_unscale(Location(str(program / "src" / "train.py"), 7, 5, 7, 60), related=()),
        clip_before_unscale(Location("../other.py", 7, 5, 7, 60), related=()),
    )["results"]
    assert inside["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "src/train.py"
    elsewhere = outside["locations"][0]["physicalLocation"]["artifactLocation"]
    assert elsewhere["uri"].startswith("file:///") and "uriBaseId" not in elsewhere


def test_fingerprints_survive_moved_lines_and_tell_equal_lines_apart(program: Path) -> None:
    def prints(*findings: Finding) -> list[str]:
        return [result["partialFingerprints"]["mplint/v1"] for result in run(*findings)["results"]]

    before = prints(clip_before_unscale(), clip_before_unscale())
    assert len(set(before)) == 2
    write_program(program, "\n\n" + PROGRAM.replace("    torch.nn", "        torch.nn"))
    moved = clip_before_unscale(Location("src/train.py", 9, 9, 9, 64))
    assert prints(moved, moved) == before


def test_what_mplint_failed_at_is_a_notification() -> None:
    (invocation,) = run(faults=("MP304 failed on a.py: ValueError",))["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "MP304 failed" in invocation["toolExecutionNotifications"][0]["message"]["text"]
