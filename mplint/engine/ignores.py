"""Comments that ignore findings where they stand, with the reason why."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mplint.engine.texts import Texts
from mplint.findings import Edit, Finding, Location
from mplint.python.document import InputError
from mplint.python.load import load, read_file
from mplint.python.parse import parse
from mplint.python.suffixes import PROGRAMS
from mplint.rewrite import FixError, apply_edits


class Ignored(NamedTuple):
    """How many findings got a comment in how many files, those that can't have one, and what could not be written."""

    findings: int
    files: int
    left: tuple[Finding, ...]
    failures: tuple[str, ...] = ()


def add_ignores(findings: Iterable[Finding], reason: str) -> Ignored:
    """Write a comment at every line that a finding of a program or notebook stands on; the code stays as it is."""
    from mplint.replace import WriteError, replace_file

    by_path: dict[str, list[Finding]] = {}
    for finding in findings:
        by_path.setdefault(finding.location.path, []).append(finding)
    done, files = 0, 0
    left: list[Finding] = []
    failures = []
    for path, found in by_path.items():
        old = _read(path)
        new, unmarked = commented(path, old, found, reason) if old is not None else (b"", found)
        if old is not None and new != old:
            try:
                replace_file(path, old, new)
            except WriteError as error:
                failures.append(f"{path}: {error}")
                unmarked = found
            else:
                files += 1
        done += len(found) - len(unmarked)
        left += unmarked
    return Ignored(done, files, tuple(left), tuple(failures))


def commented(path: str, data: bytes, findings: Sequence[Finding], reason: str) -> tuple[bytes, list[Finding]]:
    """A file with a comment for each finding, and the findings whose line can hold none."""
    texts = Texts({path: data})
    lines: dict[tuple[int | None, int | None], list[Finding]] = {}
    for finding in findings:
        lines.setdefault((finding.location.cell, finding.location.line), []).append(finding)
    left: list[Finding] = []
    edits: list[Edit] = []
    for found in lines.values():
        edit = ignoring(sorted({f.code for f in found}), found[0].location, texts, reason)
        if edit is None or not _is_comment(path, data, edit):
            left += found
        else:
            edits.append(edit)
    return (apply_edits(path, data, edits) if edits else data), left


def ignoring(codes: Sequence[str], place: Location, texts: Texts, reason: str = "") -> Edit | None:
    """A comment that suppresses findings at the end of their line; None where the line can hold none."""
    line = texts.line(place)
    if line is None or place.line is None or line.rstrip().endswith("\\") or not place.path.endswith(PROGRAMS):
        return None
    end = len(line.rstrip()) + 1
    text = " ".join(("# mplint:", f"ignore[{','.join(codes)}]", *reason.split()))
    return Edit(Location(place.path, place.line, end, place.line, end, place.cell), f"  {text}")


def _is_comment(path: str, data: bytes, edit: Edit) -> bool:
    """Whether the code is the same with what an edit adds: a line may end within a string."""
    try:
        return ast.dump(parse(load(path, data))) == ast.dump(parse(load(path, apply_edits(path, data, [edit]))))
    except (FixError, InputError, SyntaxError, ValueError):
        return False


def _read(path: str) -> bytes | None:
    try:
        return read_file(path)
    except OSError:
        return None
