"""What the interpreter finds in the programs of a run: one trace of them all, and the rules that ask it."""

from __future__ import annotations

import gc
import marshal
import os
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from mplint.catalog import Entry
from mplint.engine import ceilings
from mplint.engine.cache import Made, ProgramCache, bytes_of
from mplint.engine.ceilings import room
from mplint.engine.grounds import weighed
from mplint.engine.parts import ProgramPart, parts_of
from mplint.engine.prefilter import speaks_of_matter
from mplint.engine.progress import SILENT, Progress
from mplint.engine.results import Fault, FileResult, digest_of
from mplint.engine.workers import METHOD, pool_of
from mplint.errors import describe
from mplint.findings import Confidence, Finding, Severity
from mplint.frameworks.known import interpret, project_of
from mplint.frameworks.names import unbound
from mplint.frameworks.relevance import speaks_of_training
from mplint.program.lower import IR, lower
from mplint.program.machine import Recorder
from mplint.program.modules import ImportGraph
from mplint.program.trace import Trace
from mplint.python.document import Document, InputError
from mplint.python.file import SourceFile
from mplint.python.load import load
from mplint.python.parse import parse
from mplint.python.roots import begins_project
from mplint.rule import Rule
from mplint.targets import Targets
from mplint.versions import Versions

if TYPE_CHECKING:
    from mplint.engine.lowered import LoweredPrograms
    from mplint.program.project import Project

FEW = 40  # programs, whose imports are looked up on disk as well
PROJECT_FILES = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
STACK = 12_000
CLIPPING = re.compile(rb"clip_?grad|grad(?:ient)?s?_?clip")  # in small letters

T = TypeVar("T", bound=Hashable)


class SideBySide(NamedTuple):
    """How many processes may share the parts of a project, and who is told how many are done."""

    workers: int = 1
    progress: Progress = SILENT


ALONE = SideBySide()


class Asked(NamedTuple):
    """What rules say of a part of a project, by path, what failed, and the further files that this was made from."""

    findings: dict[str, list[Finding]]
    faults: frozenset[Fault]
    others: frozenset[str]


class Tracing(NamedTuple):
    """The programs of a project, the parts that are run each by itself, and the rules that ask; `remembered`: former answers."""

    programs: Programs
    parts: Sequence[ProgramPart]
    asking: Sequence[Entry]
    remembered: ProgramCache | None

    def ask(self, number: int) -> Asked:
        """What rules say of a part: as it was remembered, or else of what happens when it is run."""
        part = self.parts[number]
        one = len(self.parts) < 2
        remembered = self.remembered if one or self.remembered is None else self.remembered.of_part(part.paths[0])
        faults: set[Fault] = set()
        found = part_findings(self.programs if one else self.programs.of_part(part), part, self.asking, faults, remembered)
        return Asked(found, frozenset(faults), remembered.others if remembered is not None else frozenset())


_tracing: Tracing | None = None  # what worker processes take their parts from: they begin as copies of this one


def traced_findings(
    given: dict[str, str],
    told_by: Mapping[str, FileResult],
    read: Callable[[str], bytes],
    asking: Sequence[Entry],
    faults: set[Fault],
    remembered: ProgramCache | None,
    targets: Callable[[str], Targets] | None,
    side_by_side: SideBySide = ALONE,
) -> dict[str, list[Finding]]:
    """What rules say of a run's programs (`given`: paths as the project knows them, to those of the run), by path.

    They are looked up in `remembered` first, which holds those of the same programs. What fails is added to `faults`.
    """
    programs = Programs(given, read, told_by, targets, kept_programs(remembered))
    named = [path for path in sorted(given) if programs.mentions(path)]
    tracing = Tracing(programs, parts_of(programs.graph, named, programs.size), asking, remembered)
    found: dict[str, list[Finding]] = {}
    answers = each_part(tracing, side_by_side)
    for asked in answers:
        faults |= asked.faults
        for path, findings in asked.findings.items():
            found.setdefault(path, []).extend(finding for finding in findings if finding not in found[path])
    if remembered is not None:
        remembered.others = frozenset().union(*(asked.others for asked in answers))
    return found


def each_part(tracing: Tracing, side_by_side: SideBySide) -> list[Asked]:
    """What rules say of each part, in the order of the parts, from as many processes as there may be."""
    count = len(tracing.parts)
    workers = min(side_by_side.workers, count) if METHOD == "fork" else 1
    if count > 1:
        side_by_side.progress.begin("running the programs, part by part", count)
    found: dict[int, Asked] = {}
    for number, asked in asked_of_workers(tracing, workers) if workers > 1 else ():
        found[number] = asked
        side_by_side.progress.step()
    for number in range(count):
        if number not in found:
            found[number] = tracing.ask(number)
            side_by_side.progress.step()
    return [found[number] for number in range(count)]


