"""Checking one program: bytes to findings."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mplint.catalog import Entry, concerned
from mplint.engine import ceilings
from mplint.engine.builtin_rules import unreadable
from mplint.engine.ceilings import within_ceilings
from mplint.engine.prefilter import speaks_of_matter
from mplint.engine.results import Fault, FileResult, digest_of, may_suppress
from mplint.errors import describe
from mplint.findings import Finding
from mplint.frameworks.names import unbound
from mplint.frameworks.words import Mentioned, words_of
from mplint.python.document import Document, InputError
from mplint.python.file import SourceFile
from mplint.python.imports import imported, search_folders
from mplint.python.load import load
from mplint.python.neighbors import Neighbors
from mplint.python.parse import parse
from mplint.python.r.grammar import MissingGrammar
from mplint.python.suffixes import is_config
from mplint.rule import Surroundings
from mplint.targets import Targets

if TYPE_CHECKING:
    from mplint.program.lower import IR

STACK = 3000  # calls within calls: three times Python's default, for long `elif` chains; what needs more is reported


def check_data(path: str, data: bytes, targets: Targets, rules: Sequence[Entry]) -> FileResult:
    """Check the bytes of one file. An input that can't be read or parsed, or costs too much, is an MP001 finding, never an exception."""
    try:
        return within_ceilings(lambda: check_unbounded(path, data, targets, rules), seconds=ceilings.SECONDS, memory=ceilings.BYTES)
    except InputError as error:
        why = "nothing else is said of this file"
        return FileResult(path, (unreadable(path, error, why),), comments=b"mplint:" in data, digest=digest_of(data))


def check_unbounded(path: str, data: bytes, targets: Targets, rules: Sequence[Entry]) -> FileResult:
    """The same at any cost; raises MemoryError."""
    if is_config(path):
        from mplint.engine.check_config import check_config

        return check_config(path, data, targets, rules)
    try:
        document = load(path, data)
        findings = [unreadable(path, problem) for problem in document.problems]
        tree = parse(document)
    except MissingGrammar as error:
        return FileResult(path, note=str(error))
    except InputError as error:
        comments, speaks = b"mplint:" in data, speaks_of_matter(data)
        return FileResult(path, (unreadable(path, error),), comments=comments, digest=digest_of(data), speaks=speaks)
    except MemoryError:
        raise
    except Exception as error:  # one file's fault must not cost the others' findings
        return FileResult(path, faults=(Fault(path, "reading", describe(error)),))
    text = document.text
    mentioned = Mentioned(said(document, tree))
    reads: list[str] = []
    found, faults = run_rules(document, tree, targets, concerned(rules, mentioned), reads=reads)
    imports, folders = imported(tree, text, path), search_folders(tree, text, path)
    shown, told = tuple(findings + found), words_of(mentioned)
    speaks = speaks_of_matter(data)
    return FileResult(
        path,
        shown,
        tuple(faults),
        may_suppress(text),
        imports,
        told,
        folders=folders,
        sidecars=tuple(dict.fromkeys(reads)),
        digest=digest_of(data),
        speaks=speaks,
        lowered=lowered(tree) if speaks and any(rule.program for rule in rules) else None,
    )


def said(document: Document, tree: ast.Module) -> str:
    """The text in which a program's words are looked for: what it says, and in R what that is in Python's words."""
    return document.text if document.language == "python" else f"{document.text}\n{ast.unparse(tree)}"


def lowered(tree: ast.Module) -> IR | None:
    """The program for the interpreter; None where it nests too deeply to be lowered here."""
    from mplint.program.lower import lower

    try:
        return lower(tree)
    except (RecursionError, ValueError):
        return None


def run_rules(
    document: Document,
    tree: ast.Module,
    targets: Targets,
    rules: Iterable[Entry],
    module: str = "",
    reads: list[str] | None = None,
) -> tuple[list[Finding], list[Fault]]:
    """The same for rules that are known to concern the program What else was read is added to `reads`."""
    active = [rule for rule in (entry.load() for entry in rules) if rule.checks("check_source")]
    if not active:
        return [], []
    targets = targets.of_program(document.source, notebook=document.path.endswith(".ipynb"))
    file = SourceFile(document, tree, unbound, module)
    around = Surroundings(targets, Neighbors(document.path))
    findings: set[Finding] = set()
    faults = []
    gave_up = []
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, STACK))
    try:
        for rule in active:
            try:
                findings.update(rule().check_source(file, around))
            except RecursionError:
                gave_up.append(rule.code)
            except MemoryError:
                raise
            except Exception as error:  # one rule's fault must not cost the others' findings
                faults.append(Fault(document.path, rule.code, describe(error)))
        if gave_up:
            findings.add(too_deep(file, gave_up))
    finally:
        sys.setrecursionlimit(limit)
    if reads is not None:
        reads += around.modules.paths
    return sorted(findings, key=lambda f: f.sort_key), faults


def too_deep(file: SourceFile, codes: Sequence[str]) -> Finding:
    """The MP001 for a program that is nested so deeply that some rules could not follow it, at its innermost statement or expression."""
    depths: dict[ast.AST, int] = {file.tree: 0}
    for node, parent in file.syntax.parents.items():
        depths[node] = depths[parent] + 1
    innermost = max((node for node in depths if isinstance(node, (ast.stmt, ast.expr))), key=lambda node: depths[node])
    place = file.location(innermost)
    error = InputError("nested too deeply to be checked in full", place.line, place.column, place.cell)
    return unreadable(file.document.path, error, f"what {', '.join(codes)} would say of this file is missing")
