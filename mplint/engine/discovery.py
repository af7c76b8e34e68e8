"""Which files a run reads: files, folders and globs, without what .gitignore or `exclude` leave out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mplint.config import FILE_NAMES
from mplint.configs.trainers.sniff import may_be_trainer_file
from mplint.errors import UsageError
from mplint.graph.names import MODELS, is_address
from mplint.python.r.sniff import may_hold_precision, sourced_files
from mplint.python.suffixes import PROGRAMS, is_r
from mplint.python.suffixes import SUFFIXES as CONFIGS

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    from mplint.engine.scopes import Scopes

SUFFIXES = (*PROGRAMS, *CONFIGS, *MODELS)
# Folders that hold no source of the project, wherever they lie.
SKIPPED = frozenset(
    (
        *("__pycache__", "__pypackages__", "_build", "build", "buck-out", "dist", "node_modules", "site-packages", "venv"),
        *(".bzr", ".cache", ".direnv", ".eggs", ".git", ".hg", ".hypothesis", ".ipynb_checkpoints", ".mplint_cache", ".mypy_cache"),
        *(".nox", ".pants.d", ".pytest_cache", ".pytype", ".ruff_cache", ".svn", ".tox", ".venv"),
        *(".hydra", "mlruns", "unsloth_compiled_cache"),  # what runs record, and what a package writes anew for itself
    )
)
RECORDED = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-\w+")  # the folder of a run under `wandb`
# A folder with one of these is a virtual environment.
ENVIRONMENT_MARKS = frozenset(("pyvenv.cfg", "conda-meta"))
_MAGIC = re.compile(r"[*?[]")


def discover(
    paths: Iterable[str],
    exclude: Sequence[str] = (),
    *,
    root: str = ".",
    force_exclude: bool = False,
    respect_gitignore: bool = True,
    scopes: Scopes | None = None,
) -> list[str]:
    """The files to read, sorted, each once, with `/` between folders and relative where the path given was.

    A file named is read, with `force_exclude` only where `exclude` does not leave it out. In a named folder, or one that a glob matches,
    .py, .pyi and .ipynb files are, and the R, JSON and YAML files that mention a precision, with the R files that those run; `exclude`
    holds patterns relative to `root`.
    What the configuration of a folder excludes (`scopes`) is left out as well.
    Models at an address, in a folder there or matched by a glob, keep their addresses. Raises UsageError for a path that leads nowhere.
    """
    files: dict[str, str] = {}
    walker = _Walker(exclude, root, respect_gitignore, scopes)
    found: Iterator[str]
    for path in paths:
        if is_address(path):
            from mplint.engine.addresses import expanded

            found = iter([there.address for there in expanded(path)])
        elif os.path.isdir(path):
            found = walker.walk(path)
        elif os.path.exists(path):
            found = iter(() if force_exclude and walker.excludes(_absolute(path)) else (_shown(path),))
        else:
            found = _expand(path, walker)
        for file in found:
            files.setdefault(os.path.abspath(file), file)
    for file in [file for file in files.values() if is_r(file)]:
        for run in sourced_files(file):
            if not walker.excludes(_absolute(run)):
                files.setdefault(os.path.abspath(run), _shown(run))
    return sorted(files.values())


def kept(paths: Iterable[str], scopes: Scopes) -> list[str]:
    """Those of `paths` that no `exclude` leaves out, whether they exist or not."""
    run = scopes.run.config
    walker = _Walker(run.exclude, run.root, respect_gitignore=False, scopes=scopes)
    return [path for path in paths if not walker.excludes(_absolute(path))]


class Ignores(NamedTuple):
    """The patterns of one .gitignore and the length of the absolute path, with its last `/`, of the folder that it lies in."""

    spec: GitIgnoreSpec
    start: int


class Excluded(NamedTuple):
    """What one configuration excludes: expressions that paths relative to an absolute folder match."""

    patterns: tuple[re.Pattern[str], ...] = ()
    root: str = ""

    @classmethod
    def of(cls, exclude: Sequence[str], root: str) -> Excluded:
        """The same of patterns as they are written."""
        if not exclude:
            return NOTHING
        from mplint.engine.select import glob_pattern

        return cls(tuple(map(glob_pattern, exclude)), _absolute(root))

    def holds(self, path: str) -> bool:
        """Whether an absolute path is excluded itself."""
        return bool(self.patterns) and self._matches(_relative(path, self.root))

    def holds_above(self, path: str) -> bool:
        """Whether an absolute path or a folder that it lies in is excluded."""
        if not self.patterns:
            return False
        parts = _relative(path, self.root).split("/")
        return any(self._matches("/".join(parts[: number + 1])) for number in range(len(parts)))

    def _matches(self, relative: str) -> bool:
        return any(pattern.fullmatch(relative) for pattern in self.patterns)


NOTHING = Excluded()


class _Walker:
    """Walks folders without following links to folders, so that no loop and no file is met twice."""

    def __init__(self, exclude: Sequence[str], root: str, respect_gitignore: bool, scopes: Scopes | None = None) -> None:
        self.excluded = Excluded.of(exclude, root)
        self.respect_gitignore = respect_gitignore
        self.scopes = scopes if scopes is not None and scopes.run.config.folders else None

    def walk(self, folder: str) -> Iterator[str]:
        """The files below `folder`, which itself may be ignored: it was named; and the folders that can't be looked into."""
        top = _absolute(folder)
        shown = _shown(folder)
        prefix = "" if shown == "." else shown.rstrip("/") + "/"
        ignores = self.inherited(top) if self.respect_gitignore else ()
        stack = [(top, ignores, self.inner(top))]
        while stack:
            path, ignores, inner_excluded = stack.pop()
            try:
                with os.scandir(path) as scan:
                    entries = list(scan)
            except OSError as error:
                if path == top:
                    raise UsageError(f"{folder}: {error.strerror}") from None
                if not isinstance(error, FileNotFoundError):
                    yield prefix + path[len(top) :].lstrip("/")  # who reads it says why it can't be
                continue
            names = {entry.name for entry in entries}
            if path != top and names & ENVIRONMENT_MARKS:
                continue
            if self.respect_gitignore and ".gitignore" in names:
                ignores = (*ignores, *_read(path))
            if self.scopes is not None and not names.isdisjoint(FILE_NAMES):
                inner_excluded = self.inner(path)
            for entry in entries:
                name = entry.name
                inner = path + name if path.endswith("/") else f"{path}/{name}"
                if entry.is_dir(follow_symlinks=False):
                    if (
                        name not in SKIPPED
                        and not name.endswith(".egg-info")
                        and RECORDED.fullmatch(name) is None
                        and not self.left_out(inner, ignores, inner_excluded, folder=True)
                    ):
                        stack.append((inner, ignores, inner_excluded))
                elif (
                    name.endswith(SUFFIXES) and not self.left_out(inner, ignores, inner_excluded, folder=False) and _is_wanted(entry, inner)
                ):
                    yield prefix + inner[len(top) :].lstrip("/")

    def inner(self, folder: str) -> Excluded:
        """What the configuration that holds for an absolute folder excludes, besides that of the run."""
        scope = self.scopes.below(folder) if self.scopes is not None else None
        if scope is None or self.scopes is None or scope is self.scopes.run:
            return NOTHING
        return Excluded.of(scope.config.exclude, scope.config.root)

    def left_out(self, path: str, ignores: tuple[Ignores, ...], inner: Excluded, *, folder: bool) -> bool:
        """Whether `exclude`, also that of an inner configuration, or a .gitignore leaves out an absolute path."""
        if self.excluded.holds(path) or inner.holds(path):
            return True
        return bool(ignores) and _ignored(path + "/" if folder else path, ignores)

    def excludes(self, path: str) -> bool:
        """Whether `exclude` leaves out an absolute path or a folder that it lies in."""
        return self.excluded.holds_above(path) or self.inner(os.path.dirname(path)).holds_above(path)

    def inherited(self, top: str) -> tuple[Ignores, ...]:
        """The .gitignore files above `top`, up to the root of its repository, that do not ignore `top` itself."""
        above: list[str] = []
        folder = top
        while not os.path.exists(os.path.join(folder, ".git")):
            parent = os.path.dirname(folder)
            if parent == folder:
                return ()
            above.append(parent)
            folder = parent
        ignores = tuple(ignore for path in reversed(above) for ignore in _read(path))
        return () if _ignored(top + "/", ignores) else ignores