def asked_of_workers(tracing: Tracing, workers: int) -> Iterator[tuple[int, Asked]]:
    """What rules say of parts, by their numbers, as it comes from workers; where one of those is killed, not of all."""
    from concurrent.futures import as_completed
    from concurrent.futures.process import BrokenProcessPool

    global _tracing
    _tracing = tracing
    try:
        with suppress(BrokenProcessPool), pool_of(workers, is_ready) as pool:
            running = {pool.submit(ask_part, number): number for number in range(len(tracing.parts))}
            for done in as_completed(running):
                yield running[done], done.result()
    finally:
        _tracing = None


def is_ready() -> None:
    """A worker has begun, with all that it needs."""


def ask_part(number: int) -> Asked:
    """What rules say of a part, in a worker process."""
    assert _tracing is not None
    return _tracing.ask(number)


def part_findings(
    programs: Programs, part: ProgramPart, asking: Sequence[Entry], faults: set[Fault], remembered: ProgramCache | None
) -> dict[str, list[Finding]]:
    """What rules say of a part of a project, by path, as it was remembered or else of what happens when it is run."""
    facts = programs.told_facts() if remembered is not None else b""
    known = remembered.lookup(facts, programs.digests, programs.data, programs.is_lowered_to) if remembered is not None else None
    if known is not None:
        return known
    given, named = programs.given, part.named
    if len(part.paths) < len(given):
        gc.collect()  # what another part has left behind
    with deep_stack():
        try:
            with room(ceilings.BYTES):
                found = traced(programs, named)
            told = ask(found, asking, given, faults)
            if programs.kept is not None:
                programs.kept.write()
            if remembered is not None and not faults:
                remembered.store(made_of(programs, found.project, facts, told))
            return told
        except MemoryError:
            faults.add(Fault(given[named[0]], "interpreting the program", f"it takes more than {ceilings.BYTES >> 30} GB of memory"))
            return {}
        except Exception as error:
            faults.add(Fault(given[named[0]], "interpreting the program", describe(error)))
            return {}


def made_of(programs: Programs, project: Project | None, facts: bytes, told: dict[str, list[Finding]]) -> Made:
    """Findings with what they were made from."""

    def digested(paths: Iterable[str]) -> dict[str, bytes]:
        return {path: digest_of(bytes_of(path, programs.data)) for path in sorted(paths)}

    others = {*programs.others, *(project.looked_up if project is not None else ())}
    heard = project.heard - others if project is not None else ()
    asked = project.asked if project is not None else {}
    read, run = frozenset(programs.opened), frozenset(programs.run)
    leaned = {path: digest for path, digest in programs.digests.items() if path in read or path in run or path in programs.answers}
    return Made(facts, leaned, read, run, programs.answers, digested(others), digested(heard), asked, told)


def kept_programs(remembered: ProgramCache | None) -> LoweredPrograms | None:
    """The lowered programs of former runs, for a run with a cache; None where this Python has no sqlite."""
    if remembered is None:
        return None
    try:
        from mplint.engine.lowered import LoweredPrograms
    except ImportError:
        return None
    return LoweredPrograms(remembered.plugins)


