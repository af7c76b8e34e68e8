"""Checking many files: discovery, workers, the whole program, suppressions, and one sorted result."""

from __future__ import annotations

import gc
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mplint.catalog import Entry
from mplint.config import Config
from mplint.engine.builtin_rules import UnreadableInput, unreadable
from mplint.engine.check import check_data
from mplint.engine.discovery import discover, kept
from mplint.engine.job import Job
from mplint.engine.progress import SILENT, Progress
from mplint.engine.repositories import by_repository
from mplint.engine.results import SKIPPED, Fault, FileResult, Interrupted
from mplint.engine.results import CheckResult as CheckResult
from mplint.engine.targets import TargetResolver
from mplint.engine.workers import METHOD, is_worker, pool_of
from mplint.errors import UsageError, describe
from mplint.findings import Finding, Severity
from mplint.graph.names import is_model
from mplint.processors import processors
from mplint.python.document import InputError
from mplint.python.load import read_file
from mplint.python.suffixes import is_config, is_r

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from mplint.engine.baseline import Key
    from mplint.engine.cache import ProgramCache
    from mplint.graph.model import ModelGraph

PARALLEL_BYTES = 1_500_000  # below this much source, starting workers costs more than it saves
COLLECT_EVERY = 64
MOST_WORKERS = 8  # that are started unasked


def check_paths(
    paths: Sequence[str],
    config: Config,
    *,
    given: Mapping[str, bytes] = {},
    models: Sequence[ModelGraph] = (),
    progress: Progress = SILENT,
    elsewhere: Elsewhere | None = None,
) -> CheckResult:
    """Check files, folders and globs, and the texts `given` by path, which stand for what lies on disk; `models` are read already.

    `progress` is told how far this is, and `elsewhere` checks repositories in the place of this machine.
    Raises UsageError for a missing path, an unknown code or an unknown target.
    """
    job = Job.of(config, paths, progress)
    resolver = TargetResolver(config, job.scopes)
    if not given and not models:
        return check_folders(paths, job, resolver, elsewhere)
    results = examine(paths, job, resolver, given)
    if models:
        from mplint.engine.check_model import check_graph

        results += [check_graph(model.path, model, resolver.targets(model.path), job.rules(model.path)) for model in models]
    return conclude(results, job, given)


class Part(NamedTuple):
    """The files of a run that belong to one repository, and what the user asked for."""

    repository: str
    files: tuple[str, ...]
    paths: tuple[str, ...]

    def known(self, job: Job) -> CheckResult | None:
        """The result of the last run that asked the same, where no file that it read has changed."""
        if not self.is_kept(job):
            return None
        from mplint.engine.cache import AnswerCache

        return AnswerCache(self.own(job), self.paths, self.files).lookup(self.files)

    def check(self, job: Job, resolver: TargetResolver) -> CheckResult:
        """The result of a new run, which is kept."""
        begun = time.time_ns()
        return self.keep(job, *self.examine(job, resolver), begun)

    def examine(self, job: Job, resolver: TargetResolver) -> tuple[CheckResult, set[str]]:
        """The result of a new run, and what else was read or looked for."""
        results = examine_files(self.files, self.own(job), resolver)
        others: set[str] = set()
        found = conclude(results, self.own(job), {}, others, share=True)
        return found, others.union(path for result in results for path in result.sidecars)

    def keep(self, job: Job, found: CheckResult, others: Iterable[str], begun: int) -> CheckResult:
        """The result of a run that began at a time, kept for the next one."""
        skipped = any(text.startswith(SKIPPED) for _, text in found.unjudged)  # until what is missing is installed
        if self.is_kept(job) and not (found.faults or found.profiles or skipped):
            from mplint.engine.cache import AnswerCache

            AnswerCache(self.own(job), self.paths, self.files).store(self.files, others, begun, found)
        return found

    def is_kept(self, job: Job) -> bool:
        """Whether the result is kept for the next run."""
        return job.config.cache and len(self.files) > 1

    def own(self, job: Job) -> Job:
        """The job of this part alone."""
        return job._replace(repository=self.repository)


# Checks parts of a run, each once, and gives them with their results as they come.
Checked = Generator[tuple[Part, CheckResult], None, None]
Elsewhere = Callable[[Sequence[Part], Job, TargetResolver], Checked]