def _is_wanted(entry: os.DirEntry[str], path: str) -> bool:
    """Whether it is a file, and of R, JSON and YAML files one that mentions a precision, or the index of a model's weights."""
    if is_r(path):
        return may_hold_precision(path)
    if path.endswith(CONFIGS) and not path.endswith(MODELS):
        return may_be_trainer_file(path)
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


def _expand(pattern: str, walker: _Walker) -> Iterator[str]:
    """The files that a glob matches, found by walking from its last folder without wildcards."""
    parts = pattern.replace(os.sep, "/").split("/")
    fixed = next((number for number, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    base = "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")
    if fixed == len(parts) or not os.path.isdir(base):
        raise UsageError(f"{pattern}: no such file or folder")
    from mplint.engine.select import glob_pattern

    match = glob_pattern("/" + "/".join(parts[fixed:])).fullmatch
    shown = _shown(base)
    start = 0 if shown == "." else len(shown.rstrip("/")) + 1
    files = [file for file in walker.walk(base) if match(file[start:])]
    if not files:
        raise UsageError(f"{pattern}: no Python file, notebook or trainer configuration matches")
    return iter(files)


def _read(folder: str) -> tuple[Ignores, ...]:
    """The .gitignore of `folder`; a line that is no pattern is left out."""
    try:
        with open(os.path.join(folder, ".gitignore"), encoding="utf-8", errors="replace") as stream:
            lines = stream.read().splitlines()
    except OSError:
        return ()
    from pathspec import GitIgnoreSpec

    start = len(folder.rstrip("/")) + 1
    try:
        return (Ignores(GitIgnoreSpec.from_lines(lines), start),)
    except (ValueError, re.error):  # such as a range that ends before it begins
        return (Ignores(GitIgnoreSpec.from_lines([line for line in lines if _is_pattern(line)]), start),)


def _is_pattern(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True


def _ignored(path: str, ignores: tuple[Ignores, ...]) -> bool:
    """Whether the deepest .gitignore that speaks of `path` ignores it."""
    for ignore in reversed(ignores):
        include = ignore.spec.check_file(path[ignore.start :]).include
        if include is not None:
            return include
    return False


def _absolute(path: str) -> str:
    return os.path.abspath(path).replace(os.sep, "/")


def _relative(path: str, root: str) -> str:
    return (
        path[len(root.rstrip("/")) + 1 :] if path.startswith(root.rstrip("/") + "/") else os.path.relpath(path, root).replace(os.sep, "/")
    )


def _shown(path: str) -> str:
    return os.path.normpath(path).replace(os.sep, "/")