@contextmanager
def deep_stack() -> Iterator[None]:
    """What interpreting needs of Python: a deep stack, and no search for garbage but in what single entries leave."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, STACK))
    collecting = gc.isenabled()
    gc.disable()
    frozen = gc.get_freeze_count() > 0  # by those who call mplint
    if not frozen:
        gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
        sys.setrecursionlimit(limit)
        if collecting:
            gc.enable()


def traced(
    programs: Programs,
    named: Sequence[str],
    recorder: Recorder | None = None,
    relevant: Callable[[frozenset[str]], bool] = speaks_of_training,
) -> Trace:
    """The trace of the named programs and of what they import; `recorder` looks on. `relevant`: which functions are of interest."""
    root = project_root(programs.paths()) if len(programs.given) <= FEW else None
    project = project_of(programs.paths(), programs.lowered, root, programs.graph)
    clipping = [path for path in programs.own if programs.ask(path, clips_gradients)]
    found = interpret(project, named, programs.ask, recorder, clipping, programs.supported, relevant, programs.own)
    found.sources = programs.document
    found.ask = programs.ask
    found.parsed = programs.parsed
    found.targets_of = programs.targets_of
    found.words = programs.words
    return found


def ask(found: Trace, rules: Iterable[Entry], given: dict[str, str], faults: set[Fault]) -> dict[str, list[Finding]]:
    """What rules say of a trace, at places in the given programs; one finding of a code at a place."""
    by_path: dict[str, dict[tuple[str, int | None, int | None, int | None], Finding]] = {}
    known = set(given.values())
    consequences: dict[str, tuple[str, ...]] = {}
    for rule in rules:
        try:
            asked = rule.load()
            consequences[rule.code] = asked.consequence_of
            for finding in weighed(found, partial(told_by, asked)):
                path = finding.location.path
                if path in known:
                    key = (finding.code, finding.location.cell, finding.location.line, finding.location.column)
                    kept = by_path.setdefault(path, {}).get(key)
                    if kept is None or finding.confidence.rank > kept.confidence.rank:
                        by_path[path][key] = finding
        except Exception as error:
            faults.add(Fault(next(iter(sorted(known))), rule.code, describe(error)))
    for path, error_text in found.faults:
        faults.add(Fault(given.get(path, path), "interpreting the program", error_text))
    return without_consequences({path: list(findings.values()) for path, findings in by_path.items()}, consequences)


def told_by(rule: type[Rule], trace: Trace) -> list[Finding]:
    """What a rule says of a trace."""
    return list(rule().in_program(trace))


def without_consequences(found: dict[str, list[Finding]], of: Mapping[str, tuple[str, ...]]) -> dict[str, list[Finding]]:
    """Findings but for those whose cause is told; `of`: the rules that tell the causes of a rule's findings, by its code."""
    told = {(f.code, f.location) for findings in found.values() for f in findings if is_shown(f)}
    return {path: [f for f in findings if told.isdisjoint((code, f.cause) for code in of[f.code])] for path, findings in found.items()}


def is_shown(finding: Finding) -> bool:
    """Whether a finding is shown with the default selection."""
    return finding.severity != Severity.INFO and finding.confidence != Confidence.LOW


