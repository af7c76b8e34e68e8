"""A folder with a configuration of its own is governed by it, from wherever mplint is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.cli.main import main

OLD = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"
BF16 = """\
import torch

def train(model, loader, optimizer):
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        loss.backward()
        optimizer.step()
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / ".cache"))
    write("pyproject.toml", '[tool.mplint]\nignore = ["MP101"]\n')
    write("a.py", OLD)
    write("inner/b.py", OLD)
    return tmp_path


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


@pytest.fixture
def found(capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def run(*arguments: str) -> list[str]:
        code = main(["check", *arguments, "--output-format", "concise"])
        said = capsys.readouterr()
        assert code in (0, 1), said.err
        return [" ".join((line.split(":")[0], line.split()[1][:5])) for line in said.out.splitlines()]

    return run


def test_the_nearest_configuration_holds_for_a_file_whichever_path_is_named(found) -> None:  # type: ignore[no-untyped-def]
    assert found(".") == []
    write("inner/mplint.toml", "")
    assert found(".") == found("inner") == found("inner/b.py") == found("a.py", "inner/b.py") == ["inner/b.py MP101"]
    write("inner/mplint.toml", 'extend = "../pyproject.toml"')
    assert found(".") == found("inner") == []


def test_options_hold_in_every_folder_and_their_patterns_count_from_the_run(found) -> None:  # type: ignore[no-untyped-def]
    write("inner/mplint.toml", 'severity = {MP101 = "error"}')
    assert found(".") == ["inner/b.py MP101"]
    assert found(".", "--ignore", "MP1") == []
    assert found(".", "--select", "MP101") == ["a.py MP101", "inner/b.py MP101"]
    assert found(".", "--per-file-ignores", "inner/*:MP101") == []
    assert found(".", "--isolated") == ["a.py MP101", "inner/b.py MP101"]
    assert found(".", "--config", "pyproject.toml") == []


def test_what_a_folder_excludes_is_left_out_besides_what_the_run_excludes(found) -> None:  # type: ignore[no-untyped-def]
    write("inner/mplint.toml", 'exclude = ["/old"]')
    write("inner/old/c.py", OLD)
    write("inner/new/old/d.py", OLD)
    assert found(".") == ["inner/b.py MP101", "inner/new/old/d.py MP101"]
    assert found("inner/old/c.py") == ["inner/old/c.py MP101"]
    assert found("inner/old/c.py", "--force-exclude") == []
    assert found(".", "--exclude", "new") == ["inner/b.py MP101"]


def test_hardware_and_confidence_are_those_of_the_folder(found) -> None:  # type: ignore[no-untyped-def]
    write("t4/train.py", BF16)
    write("a100/train.py", BF16)
    assert found(".") == []
    write("t4/mplint.toml", 'target = "Tesla T4"')
    assert found(".") == ["t4/train.py MP503"]
    assert found(".", "--target", "Tesla V100") == ["a100/train.py MP503", "t4/train.py MP503"]
    write("t4/mplint.toml", 'target = "A100"')
    assert found(".") == []


def test_severities_and_per_file_ignores_are_those_of_the_folder(found, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    write("inner/mplint.toml", 'severity = {MP101 = "error"}\nper-file-ignores = {"c.py" = ["MP101"]}')
    write("inner/c.py", OLD)
    assert found(".") == ["inner/b.py MP101"]
    main(["check", ".", "--output-format", "concise"])
    assert "MP101[error]" in capsys.readouterr().out


def test_plugins_of_a_folder_must_be_those_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    write("inner/mplint.toml", 'plugins = ["acme"]')
    assert main(["check", "."]) == 2
    assert "inner/mplint.toml: plugins: acme is not among those of pyproject.toml" in capsys.readouterr().err


def test_a_wrong_setting_in_a_folder_is_told_with_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    write("inner/mplint.toml", 'selct = ["MP3"]')
    assert main(["check", "."]) == 2
    assert capsys.readouterr().err == 'mplint: error: inner/mplint.toml: unknown key "selct"; did you mean "select"?\n'


def test_verbose_names_every_configuration(found, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    write("inner/mplint.toml", 'ignore = ["MP101"]')
    assert main(["check", ".", "-v", "--jobs", "1"]) == 0
    said = capsys.readouterr().err
    assert "mplint: configuration: pyproject.toml, inner/mplint.toml\n" in said
    assert "mplint: files: 2, read by one process; cache: " in said
