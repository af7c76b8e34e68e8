"""Fixes that would break another file: those that move or drop an import from which other programs of the project take a name."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mplint.engine.repositories import repository_of
from mplint.engine.results import FileResult
from mplint.errors import UsageError
from mplint.findings import Applicability, Finding, RemoveImport, Replace, Span
from mplint.program.modules import ImportGraph, Modules
from mplint.python.document import InputError
from mplint.python.imports import import_statements, imported
from mplint.python.load import load
from mplint.python.parse import parse

Read = Callable[[str], bytes]
FEW = 40  # programs of a run, beside which further readers are looked for on disk
Import = ast.Import | ast.ImportFrom


def left_to_hand(findings: Iterable[Finding], results: Sequence[FileResult], read: Read) -> set[Finding]:
    """Findings, of which those whose fix takes a name from other files are left to be fixed by hand, together with these files."""
    found = set(findings)
    moving: dict[str, list[tuple[Finding, frozenset[str]]]] = {}
    for path in sorted({f.location.path for f in found if is_applied(f)}):
        if path.endswith(".py") and (moved := list(moved_by(path, [f for f in found if f.location.path == path and is_applied(f)], read))):
            moving[path] = moved
    if not moving:
        return found
    readers = Readers(results, read, moving)
    for path, moved in moving.items():
        for finding, names in moved:
            taken = readers.of(path, names)
            if taken and finding.fix is not None:
                who, what = next(iter(sorted(taken.items())))
                more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
                title = f"{finding.fix.title.rstrip('.')}, together with `{who}`{more}, which takes `{sorted(what)[0]}` from here"
                found.discard(finding)
                found.add(finding._replace(fix=finding.fix._replace(title=title, applicability=Applicability.DISPLAY)))
    return found


def is_applied(finding: Finding) -> bool:
    """Whether `fix` would write the fix of a finding."""
    return finding.fix is not None and bool(finding.fix.changes) and finding.fix.applicability is not Applicability.DISPLAY


def moved_by(path: str, findings: Sequence[Finding], read: Read) -> Iterator[tuple[Finding, frozenset[str]]]:
    """Those of a file's findings whose fix moves or drops what imports bind, with the names."""
    try:
        document = load(path, read(path))
        lines = document.source.split("\n")
        if not any(is_import(change, lines) for f in findings if f.fix is not None for change in f.fix.changes):
            return
        statements = import_statements(parse(document))
    except (InputError, OSError, RecursionError):
        return
    for finding in findings:
        changes = finding.fix.changes if finding.fix is not None else ()
        names = frozenset(name for change in changes for statement in statements for name in names_moved(change, statement))
        if names:
            yield finding, names


def is_import(change: object, lines: Sequence[str]) -> bool:
    """Whether a change may be one of an import statement: of several lines, the names stand below its first one."""
    if isinstance(change, RemoveImport):
        return True
    if not isinstance(change, Replace) or change.span[:2] == change.span[2:]:
        return False
    for number in range(change.span.line, max(0, change.span.line - 30), -1):
        text = lines[number - 1].lstrip()
        if text.startswith(("from ", "import ")):
            return True
        if not re.match(r"[\w\s,()#]*$", text):
            return False
    return False


def names_moved(change: object, statement: Import) -> Iterator[str]:
    """The names of an import statement that a change gives another meaning, or takes away."""
    if isinstance(change, RemoveImport) and change.span.line == statement.lineno:
        yield from (alias.asname or alias.name for alias in statement.names if alias.name == change.name)
    elif isinstance(change, Replace) and is_within(change.span, statement):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)


def is_within(span: Span, statement: Import) -> bool:
    """Whether a span of at least one character lies in a statement."""
    end = (statement.end_lineno or statement.lineno, statement.end_col_offset or 0)
    return span[:2] != span[2:] and (statement.lineno, statement.col_offset) <= span[:2] and span[2:] <= end


class Readers:
    """The programs that take names from those whose imports move."""

    def __init__(self, results: Sequence[FileResult], read: Read, moving: Mapping[str, object]) -> None:
        self._read = read
        programs = [result for result in results if result.path.endswith(".py")]
        imports = {result.path: result.imports for result in programs}
        if len(programs) <= FEW:
            imports |= {path: names for path in beside(moving, imports) if (names := self._imports(path, moving))}
        self._graph = ImportGraph(imports, {result.path: result.folders for result in programs if result.folders})

    def of(self, path: str, names: frozenset[str]) -> dict[str, set[str]]:
        """The programs that take some of these names from a file, each with what it takes."""
        return {user: taken for user in self._graph.sources.get(path, ()) if (taken := self._taken(user, path, names))}

    def _taken(self, user: str, path: str, names: frozenset[str]) -> set[str]:
        try:
            text = self._read(user).decode("utf-8", "replace")
            if not any(re.search(rf"\b{re.escape(name)}\b", text) for name in names):
                return set()
            tree = parse(load(user, self._read(user)))
        except (InputError, OSError, RecursionError):
            return set()
        return set(taken_names(tree, user, path, names, self._graph.modules))

    def _imports(self, path: str, moving: Mapping[str, object]) -> tuple[str, ...]:
        """What a program that is not of the run imports, nothing where it speaks of none of the files."""
        stems = {stem_of(each) for each in moving}
        try:
            text = self._read(path).decode("utf-8", "replace")
            return imported(ast.parse(text), text, path) if any(stem in text for stem in stems) else ()
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return ()


def stem_of(path: str) -> str:
    """The name by which other programs import a file."""
    folder, name = os.path.split(path)
    return os.path.basename(folder) if name == "__init__.py" else name.removesuffix(".py")


def beside(moving: Iterable[str], known: Mapping[str, object]) -> list[str]:
    """The other programs of the repositories that some files lie in; none where they lie in no repository."""
    from mplint.engine.discovery import discover

    roots = {root for path in moving if (root := repository_of(os.path.dirname(os.path.abspath(path)), {}))}
    shown = {os.path.abspath(path) for path in known}
    try:
        found = discover([os.path.relpath(root) for root in sorted(roots)])
    except (UsageError, ValueError):
        return []
    return [path for path in found if path.endswith(".py") and os.path.abspath(path) not in shown]


def taken_names(tree: ast.Module, user: str, path: str, names: frozenset[str], modules: Modules) -> Iterator[str]:
    """Those of a module's names that a program takes: by name, by a star, or as attributes of the module."""
    bound: set[str] = set()
    starred = False
    for statement in import_statements(tree):
        if isinstance(statement, ast.Import):
            bound.update(alias.asname or alias.name for alias in statement.names if modules.find(alias.name, user) == path)
            continue
        source = "." * statement.level + (statement.module or "")
        joint = "" if source.endswith(".") else "."
        own = modules.find(source, user) == path
        for alias in statement.names:
            if own and alias.name == "*":
                starred = True
            elif own and alias.name in names:
                yield alias.name
            elif not own and modules.find(f"{source}{joint}{alias.name}", user) == path:
                bound.add(alias.asname or alias.name)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value, attr=attr) if bound and attr in names and ast.unparse(value) in bound:
                yield attr
            case ast.Name(id=name, ctx=ast.Load()) if starred and name in names:
                yield name