class Programs:
    """The programs of a run, read and lowered when they are asked for."""

    def __init__(
        self,
        given: dict[str, str],
        read: Callable[[str], bytes],
        told: Mapping[str, FileResult] | None = None,
        targets: Callable[[str], Targets] | None = None,
        kept: LoweredPrograms | None = None,
    ) -> None:
        self.given = given
        self.kept = kept
        self.told = told or {}
        self.targets = targets
        self.read = read
        self.own: Sequence[str] = sorted(given)  # those that are run, and what is joined with them
        self.imports = {path: result.imports for path, result in self.told.items()}
        self.folders = {path: result.folders for path, result in self.told.items() if result.folders}
        self.words = {path: result.words for path, result in self.told.items()}
        self.documents: dict[str, Document] = {}
        self.opened: set[str] = set()  # the programs whose text somebody has read,
        self.run: set[str] = set()  # and those that somebody has asked for in their lowered form
        self.answers: dict[str, dict[Callable[[bytes], Hashable], Hashable]] = {}  # what others were asked of texts
        self.others: set[str] = set()  # programs that were not given
        self.common: dict[str, dict[Callable[[bytes], Hashable], Hashable]] = {}  # what other parts of the project were answered

    def of_part(self, part: ProgramPart) -> Programs:
        """The same programs, of which a part is run: what it reads is noted apart, and forgotten with it but for answers."""
        found = Programs(self.given, self.read, self.told, self.targets, self.kept)
        found.own, found.graph, found.facts, found.digests = part.paths, self.graph, self.facts, self.digests
        found.words = {path: self.words[path] for path in part.paths if path in self.words}
        found.common = self.common
        return found

    @cached_property
    def graph(self) -> ImportGraph:
        """Which of the programs imports which."""
        return ImportGraph({path: self.imports.get(path, ()) for path in self.paths()}, self.folders)

    @cached_property
    def digests(self) -> dict[str, bytes]:
        """The digests of the programs' bytes."""
        return {path: result.digest for path, result in self.told.items()}

    @cached_property
    def facts(self) -> bytes:
        """A digest of what all programs are called, of the folders that they add to the import path, and of what they are for."""
        folders = sorted({os.path.dirname(path) for path in self.given.values()})
        targets = [self.targets(os.path.join(folder, "_")).told() for folder in folders] if self.targets is not None else []
        added = [(path, r.folders) for path, r in sorted(self.told.items()) if r.folders]
        return digest_of(repr((sorted(self.given.items()), added, targets)).encode("utf-8", "surrogatepass"))

    def told_facts(self) -> bytes:
        """A digest of everything that is known of the programs without their texts: of their imports, which of the programs they mean."""
        targets_of = self.graph.targets
        told = [(path, sorted(targets_of[path]), sorted(r.words), r.speaks) for path in self.own if (r := self.told.get(path)) is not None]
        return digest_of(repr((self.facts, told)).encode("utf-8", "surrogatepass"))

    def size(self, path: str) -> int:
        """The bytes of a program; 0 where it can't be read."""
        try:
            return len(self.data(path))
        except OSError:
            return 0

    def paths(self) -> list[str]:
        """The programs that were given."""
        return sorted(self.given)

    def data(self, path: str) -> bytes:
        """The text of a program; raises OSError where it can't be read."""
        return self.read(self.given.get(path, path))

    def ask(self, path: str, question: Callable[[bytes], T]) -> T:
        """The answer to a question about the text of a program, an empty one where it can't be read."""
        known = self.answers.setdefault(path, {})
        if question not in known:
            common = self.common.setdefault(path, {})
            if question not in common:
                try:
                    common[question] = question(self.data(path))
                except OSError:
                    common[question] = question(b"")
            known[question] = common[question]
        return known[question]  # type: ignore[return-value]

    def targets_of(self, path: str) -> Targets:
        """The versions and the hardware that a program is for."""
        document = self.document(path)
        targets = self.targets(document.path) if self.targets is not None else Targets()
        return targets.of_program(document.source, notebook=path.endswith(".ipynb"))

    def parsed(self, path: str) -> SourceFile:
        """A program, parsed."""
        document = self.document(path)
        return SourceFile(document, parse(document), unbound)

    def supported(self, path: str, package: str) -> Versions | None:
        """The versions of a package that the program of a path is for; None where nobody knows."""
        targets = self.targets(self.given.get(path, path)) if self.targets is not None else None
        if targets is None:
            return None
        known = {"torch": targets.torch, "keras": targets.keras, "tensorflow": targets.tensorflow}
        return known[package] if package in known else targets.trainer(package)

    def mentions(self, path: str) -> bool:
        """Whether a program has any word of the matter."""
        if path in self.told:
            return self.told[path].speaks
        try:
            return speaks_of_matter(self.data(path))
        except OSError:
            return False

    def document(self, path: str) -> Document:
        """The document of a program; raises InputError where it can't be read."""
        self.opened.add(path)
        if path not in self.documents:
            self.documents[path] = self.loaded(path)
        return self.documents[path]

    def loaded(self, path: str) -> Document:
        """The same, not kept."""
        name = self.given.get(path, path)
        if path not in self.given:
            self.others.add(path)
        return load(name, self.read(name))

    def lowered(self, path: str) -> IR | None:
        """A lowered program, or None where it can't be read or parsed."""
        self.run.add(path)
        known = self.told[path].lowered if path in self.told else None
        if known is not None:
            if self.kept is not None:
                self.kept.add(self.kept.key(self.given.get(path, path), self.told[path].digest), known)
            return marshal.loads(known) if isinstance(known, bytes) else known
        try:
            if path in self.documents or self.kept is None:
                return lower(parse(self.documents.get(path) or self.loaded(path)))
            return self.lowered_before(path, self.kept)
        except (InputError, OSError, RecursionError, ValueError, SyntaxError):
            return None

    def is_lowered_to(self, path: str, digest: bytes) -> bool:
        """Whether the program of a path is lowered to what it was when its bytes had another digest: only comments and the like differ."""
        if self.kept is None or path not in self.given:
            return False
        name = self.given[path]
        before = self.kept.get(self.kept.key(name, digest))
        if before is None:
            return False
        with deep_stack():
            try:
                return lower(parse(load(name, self.read(name)))) == before
            except (InputError, OSError, RecursionError, ValueError, SyntaxError):
                return False

    def lowered_before(self, path: str, kept: LoweredPrograms) -> IR:
        """A lowered program, as a former run has kept it where one did; raises what reading and parsing it raise."""
        name = self.given.get(path, path)
        if path not in self.given:
            self.others.add(path)
        data = self.read(name)
        key = kept.key(name, digest_of(data))
        found = kept.get(key)
        if found is None:
            found = lower(parse(load(name, data)))
            kept.add(key, found)
        return found


def clips_gradients(data: bytes) -> bool:
    """Whether a program clips gradients."""
    small = data.lower()
    return b"clip" in small and CLIPPING.search(small) is not None


def project_root(paths: Iterable[str]) -> str:
    """The folder below which the imports of a few programs are looked up: that of their repository or package."""
    common = os.path.dirname(min(paths, key=len))
    folder = common
    for _ in range(8):
        if begins_project(folder, PROJECT_FILES):
            return folder
        if not folder or folder == "/" or folder.endswith(".."):
            break
        folder = os.path.dirname(folder)
    return common
