"""Suppressions: which comment drops which finding, and what is said of one that drops nothing."""

from __future__ import annotations

import json
from collections.abc import Collection

import pytest

from mplint.engine.builtin_rules import unreadable
from mplint.engine.suppress import suppress
from mplint.findings import Applicability, Confidence, Finding, Replace, Severity, Span
from mplint.python.document import Document, InputError
from mplint.python.load import load
from mplint.rule import registry

RULES = {
    "MP001": "unreadable-input",
    "MP002": "unused-suppression",
    "MP101": "deprecated-torch-amp",
    "MP401": "shapes",
    "MP501": "hardware",
}
DEFAULT = ("MP001", "MP002", "MP101", "MP401")


def finding(document: Document, line: int, code: str = "MP401", end_line: int | None = None) -> Finding:
    """A finding on a line of the program."""
    span = Span(line, 0, end_line or line, 1)
    return Finding(code, RULES[code], Severity.WARNING, Confidence.HIGH, "wrong", document.location(span))


def run(text: str, *lines: int | tuple[int, str], enabled: Collection[str] = DEFAULT) -> list[Finding]:
    """What is left of findings on these lines of a program (MP401 where no code is given)."""
    document = Document("a.py", text)
    places = [(line, "MP401") if isinstance(line, int) else line for line in lines]
    return suppress(document, [finding(document, line, code) for line, code in places], enabled, RULES)


def summary(findings: list[Finding]) -> list[tuple[str, int | None]]:
    return [(f.code, f.location.line) for f in findings]


def fixed(text: str, report: Finding) -> str:
    """The text after the one replacement of a finding's fix."""
    assert report.fix is not None
    (change,) = report.fix.changes
    assert isinstance(change, Replace)
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines) + 1)]
    span = change.span
    return text[: starts[span.line - 1] + span.column] + change.text + text[starts[span.end_line - 1] + span.end_column :]


@pytest.mark.parametrize(
    "comment",
    [
        "# mplint: ignore[MP401] measured",
        "#mplint:ignore[MP101,MP401]",
        "# mplint: ignore[shapes]",
        "# mplint: ignore[mp401]",
        "# mplint: ignore",
        "# mplint: ignore MP401 for now",
        "# type: ignore  # mplint: ignore[MP401]",
        "# noqa: MP401",
        "# noqa: E501,MP401",
        "# noqa:E501 MP401 since",
        "# noqa",
        "# NOQA  # type: ignore",
    ],
)
def test_a_comment_on_the_line_suppresses(comment: str) -> None:
    assert [f for f in run(f"x = 1  {comment}\n", 1) if f.code != "MP002"] == []


@pytest.mark.parametrize(
    "comment", ["# noqa: E501", "# mplint: ignore[MP101]", "# mplint ignore[MP401]", "# noqa: because", "# xnoqa", "# mplint: ignored"]
)
def test_other_comments_do_not(comment: str) -> None:
    assert ("MP401", 1) in summary(run(f"x = 1  {comment}\n", 1))


def test_a_string_that_looks_like_a_comment_suppresses_nothing() -> None:
    text = "x = '''\n# mplint: skip-file\n'''; y = '# noqa: MP401'\n"
    assert summary(run(text, 3)) == [("MP401", 3)]


def test_a_comment_alone_covers_the_next_statement_only() -> None:
    text = "# mplint: ignore[MP401] why\n\n# more\nf(\n  1,\n  2)\ng()\n"
    assert summary(run(text, 4, 5, 6, 7)) == [("MP401", 7)]


def test_a_comment_alone_inside_brackets_covers_the_next_line_of_code() -> None:
    text = "f(\n  # mplint: ignore[MP401]\n  1,\n  2)\n"
    assert summary(run(text, 1, 3, 4)) == [("MP401", 1), ("MP401", 4)]


@pytest.mark.parametrize("line", [1, 3])
def test_a_comment_on_the_first_or_last_line_covers_the_statement(line: int) -> None:
    lines = ["f(", "  1,", "  2)", "g()"]
    lines[line - 1] += "  # mplint: ignore[MP401]"
    assert summary(run("\n".join(lines), 1, 2, 3, 4)) == [("MP401", 4)]


def test_a_comment_in_the_middle_covers_its_own_line() -> None:
    assert summary(run("f(\n  1,  # mplint: ignore[MP401]\n  2)\n", 1, 2, 3)) == [("MP401", 1), ("MP401", 3)]


def test_a_comment_on_a_header_does_not_cover_the_block() -> None:
    assert summary(run("with a:  # mplint: ignore[MP401]\n    f()\n", 1, 2)) == [("MP401", 2)]


def test_a_file_comment_covers_the_file_and_skip_file_silences_it() -> None:
    assert summary(run("x = 1\ny = 2\n# mplint: file-ignore[MP401]\n", 1, 2, (2, "MP101"))) == [("MP101", 2)]
    assert run("# mplint: skip-file\nx = 1  # mplint: ignore[MP401, NONE]\n", 2, (2, "MP101")) == []


