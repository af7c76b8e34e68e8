"""A repository as it travels to another machine: what a check of it may look at, by content, and the way back of what it found."""

from __future__ import annotations

import os
import pickle
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

from mplint.about import VERSION
from mplint.config import FILE_NAMES, Config
from mplint.engine.discovery import ENVIRONMENT_MARKS, SKIPPED
from mplint.engine.job import Job
from mplint.engine.results import CheckResult, digest_of
from mplint.engine.run import Part
from mplint.graph.names import is_address
from mplint.python.neighbors import ROOT_MARKS
from mplint.python.suffixes import PROGRAMS
from mplint.python.suffixes import SUFFIXES as CONFIGS
from mplint.rule import rules_package

MOST_BYTES = 256 << 20  # of what one repository may send
TEXT_BYTES = 4 << 20  # of a file that is no program, beyond which nothing reads it
HEAD = 4096
UNSENT = (SKIPPED | ROOT_MARKS) - {"_build", "build", "buck-out", "dist"}  # folders that nothing is read in


class Unsendable(Exception):
    """A repository that another machine could not see as this one does."""


class Parcel(NamedTuple):
    """What another machine needs to check a part of a run, with paths as they are here.

    `identity` tells the mplint that packed it, `here` is the working folder. `files` are paths with digests of contents (empty: only the
    name and the size matter) and sizes, `links` paths with what they point to, `contents` the bytes by digest.
    """

    identity: str
    here: str
    config: Config
    part: Part
    named: frozenset[str]
    folders: tuple[str, ...]
    files: tuple[tuple[str, bytes, int], ...]
    links: tuple[tuple[str, str], ...]
    contents: dict[bytes, bytes]


class Answer(NamedTuple):
    """What came of a parcel: its result and what else was read or looked for; or nothing, where this is `another` mplint."""

    result: CheckResult | None
    others: frozenset[str] = frozenset()
    another: str = ""


def pack(part: Part, job: Job) -> bytes:
    """A part of a run as it travels; raises Unsendable where it can't be told to another machine."""
    if not part.repository:
        raise Unsendable("it lies in no repository, so that what is around it counts")
    wanted = {os.path.abspath(path) for path in part.files}
    config = job.config._replace(cache=False, jobs=1)
    if is_address(part.repository):  # a worker reads it there
        return _sealed(Parcel(identity(), os.getcwd(), config, part, job.named, (), (), (), {}))
    packed = _Packed()
    try:
        for folder, folders, files in _walk(part.repository):
            packed.folders += [os.path.join(folder, name) for name in folders]
            for name in files:
                packed.add(os.path.join(folder, name), part.repository, wanted)
        for path in _around(part.repository):
            packed.add(path, part.repository, {path})
    except OSError as error:
        raise Unsendable(str(error)) from None
    if not wanted <= packed.known:
        raise Unsendable("files of it lie elsewhere")
    laid_out = tuple(packed.folders), tuple(packed.files), tuple(packed.links), packed.contents
    return _sealed(Parcel(identity(), os.getcwd(), config, part, job.named, *laid_out))


def _sealed(parcel: Parcel) -> bytes:
    return zlib.compress(pickle.dumps(parcel, pickle.HIGHEST_PROTOCOL), 1)


def opened(data: bytes) -> Parcel:
    """A parcel that has arrived."""
    parcel: Parcel = pickle.loads(zlib.decompress(data))
    return parcel


