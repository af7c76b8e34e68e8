"""Checking one program: bytes to findings."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mplint.catalog import Entry, concerned
from mplint.engine.modules import imported, words_of
from mplint.engine.own import unreadable
from mplint.errors import describe
from mplint.findings import Finding
from mplint.settings import Settings
from mplint.source.document import Document, InputError
from mplint.source.file import SourceFile
from mplint.source.load import load
from mplint.source.parse import parse


class Fault(NamedTuple):
    """A mistake of mplint's own: which rule failed on which file, and how."""

    path: str
    rule: str
    error: str


class FileResult(NamedTuple):
    """What checking one file gave.

    `comments`: its text has comments that may suppress findings. `imports` are the modules that it mentions, `words` what links need to
    know of it (see `mplint.engine.modules.words_of`).
    """

    path: str
    findings: tuple[Finding, ...] = ()
    faults: tuple[Fault, ...] = ()
    comments: bool = False
    imports: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()


def check_data(path: str, data: bytes, settings: Settings, rules: Sequence[Entry]) -> FileResult:
    """Check the bytes of one file. An input that can't be read or parsed is an MP001 finding, never an exception."""
    try:
        document = load(path, data)
        findings = [unreadable(path, problem) for problem in document.problems]
        tree = parse(document)
    except InputError as error:
        return FileResult(path, (unreadable(path, error),), comments=b"mplint:" in data)
    found, faults = check_document(document, tree, settings, rules)
    text = document.text
    return FileResult(path, tuple(findings + found), tuple(faults), may_suppress(text), imported(text), words_of(text))


def may_suppress(text: str) -> bool:
    """Whether a program may hold comments that suppress findings."""
    if "mplint" not in text and "noqa" not in text and "NOQA" not in text:
        return False
    from mplint.engine.directives import mentions

    return mentions(text)


def check_document(
    document: Document, tree: ast.Module, settings: Settings, rules: Iterable[Entry], module: str = ""
) -> tuple[list[Finding], list[Fault]]:
    """The findings of `rules` in one parsed program, before links and suppressions, and the rules that failed."""
    text = document.text
    active = [entry.load() for entry in concerned(rules, text)]
    if not active:
        return [], []
    file = SourceFile(document, tree, settings, module)
    findings: set[Finding] = set()
    faults = []
    for rule in active:
        if not rule.checks("check_source"):
            continue
        try:
            findings.update(f for f in rule().check_source(file) if f.when is None or not file.is_test)
        except Exception as error:  # one rule's fault must not cost the others' findings
            faults.append(Fault(document.path, rule.code, describe(error)))
    file.close()
    return sorted(findings, key=lambda f: f.sort_key), faults