def test_an_unused_suppression_is_reported_at_its_code_with_a_fix() -> None:
    text = "x = 1  # mplint: ignore[MP401] old\ny = 2\n"
    (report,) = run(text)
    assert (report.code, report.location[1:5]) == ("MP002", (1, 25, 1, 30))
    assert report.fix is not None and report.fix.applicability is Applicability.SAFE
    assert fixed(text, report) == "x = 1\ny = 2\n"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("x = 1  # mplint: ignore[MP401] see #12\n", "x = 1\n"),
        ("x = 1  # type: ignore  # mplint: ignore[MP401]\n", "x = 1  # type: ignore\n"),
        ("x = 1  # mplint: ignore[MP401]  # type: ignore\n", "x = 1  # type: ignore\n"),
        ("x = 1  # noqa: E501, MP401\n", "x = 1  # noqa: E501\n"),
        ("x = 1  # noqa: MP401,MP101 because\n", "x = 1\n"),
        ("if a:\n    # mplint: ignore[MP401]\n    x = 1\n", "if a:\n    x = 1\n"),
        ("x = 1\n# mplint: file-ignore[MP401]", "x = 1"),
        ("# mplint: file-ignore[MP401]", ""),
        ("x = 1  # mplint: ignore[]\n", "x = 1\n"),
    ],
)
def test_removing_leaves_the_rest_of_the_line(text: str, after: str) -> None:
    (report,) = run(text)
    assert fixed(text, report) == after
    assert run(after) == []


def test_only_the_idle_codes_go() -> None:
    text = "x = 1  # mplint: ignore[MP101, MP401] kept reason\n"
    (report,) = run(text, 1)
    assert "MP101" in report.message and "MP401" not in report.message
    assert fixed(text, report) == "x = 1  # mplint: ignore[MP401] kept reason\n"


def test_a_rule_that_was_not_enabled_is_not_called_unused() -> None:
    assert run("x = 1  # mplint: ignore[MP501]\n") == []
    assert run("x = 1  # mplint: ignore[MP401]\n", enabled=["MP401"]) == []
    assert run("x = 1  # mplint: ignore\n") == []
    assert summary(run("x = 1  # mplint: ignore\n", enabled=list(RULES))) == [("MP002", 1)]


def test_an_unknown_code_gets_the_nearest_name() -> None:
    text = "x = 1  # mplint: ignore[MP4O1]\n"
    (report,) = run(text)
    assert 'did you mean "MP401"?' in report.message
    assert report.fix is not None and report.fix.applicability is Applicability.UNSAFE
    assert fixed(text, report) == "x = 1  # mplint: ignore[MP401]\n"
    (report,) = run("x = 1  # mplint: ignore[zzzzzz]\n")
    assert report.fix is not None and report.fix.applicability is Applicability.SAFE
    assert run("x = 1  # noqa: ZZ999\n") == []


def test_a_bare_noqa_is_never_unused() -> None:
    assert run("x = 1  # noqa\n", enabled=list(RULES)) == []


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # mplint: ignore[MP401, MP002]\n",
        "# mplint: file-ignore[MP002]\nx = 1  # mplint: ignore[MP401]\n",
        "# mplint: ignore[MP002]\nx = 1  # mplint: ignore[MP401]\n",
    ],
)
def test_unused_suppressions_can_be_suppressed_by_name(text: str) -> None:
    assert run(text) == []


def test_nothing_is_called_unused_in_a_file_that_could_not_be_read() -> None:
    text = "x = (1  # mplint: ignore[MP401]\n"
    report = unreadable("a.py", InputError("syntax error", 1, 5))
    assert suppress(Document("a.py", text), [report], DEFAULT, RULES) == [report]
    assert suppress(Document("a.py", "# mplint: skip-file\n" + text), [report], DEFAULT, RULES) == []


def test_comments_stay_in_their_cell() -> None:
    cells = ["x = 1\n# mplint: ignore[MP401]", "y = 2", "z = 3  # mplint: ignore[MP401]"]
    data = json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}).encode()
    document = load("n.ipynb", data)
    left = suppress(document, [finding(document, 4), finding(document, 6)], DEFAULT, RULES)
    assert [(f.code, f.location.cell, f.location.line) for f in left] == [("MP002", 0, 2), ("MP401", 1, 1)]
    assert fixed(document.text, left[0]).startswith("x = 1\n\ny = 2")


def test_findings_come_in_report_order() -> None:
    assert summary(run("x = 1\ny = 2  # mplint: ignore[MP101]\nz = 3\n", 3, 1)) == [("MP401", 1), ("MP002", 2), ("MP401", 3)]


def test_the_engines_rules_are_registered_and_documented() -> None:
    rules = registry()
    assert rules["MP001"].severity is Severity.ERROR
    assert rules["MP002"].name == "unused-suppression"
    assert all(rules[code].section("What it does") for code in ("MP001", "MP002"))


@pytest.mark.parametrize(
    ("comment", "meant"),
    [
        ("mplint: ignor", "mplint: ignore"),
        ("mplint ignore", "mplint: ignore"),
        ("mplint: file_ignore", "mplint: file-ignore"),
        ("mplint: disable", None),
    ],
)
def test_a_misspelled_suppression_is_told_and_can_be_put_right(comment: str, meant: str | None) -> None:
    text = f"x = 1  # {comment}[MP401] slow\n"
    findings = run(text, 1)
    assert [f.code for f in findings] == (["MP401", "MP002"] if meant else ["MP401"])
    if meant:
        assert f'did you mean "{meant}"?' in findings[1].message
        assert fixed(text, findings[1]) == f"x = 1  # {meant}[MP401] slow\n" and run(fixed(text, findings[1]), 1) == []


@pytest.mark.parametrize("text", ['x = "# mplint ignor[MP401]"\n', "import mplint\nrules = mplint[0]\n", "# mplint sees x[0]\n"])
def test_text_that_only_looks_like_a_comment_is_none(text: str) -> None:
    assert run(text) == []
