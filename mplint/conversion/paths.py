"""Which files a conversion may read and write."""

from __future__ import annotations

import os

from mplint.errors import UsageError

SAVED_MODEL = "saved_model.pb"


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
        parent = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(parent):
            raise UsageError(f"{path}: the folder {parent} does not exist")
    if report is not None and not report.endswith((".json", ".html")):
        raise UsageError(f"--report {report}: the name ends with neither .json nor .html")


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
        return
    inside, outside = os.path.realpath(target), os.path.realpath(folder)
    if os.path.commonpath((inside, outside)) == outside:
        raise UsageError(f"-o {target} lies in the input folder, which is never touched")
    if os.path.isfile(target):
        raise UsageError(f"-o {target} is a file: a SavedModel is written as a folder")
    if os.path.isdir(target) and os.listdir(target):
        raise UsageError(f"-o {target} is a folder with something in it: name one that does not exist yet")
