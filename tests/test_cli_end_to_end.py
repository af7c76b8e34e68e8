"""The commands on real files: the contracts that other programs rely on, with nothing replaced."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from sarif_schema import LOG

from mplint.cli.main import main

QUICKSTART = Path(__file__).parent.parent / "fixtures" / "quickstart"
OLD_API = "from torch.cuda.amp import autocast\n\nwith autocast():\n    pass\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(OLD_API)
    return tmp_path


def test_findings_exit_with_1_and_a_clean_file_with_0(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "clean.py").write_text("x = 1\n")
    assert main(["check", "clean.py"]) == 0
    assert capsys.readouterr().out == "No mixed-precision mistakes found in 1 file.\n"
    assert main(["check"]) == 1
    assert "warning[MP101] deprecated-torch-amp" in capsys.readouterr().out
    assert main(["check", "--fail-on", "error"]) == main(["check", "--exit-zero"]) == main(["check", "--ignore", "MP101"]) == 0


def test_excluded_files_are_read_where_they_are_named_unless_forced(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "mplint.toml").write_text('exclude = ["train.py"]\n')
    assert main(["check", "train.py"]) == 1
    assert main(["check", "train.py", "--force-exclude"]) == 0
    (project / "mplint.toml").write_text('exclude = ["train.py"]\nforce-exclude = true\n')
    assert main(["check", "train.py"]) == 0
    for arguments in (["check"], ["fix", "--apply"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(OLD_API.encode())))
        capsys.readouterr()
        assert main([*arguments, "-", "--stdin-filename", "train.py"]) == 0
    assert capsys.readouterr().out == OLD_API


def test_a_missing_path_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nope.py"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("mplint: error: nope.py: ") and err.count("\n") == 1


@pytest.mark.parametrize("data", [b"def f(:\n", b"x = '\0'\n", b"x = '\xff'\n", b"# coding: nonsense\n", b"(" * 3000])
def test_an_unreadable_file_is_mp001_at_its_place_and_the_rest_goes_on(
    project: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    (project / "broken.py").write_bytes(data)
    assert main(["check", "--output-format", "json"]) == 2
    out, err = capsys.readouterr()
    findings = json.loads(out)["findings"]
    assert [f["path"] for f in findings if f["code"] == "MP001"] == ["broken.py"]
    assert any(f["code"] == "MP101" for f in findings)
    assert err == ""
    assert main(["check"]) == 2


@pytest.mark.parametrize("name", ["argparse", "importlib", "json", "re", "typing"])
def test_a_project_with_folders_called_like_the_library_is_checked_all_the_same(project: Path, name: str) -> None:
    (project / name).mkdir()
    (project / name / "__init__.py").touch()
    command = [sys.executable, "-m", "mplint", "check", ".", "--output-format", "json", "--no-cache"]
    where = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, env=where)
    assert (done.returncode, done.stderr) == (1, "")


def test_two_runs_print_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for arguments in (["--no-cache"], [], []):
        main(["check", str(QUICKSTART), "--output-format", "json", *arguments])
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] == outputs[2]


def test_sarif_of_real_projects_and_notebooks_follows_the_schema(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(QUICKSTART)
    main(["check", "--no-cache", "--output-format", "sarif"])
    log = json.loads(capsys.readouterr().out)
    jsonschema.validate(log, LOG)
    results = log["runs"][0]["results"]
    assert any("fixes" in result for result in results)
    assert any("cell" in result["properties"] for result in results)


def test_the_text_report_of_real_projects_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(QUICKSTART)
    assert main(["check", "--no-cache"]) == 1
    out, err = capsys.readouterr()
    assert err == "" and max(map(len, out.splitlines())) <= 80


def test_fix_shows_a_diff_and_apply_writes_it_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fix"]) == 1
    diff = capsys.readouterr().out
    assert diff.startswith("--- a/train.py\n+++ b/train.py\n") and (project / "train.py").read_text() == OLD_API
    assert main(["fix", "--apply"]) == 0
    fixed = (project / "train.py").read_text()
    assert fixed == 'from torch.amp import autocast\n\nwith autocast("cuda"):\n    pass\n'
    assert main(["fix", "--apply"]) == 0
    assert capsys.readouterr().out.endswith("Nothing to fix.\n") and (project / "train.py").read_text() == fixed


def test_a_fix_that_could_not_be_written_is_told_on_both_streams(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "train.py").chmod(0o444)
    assert main(["fix", "--apply"]) == 2
    out, err = capsys.readouterr()
    assert err == "mplint: error: train.py: it is read-only; nothing was changed\n"
    assert "Not fixed: train.py: it is read-only; nothing was changed\nNothing was fixed.\n" in out
    assert (project / "train.py").read_text() == OLD_API


def test_configuration_selects_and_ignores_by_file(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.mplint.per-file-ignores]\n"train.py" = ["deprecated-torch-amp"]\n')
    assert main(["check"]) == 0
    assert main(["check", "--isolated"]) == 1


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "mplint", "check", "-", "--output-format", "concise"]
    run = subprocess.run(command, input=OLD_API, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (1, "")
    assert run.stdout.startswith("<stdin>:1:")


def test_a_character_that_the_terminal_lacks_does_not_end_the_run(project: Path) -> None:
    (project / "train.py").write_text("from torch.cuda.amp import autocast; 名 = 1\n", encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    run = subprocess.run([sys.executable, "-m", "mplint", "check"], capture_output=True, text=True, check=False, env=environment)
    assert (run.returncode, run.stderr) == (1, "") and "autocast; ? = 1" in run.stdout


def test_nothing_is_imported_that_checking_does_not_need(project: Path) -> None:
    (project / "clean.py").write_text("import torch\n")
    program = "import sys; from mplint.cli.main import main; main(['check', 'clean.py']); print(*sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(run.stderr.split())
    unwanted = {
        "libcst",
        "torch",
        "tensorflow",
        "keras",
        "onnx",
        "pathspec",
        "tomllib",
        "difflib",
        "logging",
        "subprocess",
        "json",
        "tempfile",
    }
    assert not loaded & unwanted
