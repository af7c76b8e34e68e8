"""What a run says of itself while it lasts, and how it ends when it is broken off."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest

from mplint.cli.main import main
from mplint.config import Config
from mplint.engine import progress as progresses
from mplint.engine.job import Job
from mplint.engine.progress import ERASE, Progress, lasting
from mplint.engine.results import CheckResult
from mplint.engine.run import Part, check_paths
from mplint.engine.targets import TargetResolver

OLD = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads the processes of Linux")


class Terminal:
    """A terminal, and what was written to it."""

    def __init__(self) -> None:
        pty = pytest.importorskip("pty", reason="terminals are made by pty, which Windows lacks")
        self._master, slave = pty.openpty()
        os.set_blocking(self._master, False)
        self.stream: TextIO = os.fdopen(slave, "w", buffering=1)

    def read(self) -> str:
        found = b""
        while True:
            try:
                found += os.read(self._master, 1_000_000)
            except BlockingIOError:
                return found.decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A project that is worth several processes, and takes them a while."""
    folder = tmp_path / "project"
    folder.mkdir()
    for number in range(40):
        lines = "".join(f"half_{n} = [float(n) for n in range({n})]\n" for n in range(300))
        (folder / f"part{number}.py").write_text(OLD + "# nothing\n" * 3000 + lines)
    return folder


def test_counts_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Progress()
    monkeypatch.setattr(progresses.time, "monotonic", lambda: 100.0)
    told.begin("reading files", 4000)
    assert told.line(101.0) == "mplint: reading files: 0 of 4,000"
    told.step(1000)
    assert told.line(101.0) == "mplint: reading files: 1,000 of 4,000"  # too early to tell
    assert told.line(110.0) == "mplint: reading files: 1,000 of 4,000, 30 s left"
    assert told.told == "reading files, 1,000 of 4,000 done"
    told.step(3000)
    assert told.line(110.0) == "mplint: reading files: 4,000 of 4,000"
    told("running the programs")
    assert [told.line(100.0), told.line(107.0)] == ["mplint: running the programs …", "mplint: running the programs … 7 s"]


def test_large_steps_count_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Progress()
    monkeypatch.setattr(progresses.time, "monotonic", lambda: 0.0)
    told.begin("checking repositories", 10, work=1000)
    told.step(work=900)
    assert told.line(90.0) == "mplint: checking repositories: 1 of 10, 10 s left"


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (59.6, "60 s"), (130, "2 min"), (3600, "60 min"), (9000, "2.5 h")])
def test_lengths_of_time(seconds: float, words: str) -> None:
    assert lasting(seconds) == words


def test_a_terminal_sees_stages_with_counts_and_is_left_clean(terminal: Terminal, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"a{number}.py").write_text(OLD)
    with Progress(terminal.stream, quiet=0) as progress:
        found = check_paths([str(tmp_path)], Config(cache=False), progress=progress)
    assert len(found.findings) == 5
    shown = terminal.read()
    assert "mplint: looking for files" in shown and "mplint: reading files: 0 of 5" in shown and "mplint: running the programs" in shown
    assert shown.endswith(ERASE) and "\n" not in shown


TICKING = """
import signal, sys, time
from mplint.engine import progress

progress.TICK = 0.15
with progress.Progress(sys.stderr, quiet=0) as shown:
    shown("thinking")
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        pass
assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
"""


def test_a_stage_without_counts_is_drawn_again_by_itself(terminal: Terminal) -> None:
    subprocess.run([sys.executable, "-c", TICKING], stderr=terminal.stream, check=True, timeout=60)
    assert terminal.read().count("thinking …") >= 2


def test_a_short_run_shows_nothing(terminal: Terminal) -> None:
    with Progress(terminal.stream) as progress:
        progress.begin("reading files", 3)
        progress.step(3)
    assert terminal.read() == ""