class _Packed:
    """What is packed so far."""

    def __init__(self) -> None:
        self.folders: list[str] = []
        self.files: list[tuple[str, bytes, int]] = []
        self.links: list[tuple[str, str]] = []
        self.contents: dict[bytes, bytes] = {}
        self.known: set[str] = set()
        self.size = 0

    def add(self, path: str, root: str, wanted: set[str]) -> None:
        """Add a file, with its content where a check may read it."""
        status = os.lstat(path)
        self.known.add(path)
        if stat.S_ISLNK(status.st_mode):
            self.links.append((path, _inside(path, root)))
        elif not stat.S_ISREG(status.st_mode):
            raise Unsendable(f"{path} is no regular file")
        elif path in wanted or path.endswith((*PROGRAMS, *CONFIGS)) or status.st_size <= TEXT_BYTES:
            self._add_content(path, always=path in wanted or path.endswith((*PROGRAMS, *CONFIGS)))
        else:
            self.files.append((path, b"", status.st_size))

    def _add_content(self, path: str, *, always: bool) -> None:
        with open(path, "rb") as stream:
            data = stream.read(HEAD)
            text = always or b"\0" not in data
            data += stream.read() if text else b""
        if not text:
            self.files.append((path, b"", os.stat(path).st_size))
            return
        digest = digest_of(data)
        self.files.append((path, digest, len(data)))
        if digest not in self.contents:
            self.size += len(data)
            self.contents[digest] = data
        if self.size > MOST_BYTES:
            raise Unsendable(f"its text is more than {MOST_BYTES >> 20} MB")


def _inside(path: str, root: str) -> str:
    """What a link points to, which has to be told relative to it and to lie in the same repository."""
    target = os.readlink(path)
    end = os.path.realpath(path)
    if os.path.isabs(target) or not end.startswith(os.path.join(os.path.realpath(root), "")):
        raise Unsendable(f"{path} points out of it")
    return target


def _walk(root: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """The folders of a repository with those in them and the files; no link to a folder is followed."""

    def broken(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(root, onerror=broken):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        marks = [name for name in files if name in ROOT_MARKS]
        yield folder, sorted({*folders, *marks} - set(links)), sorted({*files, *links} - set(marks))
        folders[:] = sorted(name for name in folders if name not in UNSENT and not _is_environment(os.path.join(folder, name)))


def _is_environment(folder: str) -> bool:
    return any(os.path.exists(os.path.join(folder, mark)) for mark in ENVIRONMENT_MARKS)


def _around(root: str) -> Iterator[str]:
    """The configuration files of the folders around a repository."""
    folder = os.path.dirname(root)
    while True:
        for name in FILE_NAMES:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                yield path
        if folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)


def unpack(parcel: Parcel, top: str) -> None:
    """Lay a parcel's files out below a folder, each at its own path."""
    for folder in (parcel.here, *parcel.folders):
        os.makedirs(top + folder, exist_ok=True)
    for path, digest, size in parcel.files:
        os.makedirs(os.path.dirname(top + path), exist_ok=True)
        with open(top + path, "wb") as stream:
            if digest:
                stream.write(parcel.contents[digest])
            else:
                stream.truncate(size)
    for path, target in parcel.links:
        os.makedirs(os.path.dirname(top + path), exist_ok=True)
        os.symlink(target, top + path)


def moved_in(parcel: Parcel, top: str) -> Parcel:
    """A parcel with paths as they are below `top`."""

    def moved(paths: Iterable[str]) -> Iterator[str]:
        return (top + path if os.path.isabs(path) else path for path in paths)

    config, part = parcel.config, parcel.part
    root, source = moved([config.root, config.source or ""])
    part = Part(
        part.repository if is_address(part.repository) else top + part.repository, tuple(moved(part.files)), tuple(moved(part.paths))
    )
    return parcel._replace(config=config._replace(root=root, source=source or None), part=part, named=frozenset(moved(parcel.named)))


@cache
def identity() -> str:
    """What tells one mplint from another: its version, its files, and the Python that runs it."""
    found = blake2b(digest_size=12)
    package = os.path.dirname(os.path.abspath(sys.modules["mplint"].__file__ or ""))
    for folder in sorted({package, *rules_package().__path__}):
        for root, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                if name.endswith((".py", ".toml", ".json")):
                    with open(os.path.join(root, name), "rb") as stream:
                        found.update(f"{os.path.relpath(root, folder)}/{name}\0".encode() + stream.read() + b"\0")
    return f"{VERSION} {sys.version_info[0]}.{sys.version_info[1]} {found.hexdigest()}"
