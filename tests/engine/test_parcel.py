"""Repositories that travel: what another machine makes of a parcel is what this one makes of the repository."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from pair import SCALER, training

from mplint.config import load_config
from mplint.engine.far import check_parcel
from mplint.engine.job import Job
from mplint.engine.moved import moved
from mplint.engine.parcel import Answer, Unsendable, opened, pack
from mplint.engine.run import Part, check_paths, files_of
from mplint.findings import Confidence, Finding, Location, Severity


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose findings hang on much that is no program of its own."""
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / "cache"))
    root = tmp_path / "work" / "repository"
    for folder in (".git", "pieces", "old", "data", "venv/lib"):
        (root / folder).mkdir(parents=True)
    (root / "pieces" / "scaling.py").write_text(SCALER)
    (root / "train.py").write_text(training("pieces.scaling"))
    (root / "again.py").symlink_to("train.py")
    (root / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\n" + SCALER.encode() + b"# \xe9\n")
    (root / "broken.py").write_bytes(b"import torch\nif :\n\0")
    (root / "requirements.txt").write_text("torch>=2.4\n")
    (root / "old" / "requirements.txt").write_text("torch==1.13\n")
    (root / "old" / "before.py").write_text(SCALER)  # nothing else there yet
    (root / "data" / "mplint.toml").write_text('ignore = ["MP101"]\n')
    (root / "data" / "known.py").write_text(SCALER)
    (root / "data" / "image.raw").write_bytes(b"\0" * 100_000)
    (root / "venv" / "pyvenv.cfg").touch()
    (root / "venv" / "lib" / "secret.py").write_text(SCALER)
    monkeypatch.chdir(tmp_path / "work")
    return root


def part_of(repository: Path, *paths: str) -> tuple[Part, Job]:
    job = Job.of(load_config(paths[0])._replace(cache=False), paths)
    return Part(str(repository), tuple(files_of(paths, job)), paths), job


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
def test_a_parcel_gives_what_the_repository_gives(repository: Path, absolute: bool) -> None:
    path = str(repository) if absolute else "repository"
    part, job = part_of(repository, path)
    here = check_paths([path], job.config)
    answer: Answer = pickle.loads(check_parcel(pack(part, job)))
    assert answer.result == here and repr(answer.result) == repr(here)
    found = {(f.code, f.location.path.removeprefix(f"{repository}/").removeprefix("repository/")) for f in here.findings}
    assert {("MP304", "train.py"), ("MP101", "pieces/scaling.py"), ("MP101", "latin.py"), ("MP001", "broken.py")} <= found
    assert not {path for _, path in found} & {"old/before.py", "data/known.py"}
    assert all(os.path.exists(other) or "mplint-" not in other for other in answer.others)


def test_only_what_a_check_may_read_is_sent_and_alike_once(repository: Path) -> None:
    parcel = opened(pack(*part_of(repository, "repository")))
    sent = {os.path.relpath(path, repository): digest for path, digest, _ in parcel.files}
    assert sent["data/image.raw"] == b"" and sent["requirements.txt"] and "venv/lib/secret.py" not in sent
    assert sent["pieces/scaling.py"] == sent["data/known.py"] and len(parcel.contents) == len({d for d in sent.values() if d})


def test_what_another_machine_would_see_otherwise_is_not_sent(repository: Path, tmp_path: Path) -> None:
    part, job = part_of(repository, "repository")
    with pytest.raises(Unsendable, match="no repository"):
        pack(part._replace(repository=""), job)
    (tmp_path / "beside.py").write_text(SCALER)
    (repository / "out.py").symlink_to("../../beside.py")
    with pytest.raises(Unsendable, match="points out of it"):
        pack(part, job)
    (repository / "out.py").unlink()
    if hasattr(os, "mkfifo"):
        os.mkfifo(repository / "pipe")
        with pytest.raises(Unsendable, match="no regular file"):
            pack(part, job)


def test_another_mplint_is_told(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mplint.engine.parcel.identity", lambda: "0.0 other")
    answer: Answer = pickle.loads(check_parcel(pack(*part_of(repository, "repository"))))
    assert answer.result is None and "0.0 other here" in answer.another


def test_a_parcel_that_cannot_be_checked_says_why() -> None:
    with pytest.raises(RuntimeError, match="checking a repository failed: zlib"):
        check_parcel(b"nothing")


def test_paths_come_back_as_they_were() -> None:
    finding = Finding("MP304", "clip", Severity.ERROR, Confidence.HIGH, "in /top/a.py", Location("/top/a.py", 1, 1, 1, 2))
    back = moved((finding, {"/top/b": [1]}), "/top")
    assert back == (finding._replace(message="in /a.py", location=Location("/a.py", 1, 1, 1, 2)), {"/b": [1]})
    assert back[0].severity is Severity.ERROR  # type: ignore[index]
