"""`mplint check`: find mistakes and report them."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mplint.cli.arguments import EXIT_EPILOG, Parser, add_common, add_paths, add_ranges, prepare
from mplint.cli.output import ensure_text_file, write_text
from mplint.cli.paths import check_report
from mplint.cli.terminal import CLEAN, complain, exit_code, progress_of, show_faults, style_of, tell
from mplint.config import POLICIES
from mplint.errors import UsageError
from mplint.report.formats import FORMATS, PLAIN

if TYPE_CHECKING:
    from mplint.config import Config
    from mplint.engine.evidence import Saved
    from mplint.engine.progress import Progress
    from mplint.engine.run import CheckResult
    from mplint.graph.model import ModelGraph

EPILOG = EXIT_EPILOG


def add_options(parser: Parser) -> None:
    """The options of `mplint check`."""
    add_paths(parser)
    parser.add_argument("--output-format", choices=FORMATS, default="text", metavar="FORMAT", help=f"{', '.join(FORMATS)} (default: text)")
    parser.add_argument("--output-file", metavar="FILE", help="write the report there, and only the summary to standard output")
    parser.add_argument("--report", metavar="FILE.html", help="write a page of HTML as well: findings with source, models as maps")
    parser.add_argument(
        "--statistics", action="store_true", help="count the findings of each rule instead of listing them; sum up the precision of models"
    )
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("-q", "--quiet", action="store_true", help="write the findings and nothing else")
    amount.add_argument(
        "-v", "--verbose", action="store_true", help="say what is read, for what, by how many processes, and how long it took"
    )
    parser.add_argument("--fix", action="store_true", help="apply the safe fixes first, as `mplint fix --apply` does")
    parser.add_argument("--add-ignores", metavar="REASON", help="write a comment at every finding that ignores it for REASON")
    shown = parser.add_argument_group("instead of checking")
    shown.add_argument("--show-files", action="store_true", help="list the files that would be checked")
    shown.add_argument("--show-settings", action="store_true", help="print the configuration that is in force, and where it comes from")
    models = parser.add_argument_group("models")
    models.add_argument("--runtime", metavar="NAME", help="what will run them, such as onnxruntime-cpu or tensorrt")
    models.add_argument(
        "--policy", choices=POLICIES, metavar="POLICY", help="judge float32 models as if converted to mixed_float16 or mixed_bfloat16"
    )
    add_ranges(models)
    models.add_argument(
        "--model", action="append", default=[], metavar="MODULE:FACTORY", help="check the model that FACTORY() makes; runs your code"
    )
    add_common(parser)
    parser.add_argument("--evidence", metavar="FILE", help="judge findings by a run that `mplint doctor` has saved: refuted ones are info")
    parser.add_argument(
        "--executor", metavar="URL", help="check repositories on a dask cluster: dask://HOST:PORT, or dask://local?workers=N for one here"
    )
    changes = parser.add_argument_group("which change")
    changes.add_argument("--since", metavar="REF", help="report what changed since git commit REF: findings on changed lines, and new ones")
    changes.add_argument("--staged", action="store_true", help="report what the next commit would change")


def run(options: Namespace) -> int:
    """Check, report, and return the exit code."""
    if options.statistics and options.output_format not in PLAIN:
        raise UsageError(f"--statistics goes with --output-format {', '.join(PLAIN)}")
    if options.report is not None:
        check_report(options.report, options.output_file, (".html",))
    for path in filter(None, (options.output_file, options.report)):
        ensure_text_file(path)
    _ensure_files(options)
    config, paths, texts = prepare(options)
    evidence = _evidence(options.evidence)
    if options.show_files or options.show_settings:
        return _show(options, config, paths)
    from mplint.engine.results import Interrupted

    begun = time.monotonic()
    left = "nothing is reported"
    if options.fix or options.add_ignores is not None:
        left += ", and every file is as it was or changed as a whole"
    with progress_of(left, shown=not options.quiet) as progress:
        failures = _fix(config, paths, progress) if options.fix else ()
        models = _models(options.model)
        try:
            result, given = _checked(options, config, paths, texts, models, progress)
        except Interrupted as stop:
            if options.output_format not in PLAIN or options.output_file is not None or options.report is not None:
                raise KeyboardInterrupt from None
            progress.clear()
            _report(options, config, stop.result, {}, ())
            raise
        progress("writing the report")
        progress.clear()
        if options.add_ignores is not None:
            result, unwritten = _ignored(options, result)
            failures += unwritten
        if evidence is not None:
            result = _judged(result, evidence, given, quiet=options.quiet)
    faults = _report(options, config, result, given, models)
    _remark(options, config, result, given)
    if options.verbose:
        _tell_more(config, paths, time.monotonic() - begun)
    for failure in failures:
        complain(f"error: {failure}")
    show_faults(faults)
    return exit_code(result.findings, bool(faults or failures), config, options.exit_zero)


def _checked(
    options: Namespace, config: Config, paths: Sequence[str], texts: Mapping[str, bytes], models: Sequence[ModelGraph], progress: Progress
) -> tuple[CheckResult, Mapping[str, bytes]]:
    """What is found, and the texts that were checked in the place of files."""
    from mplint.engine.run import check_paths

    if models and not options.paths:
        paths = ()
    if options.since is not None or options.staged:
        return _changed(options, config, paths, progress)
    if options.executor is not None:
        from mplint.engine.cluster import Cluster, check_config

        check_config(config)

        def warn(text: str) -> None:
            progress.clear()
            complain(text)

        progress("starting the cluster")
        with Cluster(options.executor, warn) as cluster:
            return check_paths(paths, config, progress=progress, elsewhere=cluster.check), texts
    return check_paths(paths, config, given=texts, models=models, progress=progress), texts


def _report(options: Namespace, config: Config, result: CheckResult, given: Mapping[str, bytes], models: Sequence[ModelGraph]) -> list[str]:
    """Write the report, and the page where one is asked for; return mplint's own faults."""
    from mplint.report.formats import Reported, report, summary
    from mplint.report.style import Style

    faults = [str(fault) for fault in result.faults]
    style = style_of(options, sys.stdout)
    reported = Reported(result, config, given, faults, style if options.output_file is None else Style())
    text, more = report(reported, options.output_format, statistics=options.statistics, quiet=options.quiet)
    if options.output_file is not None:
        write_text(options.output_file, text)
        text = "" if options.quiet else summary(reported._replace(style=style))
    sys.stdout.write(text)
    if options.report is not None:
        from mplint.report.page import check_page

        html, others = check_page(reported, models)
        write_text(options.report, html)
        more += [fault for fault in others if fault not in more]
    return faults + more


