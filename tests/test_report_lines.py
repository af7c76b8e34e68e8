"""One line a finding: concise and GitHub annotations."""

from __future__ import annotations

from report_findings import clip_before_unscale

from mplint.findings import Location, Severity
from mplint.report.lines import concise_report, github_report


def test_concise_is_place_code_severity_and_message() -> None:
    in_cell = clip_before_unscale(Location("a.ipynb", 2, 1, 2, 4, 2), message="two\nlines", severity=Severity.WARNING)
    assert concise_report([clip_before_unscale(), in_cell]) == (
        "src/train.py:7:5: MP304[error] gradients are clipped while they are still multiplied by the loss scale\n"
        "a.ipynb:cell 2:2:1: MP304[warning] two lines\n"
    )


def test_github_annotation_has_the_range_the_title_and_escaped_text() -> None:
    finding = clip_before_unscale(
        Location("a,b:c.py", 2, 1, 2, 4), message="100% lost\r\n", why="", help="clip later", severity=Severity.INFO
    )
    assert github_report([finding]) == (
        "::notice file=a%2Cb%3Ac.py,line=2,endLine=2,col=1,endColumn=4,title=MP304 clip-before-unscale::100%25 lost%0D%0A%0Aclip later\n"
    )


def test_github_annotation_of_a_span_over_lines_has_no_end_column() -> None:
    assert "line=2,endLine=4,col=5,title=" in github_report([clip_before_unscale(Location("a.py", 2, 5, 4, 1))])


def test_github_annotation_of_a_notebook_names_the_cell_in_its_message() -> None:
    line = github_report([clip_before_unscale(Location("a.ipynb", 2, 1, 2, 4, 2), why="", help="", message="lost")])
    assert line == "::error file=a.ipynb,title=MP304 clip-before-unscale::a.ipynb:cell 2:2:1: lost\n"
