"""Which files a conversion may read and write."""

from __future__ import annotations

import os

from mplint.cli.output import ensure_writable
from mplint.errors import UsageError

SAVED_MODEL = "saved_model.pb"
# Endings that say of a file what it is; a conversion keeps it.
ENDINGS = (".onnx", ".keras", ".pt2", ".py", ".pyw", ".ipynb")


def check_paths(source: str, target: str | None, dry: bool, report: str | None) -> None:
    """Raise UsageError where the input is missing, or where the output would overwrite it, is in the way, or has no folder."""
    folder = savedmodel_folder(source)
    if folder is None and not os.path.isfile(source):
        what = "this is a folder, and no SavedModel (it has no saved_model.pb)" if os.path.isdir(source) else "no such file"
        raise UsageError(f"{source}: {what}")
    if target is None:
        if not dry:
            raise UsageError("say where to write the result with -o OUT, or look at the plan with --dry-run")
    else:
        _check_target(source, folder, target)
    for path in filter(None, (target, report)):
        ensure_writable(path)
    if report is not None:
        check_report(report, target, (".json", ".html"))


def check_report(report: str, target: str | None, endings: tuple[str, ...]) -> None:
    """Raise UsageError where a report can't be written under its name."""
    if not report.endswith(endings):
        raise UsageError(f"--report {report}: the name does not end with {' or '.join(endings)}")
    if target is not None and os.path.abspath(report) == os.path.abspath(target):
        raise UsageError(f"--report {report} is the file that the result is written to")
    if os.path.exists(report) and not os.path.isfile(report):
        raise UsageError(f"--report {report} is no regular file")


def savedmodel_folder(source: str) -> str | None:
    """The folder of a SavedModel that is given as such or by its saved_model.pb; None for any other path."""
    folder = os.path.dirname(os.path.abspath(source)) if os.path.basename(source) == SAVED_MODEL else source
    return folder if os.path.isfile(os.path.join(folder, SAVED_MODEL)) else None


def _check_target(source: str, folder: str | None, target: str) -> None:
    if os.path.exists(target) and os.path.samefile(folder or source, target):
        raise UsageError(f"-o {target} is the input itself, which is never overwritten")
    if folder is None:
        if os.path.isdir(target):
            raise UsageError(f"-o {target} is a folder: give the name of the file to write")
        if os.path.exists(target) and not os.path.isfile(target):
            raise UsageError(f"-o {target} is no regular file")
        kind = os.path.splitext(source)[1]
        if kind == ".pt2" and target.endswith(".onnx"):
            return
        if kind in ENDINGS and target.endswith(tuple(ending for ending in ENDINGS if ending != kind)):
            raise UsageError(f"-o {target}: {source} becomes a {kind} file")
        return
    inside, outside = os.path.realpath(target), os.path.realpath(folder)
    if os.path.commonpath((inside, outside)) == outside:
        raise UsageError(f"-o {target} lies in the input folder, which is never touched")
    if os.path.isfile(target):
        raise UsageError(f"-o {target} is a file: a SavedModel is written as a folder")
    if os.path.isdir(target) and os.listdir(target):
        raise UsageError(f"-o {target} is a folder with something in it: name one that does not exist yet")
