"""Checking many files: discovery, workers, the whole program, suppressions, and one sorted result."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mplint.catalog import Entry
from mplint.config import Config
from mplint.engine.builtin_rules import unreadable
from mplint.engine.check import check_data
from mplint.engine.discovery import discover, kept
from mplint.engine.job import Job
from mplint.engine.results import CheckResult as CheckResult
from mplint.engine.results import Fault, FileResult
from mplint.engine.select import FileIgnores, asked_for, known_rules, selected, severities
from mplint.engine.targets import TargetResolver
from mplint.errors import describe
from mplint.findings import Finding, Severity
from mplint.graph.names import is_model
from mplint.python.document import InputError
from mplint.python.load import read_file
from mplint.python.suffixes import is_config

if TYPE_CHECKING:
    from mplint.graph.model import ModelGraph

PARALLEL_BYTES = 1_500_000  # below this much source, starting workers costs more than it saves
COLLECT_EVERY = 64


def check_paths(
    paths: Sequence[str],
    config: Config,
    *,
    given: Mapping[str, bytes] = {},
    models: Sequence[ModelGraph] = (),
) -> CheckResult:
    """Check files, folders and globs, and the texts `given` by path, which stand for what lies on disk; `models` are read already.

    Raises UsageError for a missing path, an unknown code or an unknown target.
    """
    job = Job(config, selected(config, known_rules(config)), absolute(paths))
    resolver = TargetResolver(config)
    if config.cache and not given and not models:
        return check_again(paths, job, resolver)
    results = examine(paths, job, resolver, given)
    if models:
        from mplint.engine.check_model import check_graph

        results += [check_graph(model.path, model, resolver.targets(model.path), job.rules()) for model in models]
    return conclude(results, job, given)


def check_again(paths: Sequence[str], job: Job, resolver: TargetResolver) -> CheckResult:
    """The result of the last run that asked the same, where no file that it read has changed; else that of a new one, which is kept."""
    from mplint.engine.cache import AnswerCache

    files = files_of(paths, job.config)
    kept = AnswerCache(job, paths)
    known = kept.lookup(files) if len(files) > 1 else None
    if known is not None:
        return known
    begun = time.time_ns()
    results = examine_files(files, job, resolver)
    others: set[str] = set()
    found = conclude(results, job, {}, others)
    if len(files) > 1 and not found.faults and not found.profiles:
        kept.store(files, {*others, *(path for result in results for path in result.sidecars)}, begun, found)
    return found


def absolute(paths: Iterable[str]) -> frozenset[str]:
    """The absolute paths of `paths`."""
    return frozenset(os.path.abspath(path) for path in paths)


def examine(paths: Sequence[str], job: Job, resolver: TargetResolver, contents: Mapping[str, bytes]) -> list[FileResult]:
    """What each of `contents` (texts by path, whatever lies on disk) and each file under `paths` gives by itself."""
    config = job.config
    if config.force_exclude and contents:
        contents = {path: contents[path] for path in kept(contents, config.exclude, root=config.root)}
    results = [check_data(path, data, resolver.targets(path), job.rules()) for path, data in contents.items()]
    return results + examine_files([path for path in files_of(paths, config) if path not in contents], job, resolver)


def files_of(paths: Sequence[str], config: Config) -> list[str]:
    """The files that a run over `paths` reads."""
    return discover(paths, config.exclude, root=config.root, force_exclude=config.force_exclude) if paths else []


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

    cache = Cache(job.config, job.codes)
    known = cache.lookup(files, resolver)
    todo = [path for path in files if path not in known]
    fresh = {result.path: result for result in run(todo, job, resolver)}
    if fresh:
        cache.store(fresh.values(), resolver)
    return [known.get(path) or fresh[path] for path in files]


def run(files: Sequence[str], job: Job, resolver: TargetResolver) -> list[FileResult]:
    """Check `files` here, or with worker processes where there is enough to do."""
    workers = min(os.cpu_count() or 1, 8)
    if workers < 2 or len(files) < 2 or size_of(files) < PARALLEL_BYTES:
        return check_here(files, job, resolver)
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    order = sorted(range(len(files)), key=lambda i: i % (workers * 12))
    step = max(1, len(files) // (workers * 12))
    chunks = [[files[i] for i in order[start : start + step]] for start in range(0, len(order), step)]
    method = "fork" if sys.platform == "linux" else "spawn"
    if method == "fork":
        for rule in job.rules():  # once here, and not once in every worker
            rule.load()
    gc.freeze()
    with ProcessPoolExecutor(workers, mp_context=get_context(method), initializer=start_worker, initargs=(job,)) as pool:
        return [result for chunk in pool.map(check_chunk, chunks) for result in chunk]


_worker: tuple[Job, TargetResolver] | None = None


def start_worker(job: Job) -> None:
    """Keep in this worker process what every chunk needs."""
    global _worker
    _worker = (job, TargetResolver(job.config))


def check_chunk(files: Sequence[str]) -> list[FileResult]:
    """Check some files in a worker process."""
    import marshal

    assert _worker is not None
    found = check_here(files, *_worker)
    return [r._replace(lowered=marshal.dumps(r.lowered)) if r.lowered is not None else r for r in found]


def check_here(files: Iterable[str], job: Job, resolver: TargetResolver) -> list[FileResult]:
    """Check files one after the other in this process, with the cyclic collector held off between them."""
    rules = job.rules()
    results = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number, path in enumerate(files, 1):
            results.append(check_file(path, resolver, rules))
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


def size_of(files: Iterable[str]) -> int:
    """The total size of `files` in bytes, as far as it matters for the choice of workers."""
    total = 0
    for path in files:
        try:
            total += os.stat(path).st_size
        except OSError:
            continue
        if total >= PARALLEL_BYTES:
            break
    return total


def conclude(results: Sequence[FileResult], job: Job, contents: Mapping[str, bytes], others: set[str] | None = None) -> CheckResult:
    """Ask the whole program, suppress and sort what the files gave; `contents` are texts checked in the place of files on disk.

    What else was read or looked for to answer is added to `others`.
    """
    rules = known_rules(job.config)
    names = {code: rule.name for code, rule in rules.items()}
    idle = frozenset(code for code, rule in rules.items() if rule.needs_target) if job.config.target is None else frozenset()
    ignores = FileIgnores(job.config, rules)
    advised = asked_for(job.config, rules)
    severe = severities(job.config, rules)
    faults = {fault for result in results for fault in result.faults}
    programs = [result for result in results if not is_config(result.path) and not is_model(result.path)]
    asked: dict[str, list[Finding]] = {}
    known: dict[tuple[object, ...], Finding] = {}  # what the program says of what a file shows by itself
    if any(rule.program for rule in job.rules()):
        from mplint.engine.interpret import program_findings

        own = {spot(f): f for result in programs for f in result.findings}
        remembered = None
        if job.config.cache and len(programs) > 1 and not contents:
            from mplint.engine.cache import ProgramCache

            remembered = ProgramCache(job.config, job.codes)
        targets = TargetResolver(job.config).targets
        read = partial(bytes_of, contents=contents)
        for path, more in program_findings(programs, read, job.rules(), faults, remembered, targets).items():
            asked.setdefault(path, []).extend(f for f in more if spot(f) not in own)
            known |= {spot(f): f for f in more if spot(f) in own and f.confidence.rank < own[spot(f)].confidence.rank}
        if others is not None and remembered is not None:
            others |= remembered.others
    shown: set[Finding] = set()
    hidden: set[Finding] = set()
    for result in results:
        if result.doubtful and result.path not in contents and os.path.abspath(result.path) not in job.named:
            continue
        enabled = job.codes - ignores.codes(result.path)
        told = (informed(f, known.get(spot(f))) for f in result.findings)
        kept = [f for f in (*told, *asked.get(result.path, ())) if f.code in enabled]
        if result.comments:
            kept = suppressed(result, kept, enabled - idle, names, contents, faults)
        kept = [judged(f, rules, severe) for f in kept] if severe else kept
        sure = {f for f in kept if f.confidence.rank >= job.config.min_confidence.rank}
        wanted = {f for f in sure if f.severity is not Severity.INFO or f.code in advised}
        shown |= wanted
        hidden.update(f for f in kept if f not in wanted)
    checked = [result.path for result in results if not result.note]
    profiles = tuple(result.profile for result in results if result.profile is not None)
    notes = notes_of(results) + remarks_of(results, job.named)
    found = CheckResult(in_order(shown), len(checked), tuple(sorted(faults)), notes, profiles, unjudged=unjudged_in(results))
    return found if job.config.baseline is None else without_known(found, in_order(hidden), job, checked, contents)


def unjudged_in(results: Iterable[FileResult]) -> tuple[tuple[str, str], ...]:
    """Paths of models with what could not be judged in them, sorted."""
    return tuple(sorted((r.path, text) for r in results for text in (*r.unjudged, *((f"not checked: {r.note}",) if r.note else ()))))


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
    gone = stale(unmet, map(keys.path, checked), job.codes, folder)
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


def notes_of(results: Iterable[FileResult]) -> tuple[str, ...]:
    """Each note once, with the number of files that it speaks of."""
    paths: dict[str, list[str]] = {}
    for result in results:
        if result.note:
            paths.setdefault(result.note, []).append(result.path)
    counts = {note: f" and {len(found) - 1} more" if len(found) > 1 else "" for note, found in paths.items()}
    return tuple(f"{found[0]}{counts[note]}: not checked: {note}" for note, found in paths.items())


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
