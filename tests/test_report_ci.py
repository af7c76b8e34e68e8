"""Reports for continuous integration: GitLab, Azure, JUnit, Markdown; and the file that a report is written to."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from report_findings import ProgramSources, clip_before_unscale, write_program

from mplint.cli.main import main
from mplint.config import Config
from mplint.engine.select import known_rules
from mplint.findings import Location, Severity
from mplint.report.fingerprints import relative_path
from mplint.report.gitlab import gitlab_report
from mplint.report.junit import junit_report
from mplint.report.lines import azure_report
from mplint.report.markdown import markdown_report

CLIP = """\
import torch

def train(model, opt, data):
    scaler = torch.amp.GradScaler()
    for x in data:
        loss = model(x)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
"""
NODE = {"location": Location("m.onnx", None, None, None, None), "node": "/conv1", "related": (), "fix": None}


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_program(tmp_path)
    return tmp_path


def test_gitlab_issues_have_the_place_and_a_fingerprint_that_lines_above_do_not_change(program: Path) -> None:
    finding = clip_before_unscale(Location(str(program / "src/train.py"), 7, 5, 7, 60))
    issue, again = json.loads(gitlab_report([finding, finding], ProgramSources()))
    assert (issue["check_name"], issue["severity"], issue["location"]) == (
        "MP304",
        "critical",
        {"path": "src/train.py", "lines": {"begin": 7, "end": 7}},
    )
    assert issue["fingerprint"] != again["fingerprint"]
    write_program(program, "# more\n" + (program / "src/train.py").read_text())
    moved = clip_before_unscale(Location("src/train.py", 8, 5, 8, 60))
    assert json.loads(gitlab_report([moved], ProgramSources()))[0]["fingerprint"] == issue["fingerprint"]


def test_gitlab_names_the_cell_and_the_node_of_what_has_no_line_in_its_file() -> None:
    findings = [clip_before_unscale(Location("a.ipynb", 2, 1, 2, 4, 2)), clip_before_unscale(**NODE)]
    cell, node = json.loads(gitlab_report(findings, ProgramSources()))
    assert cell["location"]["lines"] == node["location"]["lines"] == {"begin": 1}
    assert "a.ipynb:cell 2:2:1: " in cell["description"] and "/conv1: " in node["description"]


def test_azure_logs_an_issue_of_the_run_and_escapes_what_ends_it() -> None:
    finding = clip_before_unscale(message="100%; a]\nb", why="", help="")
    info = clip_before_unscale(severity=Severity.INFO, message="wide")
    assert azure_report([finding, info], [("m.pt", "no shapes")]) == (
        "##vso[task.logissue type=error;sourcepath=src/train.py;linenumber=7;columnnumber=5;code=MP304;]100%AZP25%3B a%5D%0Ab\n"
        "src/train.py:7:5: MP304 wide\n##[debug]m.pt: not judged: no shapes\n"
    )


def test_a_finding_is_a_test_that_fails_from_the_failing_severity_on() -> None:
    findings = [clip_before_unscale(message="a\x00b"), clip_before_unscale(severity=Severity.WARNING)]
    root = ElementTree.fromstring(junit_report(findings, Severity.ERROR, [("m.pt", "no shapes")]).encode())
    first, second = root.findall("testsuite")
    assert first.attrib == {"name": "src/train.py", "tests": "2", "failures": "1", "skipped": "0", "errors": "0"}
    assert (second.get("name"), second.get("skipped")) == ("m.pt", "1")
    failure = root.find(".//failure")
    assert failure is not None and failure.get("message") == "a\ufffdb" and "1.5e-5" in str(failure.text)
    assert "still multiplied" in str(root.findtext(".//system-out"))


def test_nothing_found_is_a_test_that_passes() -> None:
    root = ElementTree.fromstring(junit_report([], Severity.WARNING).encode())
    assert [case.get("name") for case in root.iter("testcase")] == ["no mixed-precision mistakes"] and root.find(".//failure") is None


def test_markdown_keeps_bars_and_backticks_within_their_cell(program: Path) -> None:
    write_program(program, "x = `a | b`\n")
    finding = clip_before_unscale(Location("src/train.py", 1, 1, 1, 2), message="a | b <i>")
    text = markdown_report([finding], 3, known_rules(Config()), ProgramSources())
    assert "**Found 1 error in 1 of 3 files.**" in text and "### `src/train.py`" in text
    row = next(line for line in text.splitlines() if "MP304](" in line)
    assert row.startswith("| 1:1 | error | [MP304](") and "a \\| b &lt;i>" in row and "`` x = `a \\| b` ``" in row
    assert text.count("the scale starts at 65536") == 1


@pytest.mark.parametrize("name", ["full", "grouped", "gitlab", "azure", "junit", "markdown"])
def test_every_format_names_the_place_and_the_rule(name: str, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program / "a.py").write_text(CLIP)
    assert main(["check", "a.py", "--isolated", "--no-cache", "--output-format", name]) == 1
    out = capsys.readouterr().out
    assert "a.py" in out and "MP304" in out


def test_an_output_file_holds_the_report_and_standard_output_the_summary(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program / "a.py").write_text(CLIP)
    arguments = ["check", "a.py", "--isolated", "--no-cache", "--output-format", "json", "--output-file", "out.json"]
    assert main(arguments) == 1
    assert capsys.readouterr().out.startswith("Found 1 error in 1 file.\n")
    report = json.loads((program / "out.json").read_text())
    assert [finding["code"] for finding in report["findings"]] == ["MP304"] and report["findings"][0]["why"]


def test_an_output_file_that_cannot_be_written_ends_the_run_before_the_work(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "src", "--output-file", "none/out.txt"]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["check", "src", "--output-file", "src"]) == 2


def test_no_report_replaces_a_program(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (program / "src" / "train.py").read_text()
    assert main(["check", "--output-file", "src/train.py"]) == 2
    assert "src/train.py is a program or a model, which no report replaces" in capsys.readouterr().err
    assert (program / "src" / "train.py").read_text() == text


def test_paths_are_relative_with_slashes(program: Path) -> None:
    assert relative_path(str(program / "src" / "train.py")) == "src/train.py"