def _remark(options: Namespace, config: Config, result: CheckResult, given: Mapping[str, bytes]) -> None:
    """Say what was passed over, where the report does not."""
    from mplint.engine.results import SKIPPED

    listed = options.output_format in ("text", "full", "grouped") and not options.quiet and not options.statistics
    for note in result.notes:
        if not (listed and f": {SKIPPED}" in note):
            complain(f"note: {note}")
    if result.stale and not options.quiet:
        gone = sum(result.stale.values())
        what = "1 known finding is" if gone == 1 else f"{gone} known findings are"
        then = f"drops {'it' if gone == 1 else 'them'}"
        if _are_moved(config, result, given):
            then += ", `mplint baseline update` follows files that have other names now"
        complain(f"note: {config.baseline}: {what} gone; `mplint baseline prune` {then}")
    if (options.output_format == "concise" or options.quiet) and not options.statistics:
        for path, reason in result.unjudged:
            complain(f"note: {path}: not judged: {reason}")


def _are_moved(config: Config, result: CheckResult, given: Mapping[str, bytes]) -> bool:
    """Whether some findings are those that the baseline holds of files which are gone."""
    from mplint.engine.baseline import Keys, are_moved
    from mplint.engine.texts import Texts

    folder = os.path.dirname(os.path.abspath(config.baseline or ""))
    return are_moved(result.stale, result.findings, Keys(folder, Texts(given)), folder)


def _tell_more(config: Config, paths: Sequence[str], seconds: float) -> None:
    """Say what was read, for what, by how many processes, and how long it took."""
    from mplint.engine.cache import cache_folder
    from mplint.engine.job import Job
    from mplint.engine.run import files_of, workers_for

    job = Job.of(config, paths)
    files = files_of(paths, job)
    sources = [scope.config.source for scope in job.scopes.among(files) if scope.config.source is not None]
    complain(f"configuration: {', '.join(sources) or 'none'}")
    complain(f"target: {config.target or 'no hardware named'}; rules: {len(job.rules_of(files))} of {len(job.scopes.rules)}")
    processes = workers_for(files, config)
    read = f"files: {len(files)}, read by {processes} processes" if processes > 1 else f"files: {len(files)}, read by one process"
    complain(f"{read}; cache: {cache_folder() if config.cache else 'not used'}")
    complain(f"{seconds:.2f} s")


