"""Lowered programs are found again by the contents of their files, by every run that shares the cache."""

from __future__ import annotations

import ast
import sqlite3
import zlib
from pathlib import Path

import pytest

from mplint.api import check
from mplint.config import Config
from mplint.engine.lowered import LoweredPrograms
from mplint.engine.results import digest_of
from mplint.program.lower import lower

TRAIN = """\
import torch
from parts import finish

def train(net, batches, adam):
    scaler = torch.amp.GradScaler("cuda")
    for x in batches:
        with torch.autocast("cuda"):
            cost = net(x).mean()
        scaler.scale(cost).backward()
        finish(scaler, adam, net)
"""
PARTS = """\
from sizes import LIMIT
from torch.nn.utils import clip_grad_norm_

def finish(scaler, adam, net):
    clip_grad_norm_(net.parameters(), LIMIT)
    scaler.step(adam)
    scaler.update()
"""
SIZES = "LIMIT = 1.0\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in (("train.py", TRAIN), ("parts.py", PARTS), ("sizes.py", SIZES)):
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was lowered for the interpreter, which the check of a file had not lowered itself."""
    found: list[str] = []

    def noted(tree: ast.Module) -> object:
        found.append(ast.unparse(tree))
        return lower(tree)

    monkeypatch.setattr("mplint.engine.tracing.lower", noted)
    return found


def places() -> list[tuple[str, str, int | None]]:
    return [(f.code, f.location.path, f.location.line) for f in check(["."], Config(isolated=True)).findings]


def test_an_edit_leaves_the_lowered_forms_of_other_files(project: Path, made: list[str]) -> None:
    assert ("MP304", "parts.py", 5) in places()
    made.clear()
    (project / "train.py").write_text("import os\n" + TRAIN)
    assert ("MP304", "parts.py", 5) in places()
    assert made == []
    (project / "parts.py").write_text("\n" + PARTS)
    assert ("MP304", "parts.py", 6) in places()
    assert made == []


def test_another_project_with_the_same_files_shares_them(
    project: Path, made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = places()
    made.clear()
    (tmp_path / "copy").mkdir()
    for path in project.iterdir():
        (tmp_path / "copy" / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path / "copy")
    assert places() == found
    assert made == []


@pytest.mark.parametrize("left", [b"", b"no database", b"SQLite format 3\0" + b"\1" * 4080])
def test_a_broken_database_is_made_anew(project: Path, made: list[str], tmp_path: Path, left: bytes) -> None:
    found = places()
    (tmp_path / "cache" / "programs.sqlite").write_bytes(left)
    (project / "train.py").write_text(TRAIN + "\n")
    made.clear()
    assert places() == found
    assert made != []
    (project / "train.py").write_text(TRAIN + "\n\n")
    made.clear()
    assert places() == found
    assert made == []


def test_a_damaged_program_is_lowered_again(project: Path, made: list[str], tmp_path: Path) -> None:
    found = places()
    with sqlite3.connect(tmp_path / "cache" / "programs.sqlite") as database:
        database.execute("UPDATE lowered SET program = substr(program, 1, 20) || x'00' || substr(program, 22)")
    database.close()
    (project / "train.py").write_text(TRAIN + "\n")
    made.clear()
    assert places() == found
    assert made != []


def test_a_database_that_somebody_writes_to_is_no_error(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mplint.engine.lowered.PATIENCE", 0.01)
    found = places()
    other = sqlite3.connect(tmp_path / "cache" / "programs.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    (project / "train.py").write_text(TRAIN + "\n")
    assert places() == found
    other.execute("COMMIT")
    assert other.execute("SELECT count(*) FROM lowered").fetchone()[0] >= 3
    other.close()


def test_the_oldest_half_is_forgotten_where_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path))
    keys = [digest_of(bytes([number])) for number in range(8)]
    for number, key in enumerate(keys):
        programs = LoweredPrograms(())
        programs._today = number
        programs.add(key, ("module", (), frozenset({str(number)})))
        programs.write()
    monkeypatch.setattr("mplint.engine.lowered.MAX_BYTES", 0)
    programs = LoweredPrograms(())
    programs.add(digest_of(b"more"), ("module", (), frozenset()))
    programs.write()
    programs = LoweredPrograms(())
    assert [key for key in keys if programs.get(key) is not None] == keys[4:]
    assert programs.get(keys[5]) == ("module", (), frozenset({"5"}))


def test_the_same_bytes_in_a_notebook_are_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path))
    programs = LoweredPrograms(())
    assert programs.key("a.py", b"1") == programs.key("b/c.py", b"1") != programs.key("a.ipynb", b"1")


def test_what_is_kept_has_a_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path))
    programs = LoweredPrograms(())
    program = lower(ast.parse("x = [1, 'two', 3.0, b'4', ...]"))
    programs.add(b"key", program)
    programs.write()
    with sqlite3.connect(tmp_path / "programs.sqlite") as database:
        (held,) = database.execute("SELECT program FROM lowered").fetchone()
        whole = bytearray(held)
        whole[-1] ^= 1
        assert LoweredPrograms(()).get(b"key") == program
        database.execute("UPDATE lowered SET program = ?", (bytes(whole),))
    database.close()
    with pytest.raises(zlib.error):
        zlib.decompress(whole)
    assert LoweredPrograms(()).get(b"key") is None
