"""Files that a command writes: as a whole, or as they were."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mplint.cli.output import write_text
from mplint.errors import UsageError

ROOT = Path(__file__).parent.parent


@contextmanager
def little_room(size: int) -> Iterator[None]:
    """No file grows beyond a size, as on a disk that is full."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_there_is_no_room_a_file_stays_and_none_is_begun(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")
    with little_room(100):
        for path in (old, tmp_path / "new.json"):
            with pytest.raises(UsageError, match="can't be written"):
                write_text(str(path), "new" * 1000)
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]
    assert old.read_text() == "old"


def test_a_file_keeps_its_mode_and_links(tmp_path: Path) -> None:
    old, link, other = tmp_path / "old", tmp_path / "link", tmp_path / "other"
    old.write_text("old")
    old.chmod(0o640)
    link.symlink_to("old")
    write_text(str(link), "new\n")
    assert (old.read_bytes(), stat.S_IMODE(old.stat().st_mode), link.is_symlink()) == (b"new\n", 0o640, True)
    other.hardlink_to(old)
    write_text(str(old), "newer")
    assert other.read_text() == "newer"


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="no /dev/stdout here")
def test_standard_output_can_be_named(tmp_path: Path) -> None:
    program = "from mplint.cli.output import write_text; write_text('/dev/stdout', 'new'); print('more')"
    piped = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT, check=True)
    assert piped.stdout == b"newmore\n"
    with open(tmp_path / "log", "a+b") as log:
        subprocess.run([sys.executable, "-c", program], stdout=log, cwd=ROOT, check=True)
    assert b"more" in (tmp_path / "log").read_bytes()