def _show(options: Namespace, config: Config, paths: Sequence[str]) -> int:
    """List the files that would be checked, or the settings that are in force."""
    if options.show_files:
        from mplint.engine.job import Job
        from mplint.engine.run import files_of

        sys.stdout.write("".join(f"{file}\n" for file in files_of(paths, Job.of(config, paths))))
    if options.show_settings:
        from mplint.cli.settings import settings_text
        from mplint.engine.targets import TargetResolver

        sys.stdout.write(settings_text(config, TargetResolver(config).targets(os.path.join(config.root, "mplint.toml"))))
    return CLEAN


def _ensure_files(options: Namespace) -> None:
    """Raise UsageError, before anything is written, where what would be changed are no files, or for no reason."""
    named = "-" not in options.paths and not options.model and not options.staged
    if options.executor is not None and (not named or options.since is not None):
        raise UsageError("--executor goes with files and folders, not with --since, --staged, --model or standard input")
    if options.fix and (not named or options.since is not None):
        raise UsageError("--fix goes with files, not with --since, --staged, --model or standard input")
    if options.add_ignores is not None and not named:
        raise UsageError("--add-ignores goes with files, not with --staged, --model or standard input")
    if options.add_ignores is not None and not options.add_ignores.strip():
        raise UsageError("--add-ignores needs a reason")


def _fix(config: Config, paths: Sequence[str], progress: Progress) -> tuple[str, ...]:
    """Apply the safe fixes, say what was fixed, and return what could not be written, or failed."""
    from mplint.engine.fix import fix_paths
    from mplint.report.fixes import mended_report

    result = fix_paths(paths, config, unsafe=False, apply=True, progress=progress)
    progress.clear()
    tell(mended_report(result.mended))
    return (*result.failures, *(f"internal error: {fault}" for fault in result.faults))


def _ignored(options: Namespace, result: CheckResult) -> tuple[CheckResult, tuple[str, ...]]:
    """Write the comments, say how many, and return what is left, with what could not be written."""
    from mplint.engine.ignores import add_ignores
    from mplint.report.summary import counted

    ignored = add_ignores(result.findings, options.add_ignores)
    complain(f"{counted(ignored.findings, 'finding')} in {counted(ignored.files, 'file')} ignored from now on")
    return result._replace(findings=ignored.left), ignored.failures


def _evidence(path: str | None) -> Saved | None:
    if path is None:
        return None
    from mplint.engine.evidence import read_evidence

    return read_evidence(path)


def _judged(result: CheckResult, evidence: Saved, given: Mapping[str, bytes], *, quiet: bool) -> CheckResult:
    """The result with what a run says of each finding; says how many it judges."""
    from mplint.engine.evidence import judge
    from mplint.engine.texts import Texts
    from mplint.report.summary import counted

    judged = judge(result.findings, evidence, Texts(given))
    if not quiet:
        told = ", ".join(f"{number} {verdict}" for verdict, number in judged.verdicts.items() if number) or "none"
        complain(f"note: by a run of {counted(evidence.steps, 'step')}: {told}")
        if judged.unmet:
            complain(f"note: {counted(judged.unmet, 'finding')} of that run {'is' if judged.unmet == 1 else 'are'} not among these")
    return result._replace(findings=judged.findings)


def _changed(options: Namespace, config: Config, paths: Sequence[str], progress: Progress) -> tuple[CheckResult, Mapping[str, bytes]]:
    """The findings of a change, and the texts that were checked in the place of files."""
    if options.since is not None and options.staged:
        raise UsageError("--since and --staged exclude each other")
    if options.model or "-" in options.paths:
        raise UsageError(f"{'--staged' if options.staged else '--since'} goes with files, not with --model or standard input")
    from mplint.engine.changes import check_changes

    return check_changes(paths, config, options.since, progress)


def _models(names: Sequence[str]) -> list[ModelGraph]:
    """The models that the user's own functions make, named `package.module:factory`."""
    if not names:
        return []
    from mplint.cli.factory import graph_of

    found = []
    for name in names:
        complain(f"note: --model imports and runs your code to build {name}")
        found.append(graph_of(name))
    return found