def check_folders(paths: Sequence[str], job: Job, resolver: TargetResolver, elsewhere: Elsewhere | None = None) -> CheckResult:
    """Check what lies on disk, each repository for itself."""
    found = by_repository(files_of(paths, job)) or {"": []}
    parts = [Part(repository, tuple(files), tuple(paths)) for repository, files in found.items()]
    results = {part: known for part in parts if (known := part.known(job)) is not None}
    todo = [part for part in parts if part not in results]
    checked = partial(elsewhere or here, todo, job, resolver)
    if len(parts) < 2:
        results.update(checked())
        return results[parts[0]]
    sizes = {part: size_of(part.files, math.inf) for part in todo}
    job.progress.begin("checking repositories", len(parts), sum(sizes.values()))
    job.progress.step(len(results), 0)
    try:
        with closing(checked()) as answers:
            for part, result in answers:
                results[part] = result
                job.progress.step(1, sizes[part])
    except KeyboardInterrupt:
        if not results:
            raise
        raise Interrupted(together([results[part] for part in parts if part in results])) from None
    return together([results[part] for part in parts])


def here(parts: Sequence[Part], job: Job, resolver: TargetResolver) -> Checked:
    """The results of parts from this machine."""
    workers = workers_for([file for part in parts for file in part.files], job.config) if len(parts) > 1 else 1
    return in_turn(parts, job, resolver) if workers < 2 else side_by_side(parts, job, workers)


def in_turn(parts: Sequence[Part], job: Job, resolver: TargetResolver) -> Checked:
    """The results of parts, one after the other; what one has left behind is thrown away before the next."""
    own = job if len(parts) < 2 else job._replace(progress=SILENT)
    for number, part in enumerate(parts):
        if number:
            gc.collect()
        yield part, part.check(own, resolver)


def side_by_side(parts: Sequence[Part], job: Job, workers: int) -> Checked:
    """The results of parts from worker processes, the largest first."""
    from concurrent.futures import as_completed

    order = sorted(parts, key=lambda part: -size_of(part.files, math.inf))
    with worker_pool(min(workers, len(parts)), job, [part.files[0] for part in parts]) as pool:
        running = {pool.submit(check_part, part): part for part in order}
        for done in as_completed(running):
            yield running[done], done.result()


def check_part(part: Part) -> CheckResult:
    """Check a part in a worker process."""
    assert _worker is not None
    gc.collect()
    return part.check(*_worker)


def together(results: Sequence[CheckResult]) -> CheckResult:
    """The results of several repositories as one."""
    if len(results) == 1:
        return results[0]
    passed_over = [[(path, text.removeprefix(SKIPPED)) for path, text in found.unjudged if text.startswith(SKIPPED)] for found in results]
    remarks = [note for found, skipped in zip(results, passed_over, strict=True) for note in found.notes[len({t for _, t in skipped}) :]]
    stale: Counter[Key] = Counter()
    for found in results:
        stale |= Counter(found.stale)
    return CheckResult(
        in_order({finding for found in results for finding in found.findings}),
        sum(found.files for found in results),
        tuple(sorted({fault for found in results for fault in found.faults})),
        notes_of(skip for skipped in passed_over for skip in skipped) + tuple(remarks),
        tuple(profile for found in results for profile in found.profiles),
        sum(found.known for found in results),
        stale,
        unjudged=tuple(sorted(told for found in results for told in found.unjudged)),
    )


def examine(paths: Sequence[str], job: Job, resolver: TargetResolver, contents: Mapping[str, bytes]) -> list[FileResult]:
    """What each of `contents` (texts by path, whatever lies on disk) and each file under `paths` gives by itself."""
    if job.config.force_exclude and contents:
        contents = {path: contents[path] for path in kept(contents, job.scopes)}
    return examine_all(files_of(paths, job), job, resolver, contents)


def examine_all(files: Sequence[str], job: Job, resolver: TargetResolver, contents: Mapping[str, bytes]) -> list[FileResult]:
    """What each of `contents` and each of some files gives by itself."""
    results = [check_data(path, data, resolver.targets(path), job.rules(path)) for path, data in contents.items()]
    return results + examine_files([path for path in files if path not in contents], job, resolver)


