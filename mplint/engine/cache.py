"""The cache: what checking a file gave, kept in the user's cache folder and found again by content."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from mplint.about import VERSION
from mplint.catalog import catalog
from mplint.config import Config
from mplint.engine.results import CheckResult, FileResult, digest_of
from mplint.findings import Finding
from mplint.graph.names import is_model
from mplint.python.load import read_file
from mplint.rule import plugin_modules, rules_package

if TYPE_CHECKING:
    from mplint.engine.job import Job
    from mplint.engine.targets import TargetResolver
    from mplint.program.project import Topic

Same = Callable[[str, bytes], bool]  # whether a program is lowered to what it was when its bytes had another digest
Entries = dict[str, tuple[str, bytes, FileResult]]
SETTLED = 2_000_000_000  # nanoseconds after which a file that keeps its size and time of change is taken for unchanged
MAX_BYTES = 20_000_000


class Cache:
    """Results by path and content, for one project folder, one repository and one selection of rules.

    It lives outside the project, since it is unpickled: a repository must not be able to bring one along.
    """

    def __init__(self, job: Job) -> None:
        self.path = place_of("files", job.config, job.codes, job.repository)
        self._entries: Entries | None = None

    def lookup(self, files: Sequence[str], resolver: TargetResolver) -> dict[str, FileResult]:
        """The results of those `files` whose content and targets are the same as when they were stored."""
        entries = self._load()
        known = {}
        for path in files:
            entry = entries.get(path)
            if entry is None:
                continue
            looks, old, result = entry
            if (looks and looks == appearance(path, resolver, result.sidecars)) or old == digest(path, resolver, result.sidecars):
                known[path] = result
        return known

    def store(self, results: Iterable[FileResult], resolver: TargetResolver) -> None:
        """Add results and write the cache; a folder that can't be written to is no error."""
        entries = self._load()
        for result in results:
            if not result.faults:
                looks = appearance(result.path, resolver, result.sidecars, time.time_ns() - SETTLED)
                entries[result.path] = (looks, digest(result.path, resolver, result.sidecars), result._replace(lowered=None))
        write(self.path, pickle.dumps(entries, pickle.HIGHEST_PROTOCOL))

    def _load(self) -> Entries:
        if self._entries is None:
            try:
                with open(self.path, "rb") as stream:
                    self._entries = pickle.load(stream)
            except Exception:  # missing, truncated or of another version: start afresh
                self._entries = {}
        assert self._entries is not None
        return self._entries


class ProgramCache:
    """The findings of whole programs, by the contents of all their files; the last few, for one repository and selection of rules."""

    KEPT = 4

    def __init__(self, config: Config, codes: frozenset[str], repository: str) -> None:
        self._place = (config, codes, repository)
        self.path = place_of("program", *self._place)
        self.plugins = config.plugins
        self.others: frozenset[str] = frozenset()  # further files that the findings looked up or stored were made from
        self.walked = Walked()

    def of_part(self, first: str) -> ProgramCache:
        """Those of a part of the programs, that is known by the first of them."""
        found = ProgramCache(*self._place)
        found.path, found.walked = place_of("program", *self._place, first), self.walked
        return found

    def lookup(
        self, facts: bytes, digests: Mapping[str, bytes], read: Callable[[str], bytes], same: Same
    ) -> dict[str, list[Finding]] | None:
        """The findings of programs with these facts and digests, where what they were made from is unchanged."""
        found = next((known for known in self._load() if known.facts == facts and known.holds(digests, read, same, self.walked)), None)
        if found is None:
            return None
        self.others = found.leaned_on(self.walked)
        return found.findings

    def store(self, made: Made) -> None:
        """Add findings and write the cache; a folder that can't be written to is no error."""
        self.others = made.leaned_on(self.walked)
        kept = [known for known in self._load() if known.facts != made.facts or known.digests != made.digests]
        write(self.path, pickle.dumps([made, *kept[: self.KEPT - 1]], pickle.HIGHEST_PROTOCOL))

    def _load(self) -> list[Made]:
        try:
            with open(self.path, "rb") as stream:
                found: list[Made] = pickle.load(stream)
                return found
        except Exception:  # missing, truncated or of another version: start afresh
            return []


