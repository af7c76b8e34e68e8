"""Puts the policy where the program begins to build, and wherever the program clears Keras' state afterwards."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.adopt.keras.builders import Built
from mplint.adopt.keras.entry import Start, after_imports, is_guard
from mplint.adopt.keras.scene import Scene, scene_of
from mplint.adopt.keras.spelling import Spelling, spelling
from mplint.adopt.program import Note, Program
from mplint.findings import AddImport, Applicability, Change, Fix, InsertStatements
from mplint.python.arguments import quoted
from mplint.python.document import InputError
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS
from mplint.rewrite import FixError


def placed(program: Program, start: Start, built: list[Built], root: str, policy: str, major: int) -> tuple[Program, list[Note]]:
    """The program with the policy set before `start`, and after each `clear_session()`; raises FixError where that can't be written."""
    file = program.file
    written = spelling(file, root, start.statement)
    line = f"{written.home}.set_global_policy({quoted(file, policy)})"
    resets = clearings(scene_of(program), built) if major == 3 else []
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


def clearings(scene: Scene, built: list[Built]) -> list[ast.stmt]:
    """The statements that clear Keras' state, where something is built afterwards or may be built again."""
    file, found = scene.file, set()
    last = max((position(b.chain[0]) for b in built if b.chain), default=(0, 0))
    for _, event in scene.events("session cleared"):
        node = scene.node(event.place)
        statement = file.syntax.statement(node) if node is not None else None
        if node is None or not isinstance(statement, ast.Expr) or statement.value is not node:
            continue
        again = any(isinstance(parent, (ast.For, ast.While, *FUNCTIONS)) for parent in file.syntax.ancestors(statement))
        if again or last > position(node):
            found.add(statement)
    return sorted(found, key=position)


def same_block(file: SourceFile, one: ast.stmt, other: ast.stmt) -> bool:
    """Whether two statements stand in one block."""
    return file.syntax.block(one) is file.syntax.block(other)


def said(file: SourceFile, start: Start) -> str:
    """What is built first, as the program writes it."""
    return " ".join(file.text(start.call.func if isinstance(start.call, ast.Call) else start.call).split())


def where(file: SourceFile, start: Start) -> str:
    """The line of the first building call, as a report writes it."""
    place = file.location(start.call)
    return f"{place.line}" if place.cell is None else f"{place.line} of cell {place.cell}"


class Lent(NamedTuple):
    """A module under a policy that another program sets: as if it set it itself, by lines that are taken back in the end."""

    program: Program
    lines: tuple[str, ...] = ()

    def returned(self, program: Program) -> Program:
        """The program without the lines; what brings a name stays where the program uses that by now."""
        text = program.data.decode("utf-8", "surrogateescape")
        for line in self.lines[::-1]:
            end = next((f"{line}{end}" for end in ("\r\n", "\n") if f"{line}{end}" in text), None)
            rest = text.replace(end, "", 1) if end is not None else text
            if line is self.lines[-1] or "mixed_precision" not in rest:
                text = rest
        return Program(program.path, text.encode("utf-8", "surrogateescape"), program.targets)


def lent(program: Program, root: str, policy: str) -> Lent:
    """The program with the policy set below its imports; as it is where it has none."""
    file = program.file
    imports = [s for s in file.tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
    if not imports or program.path.endswith(".ipynb"):
        return Lent(program)
    written = spelling(file, root, file.tree.body[-1])
    lines = (*map(import_line, written.imports), f"{written.home}.set_global_policy({quoted(file, policy)})")
    anchor = after_imports(file, imports[0], file.tree.body[-1])
    if written.source is not None and position(written.source) > position(anchor):
        anchor = written.source
    try:
        return Lent(program.after([Fix("set it", Applicability.UNSAFE, (InsertStatements(file.span(anchor), lines, after=True),))]), lines)
    except (FixError, InputError):
        return Lent(program)
