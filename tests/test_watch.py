"""`mplint watch` checks again when something changes, and only then."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mplint.cli import watch
from mplint.cli.main import main

OLD = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / ".cache"))
    (tmp_path / "a.py").write_text(OLD)
    return tmp_path


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Runs `mplint watch` with things that happen while it waits, and gives what it said after each."""

    def watched(*events: Callable[[], object], arguments: tuple[str, ...] = ()) -> list[str]:
        said: list[str] = []
        coming: Iterator[Callable[[], object]] = iter(events)

        def waits(seconds: float) -> None:
            assert seconds >= watch.PAUSE
            read = capsys.readouterr()
            said.append(read.out + read.err)
            happens = next(coming, None)
            if happens is None:
                raise KeyboardInterrupt
            happens()

        monkeypatch.setattr(watch.time, "sleep", waits)
        assert main(["watch", *arguments]) == 130
        return said

    return watched


def mend() -> None:
    Path("a.py").write_text("import torch\n")
    os.utime("a.py", (1, 1))


def test_a_change_a_new_file_and_a_new_configuration_are_seen(turns: Callable[..., list[str]]) -> None:
    first, quiet, mended, added, configured = turns(
        lambda: None,
        mend,
        lambda: Path("b.py").write_text(OLD),
        lambda: Path("mplint.toml").write_text('ignore = ["MP101"]'),
    )
    assert "MP101" in first and "waiting for a change" in first
    assert quiet == ""
    assert "No mixed-precision mistakes found in 1 file." in mended
    assert "b.py:2" in added
    assert "No mixed-precision mistakes found in 2 files." in configured


def test_a_mistake_in_the_configuration_is_told_and_waited_for(turns: Callable[..., list[str]]) -> None:
    _, wrong, right = turns(lambda: Path("mplint.toml").write_text("ignore = 3"), lambda: Path("mplint.toml").write_text(""))
    assert "mplint: error: mplint.toml: ignore must be a list of strings" in wrong
    assert "MP101" in right


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--fix",), "--fix"),
        (("-",), "standard input"),
        (("--output-format", "json"), "--output-format"),
        (("--show-files",), "--show-files"),
    ],
)
def test_what_runs_once_is_misuse(arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *arguments]) == 2
    assert named in capsys.readouterr().err