class Walked:
    """Where topics look, found once for all parts of a project."""

    def __init__(self) -> None:
        self._places: dict[Topic, list[str]] = {}
        self._folders: dict[Topic, list[str]] = {}

    def places(self, topic: Topic) -> list[str]:
        """The files of a topic."""
        if topic not in self._places:
            self._places[topic] = topic.places()
        return self._places[topic]

    def folders(self, topic: Topic) -> list[str]:
        """The folders in which another one would be found."""
        if topic not in self._folders:
            self._folders[topic] = topic.folders()
        return self._folders[topic]


class AnswerCache:
    """What the last run that asked the same found in a repository: known by the sizes and times of its files, without reading any."""

    def __init__(self, job: Job, paths: Sequence[str], files: Iterable[str]) -> None:
        configs = [scope.config._replace(jobs=None) for scope in job.scopes.among(files)]
        self.path = place_of("answer", job.config, job.codes, job.repository, repr((tuple(paths), configs)))
        self.more = [job.config.baseline] if job.config.baseline is not None else []

    def lookup(self, files: Sequence[str]) -> CheckResult | None:
        """The result, where nothing that it was made from has changed."""
        try:
            with open(self.path, "rb") as stream:
                looks, others = pickle.load(stream)
                return pickle.load(stream) if looks == look_of(files, others) else None
        except Exception:  # missing, truncated or of another version
            return None

    def store(self, files: Sequence[str], others: Iterable[str], begun: int, result: CheckResult) -> None:
        """Keep a result, unless a file has changed since a run `begun` then, or just before."""
        from mplint.engine.pins import consulted

        more = sorted({*others, *self.more, *consulted(files)})
        looks = look_of(files, more, begun - SETTLED)
        if looks:
            write(self.path, pickle.dumps((looks, more), pickle.HIGHEST_PROTOCOL) + pickle.dumps(result, pickle.HIGHEST_PROTOCOL))


def look_of(files: Iterable[str], others: Iterable[str], before: int | None = None) -> bytes:
    """A digest of what some files and folders look like from outside; an empty one where any has changed after `before`."""
    found = hashlib.blake2b(digest_size=16)
    for path in (*files, *others):
        looks = look(path, before)
        if not looks:
            return b""
        found.update(f"{path}\n{looks}\0".encode("utf-8", "surrogateescape"))
    return found.digest()


class Made(NamedTuple):
    """Findings, and what they were made from.

    `facts`: a digest of what is known of each program by itself; `digests`: of those that were looked at; `read`: those whose text was
    read; `run`: what was asked for in its lowered form; `answers`: what texts were asked beside, and the answers; `others`: digests of
    further files; `heard`: of those that were asked questions alone, and `asked`: these, with the answers.
    """

    facts: bytes
    digests: dict[str, bytes]
    read: frozenset[str]
    run: frozenset[str]
    answers: dict[str, dict[Callable[[bytes], Hashable], Hashable]]
    others: dict[str, bytes]
    heard: dict[str, bytes]
    asked: dict[Topic, dict[Hashable, Hashable]]
    findings: dict[str, list[Finding]]

    def leaned_on(self, walked: Walked) -> frozenset[str]:
        """The further files, and the folders in which others of them would be found."""
        return frozenset((*self.others, *self.heard, *(folder or "." for topic in self.asked for folder in walked.folders(topic))))

    def holds(self, digests: Mapping[str, bytes], read: Callable[[str], bytes], same: Same, walked: Walked) -> bool:
        """Whether the same would be found in programs with other digests."""
        changed = [path for path, old in self.digests.items() if digests.get(path) != old]
        if not self.read.isdisjoint(changed):
            return False
        for path in changed:
            if any(question(read(path)) != answer for question, answer in self.answers.get(path, {}).items()):
                return False
        if any(path in self.run and not same(path, self.digests[path]) for path in changed):
            return False
        if any(digest_of(bytes_of(path, read)) != old for path, old in self.others.items()):
            return False
        known = self.heard.keys() | self.others.keys()
        is_new = any(not known >= set(walked.places(topic)) for topic in self.asked)
        if not is_new and all(digest_of(bytes_of(path, read)) == old for path, old in self.heard.items()):
            return True
        return all(topic.answers(known) == known for topic, known in self.asked.items())