def test_nothing_is_shown_where_there_is_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text(OLD)
    main(["check", str(tmp_path), "--isolated", "--no-cache"])
    main(["fix", str(tmp_path), "--isolated", "--no-cache", "--apply"])
    assert ERASE not in capsys.readouterr().err


def test_another_process_shows_nothing(terminal: Terminal) -> None:
    with Progress(terminal.stream, quiet=0) as progress:
        other = pickle.loads(pickle.dumps(progress))
        other.begin("reading files", 3)
    assert terminal.read() == ""


def begun(folder: Path, cache: Path, *options: str) -> subprocess.Popen[str]:
    """A check in a group of processes of its own, with two workers that are at work."""
    run = subprocess.Popen(
        [sys.executable, "-m", "mplint", "check", ".", "--isolated", "--jobs", "2", "--output-format", "concise", *options],
        cwd=folder,
        env={**os.environ, "MPLINT_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    patience = time.monotonic() + 60
    while len(children(run.pid)) < 2:
        assert run.poll() is None and time.monotonic() < patience
        time.sleep(0.01)
    return run


def children(parent: int) -> list[str]:
    """The processes that a process has begun."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "stat").read_text().rpartition(")")[2].split()[1] == str(parent):
                found.append(folder.name)
    return found


def is_empty(group: int) -> bool:
    """Whether every process of a group ends."""
    patience = time.monotonic() + 20
    while time.monotonic() < patience:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    os.killpg(group, signal.SIGKILL)
    return False


@LINUX
def test_an_interruption_is_told_and_leaves_nothing_behind(large: Path, tmp_path: Path) -> None:
    run = begun(large, tmp_path / "cache")
    os.killpg(run.pid, signal.SIGINT)  # as Ctrl-C of a terminal: to all of them
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (130, "")
    assert err.startswith("mplint: interrupted while reading files, ") and err.endswith(" of 40 done; nothing is reported\n")
    assert err.count("\n") == 1 and is_empty(run.pid)
    again = begun(large, tmp_path / "cache")
    out, err = again.communicate(timeout=120)
    assert (again.returncode, out.count("MP101"), err) == (1, 40, "")


@LINUX
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_workers_end_with_the_process_that_began_them(large: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    run = begun(large, tmp_path / "cache")
    os.kill(run.pid, number)
    _, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (code, "") and is_empty(run.pid)


def test_fixing_that_is_broken_off_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mplint import replace

    written: list[str] = []

    def replace_file(path: str, old: bytes, new: bytes) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(path)

    for name in "abc":
        (tmp_path / f"{name}.py").write_text(OLD)
    monkeypatch.setattr(replace, "replace_file", replace_file)
    assert main(["fix", str(tmp_path), "--apply", "--isolated", "--no-cache"]) == 130
    told = "mplint: interrupted while writing files, 1 of 3 done; every file is as it was or fixed as a whole\n"
    assert capsys.readouterr().err == told


def test_repositories_that_were_done_are_reported_to_people_and_not_to_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        (tmp_path / name / ".git").mkdir(parents=True)
        (tmp_path / name / "a.py").write_text(OLD)
    check = Part.check

    def broken_off(part: Part, job: Job, resolver: TargetResolver) -> CheckResult:
        if part.repository.endswith("two"):
            raise KeyboardInterrupt
        return check(part, job, resolver)

    monkeypatch.setattr(Part, "check", broken_off)
    monkeypatch.chdir(tmp_path)
    told = "mplint: interrupted while checking repositories, 1 of 2 done; "
    assert main(["check", ".", "--isolated", "--no-cache", "--output-format", "concise"]) == 130
    out, err = capsys.readouterr()
    assert out.startswith("one/a.py:2:10: MP101") and out.count("\n") == 1 and err == told + "what was found there stands above\n"
    assert main(["check", ".", "--isolated", "--no-cache", "--output-format", "json"]) == 130
    assert capsys.readouterr() == ("", told + "nothing is reported\n")
