"""What checking one file gave, and which of mplint's own steps failed on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

try:
    from _blake2 import blake2b  # without OpenSSL, which takes a tenth of a check of one file to load
except ImportError:
    from hashlib import blake2b

from mplint.findings import Finding

if TYPE_CHECKING:
    from mplint.engine.baseline import Key
    from mplint.graph.profile import Profile
    from mplint.program.lower import IR


SKIPPED = "not checked: "  # what is said of a model that was passed over begins so


class Fault(NamedTuple):
    """A mistake of mplint's own: which rule (or which other step) failed on which file, and how."""

    path: str
    rule: str
    error: str

    def __str__(self) -> str:
        return f"{self.rule} failed on {self.path}: {self.error}"


class FileResult(NamedTuple):
    """What checking one file gave.

    `comments`: its text has comments that may suppress findings. `imports` are the modules that it mentions, `words` what links need to
    know of it (see `mplint.frameworks.words.words_of`), `folders` those that it adds to the import path. `doubtful`: it could not be read,
    and may be no file for mplint; that counts only where it was named. `note` says why a model, or a program in R, was passed over,
    `sidecars` are the other files that a model lies in, or that a program's settings were looked for in, `remarks` what its loader could
    not tell, `unjudged` what no rule could look at in a model, one sentence each.
    `digest` is that of a program's bytes, `speaks` whether it has a word of the matter; `lowered` is the program for the interpreter,
    where this run has parsed it (marshalled on the way from a worker).
    """

    path: str
    findings: tuple[Finding, ...] = ()
    faults: tuple[Fault, ...] = ()
    comments: bool = False
    imports: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    doubtful: bool = False
    folders: tuple[str, ...] = ()
    note: str = ""
    sidecars: tuple[str, ...] = ()
    profile: Profile | None = None
    remarks: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    digest: bytes = b""
    speaks: bool = False
    lowered: IR | bytes | None = None


class CheckResult(NamedTuple):
    """Findings in report order, the number of files checked, mplint's own faults, notes on files passed over, profiles of models.

    `known` counts the findings left out because the baseline holds them, `stale` the entries of the baseline that no longer hold, `older`
    counts those left out because they were there before a change.
    `unjudged` pairs paths of models with what could not be judged in them.
    """

    findings: tuple[Finding, ...]
    files: int
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = ()
    known: int = 0
    stale: Mapping[Key, int] = {}
    older: int = 0
    unjudged: tuple[tuple[str, str], ...] = ()


class Interrupted(KeyboardInterrupt):
    """A run was broken off; `result` is that of the repositories which were done."""

    def __init__(self, result: CheckResult) -> None:
        super().__init__("what was found there stands above")
        self.result = result


class FixResult(NamedTuple):
    """What fixing did or, without `apply`, would do.

    `diffs` are unified diffs, one a changed file; `applied` counts the findings mended; `remaining` are those left.
    `faults` are mistakes of mplint's own (a fix that had to be taken back, by file and rule), `failures` files that
    could not be read or replaced, `refused` fixes that this code does not allow. `output` holds the given texts fixed.
    `models` say of each changed model, node by node, what changes and by what that is proven; `unproven` are the fixes of models that
    were not made, since nothing shows that the outputs stay the same. `mended` counts what was mended in programs, by path and code.
    `shown` are the findings left whose fix is only shown, each with the diff that it would make.
    """

    diffs: tuple[str, ...]
    applied: int
    remaining: tuple[Finding, ...]
    faults: tuple[str, ...]
    failures: tuple[str, ...]
    refused: tuple[str, ...]
    changed: tuple[str, ...]
    output: Mapping[str, bytes] = {}
    models: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    mended: tuple[tuple[str, str, int], ...] = ()
    shown: tuple[tuple[Finding, str], ...] = ()


def digest_of(data: bytes) -> bytes:
    """The digest of a file's bytes."""
    return blake2b(data, digest_size=16).digest()


def may_suppress(text: str) -> bool:
    """Whether a program may hold comments that suppress findings."""
    if "mplint" not in text and "noqa" not in text and "NOQA" not in text:
        return False
    from mplint.engine.directives import mentions

    return mentions(text)
