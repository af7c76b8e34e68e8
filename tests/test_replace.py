"""What `fix --apply` writes where files are linked, disks are full and folders are closed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mplint.replace import WriteError, replace_file

OLD = "import torch\n" + "# a comment\n" * 3000 + "scaler = torch.cuda.amp.GradScaler()\n"
NEW = OLD.replace("torch.cuda.amp.GradScaler()", 'torch.amp.GradScaler("cuda")')
SMALL_FILES = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "
FIX = "from mplint.cli.main import main; sys.exit(main(['fix', '--apply', '--isolated', '--no-cache', *sys.argv[1:]]))"


def fixed(folder: Path, *paths: str, before: str = "import sys; ") -> subprocess.CompletedProcess[str]:
    """`mplint fix --apply` in a process of its own."""
    return subprocess.run([sys.executable, "-c", before + FIX, *paths], cwd=folder, capture_output=True, text=True)


def test_a_file_with_two_names_keeps_them(tmp_path: Path) -> None:
    one, other = tmp_path / "a.py", tmp_path / "elsewhere.txt"
    one.write_text(OLD)
    one.chmod(0o640)
    os.link(one, other)
    assert fixed(tmp_path, "a.py").returncode == 0
    assert one.read_text() == other.read_text() == NEW
    assert one.stat().st_ino == other.stat().st_ino and one.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "elsewhere.txt"]


def test_a_shorter_text_leaves_no_rest_in_a_file_with_two_names(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"long text\n")
    os.link(tmp_path / "a.py", tmp_path / "b.py")
    replace_file(str(tmp_path / "a.py"), b"long text\n", b"short\n")
    assert (tmp_path / "b.py").read_bytes() == b"short\n"


def test_a_link_to_a_file_elsewhere_is_written_through_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.py").write_text(OLD)
    os.symlink("real/a.py", tmp_path / "b.py")
    assert fixed(tmp_path, "b.py").returncode == 0
    assert (tmp_path / "b.py").is_symlink() and (tmp_path / "real" / "a.py").read_text() == NEW


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
@pytest.mark.parametrize("names", [["a.py"], ["a.py", "linked.txt"]])
def test_where_nothing_more_can_be_written_the_old_file_stays(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "a.py").write_text(OLD)
    for name in names[1:]:
        os.link(tmp_path / "a.py", tmp_path / name)
    done = fixed(tmp_path, "a.py", before=SMALL_FILES)
    assert done.returncode == 2
    assert "a.py: file too large; nothing was changed" in done.stdout + done.stderr
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, OLD)


@pytest.fixture
def tiny_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if mount is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root on Linux only")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("linked", [False, True])
def test_on_a_full_disk_the_old_files_stay(tiny_disk: Path, linked: bool) -> None:
    (tiny_disk / "a.py").write_text(OLD)
    if linked:
        os.link(tiny_disk / "a.py", tiny_disk / "b.txt")
    done = fixed(tiny_disk, "a.py")
    assert done.returncode == 2 and "no space left on device; nothing was changed" in done.stdout + done.stderr
    assert {path.read_text() for path in tiny_disk.iterdir()} == {OLD}


def test_a_file_that_is_half_written_is_named_with_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_bytes(b"old")
    os.link(tmp_path / "a.py", tmp_path / "b.py")
    synced = os.fsync
    calls = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError) as error:
        replace_file(str(tmp_path / "a.py"), b"old", b"new content")
    (copy,) = (path for path in tmp_path.iterdir() if path.name.startswith(".mplint-"))
    assert copy.read_bytes() == b"new content"
    assert str(error.value) == f"no space left on device; it is half written, and the new content lies in {copy}"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes everywhere")
def test_in_a_read_only_folder_nothing_is_changed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(OLD)
    tmp_path.chmod(0o555)
    done = fixed(tmp_path, "a.py")
    tmp_path.chmod(0o755)
    assert done.returncode == 2 and "permission denied; nothing was changed" in done.stdout + done.stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == [OLD]


def test_in_a_folder_that_takes_no_files_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    (tmp_path / "a.py").write_bytes(b"old")

    def closed(**_: object) -> tuple[int, str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", closed)
    with pytest.raises(WriteError, match="permission denied; nothing was changed"):
        replace_file(str(tmp_path / "a.py"), b"old", b"new")
    assert (tmp_path / "a.py").read_bytes() == b"old"
