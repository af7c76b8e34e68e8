"""How a program writes Keras: the package that it builds its layers with, and the name of it that reaches a place."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.findings import AddImport
from mplint.frameworks.names import KERAS_ROOTS
from mplint.python.bindings import Binding
from mplint.python.file import SourceFile
from mplint.python.names import position

PRIVATE = ("tensorflow.python.keras", "tensorflow._keras", "keras.src", "keras.api")


class Spelling(NamedTuple):
    """How a place of the program writes `mixed_precision`, the import that this takes (if any), and the import that gives the name."""

    home: str
    imports: tuple[AddImport, ...] = ()
    source: ast.stmt | None = None


def root_of(file: SourceFile, built: ast.expr | None) -> str:
    """The Keras package that a program builds with: that of `built`, else the one that it imports first."""
    for name in file.names.candidates(built) if built is not None else ():
        if (root := package(name)) is not None:
            return root
    statements: list[ast.Import | ast.ImportFrom] = [*file.syntax.all(ast.Import), *file.syntax.all(ast.ImportFrom)]
    for statement in sorted(statements, key=position):
        for alias in statement.names:
            name = alias.name if isinstance(statement, ast.Import) else f"{statement.module}.{alias.name}"
            if (root := package(name)) is not None and not (isinstance(statement, ast.ImportFrom) and statement.level):
                return root
    return "tensorflow.keras" if "tensorflow" in file.document.text else "keras"


def package(name: str) -> str | None:
    """The Keras package at the beginning of a dotted name, or None."""
    root = next((root for root in KERAS_ROOTS if name == root or name.startswith(root + ".")), None)
    return None if root is None else "tensorflow.keras" if root in PRIVATE[:2] else "keras" if root in PRIVATE[2:] else root


def package_of(statement: ast.Import | ast.ImportFrom) -> str | None:
    """The Keras package that an import takes something from."""
    return package(statement.names[0].name if isinstance(statement, ast.Import) else f"{statement.module}.{statement.names[0].name}")


def spelling(file: SourceFile, root: str, place: ast.stmt) -> Spelling:
    """How to write `mixed_precision` of the package `root` before the statement `place`, by the names that are bound there."""
    wanted = f"{root}.mixed_precision"
    found: list[tuple[int, str, ast.stmt]] = []
    scopes: list[ast.AST] = [file.tree]
    if (function := file.syntax.function(place)) is not None:
        scopes.append(function)
    for scope in scopes:
        for name, bindings in file.names.bindings.get(scope, {}).items():  # type: ignore[call-overload]
            if (rest := remainder(bindings, wanted)) is not None and (source := reaches(file, bindings, place)) is not None:
                found.append((rest.count("."), name + rest, source))
    if found:
        _, home, source = min(found, key=lambda item: item[0])
        return Spelling(home, source=source)
    if root.startswith("tensorflow") and "tf" in file.names.star_imports:
        return Spelling("tf.keras.mixed_precision")
    taken = any("mixed_precision" in names for names in file.names.bindings.values())
    asname = "keras_mixed_precision" if taken else None
    imports = [s for s in file.tree.body if isinstance(s, (ast.Import, ast.ImportFrom)) and position(s) < position(place)]
    source = next((s for s in imports if package_of(s) == root), None)
    return Spelling(asname or "mixed_precision", (AddImport(root, "mixed_precision", asname),), source)


def remainder(bindings: list[Binding], wanted: str) -> str | None:
    """What to write after a name to get at `wanted`; None where the name, or one of its bindings, stands for anything else."""
    direct, others = set(), set()
    for binding in bindings:
        target = binding.target or ""
        if target and (wanted == target or wanted.startswith(target + ".")):
            direct.add(wanted[len(target) :])
        elif target and package(target) == target:  # the other arm of a guarded import
            others.add(".mixed_precision")
        else:
            return None
    return direct.pop() if len(direct) == 1 and others <= direct | {".mixed_precision"} else None


def reaches(file: SourceFile, bindings: list[Binding], place: ast.stmt) -> ast.stmt | None:
    """The first import that binds the name before `place`, or for a function wherever its module does; None where there is none."""
    for binding in bindings:
        statement = file.syntax.statement(binding.node)
        same = file.syntax.function(statement) is file.syntax.function(place)
        if not same or position(statement) < position(place):
            return statement
    return None