def files_of(paths: Sequence[str], job: Job) -> list[str]:
    """The files that a run over `paths` reads."""
    config = job.config
    job.progress("looking for files")
    return discover(paths, config.exclude, root=config.root, force_exclude=config.force_exclude, scopes=job.scopes) if paths else []


def examine_files(files: Sequence[str], job: Job, resolver: TargetResolver) -> list[FileResult]:
    """What each of some files on disk gives by itself."""
    models = [path for path in files if is_model(path)]
    if not models:
        return check_files(files, job, resolver)
    from mplint.engine.check_model import check_models

    chosen = set(models)
    return check_files([path for path in files if path not in chosen], job, resolver) + check_models(models, job, resolver)


def check_files(files: Sequence[str], job: Job, resolver: TargetResolver) -> list[FileResult]:
    """The results of `files`, in their order, from the cache where it knows them."""
    if not job.config.cache or len(files) < 2:
        found = {result.path: result for result in run(files, job, resolver)}
        return [found[path] for path in files]
    from mplint.engine.cache import Cache

    cache = Cache(job)
    known = cache.lookup(files, resolver)
    todo = [path for path in files if path not in known]
    fresh = {result.path: result for result in run(todo, job, resolver)}
    if fresh:
        cache.store([result for result in fresh.values() if not result.note], resolver)
    return [known.get(path) or fresh[path] for path in files]