def place_of(kind: str, config: Config, codes: frozenset[str], *more: str) -> str:
    """Where a cache of a kind lies: one for the project folder, this folder, this mplint, the selected rules, and what else is asked."""
    parts = [kind, os.path.abspath(config.root), os.getcwd(), fingerprint(config.plugins), ",".join(sorted(codes)), *more]
    name = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return os.path.join(cache_folder(), f"{name}.pickle")


def write(path: str, data: bytes) -> None:
    """Replace a file of the cache; a folder that can't be written to is no error."""
    if len(data) > MAX_BYTES:
        return
    import tempfile

    folder, temporary = os.path.dirname(path), ""
    with suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder)  # machines that share the folder may share numbers of processes
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.replace(temporary, path)
        return
    with suppress(OSError):
        os.unlink(temporary)


def digest(path: str, resolver: TargetResolver, sidecars: Sequence[str] = ()) -> bytes:
    """What a result depends on: the file's bytes and its targets; of a model, which may be huge, sizes and times."""
    if is_model(path):
        data = stamp(path, sidecars)
    else:
        data = b"\0".join(bytes_of(place) for place in (path, *sidecars))
    return hashlib.blake2b(data + resolver.fingerprint(path).encode(), digest_size=16).digest()


def appearance(path: str, resolver: TargetResolver, sidecars: Sequence[str], before: int | None = None) -> str:
    """What tells without reading that a result still holds: sizes, times and targets; "" where a file has changed after `before`."""
    parts = [resolver.fingerprint(path)]
    for file in (path, *sidecars):
        parts.append(look(file, before))
        if not parts[-1]:
            return ""
    return "\n".join(parts)


def look(path: str, before: int | None = None) -> str:
    """Size, times and number of a file or folder, "-" where there is none; "" where it has changed after `before`."""
    try:
        status = os.stat(path)
    except OSError:
        return "-"
    if before is not None and max(status.st_mtime_ns, status.st_ctime_ns) > before:
        return ""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def stamp(path: str, others: Sequence[str]) -> bytes:
    """What tells that a model and the files that it leans on are unchanged: their sizes and times, since reading them would take long."""
    parts = []
    for file in (path, *others):
        try:
            status = os.stat(file)
            parts.append(f"{file} {status.st_size} {status.st_mtime_ns}")
        except OSError:
            parts.append(f"{file} -")
    return "\n".join(parts).encode("utf-8", "surrogateescape")


def bytes_of(path: str, read: Callable[[str], bytes] = read_file) -> bytes:
    """The bytes of a file, none where it can't be read."""
    try:
        return read(path)
    except OSError:
        return b""


@lru_cache
def fingerprint(plugins: tuple[str, ...]) -> str:
    """The version of mplint, its files when this process first asked, and of Python."""
    package = os.path.dirname(os.path.abspath(sys.modules["mplint"].__file__ or ""))
    modules = {
        sys.modules.get(entry.module) or import_module(entry.module)
        for entry in catalog(plugins).values()
        if entry.module in plugin_modules(plugins)
    }
    folders = {package, *rules_package().__path__, *(os.path.dirname(os.path.abspath(m.__file__ or "")) for m in modules)}
    stamps = []
    for folder in sorted(folders):
        for root, _, names in os.walk(folder):
            for name in sorted(names):
                if name.endswith((".py", ".toml", ".json")):
                    status = os.stat(os.path.join(root, name))
                    stamps.append(f"{name}{status.st_mtime_ns}{status.st_size}")
    return f"{VERSION} {sys.version_info[:3]} " + hashlib.blake2b("".join(stamps).encode(), digest_size=12).hexdigest()


def cache_folder() -> str:
    """The user's cache folder for mplint: MPLINT_CACHE_DIR, else the platform's usual place."""
    if chosen := os.environ.get("MPLINT_CACHE_DIR"):
        return chosen
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", os.path.expanduser("~"))
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    return os.path.join(base, "mplint")
