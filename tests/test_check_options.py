"""`mplint check` beside checking: settings, files, quiet, fixing on the way, comments that ignore; and `mplint init`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from mplint.cli.main import main
from mplint.config import Config, load_config
from mplint.engine.select import known_rules
from mplint.findings import Severity
from mplint.replace import WriteError

OLD = "import torch\n\nwith torch.cuda.amp.autocast():\n    pass\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.txt").write_text("torch>=2.4,<2.9\n")
    (tmp_path / "a.py").write_text(OLD)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["check", "--no-cache", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_quiet_writes_the_findings_alone(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "-q", "--output-format", "grouped")
    assert (code, err) == (1, "") and out.splitlines()[0] == "a.py" and "Found" not in out and "MP101" in out
    assert run(capsys, "-q", "--ignore", "MP101") == (0, "", "")


def test_files_and_settings_are_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mplint.toml").write_text('ignore = ["MP4"]\n[severity]\nMP101 = "info"\n')
    (here / "vendor").mkdir()
    (here / "vendor" / "b.py").write_text(OLD)
    assert run(capsys, "--show-files", "--exclude", "vendor")[:2] == (0, "a.py\n")
    code, out, _ = run(capsys, "--show-settings", "--fail-on", "error")
    settings = tomllib.loads(out)
    assert code == 0 and out.startswith("# from mplint.toml\n") and "# torch: >=2.4.0,<2.9.0, by the pins of the project" in out
    assert (settings["ignore"], settings["fail-on"], settings["severity"]) == (["MP4"], "error", {"MP101": "info"})


def test_every_setting_that_is_shown_says_where_it_is_from(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mplint.toml").write_text('fail-on = "error"\nignore = ["MP4"]\noptions = {MP403 = {least-rows = 5000}}\ntarget = "Tesla T4"\n')
    (here / "inner").mkdir()
    (here / "inner" / "b.py").write_text(OLD)
    (here / "inner" / "mplint.toml").write_text('extend = "../mplint.toml"\nignore = ["MP304"]\n')
    code, out, _ = run(capsys, "inner", "--show-settings", "--min-confidence", "low", "--target", "8.0")
    lines = out.splitlines()
    assert code == 0
    assert 'ignore = ["MP304"]  # inner/mplint.toml' in lines
    assert 'fail-on = "error"  # mplint.toml' in lines and "[options.MP403]  # mplint.toml" in lines
    assert 'min-confidence = "low"  # the command' in lines and 'hardware = "8.0"  # the command' in lines
    assert "select = []  # default" in lines and "cache = false  # the command" in lines
    checked, left = out.split("# not checked:")
    assert "MP302 MP303 MP305" in checked.replace("\n# ", " ") and "MP304" in left
    assert tomllib.loads(out)["options"] == {"MP403": {"least-rows": 5000}}


def test_a_severity_of_ones_own_changes_the_exit_status(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys)[0] == 1
    (here / "mplint.toml").write_text('[severity]\nMP101 = "info"\n')
    code, out, _ = run(capsys)
    assert code == 0 and "info[MP101]" in out and "Found 1 info in 1 file" in out
    (here / "mplint.toml").write_text('[severity]\ndeprecated-torch-amp = "error"\n')
    assert "error[MP101]" in run(capsys)[1]


def test_fix_goes_before_the_check(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--fix")
    assert code == 0 and "Fixed a.py: MP101" in err and out.startswith("No mixed-precision mistakes")
    assert 'torch.amp.autocast("cuda")' in (here / "a.py").read_text()
    assert run(capsys, "--fix", "--staged")[0] == 2


def test_a_fix_that_cannot_be_written_fails_the_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise WriteError("read-only")

    monkeypatch.setattr("mplint.replace.replace_file", refuse)
    code, out, err = run(capsys, "--fix", "--fail-on", "error")
    assert code == 2 and "a.py: read-only; nothing was changed" in err and "MP101" in out


def test_nothing_is_written_where_the_options_contradict_each_other(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--fix", "--add-ignores", " ")[0] == 2
    assert (here / "a.py").read_text() == OLD


def test_comments_ignore_every_finding_for_a_reason(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--add-ignores", "old code, see #12")
    assert code == 0 and "1 finding in 1 file ignored" in err
    assert "with torch.cuda.amp.autocast():  # mplint: ignore[MP101] old code, see #12\n" in (here / "a.py").read_text()
    assert run(capsys)[0] == 0
    assert run(capsys, "--add-ignores", " ")[0] == 2


def test_a_line_that_ends_within_a_string_gets_no_comment(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'import torch\n\nx = (torch.cuda.amp.autocast(), """\ntext""")\n'
    (here / "a.py").write_text(text)
    code, out, _ = run(capsys, "--add-ignores", "old")
    assert code == 1 and "MP101" in out and (here / "a.py").read_text() == text


def test_init_writes_what_it_finds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "third_party").mkdir()
    assert main(["init"]) == 0
    assert "Wrote mplint.toml." in capsys.readouterr().out
    text = (here / "mplint.toml").read_text()
    assert "torch" in text.splitlines()[1] and "(by the pins: >=2.4.0,<2.9.0)" in text
    assert load_config(".").exclude == ("third_party",)
    assert main(["init"]) == 2 and "configures . already" in capsys.readouterr().err
    assert main(["init", "--dry-run"]) == 0


def test_every_setting_that_init_shows_is_one(here: Path) -> None:
    assert main(["init"]) == 0
    lines = (here / "mplint.toml").read_text().splitlines()
    shown = [line.removeprefix("# ") for line in lines if line.startswith("# ") and " = " in line and '"…"' not in line]
    (here / "mplint.toml").write_text("\n".join(line for line in shown if not line.startswith("hardware")) + "\n")
    advice = [rule for rule in known_rules(Config()).values() if rule.severity is Severity.INFO]
    assert set(load_config(".").extend_select) <= {rule.code for rule in advice}
    assert len(shown) >= 7 and load_config(".").severities
