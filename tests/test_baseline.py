"""The baseline: what a project knows is not reported, what is new is, and what is gone is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mplint.api import fix
from mplint.cli.main import main
from mplint.config import Config

MISTAKE = "with torch.cuda.amp.autocast():\n    pass\n"
PROGRAM = f"import torch\n\n{MISTAKE}"
FILE = "mplint-baseline.json"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(PROGRAM)

    def call(*argv: str) -> tuple[int, str, str]:
        code = main([*argv, "--no-cache"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def entries(folder: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads((folder / FILE).read_text())["findings"]
    return found


def test_create_writes_what_check_reports_and_check_then_is_silent(run: Run, tmp_path: Path) -> None:
    assert run("check")[0] == 1
    code, out, err = run("baseline", "create")
    assert (code, err) == (0, "") and out.startswith(f"{FILE}: 1 finding in 1 file.\n")
    assert entries(tmp_path) == {"src/train.py": [{"code": "MP101", "line": "with torch.cuda.amp.autocast():"}]}
    known = "No new mixed-precision mistakes found in 1 file; 1 known one is in the baseline.\n"
    assert run("check", "--baseline", FILE) == (0, known, "")
    assert run("check")[0] == 1


def test_create_names_the_configuration_that_is_there(run: Run, tmp_path: Path) -> None:
    assert "in [tool.mplint] of pyproject.toml" in " ".join(run("baseline", "create")[1].split())
    (tmp_path / FILE).unlink()
    (tmp_path / "mplint.toml").write_text("# nothing is set\n")
    assert f'`baseline = "{FILE}"` in mplint.toml' in " ".join(run("baseline", "create")[1].split())


def test_configuration_names_a_baseline_beside_itself(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mplint.toml").write_text('baseline = "known.json"\n')
    run("baseline", "create")
    assert (tmp_path / "known.json").exists()
    assert run("check")[0] == 0
    assert run("check", "--no-baseline")[0] == 1
    monkeypatch.chdir(tmp_path / "src")
    assert run("check", "train.py")[0] == 0


@pytest.mark.parametrize(
    "changed",
    [f"import os\nimport torch\n\n\n{MISTAKE}", f"import torch\n\ndef f():\n    {MISTAKE.replace('    ', '        ')}"],
    ids=["lines above", "indented"],
)
def test_entries_survive_edits_elsewhere(run: Run, tmp_path: Path, changed: str) -> None:
    run("baseline", "create")
    (tmp_path / "src" / "train.py").write_text(changed)
    code, out, err = run("check", "--baseline", FILE)
    assert (code, err) == (0, ""), out


def test_one_more_of_the_same_mistake_on_an_equal_line_is_new(run: Run, tmp_path: Path) -> None:
    run("baseline", "create")
    (tmp_path / "src" / "train.py").write_text(PROGRAM + MISTAKE)
    code, out, _ = run("check", "--baseline", FILE)
    assert code == 1 and "src/train.py:5:" in out and "Found 1 warning in 1 file; 1 known one is in the baseline." in out
    assert run("baseline", "update")[1] == f"{FILE}: 2 findings in 1 file (1 new, 0 gone).\n"
    assert entries(tmp_path)["src/train.py"][0]["count"] == 2
    assert run("check", "--baseline", FILE)[0] == 0


def test_entries_that_no_longer_hold_are_said_and_pruned(run: Run, tmp_path: Path) -> None:
    (tmp_path / "src" / "other.py").write_text(PROGRAM)
    (tmp_path / "src" / "gone.py").write_text(PROGRAM)
    run("baseline", "create")
    (tmp_path / "src" / "train.py").write_text("import torch\n")
    (tmp_path / "src" / "gone.py").unlink()
    assert run("check", "--baseline", FILE)[2] == f"mplint: note: {FILE}: 2 known findings are gone; `mplint baseline prune` drops them\n"
    (tmp_path / "src" / "new.py").write_text(PROGRAM)
    assert run("baseline", "prune")[1] == f"{FILE}: 1 finding in 1 file (0 new, 2 gone).\n"
    assert list(entries(tmp_path)) == ["src/other.py"]


def test_a_run_of_some_files_or_rules_says_nothing_of_the_others(run: Run, tmp_path: Path) -> None:
    (tmp_path / "src" / "other.py").write_text(PROGRAM)
    run("baseline", "create")
    assert run("check", "--baseline", FILE, "src/other.py")[2] == ""
    assert run("check", "--baseline", FILE, "--select", "MP304")[2] == ""
    before = entries(tmp_path)
    run("baseline", "update", "src/other.py", "--select", "MP304")
    assert entries(tmp_path) == before


def test_findings_that_the_options_hide_keep_their_entries(run: Run) -> None:
    run("baseline", "create", "--min-confidence", "low", "--select", "ALL")
    assert run("check", "--baseline", FILE)[2] == ""


def test_what_can_not_be_read_is_in_no_baseline(run: Run, tmp_path: Path) -> None:
    (tmp_path / "src" / "broken.py").write_text("def f(:\n")
    code, _, err = run("baseline", "create")
    assert code == 2 and "src/broken.py: " in err and "no baseline holds this: mend it, or leave the file" in err
    assert list(entries(tmp_path)) == ["src/train.py"]
    assert run("check", "--baseline", FILE)[0] == 2


def test_a_file_that_can_not_be_read_for_now_keeps_its_entries(run: Run, tmp_path: Path) -> None:
    run("baseline", "create")
    before = entries(tmp_path)
    (tmp_path / "src" / "train.py").write_text(PROGRAM + "<<<<<<< HEAD\n")
    code, _, err = run("check", "--baseline", FILE)
    assert code == 2 and "gone" not in err
    for action in ("prune", "update"):
        code, out, _ = run("baseline", action)
        assert (code, out) == (2, f"{FILE}: 1 finding in 1 file (0 new, 0 gone).\n")
    assert entries(tmp_path) == before


def test_json_counts_what_the_baseline_holds(run: Run) -> None:
    run("baseline", "create")
    summary = json.loads(run("check", "--baseline", FILE, "--output-format", "json")[1])["summary"]
    assert (summary["warnings"], summary["baselined"]) == (0, 1)
    assert "baselined" not in json.loads(run("check", "--output-format", "json")[1])["summary"]


def test_fix_leaves_what_is_known(run: Run, tmp_path: Path) -> None:
    run("baseline", "create")
    assert fix([str(tmp_path / "src")], Config(cache=False, baseline=str(tmp_path / FILE))).diffs == ()
    assert fix([str(tmp_path / "src")], Config(cache=False)).diffs


def test_create_does_not_overwrite_and_the_others_need_one(run: Run) -> None:
    assert run("baseline", "prune")[2] == f"mplint: error: {FILE}: no such baseline; `mplint baseline create` makes one\n"
    run("baseline", "create")
    assert "`mplint baseline update` brings it up to date" in run("baseline", "create")[2]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", 'not a baseline: it has no table "findings"'),
        ("{", "not a baseline: "),
        ('{"version": 9, "findings": {}}', "a baseline of version 9; this mplint reads version 1"),
        ('{"version": 1, "findings": {"a.py": [3]}}', "not a baseline: an entry of a.py is no table with a code and a line or node"),
        ('{"version": 1, "findings": {"a.py": 3}}', "not a baseline: an entry of a.py is no table with a code and a line or node"),
        ('{"version": 1, "findings": {"a.py": [{"code": "MP101", "count": "2"}]}}', "not a baseline: an entry of a.py"),
    ],
)
def test_what_is_no_baseline_is_misuse(run: Run, tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / FILE).write_text(text)
    code, out, err = run("check", "--baseline", FILE)
    assert (code, out) == (2, "") and err.startswith(f"mplint: error: {FILE}: {reason}") and err.count("\n") == 1


def test_what_a_baseline_has_no_use_for_is_not_offered(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--exit-zero", "--fail-on=error", "--stdin-filename=a.py"):
        code, _, err = run("baseline", "create", option)
        assert code == 2 and option.partition("=")[0] in err
    assert main(["baseline", "--help"]) == 0
    told = capsys.readouterr().out
    assert not [word for word in ("--exit-zero", "--fail-on", "standard input") if word in told]


def test_what_is_said_of_it_fits_80_columns(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def initialized(*folder: str) -> str:
        assert main(["init", *folder]) == 0
        return capsys.readouterr().out

    for number in range(120):
        (tmp_path / "src" / f"file{number}.py").write_text(PROGRAM * 10)
    said = run("baseline", "create")[1] + run("check", "--baseline", FILE)[1] + initialized("src") + initialized()
    assert max(map(len, said.splitlines())) <= 80 and "`mplint baseline create src`" in said


def test_the_same_findings_make_the_same_bytes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "src" / "a.py").write_text(PROGRAM + MISTAKE)
    run("baseline", "create")
    first = (tmp_path / FILE).read_bytes()
    run("baseline", "update")
    assert (tmp_path / FILE).read_bytes() == first


def test_the_way_out_after_a_rename_is_told(run: Run, tmp_path: Path) -> None:
    run("baseline", "create")
    (tmp_path / "src" / "train.py").rename(tmp_path / "src" / "fit.py")
    code, _, err = run("check", "--baseline", FILE)
    assert code == 1 and err.endswith("drops it, `mplint baseline update` follows files that have other names now\n")
    run("baseline", "update")
    assert list(entries(tmp_path)) == ["src/fit.py"] and run("check", "--baseline", FILE)[0] == 0


def test_an_action_that_is_missing_or_misspelled(run: Run) -> None:
    assert "required: ACTION (see" in run("baseline")[2]
    assert 'did you mean "create"?' in run("baseline", "creat")[2]