def run(files: Sequence[str], job: Job, resolver: TargetResolver) -> list[FileResult]:
    """Check `files` here, or with worker processes where there is enough to do."""
    workers = workers_for(files, job.config)
    job.progress.begin("reading files", len(files))
    if workers < 2:
        return check_here(files, job, resolver)
    order = sorted(range(len(files)), key=lambda i: i % (workers * 12))
    step = max(1, len(files) // (workers * 12))
    chunks = [[files[i] for i in order[start : start + step]] for start in range(0, len(order), step)]
    results = []
    with worker_pool(workers, job, files) as pool:
        for chunk in pool.map(check_chunk, chunks):
            results += chunk
            job.progress.step(len(chunk))
    return results


def worker_pool(workers: int, job: Job, files: Sequence[str]) -> AbstractContextManager[ProcessPoolExecutor]:
    """Processes that share the work on some files."""
    if METHOD == "fork":
        for rule in job.rules_of(files):  # once here, and not once in every worker
            rule.load()
    return pool_of(workers, keep_job, job)


def workers_for(files: Sequence[str], config: Config) -> int:
    """How many processes check `files`: one where there is too little to do for more, and where this is one of several already."""
    if is_worker():
        return 1
    workers = min(processors(), MOST_WORKERS) if config.jobs is None else config.jobs
    return workers if workers > 1 and len(files) > 1 and size_of(files) >= PARALLEL_BYTES else 1


_worker: tuple[Job, TargetResolver] | None = None


def keep_job(job: Job) -> None:
    """Keep in this worker process what every chunk needs."""
    global _worker
    _worker = (job._replace(progress=SILENT), TargetResolver(job.config, job.scopes))


def check_chunk(files: Sequence[str]) -> list[FileResult]:
    """Check some files in a worker process."""
    import marshal

    assert _worker is not None
    found = check_here(files, *_worker)
    return [r._replace(lowered=marshal.dumps(r.lowered)) if r.lowered is not None else r for r in found]


def check_here(files: Iterable[str], job: Job, resolver: TargetResolver) -> list[FileResult]:
    """Check files one after the other in this process, with the cyclic collector held off between them."""
    results = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number, path in enumerate(files, 1):
            results.append(check_file(path, resolver, job.rules(path)))
            job.progress.step()
            if number % COLLECT_EVERY == 0:
                gc.collect(1)  # what survived an earlier turn is no garbage
    finally:
        if collecting:
            gc.enable()
    return results


def check_file(path: str, resolver: TargetResolver, rules: Sequence[Entry]) -> FileResult:
    """Read and check one file."""
    try:
        data = read_file(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return FileResult(path, (unreadable(path, InputError(f"can't be read: {reason}")),))
    return check_data(path, data, resolver.targets(path), rules)


def size_of(files: Iterable[str], most: float = PARALLEL_BYTES) -> int:
    """The total size of `files` in bytes, as far as it matters for the choice of workers."""
    total = 0
    for path in files:
        try:
            total += os.stat(path).st_size
        except OSError:
            continue
        if total >= most:
            break
    return total


def conclude(
    results: Sequence[FileResult],
    job: Job,
    contents: Mapping[str, bytes],
    others: set[str] | None = None,
    *,
    keep: bool | None = None,
    share: bool = False,
    stage: str = "running the programs",
) -> CheckResult:
    """Ask the whole program, suppress and sort what the files gave; `contents` are texts checked in the place of files on disk.

    What else was read or looked for is added to `others`. `keep`: what the whole program says is kept (by default without `contents`).
    `share`: other processes may run parts of the programs.
    """
    job.progress(stage)
    rules = job.scopes.rules
    names = {code: rule.name for code, rule in rules.items()}
    faults = {fault for result in results for fault in result.faults}
    for result in results:
        if result.note and is_r(result.path) and os.path.abspath(result.path) in job.named:
            raise UsageError(f"{result.path}: {result.note}")
    programs = [result for result in results if not is_config(result.path) and not is_model(result.path)]
    asked, known = ask_programs(programs, job, contents, faults, others, keep=not contents if keep is None else keep, share=share)
    shown: set[Finding] = set()
    hidden: set[Finding] = set()
    for result in results:
        if result.doubtful and result.path not in contents and os.path.abspath(result.path) not in job.named:
            continue
        scope = job.scopes.of(result.path)
        enabled = scope.codes - scope.ignores.codes(result.path) - job.scopes.given.codes(result.path)
        told = (informed(f, known.get(spot(f))) for f in result.findings)
        kept = [f for f in (*told, *asked.get(result.path, ())) if f.code in enabled]
        if result.comments:
            kept = suppressed(result, kept, enabled - scope.idle, names, contents, faults)
        kept = [judged(f, rules, scope.severities) for f in kept] if scope.severities else kept
        sure = {f for f in kept if f.confidence.rank >= scope.config.min_confidence.rank}
        wanted = {f for f in sure if f.severity is not Severity.INFO or f.code in scope.advised}
        shown |= wanted
        hidden.update(f for f in kept if f not in wanted)
    if any(finding.fix is not None and finding.fix.changes for finding in shown):
        from mplint.engine.readers import left_to_hand

        shown = left_to_hand(shown, programs, partial(bytes_of, contents=contents))
    checked = [result.path for result in results if not result.note]
    profiles = tuple(result.profile for result in results if result.profile is not None)
    notes = notes_of((result.path, result.note) for result in results if result.note) + remarks_of(results, job.named)
    found = CheckResult(in_order(shown), len(checked), tuple(sorted(faults)), notes, profiles, unjudged=unjudged_in(results))
    return found if job.config.baseline is None else without_known(found, in_order(hidden), job, checked, contents)


def ask_programs(
    programs: Sequence[FileResult],
    job: Job,
    contents: Mapping[str, bytes],
    faults: set[Fault],
    others: set[str] | None,
    *,
    keep: bool,
    share: bool = False,
) -> tuple[dict[str, list[Finding]], dict[tuple[object, ...], Finding]]:
    """What the whole program says, by path, and apart from that what it says of what a file shows by itself, by its spot."""
    asked: dict[str, list[Finding]] = {}
    known: dict[tuple[object, ...], Finding] = {}  # what the program says of what a file shows by itself
    asking = job.rules_of(result.path for result in programs)
    if any(rule.program for rule in asking):
        from mplint.engine.interpret import program_findings

        own = {spot(f): f for result in programs for f in result.findings}
        caches: list[ProgramCache] = []

        def remember(repository: str) -> ProgramCache:
            from mplint.engine.cache import ProgramCache

            caches.append(ProgramCache(job.config, job.codes, repository))
            return caches[-1]

        remembered = remember if job.config.cache and len(programs) > 1 and keep else None
        targets = TargetResolver(job.config, job.scopes).targets
        read = partial(bytes_of, contents=contents)
        shared = (workers_for([result.path for result in programs], job.config) if share else 1, job.progress)
        for path, more in program_findings(programs, read, asking, faults, remembered, targets, shared).items():
            asked.setdefault(path, []).extend(f for f in more if spot(f) not in own)
            known |= {spot(f): f for f in more if spot(f) in own and f.confidence.rank < own[spot(f)].confidence.rank}
        if others is not None:
            others.update(*(cache.others for cache in caches))
    return asked, known


def unjudged_in(results: Iterable[FileResult]) -> tuple[tuple[str, str], ...]:
    """Paths of models with what could not be judged in them, sorted."""
    return tuple(sorted((r.path, text) for r in results for text in (*r.unjudged, *((SKIPPED + r.note,) if r.note else ()))))


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings in the order of every report."""
    return tuple(sorted(findings, key=lambda f: f.sort_key))


def without_known(
    result: CheckResult, hidden: Sequence[Finding], job: Job, checked: Iterable[str], contents: Mapping[str, bytes]
) -> CheckResult:
    """A result without the findings that the baseline holds; `hidden` are those that are not shown and keep their entries all the same."""
    from mplint.engine.baseline import Keys, compare, read, stale
    from mplint.engine.texts import Texts

    assert job.config.baseline is not None
    folder = os.path.dirname(os.path.abspath(job.config.baseline))
    keys = Keys(folder, Texts(contents))
    new = compare(result.findings, read(job.config.baseline), keys)
    unmet = compare(hidden, new.unmet, keys).unmet
    unread = {finding.location.path for finding in result.findings if finding.code == UnreadableInput.code}
    read_now = [keys.path(path) for path in checked if path not in unread]
    gone = stale(unmet, read_now, lambda path: job.scopes.of(os.path.join(folder, path)).codes, folder)
    return result._replace(findings=tuple(new.fresh), known=new.known, stale=gone)


def spot(finding: Finding) -> tuple[object, ...]:
    """What findings share that speak of the same mistake: the code and the line."""
    return (finding.code, *finding.location[:2], finding.location.cell)


def informed(finding: Finding, known: Finding | None) -> Finding:
    """What a file shows by itself, in the words of the whole program where that knows a condition under which it holds."""
    if known is None or " when " not in known.message:
        return finding
    return known._replace(location=finding.location, severity=finding.severity, fix=finding.fix)


def judged(finding: Finding, rules: Mapping[str, Entry], severe: Mapping[str, Severity]) -> Finding:
    """A finding with the severity that the configuration gives to its rule; one that the rule holds to be milder than usual stays so."""
    severity = severe.get(finding.code)
    if severity is None or (finding.severity.rank < rules[finding.code].severity.rank and finding.severity.rank <= severity.rank):
        return finding
    return finding._replace(severity=severity)


def remarks_of(results: Iterable[FileResult], named: frozenset[str]) -> tuple[str, ...]:
    """What could not be told of the models that were named, or that live in memory."""
    asked = (r for r in results if r.remarks and (os.path.abspath(r.path) in named or not os.path.exists(r.path)))
    return tuple(f"{result.path}: {remark}" for result in asked for remark in result.remarks)


def notes_of(skipped: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Each note on models and programs in R that were passed over once, with the number of files that it speaks of."""
    paths: dict[str, list[str]] = {}
    for path, note in skipped:
        paths.setdefault(note, []).append(path)
    counts = {note: f" and {len(found) - 1} more" if len(found) > 1 else "" for note, found in paths.items()}
    return tuple(f"{found[0]}{counts[note]}: {SKIPPED}{note}" for note, found in paths.items())


def bytes_of(path: str, contents: Mapping[str, bytes]) -> bytes:
    """The bytes that were checked under the name `path`."""
    data = contents.get(path)
    return read_file(path) if data is None else data


def suppressed(
    result: FileResult,
    findings: list[Finding],
    enabled: frozenset[str],
    names: dict[str, str],
    contents: Mapping[str, bytes],
    faults: set[Fault],
) -> list[Finding]:
    """The findings of a file that its comments leave, with those about the comments themselves; what fails is added to `faults`."""
    from mplint.engine.suppress import suppress
    from mplint.python.load import load

    try:
        return suppress(load(result.path, bytes_of(result.path, contents)), findings, enabled, names)
    except (OSError, InputError):
        return findings
    except Exception as error:
        faults.add(Fault(result.path, "suppressing", describe(error)))
        return findings
