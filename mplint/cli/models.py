"""`mplint convert` of several models, of models at addresses, or on other machines: each in a process of its own."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from mplint.cli.output import ensure_writable
from mplint.cli.paths import check_report, savedmodel_folder
from mplint.cli.terminal import CLEAN, FAILED, FOUND, complain, progress_of, tell
from mplint.engine.addresses import There, expanded
from mplint.engine.errand import Done, Errand, carried_out_here
from mplint.engine.parcel import identity
from mplint.engine.progress import Progress
from mplint.errors import UsageError
from mplint.graph.names import is_address
from mplint.python.suffixes import PROGRAMS

UNCHANGED = 3
# What a model may give, and how it is called; the first of these that one gives is the exit code of the run.
KINDS = {
    FAILED: "could not be read or written",
    FOUND: "wrong or unproven",
    UNCHANGED: "with nothing to convert",
    CLEAN: "converted and proven",
}
RENAMED = {".h5": ".keras", ".hdf5": ".keras", ".pt": ".pt2", ".jit": ".pt2", ".ts": ".pt2"}
# Options of one model that lies here: they run code of the user, or write nothing but text.
ALONE = {"metric": "--metric", "explore": "--explore", "apply": "--apply"}


def run(options: argparse.Namespace) -> int:
    """Convert the models and return the exit code; raises UsageError, before anything is converted, for misuse."""
    errands = _errands(options)
    counts = dict.fromkeys(KINDS, 0)
    with progress_of("models that were done are written, each as a whole") as progress:
        for errand, done in _in_order(errands, _results(errands, options.executor, progress), progress):
            progress.clear()
            _tell(errand, done, alone=len(errands) == 1)
            counts[done.code if done.code in counts else FAILED] += 1
    if len(errands) > 1:
        told = ", ".join(f"{count} {kind}" for code, kind in reversed(KINDS.items()) if (count := counts[code]))
        sys.stdout.write(f"\n{len(errands)} models: {told}.\n")
    return next(code for code in KINDS if counts[code])


def _results(errands: list[Errand], executor: str | None, progress: Progress) -> Iterator[tuple[Errand, Done]]:
    """What comes of errands, as it comes."""
    if executor is None:
        progress.begin("converting models", len(errands))
        yield from ((errand, carried_out_here(errand)) for errand in errands)
        return
    from mplint.engine.cluster import Cluster

    def warn(text: str) -> None:
        progress.clear()
        complain(text)

    progress("starting the cluster")
    with Cluster(executor, warn) as cluster:
        progress.begin("converting models", len(errands))
        yield from cluster.carry(errands)


def _in_order(errands: list[Errand], results: Iterable[tuple[Errand, Done]], progress: Progress) -> Iterator[tuple[Errand, Done]]:
    """Results in the order of what was asked, each as soon as those before it are there."""
    known: dict[Errand, Done] = {}
    waiting = iter(errands)
    errand = next(waiting)
    for ended, done in results:
        known[ended] = done
        progress.step()
        while errand in known:
            yield errand, known.pop(errand)
            errand = next(waiting, errand)


def _tell(errand: Errand, done: Done, *, alone: bool) -> None:
    """Say what came of an errand, and write its report."""
    sys.stdout.write(done.out)
    tell(done.err if alone else done.err.replace("mplint: ", f"mplint: {errand.source}: "))
    if errand.report is not None and done.report:
        try:
            with open(errand.report, "wb") as stream:
                stream.write(done.report)
        except OSError as error:
            raise UsageError(f"{errand.report} can't be written: {(error.strerror or str(error)).lower()}") from None


def _errands(options: argparse.Namespace) -> list[Errand]:
    """What is to be converted to what; raises UsageError where that is unclear, or can't be."""
    for name, option in ALONE.items():
        if getattr(options, name):
            raise UsageError(f"{option} goes with one model that lies here, without --executor")
    if options.output is None and not options.dry_run:
        raise UsageError("say where to write the results with -o FOLDER, or look at the plans with --dry-run")
    if options.executor is not None:
        _check_executor(options)
    found = [(place, there) for place in options.inputs for there in _models_at(place)]
    alone = len(found) == 1 and found[0][0] == found[0][1].address and not (options.output or "").endswith("/")
    if options.report is not None:
        if len(found) > 1:
            raise UsageError("--report goes with one model")
        check_report(options.report, None, (".json", ".html"))
        ensure_writable(options.report)
    taken: dict[str, str] = {}
    errands = []
    for _, there in found:
        target = None if options.dry_run else options.output if alone else f"{options.output.rstrip('/')}/{_renamed(there.name)}"
        if target is not None:
            if target in taken:
                raise UsageError(f"{there.address} and {taken[target]} would both become {target}")
            taken[target] = there.address
            _check_target(there.address, target)
        calibration = tuple(options.calibration)
        errands.append(Errand(identity(), os.getcwd(), there.address, target, _given(options), calibration, options.report))
    return errands


def _models_at(place: str) -> list[There]:
    """The models that the user named by a path or an address."""
    if place.endswith(PROGRAMS):
        raise UsageError(f"{place}: a program is converted by itself, where it lies")
    if is_address(place):
        return expanded(place)
    if savedmodel_folder(place) is None and not os.path.isfile(place):
        what = "this is a folder, and no SavedModel (it has no saved_model.pb)" if os.path.isdir(place) else "no such file"
        raise UsageError(f"{place}: {what}")
    return [There(place, os.path.basename(os.path.normpath(place)))]


def _check_target(source: str, target: str) -> None:
    if source == target or (not is_address(source) and os.path.exists(target) and os.path.samefile(source, target)):
        raise UsageError(f"-o {target} is the input itself, which is never overwritten")
    if not is_address(target) and os.path.isdir(target) and not os.path.isdir(source) and not is_address(source):
        raise UsageError(f"-o {target} is a folder: give the name of the file to write")


def _check_executor(options: argparse.Namespace) -> None:
    """Raise UsageError where workers elsewhere could not do what is asked."""
    from mplint.engine.cluster import LOCAL, Cluster

    Cluster(options.executor, complain)  # looks at the address alone
    if options.target == "auto":
        raise UsageError("--executor goes with a named target: `auto` would ask the machines of the workers")
    if urlsplit(options.executor).hostname == LOCAL:
        return
    for place in filter(None, (*options.inputs, options.output, *options.calibration)):
        if not is_address(place):
            raise UsageError(f"{place} is a path on this machine: give workers an address, such as s3://…, or file://… on a shared disk")


def _renamed(name: str) -> str:
    """The name of the result for the name of a model: some become files of another kind."""
    base, ending = os.path.splitext(name)
    return base + RENAMED.get(ending, ending)


def _given(options: argparse.Namespace) -> tuple[str, ...]:
    """The options of `mplint convert` for each of the models."""
    several = {"--policy": options.policy, "--tolerance": options.tolerance, "--keep": options.keep, "--input-range": options.input_range}
    single = {"--target": options.target, "--runtime": options.runtime, "--device": options.device}
    switches = {"--half-io": options.half_io, "--keep-io": options.keep_io, "--dry-run": options.dry_run, "--force": options.force}
    given = [word for option, values in several.items() for value in values for word in (option, value)]
    given += [word for option, value in single.items() if value is not None for word in (option, value)]
    return (*given, *(option for option, on in switches.items() if on))
