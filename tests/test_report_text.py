"""The report for people: order, source lines, underlines, width and color."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TextIO

import pytest
from report_findings import clip_before_unscale, write_program

from mplint.findings import Applicability, Finding, Fix, Location, Related, Severity
from mplint.report.json import json_report
from mplint.report.sources import Sources
from mplint.report.style import Style, display_units, style_for
from mplint.report.summary import LeftOut, place, statistics
from mplint.report.text import describe, full_report, text_report


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_program(tmp_path)
    return tmp_path


def shown(finding: object, width: int = 80) -> str:
    return "\n".join(describe(finding, Sources(), Style(width=width)))  # type: ignore[arg-type]


def test_a_finding_says_what_where_why_what_to_do_and_whether_fix_does_it() -> None:
    assert text_report([clip_before_unscale()], 3, Sources(), Style()) == (
        """\
error[MP304] clip-before-unscale: gradients are clipped while they are still
    multiplied by the loss scale
 --> src/train.py:7:5
  |
6 |     scaler.scale(loss).backward()
  |     ----------------------------- scaled here
7 |     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
  |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = why: the scale starts at 65536, so a limit of 1.0 cuts the true gradients to
         1.5e-5.
  = help: call `scaler.unscale_(optimizer)` before clipping.
  = fix: insert `scaler.unscale_(optimizer)`; `mplint fix --apply` does it

