"""Checks on a dask cluster give what a check here gives, byte for byte, whatever becomes of the cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from clusters import NEEDS, Dask, cluster, first_at_work
from pair import SCALER, ended, training

from mplint.cli.main import main

CHECKS = "mplint.engine.far"  # the module that a worker begins for a repository


@pytest.fixture
def repositories(tmp_path: Path) -> Path:
    """Five repositories, and a file that lies in none."""
    folder = tmp_path / "work"
    for number in range(5):
        root = folder / f"repository{number}"
        (root / ".git").mkdir(parents=True)
        (root / "part.py").write_text(SCALER)
        (root / "train.py").write_text(training("part"))
        (root / "weights.onnx").write_bytes(b"\0no model")
    (folder / "alone.py").write_text(SCALER)
    return folder


@pytest.fixture
def dask() -> Iterator[Dask]:
    pytest.importorskip("distributed", reason=NEEDS)
    with cluster() as begun:
        yield begun


def begun_check(folder: Path, *options: str, session: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mplint", "check", ".", "--isolated", "--no-cache", "--output-format", "json", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=session,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )


ALONE = "mplint: note: what lies in no repository is checked here: it lies in no repository, so that what is around it counts\n"


@pytest.mark.cluster
def test_a_cluster_says_what_this_machine_says(repositories: Path) -> None:
    pytest.importorskip("distributed", reason=NEEDS)
    here = ended(begun_check(repositories, "--jobs", "1"))
    assert here[0] == 2 and here[1].count('"MP304"') == 5 and here[2] == ""
    with socket.socket() as taken:
        with suppress(OSError):  # whoever holds it: the port of dashboards is not free
            taken.bind(("127.0.0.1", 8787))
            taken.listen()
        assert ended(begun_check(repositories, "--executor", "dask://local?workers=2")) == (2, here[1], ALONE)


@pytest.mark.cluster
@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of Linux")
def test_nothing_is_lost_and_nothing_twice_where_a_worker_or_the_scheduler_is_killed(repositories: Path, dask: Dask) -> None:
    here = ended(begun_check(repositories, "--jobs", "1"))
    run = begun_check(repositories, "--executor", dask.address)
    os.kill(first_at_work(run, CHECKS, dask.workers), signal.SIGKILL)
    assert ended(run) == (2, here[1], ALONE)
    run = begun_check(repositories, "--executor", dask.address)
    first_at_work(run, CHECKS, None, dask.scheduler.pid)
    os.killpg(dask.scheduler.pid, signal.SIGKILL)
    code, out, err = ended(run)
    assert (code, out) == here[:2] and "is checked here" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--executor", "ray://host:1"], 'error: --executor: "ray://host:1" is not dask://HOST:PORT or dask://local?workers=N'),
        (["--executor", "dask://host"], 'error: --executor: "dask://host" names no port, such as dask://host:8786'),
        (["--executor", "dask://local?workers=0"], "is not dask://local?workers=N, with N of 1 or more"),
        (["--executor", "dask://local", "--target", "auto"], "`auto` would ask the machines of the workers"),
        (["--executor", "dask://local", "--baseline", "b.json"], "--executor goes without a baseline"),
        (["--executor", "dask://local", "--staged"], "--executor goes with files and folders"),
    ],
)
def test_what_an_executor_does_not_go_with(
    options: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text(SCALER)
    assert main(["check", ".", "--isolated", *options]) == 2
    assert told in capsys.readouterr().err


def test_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["check", str(tmp_path), "--isolated", "--executor", "dask://local"]) == 2
    assert 'pip install "mplint[dask]"' in capsys.readouterr().err


def test_nobody_who_answers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed", reason=NEEDS)
    monkeypatch.setattr("mplint.engine.cluster.CONNECT", 0.5)
    assert main(["check", str(tmp_path), "--isolated", "--executor", "dask://127.0.0.1:1"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("mplint: error: --executor dask://127.0.0.1:1: ") and err.count("\n") == 1


@pytest.mark.cluster
@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of Linux")
def test_an_interruption_ends_the_cluster_as_well(repositories: Path) -> None:
    pytest.importorskip("distributed", reason=NEEDS)
    run = begun_check(repositories, "--executor", "dask://local?workers=2", session=True)
    first_at_work(run, CHECKS, None, run.pid)
    os.killpg(run.pid, signal.SIGINT)
    code, out, err = ended(run)
    assert (code, out) == (130, "") and err.startswith("mplint: interrupted while checking repositories, ") and err.count("\n") == 1
    patience = time.monotonic() + 30
    while time.monotonic() < patience:
        try:
            os.killpg(run.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.killpg(run.pid, signal.SIGKILL)
    pytest.fail("a process is left")
