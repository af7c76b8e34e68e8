"""Discovery: what a folder, a glob or a name on the command line makes mplint read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mplint
from mplint.config import Config
from mplint.engine.discovery import discover, kept
from mplint.engine.scopes import Scopes
from mplint.errors import UsageError


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository that is the current folder."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(*paths: str, text: str = "") -> None:
    """Make files, with their folders."""
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


def test_a_folder_gives_its_python_files_and_notebooks_sorted() -> None:
    write("b.py", "a.pyi", "pkg/c.ipynb", "pkg/data.json", "pkg/README", ".github/x.py")
    assert discover(["."]) == [".github/x.py", "a.pyi", "b.py", "pkg/c.ipynb"]
    assert discover(["pkg/"]) == discover(["./pkg"]) == ["pkg/c.ipynb"]


def test_an_absolute_folder_gives_absolute_files(project: Path) -> None:
    write("pkg/a.py")
    assert discover([str(project)]) == [f"{project}/pkg/a.py"]


def test_a_path_above_keeps_its_dots(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("pkg/a.py", "sub/b.py")
    monkeypatch.chdir(project / "sub")
    assert discover(["../pkg"]) == ["../pkg/a.py"]


def test_a_file_is_read_once_however_often_it_is_named(project: Path) -> None:
    write("a.py")
    assert discover([".", "a.py", "./a.py", str(project / "a.py")]) == ["a.py"]


def test_a_named_file_is_read_whatever_its_suffix_or_folder() -> None:
    write("script", "build/a.py", ".venv/b.py", "x.py")
    write(".gitignore", text="x.py\n")
    assert discover(["script", "build/a.py", ".venv/b.py", "x.py"], exclude=["*"]) == [".venv/b.py", "build/a.py", "script", "x.py"]


@pytest.mark.parametrize(
    "folder",
    [
        *(
            "build",
            "dist",
            ".venv",
            "node_modules",
            "a.egg-info",
            ".ipynb_checkpoints",
            "lib/python3.11/site-packages",
            ".tox",
            "__pycache__",
        ),
        *("unsloth_compiled_cache", "wandb/run-20250102_030405-ab12cd3e/files", "wandb/offline-run-20250102_030405-ab12cd3e", "out/.hydra"),
    ],
)
def test_folders_that_are_not_source_are_skipped(folder: str) -> None:
    write(f"{folder}/a.py", f"pkg/{folder}/b.py", "pkg/c.py")
    assert discover(["."]) == ["pkg/c.py"]


def test_a_virtual_environment_is_known_by_its_marks() -> None:
    write("myenv/pyvenv.cfg", "myenv/a.py", "conda/conda-meta/x.json", "conda/b.py", "c.py")
    assert discover(["."]) == ["c.py"]


def test_a_named_folder_is_walked_even_if_it_is_skipped_or_ignored_elsewhere() -> None:
    write("build/a.py", "out/b.py")
    write(".gitignore", text="out/\n")
    assert discover(["build", "out"]) == ["build/a.py", "out/b.py"]
    assert discover(["."]) == []


def test_gitignore_files_are_respected_nested_and_from_above(project: Path) -> None:
    write("a.py", "gen/b.py", "pkg/c.py", "pkg/keep.py", "pkg/gen.py", "pkg/deep/secret.py", "pkg/deep/d.py")
    write(".gitignore", text="/gen/\nkeep.py\nsecret*\n")
    write("pkg/.gitignore", text="!keep.py\ngen.py\n")
    assert discover(["."]) == ["a.py", "pkg/c.py", "pkg/deep/d.py", "pkg/keep.py"]
    assert discover(["pkg"]) == ["pkg/c.py", "pkg/deep/d.py", "pkg/keep.py"]
    assert "pkg/gen.py" in discover(["."], respect_gitignore=False)


def test_gitignore_above_the_repository_is_not_ours(project: Path) -> None:
    write("sub/.git/HEAD", "sub/a.py")
    write(".gitignore", text="*.py\n")
    assert discover(["sub"]) == ["sub/a.py"]


def test_a_broken_line_of_gitignore_does_no_harm() -> None:
    write("a.py", "b.py")
    write(".gitignore", text="!\n[\n///\nb.py\n")
    assert discover(["."]) == ["a.py"]


def test_exclude_patterns_are_relative_to_the_root(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.py", "tests/b.py", "pkg/tests/c.py", "pkg/d_test.py", "third/e.py")
    assert discover(["."], exclude=["tests", "third/"]) == ["a.py", "pkg/d_test.py"]
    assert discover(["."], exclude=["pkg/tests", "*_test.py", "/third"]) == ["a.py", "tests/b.py"]
    monkeypatch.chdir(project / "pkg")
    assert discover(["."], exclude=["pkg/tests"], root=str(project)) == ["d_test.py"]


def test_a_named_file_is_left_out_only_where_that_is_asked() -> None:
    write("a.py", "pkg/d_test.py")
    named = ["a.py", "pkg/tests/c.py", "third/x.py"]
    assert discover(["a.py", "pkg/d_test.py"], exclude=["pkg"]) == ["a.py", "pkg/d_test.py"]
    assert discover(["a.py", "pkg/d_test.py"], exclude=["pkg"], force_exclude=True) == ["a.py"]
    assert kept(named, Scopes(Config(exclude=("tests", "/third")))) == ["a.py"]


def test_globs_match_like_a_shell() -> None:
    write("src/a.py", "src/x/b.py", "src/x/y/c.py", "src/x/n.ipynb", "src/build/d.py", "e.py")
    assert discover(["src/**/*.py"]) == ["src/a.py", "src/x/b.py", "src/x/y/c.py"]
    assert discover(["src/*.py"]) == ["src/a.py"]
    assert discover(["*.py"]) == ["e.py"]
    assert discover(["**/*.ipynb"]) == ["src/x/n.ipynb"]
    assert discover(["src/?/[bc].py"]) == ["src/x/b.py"]
    assert discover([os.path.abspath("src") + "/x/*.py"]) == [os.path.abspath("src/x/b.py")]


@pytest.mark.parametrize("path", ["nowhere", "nowhere/*.py", "src/*.py", "a[b"])
def test_a_path_that_leads_nowhere_is_misuse(path: str) -> None:
    with pytest.raises(UsageError, match=r"no such file or folder|no Python file") as caught:
        discover([path])
    assert str(caught.value).startswith(path)


def test_a_file_whose_name_looks_like_a_glob_is_that_file() -> None:
    write("a[b].py", "ab.py")
    assert discover(["a[b].py"]) == ["a[b].py"]


def test_links_cannot_loop_and_linked_files_are_read() -> None:
    write("pkg/a.py", "other.txt")
    os.symlink("..", "pkg/up")
    os.symlink("a.py", "pkg/b.py")
    os.symlink("missing.py", "pkg/c.py")
    assert discover(["."]) == ["pkg/a.py", "pkg/b.py"]


def test_a_folder_that_cannot_be_looked_into_is_an_unreadable_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "locked").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert discover([str(tmp_path)]) == [f"{tmp_path}/a.py", f"{tmp_path}/locked"]
    found = mplint.check([str(tmp_path)]).findings
    assert [(f.code, f.location.path) for f in found] == [("MP001", f"{tmp_path}/locked")]


def test_a_range_that_ends_before_it_begins_leaves_out_nothing_in_a_gitignore_and_is_misuse_in_exclude(project: Path) -> None:
    write("a.py", "b.py")
    (project / ".gitignore").write_text("[z-a].py\nb.py\n")
    assert discover(["."]) == ["a.py"]
    with pytest.raises(UsageError, match=r'"\[z-a\]" is no pattern for paths'):
        discover(["."], exclude=["[z-a]"])