Found 1 error in 1 of 3 files.
1 can be fixed by `mplint fix --apply`; without `--apply` it shows a diff.
`mplint explain MP304` tells more; so it does for every code and name above.
"""
    )


def test_lines_between_marks_are_left_out_but_for_a_single_one() -> None:
    finding = clip_before_unscale(
        related=(Related(Location("src/train.py", 3, 1, 3, 7), "built here"), Related(Location("src/train.py", 5, 1, 5, 4), "called here"))
    )
    text = shown(finding)
    assert "3 | scaler = torch.amp" in text and "4 |\n" in text and "6 |     scaler.scale" in text
    far = shown(clip_before_unscale(related=(Related(Location("src/train.py", 10, 5, 10, 27), "stepped here"),)))
    assert "\n...\n10 |     scaler.step(optimizer)\n   |     ---------------------- stepped here\n" in far
    assert "the limit is meant" not in far


def test_related_places_in_other_files_are_shown_after_the_finding_with_their_message(program: Path) -> None:
    write_program(program, "policy = 'mixed_float16'\n", "src/main.py")
    text = shown(clip_before_unscale(related=(Related(Location("src/main.py", 1, 1, 1, 7), "policy set here"),)))
    assert "  |\n ::: src/main.py:1:1\n  |\n1 | policy = 'mixed_float16'\n  | ------ policy set here\n  |\n" in text


def test_a_place_whose_source_is_gone_keeps_its_message() -> None:
    text = shown(clip_before_unscale(related=(Related(Location("src/gone.py", 4, 1, 4, 7), "policy set here"),)))
    assert " ::: src/gone.py:4:1: policy set here\n" in text
    assert shown(clip_before_unscale(Location("src/none.py", None, None, None, None), related=())).splitlines()[2] == " --> src/none.py"


@pytest.mark.parametrize(
    ("line", "column", "end", "underline"),
    [
        ("\tscale(x)", 2, 10, "    ^^^^^^^^"),
        ("x =\ty", 5, 6, "    ^"),
        ("名前 = f(x)", 6, 10, "       ^^^^"),
        ("e\u0301 = f(x)", 6, 10, "    ^^^^"),
        ("s = '\x1b[31m'; f(x)", 14, 18, "             ^^^^"),
    ],
)
def test_tabs_wide_combining_and_control_characters_keep_the_underline_in_place(
    program: Path, line: str, column: int, end: int, underline: str
) -> None:
    write_program(program, line + "\n")
    text = shown(clip_before_unscale(Location("src/train.py", 1, column, 1, end), related=()))
    assert f"\n  | {underline}\n" in text
    assert "\x1b" not in text and "\t" not in text


def test_long_lines_are_cut_around_the_mark(program: Path) -> None:
    before, after = "a + " * 40, " + b" * 40
    write_program(program, f"{before}clip(x){after}\n")
    text = shown(clip_before_unscale(Location("src/train.py", 1, len(before) + 1, 1, len(before) + 8), related=()))
    source, underline = text.splitlines()[4:6]
    assert source.startswith("1 | ...") and source.endswith("...") and len(source) <= 80
    assert source[underline.index("^") : underline.rindex("^") + 1] == "clip(x)"


def test_a_span_of_a_few_lines_is_underlined_on_each_and_a_long_one_on_the_first(program: Path) -> None:
    write_program(program, "f(\n    1,\n)\n" + "with g():\n" + "    x\n" * 9)
    short = shown(clip_before_unscale(Location("src/train.py", 1, 1, 3, 2), related=()))
    assert short.splitlines()[4:10] == ["1 | f(", "  | ^^", "2 |     1,", "  |     ^^", "3 | )", "  | ^"]
    long = shown(clip_before_unscale(Location("src/train.py", 4, 1, 13, 6), related=()))
    assert long.splitlines()[4:7] == ["4 | with g():", "  | ^^^^^^^^^", "  |"]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    finding = clip_before_unscale(
        why="the scale starts at 65536 " * 8, related=(Related(Location("src/train.py", 6, 5, 6, 34), "a long remark on this line " * 4),)
    )
    report = text_report([finding], 1, Sources(), Style(width=width))
    assert max(len(line) for line in report.splitlines() if "`" not in line) <= width


def test_color_changes_nothing_but_color() -> None:
    findings = [clip_before_unscale()]
    plain, colored = (text_report(findings, 1, Sources(), Style(color)) for color in (False, True))
    assert "\x1b[1;31merror[MP304]\x1b[0m" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain


def test_an_unsafe_fix_names_its_option_and_a_shown_one_is_left_to_the_reader() -> None:
    unsafe = clip_before_unscale(fix=Fix("move it.", Applicability.UNSAFE))
    display = clip_before_unscale(fix=Fix("move it", Applicability.DISPLAY))
    assert "= fix: move it; `mplint fix --apply --unsafe-fixes` does it; review the result" in shown(unsafe)
    assert "= fix: move it; to be done by hand" in shown(display)
    report = text_report([clip_before_unscale(), unsafe, display, clip_before_unscale(severity=Severity.INFO)], 1, Sources(), Style())
    assert "Found 3 errors and 1 info in 1 file.\n2 can be fixed by `mplint fix --apply`, 1 more with `--unsafe-fixes`;" in report


def test_a_clean_run_says_so_and_an_empty_one_too() -> None:
    assert text_report([], 2, Sources(), Style()) == "No mixed-precision mistakes found in 2 files.\n"
    assert text_report([], 0, Sources(), Style()) == "Nothing to check: no Python files, notebooks or models found.\n"
    unread = LeftOut(unjudged=(("a.onnx", "not checked: needs onnx"), ("b.onnx", "not checked: needs onnx")))
    assert text_report([], 0, Sources(), Style(), unread).startswith("Nothing was checked: 2 files could not be judged.\nNot judged:\n")


def test_a_notebook_shows_the_lines_of_the_cell_and_its_number(program: Path) -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Train"]},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": ["import torch\n"]},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": ["%time\n", "clip(x)"]},
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (program / "train.ipynb").write_text(json.dumps(notebook))
    text = shown(clip_before_unscale(Location("train.ipynb", 2, 1, 2, 8, 2), related=()))
    assert " --> train.ipynb:cell 2:2:1\n  |\n2 | clip(x)\n  | ^^^^^^^\n" in text


def test_standard_input_is_shown_without_a_file() -> None:
    sources = Sources({"<stdin>": b"clip(x)\n"})
    lines = describe(clip_before_unscale(Location("<stdin>", 1, 1, 1, 8), related=()), sources, Style())
    assert "1 | clip(x)" in lines


def test_source_that_can_not_be_decoded_is_still_shown(program: Path) -> None:
    (program / "src" / "train.py").write_bytes(b"x = 1\ny = '\xff'\n")
    assert "2 | y = '\ufffd'\n  |      ^\n" in shown(clip_before_unscale(Location("src/train.py", 2, 6, 2, 7), related=()))


def test_display_units_of_plain_text_are_its_characters() -> None:
    assert display_units("ab") == [("a", 1), ("b", 1)]


def test_color_follows_the_option_then_the_environment_then_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    stream = StringIO()
    assert not style_for(stream, "auto").color
    assert style_for(stream, "always").color
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert style_for(stream, "auto").color
    monkeypatch.setenv("NO_COLOR", "1")
    assert not style_for(stream, "auto").color
    assert style_for(stream, "auto").width == 80


@pytest.fixture
def terminal() -> Iterator[TextIO]:
    """A stream that is a terminal."""
    pty = pytest.importorskip("pty", reason="terminals are made by pty, which Windows lacks")
    ends = pty.openpty()
    with os.fdopen(ends[1], "w") as stream:
        yield stream
    os.close(ends[0])


LINKING = ("DOMTERM", "KITTY_WINDOW_ID", "WEZTERM_PANE", "WT_SESSION", "KONSOLE_VERSION", "ALACRITTY_WINDOW_ID")


@pytest.mark.parametrize(
    ("environment", "linked"),
    [
        ({}, False),
        ({"TERM_PROGRAM": "vscode"}, True),
        ({"TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"VTE_VERSION": "7200"}, True),
        ({"VTE_VERSION": "4200"}, False),
        ({"KITTY_WINDOW_ID": "1"}, True),
        ({"KITTY_WINDOW_ID": "1", "TERM": "dumb"}, False),
        ({"KITTY_WINDOW_ID": "1", "CI": "true"}, False),
        ({"KITTY_WINDOW_ID": "1", "FORCE_HYPERLINK": "0"}, False),
        ({"FORCE_HYPERLINK": "1"}, True),
    ],
)
def test_links_are_for_terminals_that_show_them(
    monkeypatch: pytest.MonkeyPatch, terminal: TextIO, environment: dict[str, str], linked: bool
) -> None:
    for name in (*LINKING, "VTE_VERSION", "TERM_PROGRAM", "FORCE_HYPERLINK", "CI", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert style_for(terminal, "never").links == linked
    assert style_for(StringIO(), "always").links == (environment == {"FORCE_HYPERLINK": "1"})


def test_codes_lead_to_the_page_of_their_rule_and_places_to_their_file(program: Path) -> None:
    findings = [clip_before_unscale()]
    plain, linked = (text_report(findings, 1, Sources(), Style(links=links)) for links in (False, True))
    assert "\x1b" not in plain
    page = "https://github.com/mplint/mplint/blob/main/docs/rules/clip-before-unscale.md"
    assert f"\x1b]8;;{page}\x1b\\error[MP304]\x1b]8;;\x1b\\ clip-before-unscale" in linked
    assert f"\x1b]8;;{(program / 'src' / 'train.py').as_uri()}\x1b\\src/train.py:" in linked
    assert re.sub(r"\x1b\]8;;.*?\x1b\\", "", linked) == plain
    strange = clip_before_unscale(code="ACME01")
    assert "docs/rules" not in text_report([strange], 1, Sources(), Style(links=True))


def test_statistics_count_each_rule_the_most_frequent_first() -> None:
    other = clip_before_unscale(code="MP401", name="channels-not-multiple-of-8", fix=None)
    assert statistics([other, *[clip_before_unscale()] * 10]) == (
        "10  MP304  clip-before-unscale         10 fixable\n 1  MP401  channels-not-multiple-of-8\n"
    )


def test_places_read_as_editors_link_them() -> None:
    assert place(Location("a.py", 3, 4, 3, 5)) == "a.py:3:4"
    assert place(Location("a.ipynb", 3, 4, 3, 5, 0)) == "a.ipynb:cell 0:3:4"
    assert place(Location("a.py", None, None, None, None)) == "a.py"


def test_what_is_alike_in_a_file_is_one_block_and_explained_once() -> None:
    def at(line: int, path: str = "src/train.py", **changes: object) -> Finding:
        return clip_before_unscale(Location(path, line, 1, line, 4), related=(), **changes)

    findings = [at(1), at(3, message="`a` is old"), at(6), at(7), at(2, "src/b.py")]
    text = text_report(findings, 2, Sources(), Style())
    assert text.count("error[MP304]") == 2 and text.count("= why:") == text.count("= help:") == 1
    assert "  = also: 3:1: `a` is old\n  = also: 6:1, 7:1: gradients are clipped" in text
    assert full_report(findings, 2, Sources(), Style()).count("= why:") == 5


def test_many_places_are_counted() -> None:
    findings = [clip_before_unscale(Location("src/train.py", 1, n, 1, n + 1), related=()) for n in range(1, 12)]
    assert "more: " not in text_report(findings[:9], 1, Sources(), Style()) and " and 2 more: " in text_report(
        findings, 1, Sources(), Style()
    )
    each = [clip_before_unscale(Location("src/train.py", 1, n, 1, n + 1), related=(), message=f"m{n}") for n in range(1, 8)]
    assert "= also: 2 more places of this file; `--output-format full` shows each" in text_report(each, 1, Sources(), Style())


def test_what_other_places_explain_or_a_review_must_decide_keeps_its_own_block() -> None:
    chains = [clip_before_unscale(), clip_before_unscale(Location("src/train.py", 9, 5, 9, 6))]
    assert text_report(chains, 1, Sources(), Style()).count("error[MP304]") == 2
    unsafe = Fix("t", Applicability.UNSAFE)
    reviewed = [clip_before_unscale(related=(), fix=unsafe, why=why) for why in ("one", "two", "two")]
    assert text_report(reviewed, 1, Sources(), Style()).count("error[MP304]") == 2


def test_text_counts_the_cells_of_a_notebook_as_json_does() -> None:
    found = clip_before_unscale(Location("a.ipynb", 3, 4, 3, 5, 7), related=())
    (told,) = json.loads(json_report([found], 1, {}, Sources()))["findings"]
    assert place(found.location) == f"a.ipynb:cell {told['cell']}:3:4"
