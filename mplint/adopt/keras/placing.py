"""Puts the policy where the program begins to build, and wherever the program clears Keras' state afterwards."""

from __future__ import annotations

import ast

from mplint.adopt.keras.builders import Builders
from mplint.adopt.keras.entry import Start, after_imports, is_guard
from mplint.adopt.keras.spelling import Spelling, spelling
from mplint.adopt.program import Note, Program
from mplint.findings import AddImport, Applicability, Change, Fix, InsertStatements
from mplint.frameworks.names import keras_path
from mplint.python.arguments import quoted
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS
from mplint.source.file import SourceFile


def placed(program: Program, start: Start, builders: Builders, root: str, policy: str, major: int) -> tuple[Program, list[Note]]:
    """The program with the policy set before `start`, and after each `clear_session()`; raises FixError where that can't be written."""
    file = program.file
    written = spelling(file, root, start.statement)
    line = f"{written.home}.set_global_policy({quoted(file, policy)})"
    resets = clearings(file, builders) if major == 3 else []
    before = [s for s in resets if position(s) < position(start.statement) and same_block(file, s, start.statement)]
    anchor, after = place_of(file, start, written, before)
    lines: tuple[str, ...] = (line,)
    imports = written.imports
    if after and not before:  # below the imports
        lines = (*map(import_line, imports), "", line)
        imports = ()
    changes: list[Change] = [*imports, InsertStatements(file.span(anchor), lines, after=after)]
    notes = [
        Note(file.location(anchor), f"the policy is set before the first layer is built (`{said(file, start)}`, line {where(file, start)})")
    ]
    for reset in resets:
        if reset not in before:
            changes.append(
                InsertStatements(
                    file.span(reset), (f"{spelling(file, root, reset).home}.set_global_policy({quoted(file, policy)})",), after=True
                )
            )
            notes.append(Note(file.location(reset), "Keras 3 forgets the policy in `clear_session()`, so it is set again after it"))
    return program.after([Fix("set the policy", Applicability.UNSAFE, tuple(changes))]), notes


def import_line(change: AddImport) -> str:
    """An import as a statement."""
    return f"from {change.module} import {change.name}" + (f" as {change.asname}" if change.asname else "")


def place_of(file: SourceFile, start: Start, written: Spelling, before: list[ast.stmt]) -> tuple[ast.stmt, bool]:
    """The statement next to which the policy is set, and whether it comes after it."""
    if before:
        return before[-1], True
    if file.syntax.parents[start.statement] is file.tree and written.source is not None and not is_guard(start.statement):
        return after_imports(file, written.source, start.statement), True
    return start.statement, False


def clearings(file: SourceFile, builders: Builders) -> list[ast.stmt]:
    """The statements that clear Keras' state, where something is built afterwards or may be built again."""
    found = []
    for call in file.names.calls_of("clear_session"):
        statement = file.syntax.statement(call)
        paths = {keras_path(name) for name in file.names.candidates(call.func)}
        if (
            not paths & {"backend.clear_session", "utils.clear_session"}
            or not isinstance(statement, ast.Expr)
            or statement.value is not call
        ):
            continue
        again = any(isinstance(parent, (ast.For, ast.While, *FUNCTIONS)) for parent in file.syntax.ancestors(statement))
        if again or any(position(built) > position(call) for built in builders.all):
            found.append(statement)
    return sorted(found, key=position)


def same_block(file: SourceFile, one: ast.stmt, other: ast.stmt) -> bool:
    """Whether two statements stand in one block."""
    return file.syntax.block(one) is file.syntax.block(other)


def said(file: SourceFile, start: Start) -> str:
    """What is built first, as the program writes it."""
    return " ".join(file.text(start.call.func).split())


def where(file: SourceFile, start: Start) -> str:
    """The line of the first building call, as a report writes it."""
    place = file.location(start.call)
    return f"{place.line}" if place.cell is None else f"{place.line} of cell {place.cell}"
